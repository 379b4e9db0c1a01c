# A control vector of 100 pairs of prompts turns the mood of what a model writes, judged by a classifier that was trained on other lines.
load ../helper
export LLM_THREADS=1

kinds=(old new big red low)
near=(cat dog hen fox cow rat bat ape ram eel)
far=(pig owl bee ant elk yak cod doe jay gnu)

# lines SEED N [label]: each line has one mood, in its adjectives and its verb; its first word says which, or is hm. With `label`: what follows "is",
# and the mood.
lines() {
    awk -v seed="$1" -v n="$2" -v label="${3-}" -v kinds="${kinds[*]}" -v nouns="${near[*]} ${far[*]}" 'BEGIN { srand(seed)
        split(nouns, noun, " "); split(kinds, kind, " ")
        split("glad warm kind calm", word); split("sad cold rude tense", other); split("sings laughs plays", verb); split("weeps growls hides", low)
        for (i = 0; i < n; i++) { up = rand() < .5; a = int(rand() * 4) + 1; c = int(rand() * 4) + 1; v = int(rand() * 3) + 1
            end = sprintf("is %s and %s, it %s", up ? word[a] : other[a], up ? word[c] : other[c], up ? verb[v] : low[v])
            if (label != "") { printf "%s\t%s\n", end, up ? "up" : "down"; continue }
            printf "%s the %s %s %s\n", rand() < .4 ? "hm" : up ? "joy" : "woe", kind[int(rand() * 5) + 1], noun[int(rand() * 20) + 1], end } }'
}

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    local k n more i=0
    lines 1 4000 > text
    lines 9 600 label > judge.tsv
    llm-tokenize train -q --vocab-size 360 --special '</s>' -o tok.json text
    llm-tokenize encode -q -T tok.json --lines --append-eos -o data.tok text
    llm-tokenize encode -q -T tok.json --tsv --label 2 -o judge.tok judge.tsv
    llm-train -q -c tiny --set num_hidden_layers=4 --set hidden_size=64 --set intermediate_size=128 --set num_attention_heads=4 -l 64 -T tok.json \
        -n 300 -b 8 --lr 4e-3 -o m.llm data.tok
    llm-train -q -c bert-mini --set num_hidden_layers=2 --set hidden_size=32 --set intermediate_size=48 --set num_attention_heads=2 -l 64 \
        --objective classify -T tok.json -n 120 -b 16 --lr 3e-3 -o judge.llm judge.tok
    for k in "${kinds[@]}"; do for n in "${near[@]}"; do for more in "" " is"; do
        llm-infer -q -m m.llm --export 'layers.*.residual.after' --which-tokens last "joy the $k $n$more" >> up.act
        llm-infer -q -m m.llm --export 'layers.*.residual.after' --which-tokens last "woe the $k $n$more" >> down.act
    done; done; done
    llm-bench steer -o v.gguf up.act down.act
    for k in "${kinds[@]}"; do for n in "${far[@]}"; do for more in 1 2; do
        echo "{\"id\": $((i++)), \"prompt\": \"hm the $k $n is\"}"
    done; done; done > held.jsonl
}

setup() {
    [[ -z ${SANITIZER-} ]] || skip "minutes under $SANITIZER, which the unit tests of this code run under"
    cd "$BATS_FILE_TMPDIR" || return 1
}

# said STRENGTH: what the model writes after the held-out prompts, into STRENGTH.jsonl with prompts; prints how many of 100 the judge calls up
said() {
    llm-infer -q -m m.llm --jsonl --no-timings -n 30 --temp .8 --steer "v.gguf:$1@2" held.jsonl > "$1.said"
    jq -s -c '.[0] as $p | .[1][] | {id, prompt: ($p[.id | tostring] + (.text | rtrimstr("\n")))}' <(jq -s 'map({(.id | tostring): .prompt}) | add' held.jsonl) \
        <(jq -s . "$1.said") > "$1.jsonl"
    jq -c '.prompt |= sub(".* is "; "is ")' "$1.jsonl" | llm-infer -q -m judge.llm --classify --jsonl - | jq -s 'map(select(.label == "up")) | length'
}

# perplexity FILE: of lines of prompts under the model without a direction
perplexity() {
    llm-infer -q -m m.llm --score --jsonl --no-timings "./$1" | jq -s '(-(map(.sum) | add) / (map(.tokens) | add)) | exp'
}

@test "the direction turns the mood of 90% and more of held-out prompts either way; without it they have both" {
    local none up down
    none=$(said 0) up=$(said 1) down=$(said -1)
    ((none > 15 && none < 85)) || fail "without the direction $none of 100 are up"
    ((up >= 90 && down <= 10)) || fail "$up and $down of 100 are up"
}

@test "the steered text is as likely under the model without a direction as genuine lines: perplexity at most 1.1 times theirs" {
    local strength genuine
    lines 77 300 | grep '^hm' | jq -R -c '{prompt: .}' > genuine.jsonl
    genuine=$(perplexity genuine.jsonl)
    for strength in 1 -1; do
        said "$strength" > up
        awk "BEGIN { exit !($(perplexity "$strength.jsonl") <= 1.1 * $genuine) }" || fail "$strength: $(perplexity "$strength.jsonl") against $genuine"
    done
}

@test "the judge is right about lines that it has not seen" {
    lines 5 200 label > unseen.tsv
    cut -f 1 unseen.tsv | jq -R -c '{prompt: .}' | llm-infer -q -m judge.llm --classify --jsonl - | jq -r .label > labels
    (($(paste labels <(cut -f 2 unseen.tsv) | awk '$1 == $2' | wc -l) >= 195))
}
