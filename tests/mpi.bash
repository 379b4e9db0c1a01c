# For tests of several ranks: need_mpi skips the test where the launcher is missing or the programs were built without MPI; ranks N COMMAND... runs
# COMMAND under mpirun, more ranks than CPUs if need be, and hides what the launcher itself says (lines that are not the programs').

need_mpi() {
    case $(ldd "$BIN/llm-train" 2> /dev/null) in
    *libmpich*) export LAUNCHER=mpiexec.hydra ;; # MPICH, which some systems have beside Open MPI
    *libmpi*) export LAUNCHER="mpirun --oversubscribe" ;;
    *) skip "the programs were built without MPI" ;;
    esac
    need_tool "${LAUNCHER%% *}"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
    # Open MPI is told which of its parts serve one machine, and hwloc that devices do not matter: every process would look for hardware, which is
    # some 15% of what a start costs.
    export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_coll=self,basic,tuned,libnbc OMPI_MCA_osc=sm HWLOC_COMPONENTS=-pci,-linuxio
    # A launcher that ends removes the folder that all launchers of a user share, perhaps as another one makes its own in it: one of some 700 starts
    # beside two others failed so.
    export OMPI_MCA_orte_tmpdir_base=$BATS_FILE_TMPDIR/mpi
    mkdir -p "$OMPI_MCA_orte_tmpdir_base"
    export LLM_NODE_MEMORY=no # as on machines of their own; tests/cli/train_node_memory.bats is about ranks of one
    [[ -z ${SANITIZER-} ]] || export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 # MPI keeps memory to the end
}

ranks() {
    local n=$1 status=0 launcher
    shift
    read -ra launcher <<< "$LAUNCHER"
    # mpirun leaves the ranks a second to end when one of them has ended with a status; by then they have said what they have to say.
    OMPI_MCA_odls_base_sigkill_timeout=0 timeout 200 "${launcher[@]}" -n "$n" "$@" 2> ranks.err || status=$?
    sed -n '/^llm-/p' ranks.err >&2
    return "$status"
}

# rank1 COMMAND...: under ranks, runs COMMAND with the value of $RANK1 for rank 1 alone: a sed expression over each argument, or NAME=VALUE of a variable
# whose name begins with LLM_ or LD_.
write_rank1() {
    cat > rank1 << 'END'
#!/bin/bash
if [[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} == 1 ]]; then
    if [[ $RANK1 == L[LD]*_* ]]; then export "${RANK1?}"; else
        n=$#
        for ((i = 0; i < n; i++)); do set -- "${@:2}" "$(sed "$RANK1" <<< "$1")"; done
    fi
fi
exec "$@"
END
    chmod +x rank1
}

# two_stop COMMAND...: two ranks of COMMAND, one of whose operands is a data.tok, stop in one line, where a loss or a gradient is not finite and where
# rank 1 has no such file. After write_rank1.
two_stop() {
    run -1 --separate-stderr ranks 2 "$@" -n 8 -b 4 --lr 1e6 --clip 0 --warmup 0 --optimizer sgd -o x.llm
    [[ $stderr =~ "llm-train: ".*"step "[0-9]+": the "(loss|norm of the gradient)" is "("not a number"|infinite)": first bad tensor: " ]] || fail "$stderr"
    [[ $(wc -l <<< "$stderr") == 1 ]]
    run -66 --separate-stderr env RANK1="s|.*data.tok|none.tok|" bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "$@" -n 1 -b 3 -o x.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): none.tok: No such file or directory"$ ]] || fail "$stderr"
}

# as_alone RANKS LAYOUT COMMAND...: the layout has the hashes and losses of each step, and the checkpoint, of alone.log and alone.llm. Every other call
# hashes every other step alone: a hash waits for all weights, which otherwise may be on their way while the next step has begun.
as_alone() {
    hash_every=$((3 - ${hash_every-1}))
    ranks "$1" "${@:3}" -o ranks.llm --log ranks.log --shard "$2" --hash-every "$hash_every"
    cmp alone.llm ranks.llm
    diff <(jq -c --slurpfile ranks ranks.log '[.step, .loss, .val_loss, .grad_norm, if $ranks[.step - 1].hash then .hash else null end]' alone.log) \
        <(jq -c '[.step, .loss, .val_loss, .grad_norm, .hash]' ranks.log)
    jq -es "all(.hash or .step % $hash_every > 0)" ranks.log > /dev/null
}

# same_in "RANKS LAYOUT..." COMMAND...: as_alone for each layout on so many ranks.
same_in() {
    local layout
    "${@:2}" -o alone.llm --log alone.log
    for layout in ${1#* }; do as_alone "${1%% *}" "$layout" "${@:2}"; done
}

# same_for "RANKS..." "ZEROS..." COMMAND...: as_alone for each number of ranks and each value of zero.
same_for() {
    local r z
    "${@:3}" -o alone.llm --log alone.log
    for r in $1; do
        for z in $2; do as_alone "$r" "dp=$r,zero=$z" "${@:3}"; done
    done
}
