# Ranks on several machines: nodes are network and UTS namespaces, joined by veth pairs of a bounded bandwidth (tc tbf); mpirun reaches them by
# a script in place of ssh. And messages that are late, in any order, by a library that stands before MPI (this kernel may have no netem to delay packets).
load ../helper
load ../mpi
load ../slurm # comes

setup_file() { sentences_tokens; }

setup() {
    need_mpi
    of=(-q -j 1 -l 24 -T "$F/tok.json" "$F/data.tok")
    gpt=(llm-train -c nano --set n_layer=3 --set n_embd=32 --set n_head=2 "${of[@]}")
    moe=(llm-train -c moe --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=4 "${of[@]}")
    prefix=llm$BASHPID # names of interfaces have at most 15 letters
}

teardown() {
    local n
    for n in 1 2; do [[ ! -e /run/netns/$prefix-$n ]] || ip netns delete "$prefix-$n"; done
}

# nodes RATE: two nodes, joined by that many bits a second each way. mpirun runs in the first one.
nodes() {
    [[ $LAUNCHER == mpirun* ]] || skip "the script that reaches nodes is Open MPI's"
    local n
    need_tool tc
    unshare --net --uts true 2> /dev/null && ip netns add "$prefix-1" 2> /dev/null || skip "nodes need the rights of root and namespaces of networks"
    ip netns add "$prefix-2"
    ip -n "$prefix-1" link add "$prefix" type veth peer name "$prefix" netns "$prefix-2" || skip "this kernel has no veth"
    for n in 1 2; do
        ip -n "$prefix-$n" address add 10.77.0.$n/24 dev "$prefix"
        ip -n "$prefix-$n" link set lo up
        ip -n "$prefix-$n" link set "$prefix" up
        tc -n "$prefix-$n" qdisc add dev "$prefix" root tbf rate "$1" burst 256kb latency 400ms || skip "this kernel has no tbf"
    done
    cat > in_node << END
#!/bin/bash
# in_node NODE COMMAND...: in the node's network and under its name
node=\$1
shift
exec ip netns exec "$prefix-\${node#node}" unshare --uts sh -c 'hostname "\$0" && exec "\$@"' "\$node" "\$@"
END
    # shellcheck disable=SC2016  # of the script, which stands for ssh
    printf '#!/bin/bash\nexec %s/in_node "$1" sh -c "${*:2}"\n' "$PWD" > as_ssh
    chmod +x in_node as_ssh
    unset LLM_NODE_MEMORY
    export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_plm_rsh_agent=$PWD/as_ssh OMPI_MCA_oob_tcp_if_include=$prefix OMPI_MCA_btl_tcp_if_include=$prefix
    export LAUNCHER="./in_node node1 mpirun --oversubscribe --host node1:4,node2:4 --map-by node -x PATH"
}

@test "two nodes: the bits of one process with each way to divide a run; weights once a node" {
    nodes 500mbit
    local layout
    for layout in zero=0 zero=1 zero=2 zero=3 dp=2,tp=2 dp=2,cp=2 dp=2,pp=2; do
        same_in "4 $layout" "${gpt[@]}" -n 3 -b 4 --grad-shards 4 --tensor-parts 2 --seq-parts 2 --precision bf16
    done
    same_in "4 dp=4,ep=2 dp=4,ep=4,zero=1" "${moe[@]}" -n 3 -b 8 --grad-shards 4
    same_in "4 dp=4" "${gpt[@]}" -n 4 -b 8 --outer diloco --replicas 4 --inner-steps 2
    ranks 2 sh -c 'uname -n >> names' # the two were two
    sort names | diff - <(printf 'node1\nnode2\n')
}

@test "a node whose network fails ends the job, by the names of rank and node; the run goes on elsewhere with the bits it would have had" {
    nodes 500mbit
    local run=("${gpt[@]}" -b 4 --grad-shards 4 --schedule constant --warmup 2) launched status=0 n
    { ranks 4 "${run[@]}" -n 100000 --shard zero=1 --save-every 5 --rank-timeout 4 --log ranks.log -o ranks.llm 2> said; } &
    launched=$!
    reaches() { [[ -s ranks.log ]] && (($(jq -s length ranks.log) > 12)); }
    comes 60 reaches || fail "$(cat said)"
    ip -n "$prefix-2" link set "$prefix" down
    comes 30 grep -E '^llm-train: .*rank [0-3] \(node[12]\)' ranks.err || fail "$(cat ranks.err)"
    ip -n "$prefix-2" link set "$prefix" up # else mpirun waits for its own part of the node
    wait "$launched" || status=$?
    ((status != 0)) || fail "status 0"
    nothing_left
    n=$(jq -s 'last.step + 10' ranks.log)
    llm-train -q -j 1 --resume ranks.llm -n "$n"
    "${run[@]}" -n "$n" -o alone.llm
    cmp alone.llm ranks.llm
}

# need_late: makes ./late COMMAND..., whose messages complete up to 3 ms late, in any order.
need_late() {
    need_tool mpicc
    [[ -z ${SANITIZER-} ]] || skip "two libraries that stand before others"
    mpicc -O1 -shared -fPIC -o late.so "$ROOT/tests/fault/late_messages.c"
    # shellcheck disable=SC2016  # of the script
    printf '#!/bin/sh\nLD_PRELOAD=$PWD/late.so exec "$@"\n' > late
    chmod +x late
}

@test "late messages, in any order: the bits of one process" {
    need_late
    same_in "4 zero=1 zero=2 zero=3 dp=2,pp=2 dp=2,tp=2 dp=2,cp=2 cp=4" ./late "${gpt[@]}" -n 3 -b 4 --grad-shards 4 --tensor-parts 2 --seq-parts 4
    LLM_NODE_MEMORY=yes same_in "4 zero=1 zero=2" ./late "${gpt[@]}" -n 4 -b 4 --grad-shards 4 --precision bf16 --val .2 --eval-every 2
    same_in "4 pp=4 pp=2,dp=2,zero=3 pp=2,vp=2,dp=2" ./late llm-train -c nano --set n_layer=4 --set n_embd=32 --set n_head=2 "${of[@]}" -n 3 -b 2 --accumulate 2 \
        --grad-shards 2
    same_in "4 dp=4,ep=4 dp=4,ep=2,zero=3" ./late "${moe[@]}" -n 3 -b 8 --grad-shards 4
    same_in "4 dp=4,zero=1" ./late "${gpt[@]}" -n 3 -b 4 --grad-shards 4 --gradients int8
}
