# The scripts for Slurm of llmutils-cluster(7), word for word, in a real Slurm of three nodes on this machine: warned by its signal, preempted, put back
# into the queue, as arrays. What comes out is what one process makes. tests/cli/cluster.bats has stand-ins for Slurm's commands.
load ../helper
load ../mpi
load ../slurm

setup_file() { slurm_start 3; }
teardown_file() { slurm_stop; }

setup() {
    need_mpi
    need_slurm
    export OMPI_MCA_btl=self,tcp # between nodes, which have host names of their own
    manual_blocks llmutils-cluster.7
    sentences 400 > corpus.txt
    llm-tokenize train --vocab-size 280 -o tok.json corpus.txt
    llm-tokenize encode -q -T tok.json -o corpus.tok corpus.txt
}

teardown() { [[ -e $BATS_FILE_TMPDIR/no_slurm ]] || scancel --user=root; }

# block FILE: the manual's commands that write that file
block() {
    local text found=()
    for text in "${blocks[@]}"; do [[ $text != *"> $1"* ]] || found+=("$text"); done
    assert_equal "${#found[@]}" 1
    bash -e -o pipefail -c "${found[0]}"
}

submit() { sbatch --parsable "$@"; }
all_done() { [[ -z $(squeue -h) ]]; }
has_step() { [[ -s run.jsonl && $(tail -n 1 run.jsonl | jq .step) -ge $1 ]]; }
runs_now() {
    if scontrol update "jobid=$job" StartTime=now 2> /dev/null; then sleep .5; fi
    job_is "$job" RUNNING
}
# requeued SECONDS: within that time it goes back to the queue, where Slurm lets it wait for some two minutes: not here.
requeued() {
    comes "$1" job_is "$job" PENDING || fail "not in the queue: $(scontrol show job "$job") $(cat "slurm-$job.out")"
    sleep 10 # what its first processes say of their end must not be taken for the next ones'
    scontrol update "jobid=$job" TimeLimit=UNLIMITED
    comes 60 runs_now || fail "does not run: $(scontrol show job "$job") $(cat "slurm-$job.out")"
}

same_as_alone() {
    llm-train -q -c nano -T tok.json -b 16 -l 32 -n 2000 --grad-shards 8 --log alone.jsonl -o alone.llm corpus.tok
    diff <(jq -c '[.step, .loss, .grad_norm, .hash]' alone.jsonl) <(jq -c '[.step, .loss, .grad_norm, .hash]' run.jsonl)
    cmp alone.llm run.llm
}

@test "submitted, warned by its signal, requeued, preempted, requeued on fewer nodes: the run of one process" {
    block train.sbatch
    job=$(submit train.sbatch)
    comes 120 has_step 1
    scontrol update "jobid=$job" TimeLimit=2 # the warning, two minutes before, is due
    requeued 90
    local step=$(tail -n 1 run.jsonl | jq .step)
    comes 120 has_step $((step + 20))
    submit --partition=urgent --nodes=2 --exclusive --wrap 'sleep 60' --output=urgent.out
    requeued 90
    comes 300 job_is "$job" COMPLETED
    assert_equal "$(jq -s 'map(.ranks) | unique | length > 1' run.jsonl)" true
    same_as_alone
}

@test "arrays: each line of a table of runs, each part of the prompts; as one after another" {
    local i
    block sweep.sbatch
    rm -f ./*.llm # of the line that the page runs by hand
    mkdir apart
    cp -r corpus.tok tok.json runs apart
    for i in 1 2 3 4; do (cd apart && SLURM_ARRAY_TASK_ID=$i bash ../sweep.sbatch); done
    job=$(submit sweep.sbatch)
    comes 120 all_done || fail "$(squeue)"
    for i in apart/*.llm; do cmp "$i" "${i#apart/}"; done
    assert_equal "$(find apart -name '*.llm' | wc -l)" 4
    llm-train -q -c nano -T tok.json -n 2 -l 32 -o model.llm corpus.tok
    seq 8 | jq -c '{id: ., prompt: "the"}' > prompts.jsonl
    llm-infer -m model.llm -n 4 --no-timings --jsonl prompts.jsonl > whole
    block infer.sbatch
    rm answers-* # of the part that the page runs by hand
    job=$(submit infer.sbatch)
    comes 120 all_done || fail "$(squeue)"
    diff <(jq -c '[.id, .text]' whole) <(cat answers-*.jsonl | jq -s -c 'sort_by(.id)[] | [.id, .text]')
}

@test "a job that is cancelled does not come back" {
    block train.sbatch
    job=$(submit train.sbatch)
    comes 120 has_step 1
    scancel "$job"
    comes 60 all_done || fail "$(squeue)"
    sleep 5
    job_is "$job" CANCELLED || fail "$(scontrol show job "$job")"
}
