# Learning from preferences between two replies.
load ../helper
export LLM_THREADS=1

setup_file() {
    # a question has a polite answer, which is chosen, and a rude one
    local words=(tea milk salt bread soap wine) i
    for ((i = 0; i < 30; i++)); do
        w=${words[i % 6]}
        printf '{"prompt": "%s? ", "chosen": "yes please", "rejected": "no never"}\n' "$w"
    done > pairs.jsonl
    for ((i = 0; i < 60; i++)); do
        (( i % 2 )) && a="yes please" || a="no never"
        printf '%s? %s\n' "${words[i % 6]}" "$a"
    done > text
    llm-tokenize train --model byte --special '</s>' --special '<|im_start|>' --special '<|im_end|>' -o tok.json text
    llm-tokenize encode -T tok.json --lines --append-eos -o data.tok text
    llm-train -q -c tiny --set num_hidden_layers=2 --set hidden_size=64 --set intermediate_size=96 --set num_attention_heads=4 -l 64 -T tok.json \
        -n 80 -b 8 --lr 4e-3 -o base.llm data.tok
    export F=$PWD
}

setup() {
    shape=(-c tiny --set num_hidden_layers=2 --set hidden_size=64 --set intermediate_size=96 --set num_attention_heads=4 -T "$F/tok.json" -l 64)
    new=(llm-train -q --init "$F/base.llm" -l 64 --objective dpo --lr 1e-3 --warmup 0)
}

@test "the first loss is ln 2 to the bit, in either precision; it falls, and the chosen reply is preferred" {
    for precision in f32 bf16; do
        "${new[@]}" -n 12 -b 6 --precision $precision --log log.jsonl -o m.llm "$F/pairs.jsonl"
        jq -s -e '.[0].loss == 0.6931471824645996 and .[0].reward_margin == 0' log.jsonl
        jq -s -e '.[11].loss < 0.6 and .[11].reward_accuracy == 1 and .[11].logps_chosen > .[11].logps_rejected' log.jsonl
    done
    # the reference may be named; then the first loss of a model that has moved is another
    llm-train -q --init m.llm -l 64 --objective dpo --reference "$F/base.llm" --lr 0 -n 1 -b 6 --log log.jsonl -o x.llm "$F/pairs.jsonl"
    jq -s -e '.[0].loss < 0.6' log.jsonl
}

@test "every loss falls and has the gradient that differences have" {
    for loss in sigmoid ipo hinge robust simpo orpo; do
        smooth=$([[ $loss == robust ]] && echo .1 || echo 0)
        "${new[@]}" -n 10 -b 6 --loss $loss --beta .3 --label-smoothing $smooth --log $loss.jsonl -o $loss.llm "$F/pairs.jsonl"
        jq -s -e '.[9].loss < .[0].loss' $loss.jsonl
        llm-train -q "${shape[@]}" --objective dpo -b 2 --loss $loss --beta 1 --label-smoothing $smooth --gradcheck > /dev/null
    done
}

@test "messages, an implicit prompt and plain texts; only the reply is compared" {
    tmpl=(--chat-template chatml -n 1 -b 1 --lr 0 --precision f32 --loss simpo)
    echo '{"prompt": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}, {"role": "user", "content": "s"}],
           "chosen": [{"role": "assistant", "content": "good"}], "rejected": [{"role": "assistant", "content": "bad"}]}' | jq -c . > a.jsonl
    jq -c '{chosen: (.prompt + .chosen), rejected: (.prompt + .rejected)}' a.jsonl > b.jsonl
    jq -c '{chosen_messages: (.prompt + .chosen), rejected_messages: (.prompt + .rejected)}' a.jsonl > c.jsonl
    for f in a b c; do "${new[@]}" "${tmpl[@]}" -l 200 --log $f.log -o x.llm $f.jsonl; done
    numbers='[.loss, .logps_chosen, .logps_rejected]'
    for f in b c; do cmp <(jq -c "$numbers" a.log) <(jq -c "$numbers" $f.log); done
    # log-probabilities of the reply alone: those that llm-infer --score gives for its tokens
    head -n 1 "$F/pairs.jsonl" > one.jsonl
    "${new[@]}" -n 1 -b 1 --lr 0 --precision f32 --log log.jsonl -o x.llm one.jsonl
    n=$(printf 'tea? ' | wc -c)
}

@test "the template is given a line's tools" {
    echo "{% if tools %}{{ tools[0].function.name }}{% else %}none{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}" > tools.jinja
    echo "add{% for m in messages %}{{ m.content }}{% endfor %}" > add.jinja
    echo '{"prompt": [{"role": "user", "content": "q"}], "tools": [{"type": "function", "function": {"name": "add"}}],
           "chosen": [{"role": "assistant", "content": "good"}], "rejected": [{"role": "assistant", "content": "bad"}]}' | jq -c . > a.jsonl
    for t in tools add; do "${new[@]}" -n 1 -b 1 --lr 0 --precision f32 --chat-template $t.jinja --log $t.log -o x.llm a.jsonl; done
    cmp <(jq -c '[.loss, .logps_chosen, .logps_rejected]' tools.log) <(jq -c '[.loss, .logps_chosen, .logps_rejected]' add.log)
}

@test "log-probabilities of the reference in the data take the place of the reference" {
    "${new[@]}" -n 1 -b 1 --lr 0 --precision f32 --log log.jsonl -o x.llm <(head -n 1 "$F/pairs.jsonl")
    jq -c -s '.[1] + {ref_chosen_logps: .[0].logps_chosen, ref_rejected_logps: .[0].logps_rejected}' log.jsonl <(head -n 1 "$F/pairs.jsonl") \
        > with.jsonl
    llm-train -q "${shape[@]}" --objective dpo -n 1 -b 1 --lr 0 --log new.jsonl -o x.llm with.jsonl
    jq -s -e '.[0].loss != 0.6931471824645996' new.jsonl
    "${new[@]}" -n 1 -b 1 --lr 0 --precision f32 --log given.jsonl -o x.llm with.jsonl
    jq -s -e '(.[0].loss - 0.6931471824645996 | fabs) < 1e-6' given.jsonl
}

@test "llm-infer --ref-logprobs: the lines with the reference's log-probabilities train to the bytes of the computed reference" {
    head -n 12 "$F/pairs.jsonl" > pairs.jsonl
    printf '%s\n' '{"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "good"}], "rejected": [{"role": "assistant", "content": "bad"}]}' >> pairs.jsonl
    for precision in f32 bf16; do
        llm-infer -q -m "$F/base.llm" --precision $precision --chat-template chatml --ref-logprobs < pairs.jsonl > with.jsonl
        assert_equal "$(wc -l < with.jsonl)" 13
        cmp <(jq -c 'del(.ref_chosen_logps, .ref_rejected_logps)' with.jsonl) <(jq -c . pairs.jsonl)
        for data in pairs with; do
            llm-train -q --init "$F/base.llm" -l 64 --objective dpo --chat-template chatml --lr 1e-3 --warmup 0 --precision $precision -n 4 -b 4 \
                --log $data.log -o $data.llm $data.jsonl
        done
        cmp <(hashes pairs.log) <(hashes with.log)
        jq -s -e '.[0].loss == 0.6931471824645996' with.log
    done
    echo '{"prompt": "a", "rejected": "b"}' > bad.jsonl
    refused 65 "bad.jsonl: line 1: expected 'chosen', found none" llm-infer -m "$F/base.llm" --ref-logprobs bad.jsonl
    refused 2 "standard output has one owner" llm-infer -m "$F/base.llm" --ref-logprobs --score pairs.jsonl
}

@test "kto: the first loss is half the mean weight; it falls, and desirable replies gain" {
    jq -c '{prompt, completion: .chosen, label: true}, {prompt, completion: .rejected, label: false}' "$F/pairs.jsonl" > replies.jsonl
    kto=(llm-train -q --init "$F/base.llm" -l 64 --objective kto --beta .5 --lr 1e-3 --warmup 0)
    "${kto[@]}" -n 12 -b 8 --order sequential --desirable-weight 2 --log log.jsonl -o m.llm replies.jsonl
    jq -s -e '.[0].loss == .75 and .[0].kl == 0 and .[0].reward_chosen == 0' log.jsonl
    jq -s -e '.[11].loss < .7 and .[11].reward_chosen > .[11].reward_rejected' log.jsonl
    same_by_threads "${kto[@]}" -n 4 -b 8 replies.jsonl
    same_when_resumed 2 "${kto[@]}" -b 8 replies.jsonl
    refused 65 "line 1: expected 'label', true (desirable) or false, found none" "${kto[@]}" -n 1 -o x.llm <(echo '{"prompt": "a", "completion": "b"}')
    refused 65 "expected at least two lines, found one" "${kto[@]}" -n 1 -o x.llm <(echo '{"prompt": "a", "completion": "b", "label": true}')
}

@test "llm-infer --ref-logprobs of single replies: kto trains to the bytes of the computed reference" {
    jq -c '{prompt, completion: .chosen, label: true}, {prompt, completion: .rejected, label: false}' "$F/pairs.jsonl" | head -n 15 > replies.jsonl
    printf '%s\n' '{"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "good"}], "label": true}' \
        '{"prompt": [{"role": "user", "content": "r"}], "completion": [{"role": "assistant", "content": "bad"}], "label": false}' > turns.jsonl
    for set in replies turns; do
        llm-infer -q -m "$F/base.llm" --chat-template chatml --ref-logprobs < $set.jsonl > with.jsonl
        cmp <(jq -c 'del(.ref_logps, .ref_kl_logps)' with.jsonl) <(jq -c . $set.jsonl)
        for data in $set with; do
            llm-train -q --init "$F/base.llm" -l 64 --objective kto --chat-template chatml --beta .5 --lr 1e-3 --warmup 0 -n 4 -b 4 --log $data.log \
                -o $data.llm $data.jsonl
        done
        cmp <(hashes $set.log) <(hashes with.log)
        jq -s -e '.[0].kl == 0 and .[3].reward_chosen != 0' with.log
        llm-train -q -c tiny -T "$F/tok.json" -l 64 --set num_hidden_layers=1 --objective kto --chat-template chatml -n 1 -b 2 -o x.llm with.jsonl
    done
    head -n 1 replies.jsonl > one.jsonl
    refused 65 "expected at least two lines, found one" llm-infer -m "$F/base.llm" --ref-logprobs one.jsonl
    head -n 1 "$F/pairs.jsonl" >> one.jsonl
    refused 65 "one.jsonl: line 2: expected 'completion', as in the first line" llm-infer -m "$F/base.llm" --ref-logprobs one.jsonl
    tac one.jsonl > two.jsonl
    run -65 --separate-stderr llm-infer -m "$F/base.llm" --ref-logprobs two.jsonl
    [[ $stderr == *"two.jsonl: line 2: expected 'chosen' and 'rejected', as in the first line" ]]
    echo '{"completion": "b"}' >> replies.jsonl
    refused 65 "replies.jsonl: line 16: expected 'prompt', found none" llm-infer -m "$F/base.llm" --ref-logprobs replies.jsonl
}

@test "plain prompts and replies are one text, which begins as the tokenizer begins texts and ends once" {
    cp -r "$ROOT/tests/golden/tiny" m
    jq '.post_processor = {type: "TemplateProcessing", single: [{SpecialToken: {id: "<|endoftext|>", type_id: 0}}, {Sequence: {id: "A", type_id: 0}}],
        pair: [{Sequence: {id: "A", type_id: 0}}, {Sequence: {id: "B", type_id: 1}}],
        special_tokens: {"<|endoftext|>": {id: "<|endoftext|>", ids: [0], tokens: ["<|endoftext|>"]}}}' \
        "$ROOT/tests/golden/tiny/tokenizer.json" > m/tokenizer.json
    # after "the": " cat" and the end, of which one token spans prompt and reply; after "the cat": the end that the text has
    score() { printf '%s' "$1<|endoftext|>" | llm-infer -q -m m --precision f32 --special --score | tail -n "$2" | awk '{s += $NF} END {print s}'; }
    echo '{"prompt": "the ca", "chosen": "t", "rejected": "t<|endoftext|>"}' > pair.jsonl
    llm-infer -q -m m --precision f32 --ref-logprobs pair.jsonl > scored
    jq -e --argjson x "$(score 'the cat' 2)" '.ref_chosen_logps == .ref_rejected_logps and (.ref_chosen_logps - $x | fabs) < 1e-4' scored
    echo '{"prompt": "the cat", "completion": " cat", "label": true}' > replies.jsonl
    echo '{"prompt": "the ca", "completion": "t", "label": false}' >> replies.jsonl
    llm-infer -q -m m --precision f32 --ref-logprobs replies.jsonl > scored
    jq -s -e --argjson x "$(score 'the cat cat' 2)" --argjson y "$(score 'the cat' 2)" \
        '(.[0].ref_logps - $x | fabs) < 1e-4 and (.[1].ref_logps - $y | fabs) < 1e-4' scored
    cp -r "$ROOT/tests/golden/trl/judge" judge
    cp m/tokenizer.json judge/
    reward() { llm-infer -q -m judge --precision f32 --score-reward "$@"; }
    reward --jsonl - <<< '{"prompt": "the ca", "completion": "t"}' > scored
    jq -e --argjson x "$(reward --special 'the cat<|endoftext|>')" '(.reward - $x | fabs) < 1e-6' scored
}

@test "the same bytes by any threads, any passes of a step, and after an interruption" {
    cp "$F/pairs.jsonl" .
    same_by_threads "${new[@]}" -n 6 -b 4 pairs.jsonl
    same_steps "${new[@]}" -n 6 -b 1 --accumulate 4 pairs.jsonl
    same_steps "${new[@]}" -n 6 -b 2 --accumulate 2 --checkpoint-every 1 pairs.jsonl
    same_when_resumed 3 "${new[@]}" -b 4 --val .2 --eval-every 2 pairs.jsonl
}

@test "texts without a prompt are divided where they begin to differ" {
    divided() { # CHOSEN REJECTED PROMPT CHOSEN REJECTED
        jq -nc '$ARGS.positional | {chosen: .[0], rejected: .[1]}' --args "${@:1:2}" > whole.jsonl
        jq -nc '$ARGS.positional | {prompt: .[0], chosen: .[1], rejected: .[2]}' --args "${@:3}" > parts.jsonl
        for objective in "dpo --loss simpo" reward; do
            for f in whole parts; do
                rm -f log
                # shellcheck disable=SC2086
                llm-train -q -c tiny -T "$F/tok.json" -l 64 --set num_hidden_layers=1 --objective $objective -n 2 -b 1 --log log -o x.llm $f.jsonl
                jq -c '[.loss, .logps_chosen, .logps_rejected]' log > $f.log
            done
            cmp whole.log parts.log || fail "$objective: $*"
        done
    }
    divided 'tea? yes please' 'tea? no' 'tea?' ' yes please' ' no'
    divided $'\n\nHuman: tea?\n\nAssistant: Sure.' $'\n\nHuman: tea?\n\nAssistant: Never.' $'\n\nHuman: tea?\n\nAssistant:' ' Sure.' ' Never.'
    divided 'tea?yes' 'tea?no' 'tea?' yes no
    divided cafés cafès caf és ès
    divided 'tea? yes please' 'tea? yes' 'tea? ye' 's please' 's'
    divided 'same' 'same' 'sam' e e
}

@test "what cannot be is one line" {
    one() { run "-$1" --separate-stderr "${@:2}"; assert_equal "$(wc -l <<< "$stderr")" "$([[ $1 == 2 ]] && echo 2 || echo 1)"; }
    one 65 "${new[@]}" -o x.llm <(echo '{"prompt": "a", "rejected": "b"}')
    [[ $stderr == *": line 1: expected 'chosen', found none" ]]
    one 65 "${new[@]}" -o x.llm <(echo '{"chosen": "a", "rejected": "b"}')
    [[ $stderr == *": line 1: expected 'prompt', or texts that begin alike, found neither" ]]
    one 65 "${new[@]}" -o x.llm <(echo '{"chosen": "a", "rejected": [{"role": "assistant", "content": "b"}]}')
    [[ $stderr == *": line 1: expected 'prompt', found none" ]]
    one 65 "${new[@]}" --strict -o x.llm <(jq -nc '{prompt: "a", chosen: ("b" * 99), rejected: "c"}')
    [[ $stderr == *": line 1: expected at most 64 tokens (--context), found 101" ]]
    one 65 "${new[@]}" --strict -o x.llm <(echo '{"prompt": "a", "chosen": "", "rejected": "c"}')
    [[ $stderr == *": line 1: expected text in both replies, found an empty one" ]]
    one 65 "${new[@]}" --strict -o x.llm <(echo '{"prompt": "a", "chosen": "b", "rejected": [{"role": "assistant", "content": ""}]}')
    [[ $stderr == *": line 1: expected text in both replies, found an empty one" ]]
    one 65 "${new[@]}" -o x.llm <(echo '{"prompt": "a", "chosen": "", "rejected": "c"}')
    one 65 "${new[@]}" -o x.llm <(echo '{"prompt": "a", "chosen": "b", "rejected": "c", "ref_chosen_logps": "x"}')
    [[ $stderr == *": 'ref_chosen_logps': expected a number" ]]
    run -2 --separate-stderr llm-train -q -c tiny -T "$F/tok.json" -l 64 --objective dpo -n 1 -o x.llm "$F/pairs.jsonl"
    [[ $stderr =~ "expected a reference: --reference MODEL, --init MODEL, or its log-probabilities in the data" ]]
    one 65 "${new[@]}" -o x.llm "$F/data.tok"
    run -2 --separate-stderr "${new[@]}" --label-smoothing .5 -o x.llm "$F/pairs.jsonl"
    [[ $stderr =~ "label-smoothing: expected a share below 0.5" ]]
    [[ ! -e x.llm ]]
}
