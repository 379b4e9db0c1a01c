# --snapshot: a run whose ranks are killed at any moment goes on, with any number of ranks, from the newest step that all parts are there of, and ends
# with the bytes of the run that nothing interrupted; so does one that has lost a whole machine.
load ../helper
load ../mpi
load ../snapshots

setup_file() { sentences_tokens; }

setup() {
    need_mpi
    machines 4
    of=(-q -j 1 -c nano --set n_layer=2 --set n_embd=256 --set n_head=2 --schedule constant --warmup 0 -l 16 -b 4 --grad-shards 4 -T "$F/tok.json"
        "$F/data.tok" -o run.llm)
}

# The run goes on with N ranks and loses at most three steps; it ends as if nothing had happened.
ends_well() {
    rm log
    ranks "$1" ./node llm-train -q -j 1 --resume run.llm -n $((done + 2)) --log log "${@:2}"
    (($(head -n 1 log | jq .step) > done - 3)) || fail "of $done steps it goes on with step $(head -n 1 log | jq .step)"
    llm-train "${of[@]}" -n $((done + 2)) -o straight.llm
    cmp straight.llm run.llm
    [[ -z $(find node? -name 'llm-snapshot-*') ]] || fail "left: $(ls node?)"
}

@test "kill -9 of 2, 3 and 4 ranks; other numbers of ranks, and one process, go on" {
    RANDOM=7
    killed 2 "${of[@]}"
    killed 3 -q -j 1 --resume run.llm --shard zero=1
    killed 4 -q -j 1 --resume run.llm --shard zero=3
    ends_well 4 --shard zero=2
    killed 2 "${of[@]}" --shard zero=1
    cp node1/* node0
    llm-train -q -j 1 --resume run.llm -n "$done" --snapshot node0 --log log
    llm-train "${of[@]}" -n "$done" -o straight.llm
    cmp straight.llm run.llm
}

@test "the loss of a machine: its folder, and the checkpoint too, are gone" {
    RANDOM=8
    killed 3 "${of[@]}" --shard zero=1
    rm node1/*
    mv node2/* node1 # two machines are left
    ends_well 2
    killed 3 "${of[@]}" --shard zero=3
    rm node2/* run.llm
    ends_well 3
    killed 2 "${of[@]}"
    rm node0/* node1/* # all: from the beginning, which was saved
    rm log
    ranks 2 ./node llm-train -q -j 1 --resume run.llm -n 2 --log log
    assert_equal "$(head -n 1 log | jq .step)" 1
}

@test "snapshots of other runs in the same folder stay; parts that are cut short are not taken" {
    RANDOM=9
    mkdir other
    killed 2 "${of[@]/run.llm/other/run.llm}"
    mkdir kept
    cp node0/* kept
    killed 2 "${of[@]}"
    local f
    for f in node?/llm-snapshot-*-0-2; do
        [[ -e kept/${f##*/} ]] || truncate -s -1 "$f"
    done
    rm log
    ranks 2 ./node llm-train -q -j 1 --resume run.llm -n 2 --log log
    assert_equal "$(head -n 1 log | jq .step)" 1
    for f in kept/*; do cmp "$f" "node0/${f#kept/}"; done
    assert_equal "$(ls node0 | wc -l)" "$(ls kept | wc -l)"
}

@test "a folder without room for two snapshots is refused before the first step" {
    need_plain_memory # a sanitizer's library wants to be the first that is loaded
    # of this folder alone: MPICH's UCX asks for room, too
    cat > full.c << 'END'
#include <dlfcn.h>
#include <string.h>
#include <sys/statvfs.h>
int statvfs(const char *p, struct statvfs *s)
{
    int (*real)(const char *, struct statvfs *) = (int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs");
    int status = real(p, s);
    if (strncmp(p, "here", 4) == 0) { s->f_bavail = 9; s->f_frsize = 4096; }
    return status;
}
END
    "${CC:-cc}" -D_GNU_SOURCE -shared -fPIC -o full.so full.c -ldl
    write_rank1
    mkdir here
    run -73 --separate-stderr env RANK1="LD_PRELOAD=$PWD/full.so" bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" llm-train "${of[@]}" -n 1 \
        --snapshot here
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): --snapshot: here: expected room for two snapshots, "[0-9]+" bytes, found 36864"$ ]] || fail "$stderr"
    [[ -z $(ls here) ]]
}

@test "one process; a run of another seed; no folder, no room, outputs that no snapshot completes" {
    mkdir here
    llm-train "${of[@]}" -n 1000000 --snapshot here --snapshot-every 1 --log log &
    filled log $!
    while (($(wc -l < log) < 4)); do sleep .02; done
    kill -9 $!
    local status=0
    wait $! || status=$?
    assert_equal "$status" 137
    find here -name '*.llm-tmp-*' -delete
    llm-train "${of[@]}" --seed 5 -n 1 -o other.llm
    cp other.llm run.llm
    run -0 --separate-stderr llm-train -j 1 --resume run.llm -n 1 --snapshot here
    [[ $stderr == *"run.llm: the snapshot of step "*" is another run's, and is removed"* && -z $(ls here) ]]
    cmp other.llm run.llm
    run -2 --separate-stderr llm-train "${of[@]}" --snapshot here -o x.safetensors
    assert_equal "${stderr_lines[0]}" "llm-train: --snapshot: expected -o FILE.llm"
    run -2 --separate-stderr llm-train "${of[@]}" --snapshot here -o -
    assert_equal "${stderr_lines[0]}" "llm-train: --snapshot: expected -o FILE.llm"
    run -2 --separate-stderr llm-train --resume run.llm -o x.llm --snapshot here
    assert_equal "${stderr_lines[0]}" "llm-train: --snapshot: expected the file of --resume as -o, found x.llm"
    run -73 --separate-stderr llm-train "${of[@]}" --snapshot nowhere
    assert_equal "$stderr" "llm-train: --snapshot: nowhere: cannot create: No such file or directory"
}
