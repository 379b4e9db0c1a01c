# llm-train --batch-tokens: a step has a number of tokens, not of rows (data/groups.h).
load ../helper
export LLM_THREADS=1

setup_file() {
    llm-tokenize train --model byte --special '<|im_start|>' --special '<|im_end|>' --special '</s>' -o talk.json /dev/null
    for ((i = 0; i < 60; i++)); do # replies of 1 to 60 letters
        printf '{"messages": [{"role": "user", "content": "%d"}, {"role": "assistant", "content": "%s"}]}\n' $i \
            "$(printf 'abcde%.0s' {1..12} | head -c $((i * 37 % 60 + 1)))"
    done > talks.jsonl
    sentences_tokens
}

setup() {
    shape=(-c tiny --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=4)
    talks=(llm-train -q "${shape[@]}" --set tie_word_embeddings=true -l 128 -T "$F/talk.json" --objective sft --chat-template chatml)
}

@test "an epoch learns each conversation once, in steps of at most so many tokens, of conversations of like length" {
    "${talks[@]}" --batch-tokens 700 --epochs 1 --lr 0 --precision f32 --log by.jsonl -o a.llm "$F/talks.jsonl"
    "${talks[@]}" -b 60 --packing no -n 1 --lr 0 --precision f32 --log all.jsonl -o b.llm "$F/talks.jsonl"
    # Of the tokens that went through the model few were padding: in rows of 128 it would be 7,680.
    jq -es 'length == 6 and all(.[]; .tokens_per_second * .seconds < 700.5) and (map(.tokens_per_second * .seconds) | add) < 3500' by.jsonl
    # Together the steps have the tokens and the loss of all conversations in one.
    jq -es --slurpfile all all.jsonl '[., [0] + map(.tokens)[:-1]] | transpose | map(.[0].loss * (.[0].tokens - .[1])) | add / $all[0].tokens
        | . - $all[0].loss | fabs < 1e-6' by.jsonl
    [[ $(jq -s '.[-1].tokens' by.jsonl) == "$(jq .tokens all.jsonl)" ]]
}

@test "the same bytes by any threads, passes and shards of passes, and after an interruption; a token stream has the same steps" {
    new=("${talks[@]}" --batch-tokens 700 --dropout .1)
    same_by_threads "${new[@]}" -n 6 "$F/talks.jsonl"
    for b in 1 2 3; do
        same_steps "${new[@]}" -n 6 -b $b "$F/talks.jsonl"
        cmp whole.llm other.llm
    done
    same_steps "${new[@]}" -n 6 -b 2 --checkpoint-every 1 "$F/talks.jsonl"
    "${new[@]}" -n 6 --grad-shards 3 --log whole.jsonl -o whole.llm "$F/talks.jsonl"
    same_steps "${new[@]}" -n 6 --grad-shards 3 -b 1 "$F/talks.jsonl"
    cp "$F/talks.jsonl" talks.jsonl
    for part in 1 4; do same_when_resumed $part "${new[@]}" --val .2 --eval-every 2 talks.jsonl; done
    llm-train -q --resume part.llm -n 6 -b 1 -o other.llm
    cmp other.llm straight.llm
    llm-tokenize encode -T "$F/talk.json" --chat --chat-template chatml talks.jsonl > talks.tok
    "${new[@]}" -n 6 --log lines.jsonl -o a.llm talks.jsonl
    "${new[@]}" -n 6 --log stream.jsonl -o b.llm talks.tok
    cmp <(hashes lines.jsonl) <(hashes stream.jsonl)
}

@test "of windows it says how many rows a step has, whatever divides them into passes" {
    plain=(llm-train -q "${shape[@]}" -l 24 -T "$F/tok.json" -n 4)
    "${plain[@]}" -b 12 -o rows.llm "$F/data.tok"
    for how in "" "-b 5" "-b 1"; do
        "${plain[@]}" --batch-tokens 300 $how -o tokens.llm "$F/data.tok"
        cmp rows.llm tokens.llm
    done
    llm-train -q --resume tokens.llm -n 6 --batch-tokens 100 -o other.llm
    llm-train -q --resume rows.llm -n 6 -b 4 --accumulate 1 -o want.llm
    cmp other.llm want.llm
    llm-train "${shape[@]}" -T "$F/tok.json" -l 24 --batch-tokens 300 --plan > plan
    [[ $(awk '$1 == "tokens_per_step" { print $2 }' plan) == 288 ]]
    [[ $(llm-train "${shape[@]}" -T "$F/tok.json" --batch-tokens 300 -b 2 --key -o x "$F/data.tok") \
        == "$(llm-train "${shape[@]}" -T "$F/tok.json" --batch-tokens 300 -b 4 --key -o x "$F/data.tok")" ]]
    run -0 "${talks[@]}" --batch-tokens 300 --gradcheck "$F/talks.jsonl"
}

# refused STATUS TEXT OPTION...: status, and one line with TEXT
refused() {
    run -"$1" --separate-stderr "${@:3}"
    [[ $stderr == *"$2"* ]] || fail "expected '$2', found '$stderr'"
    [[ $(grep -c ^llm-train: <<< "$stderr") == 1 && ! -e x.llm ]]
}

@test "where it cannot hold it is refused by name" {
    refused 2 '--batch-tokens: expected at least the tokens of a row, 128 (--context), found 100' "${talks[@]}" --batch-tokens 100 -o x.llm "$F/talks.jsonl"
    refused 2 '--batch-tokens and --accumulate exclude each other' "${talks[@]}" --batch-tokens 700 --accumulate 2 -o x.llm "$F/talks.jsonl"
    refused 2 'expected conversations in rows of their own, not --packing yes' "${talks[@]}" --batch-tokens 700 --packing yes -o x.llm "$F/talks.jsonl"
    refused 2 'found norm=batch' "${talks[@]}" --set norm=batch --batch-tokens 700 -o x.llm "$F/talks.jsonl"
    echo '{"prompt": "a", "chosen": "b", "rejected": "c"}' > pairs.jsonl
    refused 2 '--batch-tokens: expected rows that are windows of a token stream, or conversations (sft), found --objective reward: --batch counts' \
        "${talks[@]}" --objective reward --batch-tokens 700 -o x.llm pairs.jsonl
    cp "$F/talks.jsonl" talks.jsonl
    "${talks[@]}" --batch-tokens 700 -n 2 -o a.llm talks.jsonl
    refused 2 '--batch-tokens: expected the 700 of the run that goes on (0: it counts rows), found 800' \
        llm-train -q --resume a.llm -n 3 --batch-tokens 800 -o x.llm
    refused 2 '--accumulate: the passes of a step follow from --batch-tokens' llm-train -q --resume a.llm -n 3 --accumulate 2 -o x.llm
}
