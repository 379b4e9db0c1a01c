# Adapters (LoRA): trained on a base that stays as it is stored, kept alone in a file, and added to the base where it runs.
load ../helper
export LLM_THREADS=1

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    sentences_tokens
    tiny=(-c tiny --set num_hidden_layers=2 --set hidden_size=256 --set intermediate_size=256 --set num_attention_heads=4 -l 24 -T tok.json)
    llm-train -q "${tiny[@]}" --lr 1e-2 -n 4 -b 2 -o base.llm data.tok
    llm-train -q "${tiny[@]}" -n 0 -o other.llm data.tok
    for type in q8_0 q4_0; do
        llm-quantize -q -t $type base.llm $type.gguf
        llm-quantize -q -t f32 $type.gguf $type-decoded.llm
    done
}

setup() {
    [[ -z ${SANITIZER-} ]] || skip "minutes under $SANITIZER, which the unit tests of this code run under"
    golden=$ROOT/tests/golden/adapters
    adapt=(llm-train -q --adapter lora --rank 4 --alpha 8 -l 24 --schedule constant --lr 1e-2 --init)
}

# score MODEL [OPTION...]: log-probabilities of a sentence in f32
score() { head -n 2 "$F/text" | llm-infer -q --precision f32 --score -m "$@" | cut -f 3; }

# tensors FILE: the names of the tensors of a .llm
tensors() {
    zstd -qdc "$1" | head -c $((8 + $(zstd -qdc "$1" | head -c 8 | od -An -tu8))) | tail -c +9 | jq -r 'del(.__metadata__) | keys[]'
}

@test "20 steps from PEFT's adapter have PEFT's losses, and give PEFT's log-probabilities before and after" {
    llm-tokenize encode -q -T "$ROOT/tests/golden/tiny/tokenizer.json" -o g.tok "$golden/text"
    llm-train -q --init "$ROOT/tests/golden/tiny" --adapter lora --adapter-init "$golden/init" --precision f32 --order sequential --cross-document -l 24 -b 4 \
        -n 20 --warmup 0 --schedule constant --lr 5e-3 --log log.jsonl -o g.llm g.tok
    paste -d ' ' <(jq .loss log.jsonl) <(jq '.losses[]' "$golden/losses.json") > pairs
    [[ $(wc -l < pairs) == 20 ]]
    apart 0 2e-6 < pairs
    for pair in "before $golden/init" "after $golden/trained" "after g.llm"; do
        read -r when adapter <<< "$pair"
        echo -n "Once upon a time there was a red cat. She liked the garden." \
            | llm-infer -q -m "$ROOT/tests/golden/tiny" --adapter "$adapter" --precision f32 --score | cut -f 3 > found
        paste -d ' ' found <(jq ".${when}[]" "$golden/losses.json") | apart 2e-5 0
    done
}

@test "ranks and alphas of modules' own (rank_pattern, alpha_pattern) are PEFT's, trained, merged and in every format" {
    llm-tokenize encode -q -T "$ROOT/tests/golden/tiny/tokenizer.json" -o g.tok "$golden/text"
    llm-train -q --init "$ROOT/tests/golden/tiny" --adapter lora --adapter-init "$golden/patterns" --precision f32 --order sequential --cross-document \
        -l 24 -b 4 -n 20 --warmup 0 --schedule constant --lr 5e-3 --log log.jsonl -o g.llm g.tok
    paste -d ' ' <(jq .loss log.jsonl) <(jq '.losses[]' "$golden/patterns-losses.json") > pairs
    [[ $(wc -l < pairs) == 20 ]]
    apart 0 2e-6 < pairs
    llm-quantize -q -t keep --to safetensors g.llm folder
    llm-quantize -q -t f32 --to gguf g.llm g.gguf
    llm-quantize -q -t f32 --merge g.llm "$ROOT/tests/golden/tiny" merged.llm
    [[ $(jq '.alpha_pattern["model.layers.1.self_attn.q_proj"], .alpha_pattern["model.layers.0.self_attn.q_proj"]' folder/adapter_config.json) == $'9\n3' ]]
    # After 20 steps PEFT's own F32 is 8e-5 from its FP64, and ours 1.1e-4, on the machine where both were measured
    for pair in "before 2e-5 $golden/patterns" "after 2e-4 g.llm" "after 2e-4 folder" "after 2e-4 g.gguf" "after 2e-4 merged.llm"; do
        read -r when tolerance adapter <<< "$pair"
        model=("$ROOT/tests/golden/tiny" --adapter "$adapter")
        [[ $adapter != merged.llm ]] || model=(merged.llm)
        echo -n "Once upon a time there was a red cat. She liked the garden." | llm-infer -q -m "${model[@]}" --precision f32 --score | cut -f 3 > found
        paste -d ' ' found <(jq ".${when}[]" "$golden/patterns-losses.json") | apart $tolerance 0
    done
    cp -r "$golden/patterns" bad
    jq '.alpha_pattern = {"(": 3}' "$golden/patterns/adapter_config.json" > bad/adapter_config.json
    refused 65 "bad: alpha_pattern: expected regular expressions, found '('" llm-infer -q -m "$ROOT/tests/golden/tiny" --adapter bad --score x
}

@test "DoRA: 20 steps from PEFT's adapter have PEFT's losses, and give PEFT's log-probabilities before and after" {
    llm-tokenize encode -q -T "$ROOT/tests/golden/tiny/tokenizer.json" -o g.tok "$golden/text"
    llm-train -q --init "$ROOT/tests/golden/tiny" --adapter lora --adapter-init "$golden/dora" --precision f32 --order sequential --cross-document -l 24 -b 4 \
        -n 20 --warmup 0 --schedule constant --lr 5e-3 --log log.jsonl -o g.llm g.tok
    paste -d ' ' <(jq .loss log.jsonl) <(jq '.losses[]' "$golden/dora-losses.json") > pairs
    [[ $(wc -l < pairs) == 20 ]]
    apart 0 2e-6 < pairs
    # After 20 steps PEFT's own F32 is 7e-5 from its FP64 (1e-5 without magnitudes), and ours 8e-5, on the machine where both were measured; its losses
    # are 3e-7 apart. Larger steps of Adam's divisor (eps 1e-3) do not lessen it
    for pair in "before 2e-5 $golden/dora" "after 2e-4 g.llm"; do
        read -r when tolerance adapter <<< "$pair"
        echo -n "Once upon a time there was a red cat. She liked the garden." \
            | llm-infer -q -m "$ROOT/tests/golden/tiny" --adapter "$adapter" --precision f32 --score | cut -f 3 > found
        paste -d ' ' found <(jq ".${when}[]" "$golden/dora-losses.json") | apart $tolerance 0
    done
}

@test "DoRA: new it changes nothing within rounding; gradients, threads, passes, interruption, a quantised base, a scale, two of them" {
    dora=("${adapt[@]}" "$F/q8_0.gguf" --dora)
    "${dora[@]}" -b 2 -n 0 -o new.llm "$F/data.tok"
    paste -d ' ' <(score "$F/q8_0.gguf") <(score "$F/q8_0.gguf" --adapter new.llm) | apart 1e-5 0
    "${dora[@]}" --precision f32 --targets q_proj -b 2 --gradcheck "$F/data.tok" > checked
    assert_equal "$(grep -c 'lora_magnitude_vector' checked)" 2
    same_by_threads "${dora[@]}" "$F/data.tok" -n 3 -b 4
    same_steps "${dora[@]}" "$F/data.tok" -n 3 -b 1 --accumulate 4
    same_when_resumed 2 "${dora[@]}" "$F/data.tok" -b 4 --ema .5
    "${dora[@]}" --precision f32 -b 4 -n 12 --log log.jsonl -o a.llm "$F/data.tok"
    jq -es '.[-1].loss < .[0].loss' log.jsonl
    cmp <(score "$F/q8_0.gguf") <(score "$F/q8_0.gguf" --adapter a.llm:0)
    paste -d ' ' <(score "$F/q8_0.gguf" --adapter a.llm:.5 --adapter a.llm:.5) <(score "$F/q8_0.gguf" --adapter a.llm) | apart 1e-5 0
    dora+=(--adapter-dropout .3)
    "${dora[@]}" --precision f32 --targets q_proj -b 2 --gradcheck "$F/data.tok" > checked
    assert_equal "$(grep -c 'lora_magnitude_vector' checked)" 2
    same_by_threads "${dora[@]}" "$F/data.tok" -n 3 -b 4
    same_steps "${dora[@]}" "$F/data.tok" -n 3 -b 1 --accumulate 4
    same_when_resumed 2 "${dora[@]}" "$F/data.tok" -b 4
}

@test "a new adapter changes nothing; a trained one does; its file has its pairs alone, the base stays" {
    cp "$F/base.llm" before.llm
    "${adapt[@]}" "$F/base.llm" -b 2 -n 0 -o new.llm "$F/data.tok"
    cmp <(score "$F/base.llm") <(score "$F/base.llm" --adapter new.llm)
    "${adapt[@]}" "$F/base.llm" -b 2 -n 6 --targets q_proj --targets '*.1.mlp.up_proj' --keep-best best.llm --val .1 --eval-every 3 -o a.llm "$F/data.tok"
    run -1 cmp -s <(score "$F/base.llm") <(score "$F/base.llm" --adapter a.llm)
    cmp <(score "$F/base.llm") <(score "$F/base.llm" --adapter a.llm:0)
    cmp before.llm "$F/base.llm"
    assert_equal "$(tensors a.llm | grep -v ^training.)" "$(printf 'base_model.model.model.layers.%s.weight\n' \
        {0.self_attn.q_proj,1.mlp.up_proj,1.self_attn.q_proj}.lora_{A,B})"
    score "$F/base.llm" --adapter best.llm > /dev/null
    run -1 grep -q ^training <(tensors best.llm)
}

@test "several adapters are added, each with its scale" {
    "${adapt[@]}" "$F/base.llm" -b 2 -n 4 --precision f32 -o a.llm "$F/data.tok"
    "${adapt[@]}" "$F/base.llm" -b 2 -n 4 --precision f32 --seed 5 --rank 2 --rslora -o b.llm "$F/data.tok"
    paste -d ' ' <(score "$F/base.llm" --adapter a.llm:.5 --adapter a.llm:.5) <(score "$F/base.llm" --adapter a.llm) | apart 1e-5 0
    paste -d ' ' <(score "$F/base.llm" --adapter a.llm --adapter b.llm:-.5) <(score "$F/base.llm" --adapter b.llm:-.5 --adapter a.llm) | apart 1e-5 0
    run -1 cmp -s <(score "$F/base.llm" --adapter a.llm --adapter b.llm) <(score "$F/base.llm" --adapter a.llm)
}

@test "on a quantised base in f32 the adapter is that of the decoded base, bit for bit" {
    for type in q8_0 q4_0; do
        for base in $type.gguf $type-decoded.llm; do
            "${adapt[@]}" "$F/$base" -b 2 -n 4 --precision f32 --log $base.jsonl -o $base.adapter.llm "$F/data.tok"
        done
        hashes $type.gguf.jsonl > wanted
        hashes $type-decoded.llm.jsonl | cmp - wanted
        [[ $(sort -u wanted | wc -l) == 4 ]]
        cmp <(score "$F/$type.gguf" --adapter $type.gguf.adapter.llm) <(score "$F/$type-decoded.llm" --adapter $type-decoded.llm.adapter.llm)
    done
}

@test "the same bytes by any threads and passes, and after an interruption, with dropout and whole parameters" {
    new=("${adapt[@]}" "$F/q4_0.gguf" --adapter-dropout .2 --also-train model.norm.weight --dropout .1 "$F/data.tok")
    same_by_threads "${new[@]}" -n 6 -b 4
    same_steps "${new[@]}" -n 6 -b 1 --accumulate 4
    same_steps "${new[@]}" -n 6 -b 4 --checkpoint-every 1
    same_when_resumed 3 "${new[@]}" -b 4
    "${adapt[@]}" "$F/q4_0.gguf" --also-train model.norm.weight "$F/data.tok" -b 4 -n 6 --log plain.jsonl -o plain.llm
    run -1 cmp -s <(hashes plain.jsonl) <(hashes whole.jsonl)
}

@test "a run that is killed goes on to the same bytes" {
    "${adapt[@]}" "$F/q8_0.gguf" -b 2 -n 120 --save-every 25 -o whole.llm "$F/data.tok"
    run -137 interrupted KILL 55 "${adapt[@]}" "$F/q8_0.gguf" -b 2 -n 120 --save-every 25 -o a.llm "$F/data.tok"
    (($(steps_done a.llm) >= 50 && $(steps_done a.llm) < 120))
    llm-train -q --resume a.llm --save-every 25
    cmp whole.llm a.llm
}

@test "what is trained whole is stored in the adapter and takes its place in the base" {
    "${adapt[@]}" "$F/q4_0.gguf" -b 2 -n 4 --also-train embed_tokens -o a.llm "$F/data.tok"
    tensors a.llm | grep '^base_model.model.model.embed_tokens.weight$'
    refused 2 '--also-train: expected a pattern that matches names of parameters' "${adapt[@]}" "$F/q4_0.gguf" --also-train lm_head -o b.llm "$F/data.tok" # it is tied
    run -1 cmp -s <(score "$F/q4_0.gguf") <(score "$F/q4_0.gguf" --adapter a.llm)
    refused 69 "a.llm: expected an adapter of pairs alone beside another or with a scale" llm-infer -m "$F/q4_0.gguf" --adapter a.llm:.5 x
}

@test "an adapter goes on as another run's beginning" {
    "${adapt[@]}" "$F/base.llm" -b 2 -n 4 -o a.llm "$F/data.tok"
    llm-train -q --init "$F/base.llm" --adapter lora --adapter-init a.llm -n 0 -o b.llm "$F/data.tok"
    cmp <(score "$F/base.llm" --adapter a.llm) <(score "$F/base.llm" --adapter b.llm)
}

@test "experts, fused and transposed matrices, state spaces learn" {
    local -A sets=([moe]="--set num_hidden_layers=2 --set hidden_size=64 --set num_local_experts=4" [mla]="--set num_attention_heads=2"
        [gpt2]="--set n_layer=2 --set n_embd=64 --set n_head=2" [mamba]="--set num_hidden_layers=2 --set hidden_size=64" [lstm]="--set hidden_size=64")
    for preset in "${!sets[@]}"; do
        llm-train -q -c $preset ${sets[$preset]} -T "$F/tok.json" -l 24 -n 0 -o $preset.llm "$F/data.tok"
        "${adapt[@]}" $preset.llm -b 4 -n 30 --log $preset.jsonl -o $preset-a.llm "$F/data.tok"
        jq -es '.[-1].loss < .[0].loss - .2' $preset.jsonl
        score $preset.llm --adapter $preset-a.llm > /dev/null
    done
}

@test "conversations: the chat template stays with the adapter, where it is resumed and where it answers; a reference is the base alone" {
    for i in {1..8}; do
        printf '{"messages": [{"role": "user", "content": "Tell me story %d."}, {"role": "assistant", "content": "Once upon a time."}]}\n' $i
    done > chats.jsonl
    llm-train -q --init "$F/q8_0.gguf" --adapter lora --objective sft --chat-template chatml -l 128 -b 4 -n 4 -o a.llm chats.jsonl
    llm-train -q --resume a.llm -n 30 --lr 5e-3 --log log.jsonl
    jq -es '.[-1].loss < .[0].loss' log.jsonl
    llm-infer -q -m "$F/q8_0.gguf" --adapter a.llm --chat -n 4 --temp 0 "Tell me story 9."
    echo '{"prompt": "a", "chosen": " b", "rejected": " c"}' > pairs.jsonl
    llm-train -q --init "$F/q8_0.gguf" --adapter lora --objective dpo --precision f32 -l 24 -b 1 -n 3 --log dpo.jsonl -o dpo.llm pairs.jsonl
    near "$(jq -s '.[0].loss' dpo.jsonl)" 0.6931471805599453 1e-7
    jq -es '.[-1].loss < .[0].loss' dpo.jsonl
}

@test "a reward model and a policy under reinforcement learn by adapters" {
    printf '%s\n' '{"prompt": "a", "chosen": "be", "rejected": "xo"}' '{"prompt": "the ", "chosen": "me", "rejected": "no"}' > pairs.jsonl
    llm-train -q --init "$F/base.llm" --objective reward -l 24 -n 0 -o rm.llm pairs.jsonl
    refused 65 "expected a model with the head that --objective reward needs" \
        llm-train -q --init "$F/base.llm" --adapter lora --objective reward -l 24 -n 1 -o ra.llm pairs.jsonl
    llm-train -q --init rm.llm --adapter lora --objective reward -l 24 -b 2 -n 20 --lr 1e-2 --warmup 0 --precision f32 --log log.jsonl -o ra.llm pairs.jsonl
    jq -es '.[-1].loss < .[0].loss / 2 and .[-1].reward_accuracy == 1' log.jsonl
    llm-train -q --init rm.llm --adapter lora --adapter-init ra.llm --objective reward -l 24 -b 1 -n 1 --lr 0 --precision f32 --order sequential \
        --log one.jsonl -o x.llm pairs.jsonl
    echo '{"prompt": "a", "completion": "be"}' | llm-infer -q -m rm.llm --adapter ra.llm --precision f32 --score-reward --jsonl - > scored
    jq -es '.[0].reward - .[1].reward_chosen | fabs < 1e-5' scored one.jsonl
    # a policy: rollouts by the base with its adapter, whose run goes on
    "${adapt[@]}" "$F/q8_0.gguf" -n 0 -o a.llm "$F/data.tok"
    printf '%s\n' '{"prompt": "the "}' '{"prompt": "a"}' > prompts
    for k in 1 2; do
        llm-infer -q -m "$F/q8_0.gguf" --adapter a.llm --jsonl --rollout -n 6 --samples 4 prompts | jq -c '.reward = (.text | [scan("e")] | length)' > r
        llm-train -q -b 8 --lr 1e-2 --objective grpo --resume a.llm --log grpo.jsonl - < r
    done
    jq -es 'length == 2 and all(.[]; .ratio == 1 and .kl_k1 == 0)' grpo.jsonl
    refused 65 '"model": expected' llm-train -q -b 8 --objective grpo --resume a.llm r # of the policy before this step
}

@test "the plan counts pairs, and the base as it is stored" {
    "${adapt[@]}" "$F/q4_0.gguf" -b 2 --plan --json > plan.json
    jq -e '.trained_parameters == 2 * 4 * (2 * 512 + 2 * 384 + 3 * 512) and .gradient_bytes == 4 * .trained_parameters and .moment_bytes == 8 * .trained_parameters
        and .weight_bytes < 1.5 * .parameters' plan.json
    "${adapt[@]}" "$F/q4_0.gguf" -b 2 -n 1 --log log.jsonl -o a.llm "$F/data.tok"
    jq -e --slurpfile plan plan.json '.trained_parameters == $plan[0].trained_parameters' log.jsonl
}

@test "gradients pass the check" {
    "${adapt[@]}" "$F/q8_0.gguf" -b 2 --also-train model.norm.weight --gradcheck "$F/data.tok" > checked
    assert_equal "$(grep -c 'lora_[AB]' checked)" 28
    grep -q ^model.norm.weight checked
}

@test "all of a quantised model is trained: its matrices become masters, and a note says of which type they were" {
    llm-train --init "$F/q4_0.gguf" -l 24 -b 4 -n 20 --lr 1e-2 -o full.llm --log full.jsonl "$F/data.tok" 2> notes
    grep -E '[0-9]+ tensors of type q4_0 become f32 masters to be trained; the model is stored with them in bf16' notes
    jq -es '.[-1].loss < .[0].loss' full.jsonl
    llm-train --init "$F/q8_0.gguf" --train '*layers.1.mlp.up_proj*' -l 24 -b 2 -n 2 --precision f32 -o part.llm "$F/data.tok" 2> notes
    grep '1 tensor of type q8_0 becomes f32 masters to be trained; the model is stored with it in f32' notes
    score part.llm > /dev/null
}

@test "another base, a base that is gone, an adapter as a model, patterns and options that do not go together: one line" {
    "${adapt[@]}" "$F/base.llm" -b 2 -n 2 -o a.llm "$F/data.tok"
    refused 65 "a.llm: expected the model that it was made for (fingerprint" llm-infer -m "$F/other.llm" --adapter a.llm x
    refused 65 "a.llm: expected a model, found an adapter of one" llm-infer -m a.llm x
    refused 65 "a.llm: expected a model, found an adapter of one" llm-train --init a.llm -n 1 -o b.llm "$F/data.tok"
    refused 66 "none.llm" llm-infer -m "$F/base.llm" --adapter none.llm x
    refused 65 "expected an adapter" llm-infer -m "$F/base.llm" --adapter "$F/other.llm" x
    cp "$F/base.llm" moved.llm
    "${adapt[@]}" moved.llm -b 2 -n 2 -o m.llm "$F/data.tok"
    cp "$F/other.llm" moved.llm
    refused 65 "m.llm: expected the model that it was made for" llm-train --resume m.llm -n 4
    rm moved.llm
    refused 66 "m.llm: its base: moved.llm" llm-train --resume m.llm -n 4
    refused 2 "--targets: expected a pattern that matches" "${adapt[@]}" "$F/base.llm" --targets nosuch -o b.llm "$F/data.tok"
    refused 2 "--targets model.norm.weight: expected a matrix that is multiplied" "${adapt[@]}" "$F/base.llm" --targets model.norm.weight -o b.llm "$F/data.tok"
    refused 2 "--also-train: expected a pattern" "${adapt[@]}" "$F/base.llm" --also-train nosuch -o b.llm "$F/data.tok"
    refused 2 "go with --adapter" llm-train --init "$F/base.llm" --rank 4 -o b.llm "$F/data.tok"
    refused 2 "a run that is resumed" llm-train --resume a.llm --adapter lora
    refused 2 "expected the model that it adapts" llm-train -c tiny --adapter lora -o b.llm "$F/data.tok"
    refused 2 "the adapter alone" "${adapt[@]}" "$F/base.llm" --train '*norm*' -o b.llm "$F/data.tok"
    refused 2 "expected FILE.llm for an adapter" "${adapt[@]}" "$F/base.llm" -o b.safetensors "$F/data.tok"
    refused 2 "FILE has them" llm-train --init "$F/base.llm" --adapter lora --adapter-init a.llm --rank 3 -o b.llm "$F/data.tok"
}

@test "folders that are no adapters of this model, cut and altered: one line" {
    cp -r "$golden/init" bad
    jq '.lora_bias = true' "$golden/init/adapter_config.json" > bad/adapter_config.json
    tiny=$ROOT/tests/golden/tiny
    refused 69 "bad: adapter_config.json: lora_bias: expected an adapter without it" llm-infer -m "$tiny" --adapter bad x
    for how in pissa olora loftq; do # of which PEFT changes the base when it loads them
        jq --arg how $how '.init_lora_weights = $how' "$golden/init/adapter_config.json" > bad/adapter_config.json
        refused 69 "init_lora_weights: expected an adapter without it, found \"$how\"" llm-infer -m "$tiny" --adapter bad x
    done
    for variant in kasa_config monteclora_config use_bdlora; do # with more tensors beside a pair, or parts of matrices
        jq --arg key $variant '.[$key] = {}' "$golden/init/adapter_config.json" > bad/adapter_config.json
        refused 69 "bad: adapter_config.json: $variant: expected an adapter without it, found {}" llm-infer -m "$tiny" --adapter bad x
    done
    jq '.peft_type = "IA3"' "$golden/init/adapter_config.json" > bad/adapter_config.json
    refused 69 "peft_type: expected LORA, found IA3" llm-infer -m "$tiny" --adapter bad x
    jq '.lora_alpha = -1' "$golden/init/adapter_config.json" > bad/adapter_config.json
    refused 65 "lora_alpha: expected a number above 0" llm-infer -m "$tiny" --adapter bad x
    cp "$golden/init/adapter_config.json" bad
    refused 65 "tensor 'base_model.model.model.layers" llm-infer -m "$F/base.llm" --adapter bad x
    head -c 20000 "$golden/init/adapter_model.safetensors" > bad/adapter_model.safetensors
    refused 65 "adapter_model.safetensors" llm-infer -m "$tiny" --adapter bad x
    rm bad/adapter_config.json
    refused 66 "bad: expected an adapter's folder" llm-infer -m "$tiny" --adapter bad x
}
