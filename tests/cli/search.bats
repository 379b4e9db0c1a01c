# llm-infer --beams, --penalty-alpha, --cfg-scale: beside transformers and definitions (tests/oracle/search.py).
load ../helper

setup() { m=$ROOT/tests/golden/tiny; }

@test "beams, diverse beams, contrastive search, guidance: the texts and scores of the goldens" {
    local golden=$ROOT/tests/golden/search.jsonl options n=0
    while read -r options; do
        jq -c --arg o "$options" 'select(.options == $o)' "$golden" > cases
        # shellcheck disable=SC2086
        IFS=$'\t' read -r first negative <<< "${options/ --negative-prompt /$'\t'}"
        # shellcheck disable=SC2086
        jq -c '{ids, tokens}' cases | llm-infer -m "$m" -q --precision f32 --jsonl --ids --no-timings $first ${negative:+--negative-prompt "$negative"} - > got
        jq -c '.texts[]' cases | cmp - <(jq -c .ids got) || fail "$options: other texts"
        if [[ $options == --beams* ]]; then
            paste <(jq '.scores[]' cases) <(jq .score got) | awk '{ d = $1 - $2; if (d * d > 1e-9) exit 1 }' || fail "$options: other scores"
        fi
        n=$((n + $(wc -l < cases)))
    done < <(jq -r .options "$golden" | sort -u)
    assert_equal $n "$(wc -l < "$golden")"
}

@test "a search alone is a text; its stop strings cut; one prompt is as a line" {
    llm-infer -m "$m" -q --precision f32 --beams 3 -n 8 --ids '5 9 200' > alone
    jq -nc '{ids: [5, 9, 200]}' | llm-infer -m "$m" -q --precision f32 --beams 3 -n 8 --ids --jsonl - | jq -r '.ids | join(" ")' | cmp - alone
    llm-infer -m "$m" -q --beams 2 --samples 2 -n 5 hello > two
    llm-infer -m "$m" -q --penalty-alpha .6 --top-k 4 -n 5 --stop zzz hello > one
}

@test "guidance: drafts, batches, bounded memory and resumed lines change nothing; a scale of 1 is none" {
    for i in 1 2 3 4 5 6 7 8 9; do
        jq -nc --argjson i $i '{id: $i, ids: [range(3 + $i * 7) | . * $i % 250 + 3], negative_prompt: (if $i % 3 == 0 then "7 8 \($i)" else null end)}
            | if $i == 5 then . + {"cfg-scale": 1} else . end'
    done > in.jsonl
    local b=(llm-infer -m "$m" -q --jsonl --ids --no-timings --ignore-eos -n 100 -c 250 --temp 1 --cfg-scale 2) how
    "${b[@]}" --parallel 1 in.jsonl > want
    for how in '--parallel 9' '--parallel 4 -b 5' '--draft-ngram' "--draft $m --parallel 3" '--memory 40M' '--parallel 9 -j 3 --no-sharing'; do
        # shellcheck disable=SC2086
        "${b[@]}" $how in.jsonl | cmp - want || fail "$how"
    done
    jq -c 'del(.negative_prompt)' in.jsonl | "${b[@]}" --cfg-scale 1 > plain
    cmp <(sed -n 5p want) <(sed -n 5p plain)
    run ! cmp -s want plain
}

@test "refusals" {
    refused 2 "expected one search" llm-infer -m "$m" --beams 2 --penalty-alpha .5 hello
    refused 2 "--penalty-alpha computes each of the --top-k tokens" llm-infer -m "$m" --penalty-alpha .5 --top-k 0 hello
    refused 2 "a search has no drafts" llm-infer -m "$m" --beams 2 --draft-ngram hello
    refused 2 "--beam-groups: expected a divisor" llm-infer -m "$m" --beams 5 --beam-groups 2 hello
    refused 2 "--beam-groups, --length-penalty" llm-infer -m "$m" --length-penalty 2 hello
    refused 2 "--diversity-penalty goes with" llm-infer -m "$m" --beams 2 --diversity-penalty 1 hello
    refused 2 "--samples: expected at most" llm-infer -m "$m" --beams 2 --samples 3 hello
    refused 2 "a search cannot follow a grammar" llm-infer -m "$m" --beams 2 --regex a hello
    refused 2 "a search is not guided" llm-infer -m "$m" --beams 2 --cfg-scale 2 hello
    refused 2 "--negative-prompt goes with" llm-infer -m "$m" --negative-prompt no hello
    refused 2 "--cfg-scale: expected a -b of 2" llm-infer -m "$m" --cfg-scale 2 -b 1 hello
    printf '{"prompt": "a"}\n{"prompt": "a", "cfg_scale": 2}\n{"prompt": "a"}\n' > some.jsonl # a line's own guidance fails the line alone
    run -65 --separate-stderr llm-infer -m "$m" --jsonl -n 1 -b 1 some.jsonl
    assert_equal "$(jq -c .error <<< "$output" | tr '\n' ' ')" 'null "--cfg-scale: expected a -b of 2 or more" null '
    refused 69 "--cfg-scale: expected a decoder" llm-infer -m "$ROOT/tests/golden/tiny-t5" --cfg-scale 2 --ids '5 6'
    run -65 --separate-stderr llm-infer -m "$m" --beams 2 --jsonl --ids -n 2 - <<< '{"ids": [4], "samples": 3}'
    [[ $output == *'"samples\": expected at most 2'* ]]
    run -65 --separate-stderr llm-infer -m "$m" --penalty-alpha .5 --jsonl --ids -n 2 - <<< '{"ids": [4], "top_k": 0}'
    [[ $output == *'\"top_k\": expected one above 0'* ]]
    # a line cannot ask for a search, and is not answered without it
    printf '%s\n' '{"prompt": "a", "num_beams": 2}' '{"prompt": "a", "penalty_alpha": 0.6}' '{"prompt": "a", "beams": null, "length": 2}' \
        '{"prompt": "a", "num_beams": 1, "early_stopping": false, "length_penalty": 1, "diversity_penalty": 0.0}' > some.jsonl
    run -65 --separate-stderr llm-infer -m "$m" --jsonl -n 1 some.jsonl
    assert_equal "$(jq -r .error <<< "$output" | tr '\n' ' ')" '"num_beams": expected --beams for all lines, as a search is one of the whole run '"\
"'"penalty_alpha": expected --penalty-alpha for all lines, as a search is one of the whole run null null '
}
