# The commands of llmutils-cluster(7), in order. Slurm's own programs are stand-ins here: srun starts two ranks, scontrol writes down what it is told.
load ../helper
load ../mpi

# Each block of the page is left in blocks[i].
setup() {
    manual_blocks llmutils-cluster.7
    sentences 400 > corpus.txt
    llm-tokenize train --vocab-size 280 -o tok.json corpus.txt
    llm-tokenize encode -q -T tok.json -o corpus.tok corpus.txt
}

# block N: runs block number N, from 0.
block() { run -0 bash -e -o pipefail -c "${blocks[$1]}"; }

@test "the page has the commands that are run here; the plan of a rank" {
    assert_equal "${#blocks[@]}" 11
    block 0
    assert_line --regexp '^ranks	4$'
}

@test "mpirun by hand: a run of two ranks goes on with four; messages are timed; a script for Slurm ends, goes back to the queue and goes on" {
    [[ -z ${SANITIZER-} ]] || skip "what the page's commands do runs under $SANITIZER in train_ranks*.bats and bench_comm.bats"
    need_mpi
    export MPIEXEC_ALLOW_ROOT=1 OMPI_MCA_rmaps_base_oversubscribe=1
    if [[ $LAUNCHER == mpiexec.hydra ]]; then # MPICH's mpirun, which may have another name beside Open MPI's
        mkdir mpich
        printf '#!/bin/bash\nfor a; do [[ $a == --oversubscribe ]] || args+=("$a"); done\nexec mpiexec.hydra "${args[@]}"\n' > mpich/mpirun
        chmod +x mpich/mpirun
        PATH=$PWD/mpich:$PATH
    fi
    block 1
    assert_equal "$(jq -s 'map(.ranks) == [2, 2, 2]' log.jsonl)" true
    block 2
    block 3
    llm-infer -q -m cut.llm -n 1 a
    block 4
    llm-infer -q -m apart.llm -n 1 a
    block 5
    mkdir stand-ins
    printf '#!/bin/bash\n[[ $1 == --mpi=pmix ]] || exit 9\nshift\nmpirun --oversubscribe -n 2 "$@" || s=$?\n%s\n' \
        'exit "$((${s-0} > 0 && s < 32 ? s + 128 : ${s-0}))"' > stand-ins/srun # MPICH leaves the 128 of a signal out
    printf '#!/bin/bash\necho "$*" > told\n' > stand-ins/scontrol
    chmod +x stand-ins/*
    PATH="$PWD/stand-ins:$PATH" SLURM_JOB_ID=7 bash train.sbatch 2> err &
    local job=$! i status=0 pid
    for ((i = 0; i < 400; i++)); do
        [[ -s run.jsonl ]] && break
        sleep .05
    done
    for pid in /proc/[0-9]*; do # without pgrep, which a bare system lacks
        pid=${pid#/proc/}
        [[ $(readlink "/proc/$pid/cwd" 2> /dev/null) == "$PWD" ]] || continue
        [[ $({ tr '\0' ' ' < "/proc/$pid/cmdline"; } 2> /dev/null) == "llm-train "*"-o run.llm"* ]] || continue
        kill -USR1 "$pid"
    done
    wait "$job" || status=$?
    assert_equal "$status" 138
    assert_equal "$(< told)" "requeue 7"
    i=$(tail -n 1 run.jsonl | jq .step)
    sed -i "s/(--resume run.llm)/(--resume run.llm -n $((i + 2)))/" train.sbatch
    PATH="$PWD/stand-ins:$PATH" SLURM_JOB_ID=7 bash train.sbatch 2> err
    assert_equal "$(tail -n 1 run.jsonl | jq .step)" $((i + 2))
    block 6
    mkdir memory # in the place of /dev/shm, which not every system has
    sed -i "s|/dev/shm|$PWD/memory|" train.sh
    llm-train -q --resume kept.llm -n 1000000 --snapshot memory --snapshot-every 5 --log kept.jsonl &
    while [[ ! -s kept.jsonl || $(tail -n 1 kept.jsonl | jq .step) -lt 46 ]]; do kill -0 $!; sleep .05; done
    kill -9 $!
    local status=0
    wait $! || status=$?
    assert_equal "$status" 137
    rm kept.jsonl
    sed -i 's/(--resume kept.llm)/(--resume kept.llm --log kept.jsonl -n 50)/' train.sh
    bash train.sh 3
    (($(head -n 1 kept.jsonl | jq .step) > 41))
}

@test "arrays; batch inference in parts is one run's answers; texts in parts are one text's tokens" {
    need_tool parallel
    block 7
    llm-train -q -c nano -T tok.json -n 2 -l 32 -o model.llm corpus.tok
    block 8
    llm-infer -m model.llm -n 4 --no-timings --jsonl prompts.jsonl > whole
    diff <(jq -c '[.id, .text]' whole) <(jq -c '[.id, .text]' answers.jsonl)
    cp answers-2.jsonl before
    block 9
    cmp before answers-2.jsonl
    block 10
    [[ $(llm-tokenize decode -T tok.json all.tok | sha256sum) == "$(llm-tokenize decode -T tok.json corpus.tok | sha256sum)" ]]
}
