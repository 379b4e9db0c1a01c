# Post-training under mpirun: conversations, preferences and rollouts give the bits of one process on any number of ranks.
load ../helper
load ../mpi

setup_file() {
    local i a b
    [[ -z ${SANITIZER-} ]] || return 0
    policy_model
    for ((i = 0; i < 24; i++)); do
        a=$((i % 5)) b=$((i * 7 % 5))
        printf '{"messages": [{"role": "user", "content": "%d+%d"}, {"role": "assistant", "content": "%d"}]}\n' $a $b $((a + b)) >> sums.jsonl
        printf '{"prompt": "%d? ", "chosen": "yes please", "rejected": "no %d"}\n' $a $b >> pairs.jsonl
        printf '{"prompt": "%d? ", "completion": "yes", "label": %s}\n' $i "$( ((i % 2)) && echo true || echo false)" >> labels.jsonl
    done
    printf '%s\n' '{"prompt": "the "}' '{"prompt": "a"}' '{"prompt": "red"}' '{"prompt": "cat is"}' > prompts
    llm-infer -q -m policy.llm --jsonl --rollout -n 12 --samples 6 prompts | jq -c '.reward = ((.text | [scan("e")] | length) / 12)' > rollouts
    llm-tokenize train --model byte --special '<|im_start|>' --special '<|im_end|>' --special '</s>' -o tok.json /dev/null
}

setup() {
    [[ -z ${SANITIZER-} ]] || skip "minutes under $SANITIZER, under which train_ranks.bats runs the exchange"
    need_mpi
    need_tool jq
    F=$BATS_FILE_TMPDIR
    new=(llm-train -q -j 1 -c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=4 -l 64
        -T "$F/tok.json")
}

# same_for "RANKS..." "ZEROS..." COMMAND...: hashes and losses of each step, and the checkpoint, are those of one process. With $FROM the command goes
# on from a copy of that file.
same_for() {
    local r z out=(-o)
    [[ ! ${FROM-} ]] || out=(--resume) && cp "${FROM:-/dev/null}" alone.llm
    "${@:3}" "${out[@]}" alone.llm --log alone.log
    for r in $1; do
        for z in $2; do
            rm -f ranks.log
            [[ ! ${FROM-} ]] || cp "$FROM" ranks.llm
            ranks "$r" "${@:3}" "${out[@]}" ranks.llm --log ranks.log --shard "dp=$r,zero=$z"
            cmp alone.llm ranks.llm
            diff <(jq -c '[.step, .loss, .val_loss, .grad_norm, .hash]' alone.log) <(jq -c '[.step, .loss, .val_loss, .grad_norm, .hash]' ranks.log)
        done
    done
}

@test "conversations: one a row, packed, and grouped by tokens" {
    local sft=("${new[@]}" --objective sft --chat-template chatml -n 3 "$F/sums.jsonl")
    same_for "2 3" "0 1" "${sft[@]}" -b 6 --grad-shards 6 --val .2 --eval-every 2
    same_for "3" "1" "${sft[@]}" -b 3 --accumulate 2 --grad-shards 3 --packing yes
    same_for "2" "1" "${sft[@]}" --batch-tokens 400 --grad-shards 2
}

@test "preferences: pairs, with and without a reference; single replies; rewards of pairs" {
    llm-train -q -j 1 -c tiny --set num_hidden_layers=3 --set hidden_size=32 --set intermediate_size=48 -T "$F/tok.json" -l 64 -n 0 -o base.llm
    local from=(llm-train -q -j 1 --init base.llm -l 64 -n 3 --lr 1e-2)
    same_for "2 3" "0 1" "${from[@]}" --objective dpo -b 6 --grad-shards 6 "$F/pairs.jsonl"
    same_for "2" "1" "${from[@]}" --objective dpo --loss simpo -b 4 --accumulate 2 --grad-shards 4 "$F/pairs.jsonl"
    same_for "3" "1 3" "${from[@]}" --objective dpo --adapter lora -b 6 --grad-shards 6 --val .2 --eval-every 2 "$F/pairs.jsonl"
    same_for "2" "1" "${from[@]}" --objective kto -b 3 --accumulate 2 --grad-shards 2 "$F/labels.jsonl"
    same_for "3" "0" "${from[@]}" --objective reward -b 6 --grad-shards 6 "$F/pairs.jsonl"
}

@test "rollouts: GRPO, REINFORCE with a baseline that goes on, PPO with a value head and a reference" {
    local learn=(llm-train -q -j 1 -b 8 --lr 1e-2 --epochs 2 --grad-shards 4 "$F/rollouts") FROM=$F/policy.llm
    same_for "2 3" "0 1" "${learn[@]}" --objective grpo
    same_for "2" "3" "${learn[@]}" --objective grpo --checkpoint-every 2 # both layers are one group, whose weights the look at all lines needs first
    same_for "2" "1" "${learn[@]}" --objective reinforce --baseline exponential
    same_for "3" "1" "${learn[@]}" --objective ppo --reference "$F/policy.llm" --kl-coef .1
}

@test "sampling by ranks or in parts is refused, by name" {
    cp "$F/policy.llm" p.llm
    run -2 --separate-stderr ranks 2 llm-train -q --resume p.llm --objective grpo --prompts "$F/prompts" --reward true --iterations 1
    [[ ${stderr_lines[0]} == "llm-train: --prompts: expected one process, found a launcher of 2" ]]
    run -2 --separate-stderr llm-infer -q -m "$F/policy.llm" --jsonl --rollout -n 12 --part 1/2 "$F/prompts"
    [[ ${stderr_lines[0]} == "llm-infer: --rollout numbers all prompts: it does not go with --part or --limit" ]]
}
