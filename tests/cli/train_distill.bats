# Learning a teacher's distributions.
load ../helper
export LLM_THREADS=1

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w)
        for (i = 0; i < 300; i++) { a = w[i % 10 + 1]; printf "%s is %s and %s\n", a, a, w[i * 7 % 10 + 1] } }' > text
    llm-tokenize train --model byte --special '</s>' -o tok.json text
    llm-tokenize encode -T tok.json --lines --append-eos -o data.tok text
    llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=64 --set intermediate_size=96 --set num_attention_heads=4 -l 48 -T tok.json \
        -n 120 -b 8 --lr 4e-3 -o teacher.llm data.tok
    export F=$PWD
}

setup() {
    [[ -z ${SANITIZER-} ]] || skip "minutes under $SANITIZER, which the unit tests of this code run under"
    shape=(-c tiny --set num_hidden_layers=1 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -T "$F/tok.json" -l 48)
    new=(llm-train -q "${shape[@]}" --objective distill --teacher "$F/teacher.llm")
}

@test "gradients pass the check for forward and reverse KL and between, with a temperature and a soft cap" {
    for beta in 0 .3 1; do "${new[@]}" -b 2 --jsd-beta $beta --temperature 2 --gradcheck > /dev/null; done
    "${new[@]}" -b 2 --set logit_scale=0.5 --gradcheck > /dev/null
    jq -nc '{model_type: "gemma2", hidden_size: 32, intermediate_size: 48, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2,
             head_dim: 16, final_logit_softcapping: 2, attn_logit_softcapping: 5, query_pre_attn_scalar: 16, vocab_size: 257,
             max_position_embeddings: 64}' > config.json
    llm-train -q -c config.json -T "$F/tok.json" -l 48 --objective distill --teacher "$F/teacher.llm" -b 2 --gradcheck > /dev/null
}

@test "a model is not far from itself: the loss is 0" {
    for beta in 0 .5 1; do
        llm-train -q --init "$F/teacher.llm" -l 48 --objective distill --teacher "$F/teacher.llm" --jsd-beta $beta --lr 0 -n 1 -b 2 \
            --log log.jsonl -o x.llm "$F/data.tok"
        jq -s -e '.[0].loss | fabs < 1e-12' log.jsonl
    done
}

@test "every divergence falls, and the student comes to predict the text that the teacher learned" {
    "${new[@]}" -n 0 -o none.llm
    for beta in 0 .5 1; do
        "${new[@]}" -n 150 -b 8 --lr 4e-3 --jsd-beta $beta --val .1 --log log.jsonl -o m.llm "$F/data.tok"
        jq -s -e '.[-1].loss < .[0].loss * 2 / 3 and .[-1].val_loss < .[0].loss * 2 / 3' log.jsonl
        before=$(llm-infer -q -m none.llm --score -f "$F/text" -c 4096 | head -n 200 | awk '{ s -= $NF } END { print s / NR }')
        after=$(llm-infer -q -m m.llm --score -f "$F/text" -c 4096 | head -n 200 | awk '{ s -= $NF } END { print s / NR }')
        awk "BEGIN { exit !($after < $before * .6) }"
    done
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    cp "$F/data.tok" "$F/teacher.llm" .
    new=("${new[@]/"$F/teacher.llm"/teacher.llm}" data.tok)
    same_by_threads "${new[@]}" -n 6 -b 4
    same_steps "${new[@]}" -n 6 -b 1 --accumulate 4
    same_when_resumed 3 "${new[@]}" -b 4 --jsd-beta .4 --temperature 1.5 --val .2 --eval-every 2
}

@test "what cannot be is one line" {
    run -2 --separate-stderr llm-train -q "${shape[@]}" --objective distill -n 1 -o x.llm "$F/data.tok"
    [[ $stderr =~ "--objective distill: expected --teacher MODEL" ]]
    run -66 --separate-stderr llm-train -q "${shape[@]}" --objective distill --teacher none.llm -n 1 -o x.llm "$F/data.tok"
    [[ $stderr =~ "--teacher: none.llm: No such file" ]]
    run -65 --separate-stderr "${new[@]}" --set vocab_size=300 -n 1 -o x.llm "$F/data.tok"
    [[ $stderr =~ "expected a vocabulary of 300 tokens, found "[0-9]+ ]]
    run -2 --separate-stderr "${new[@]}" --jsd-beta 2 -n 1 -o x.llm "$F/data.tok"
    run -2 --separate-stderr "${new[@]}" --temperature 0 -n 1 -o x.llm "$F/data.tok"
    [[ $stderr =~ "temperature: expected a number above 0, found 0" ]]
}
