# llm-bench eval: tasks of published layouts, judged as lm-eval judges them (tests/oracle/eval.py); any batch gives the same bytes; comparison; bad
# input.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny E=$ROOT/tests/golden/eval
}

# judged TASK [OPTION...]: the items of a golden layout, into items.jsonl
judged() {
    local task=$1
    shift
    llm-bench eval -q -m "$M" --task "$task" --precision f32 --items items.jsonl "$@" "$E/$task.jsonl" > table.tsv
}

# agrees TASK: items.jsonl has lm-eval's log-probabilities within 1e-4, and its decisions. The tiny model's random weights spread log-probabilities of
# a choice down to -200, where FP32 sums of other orders differ by a few 1e-5. On a real model the reference is FP64, since lm-eval's own FP32 is
# further from it than ours: 6.7e-4 against 1.3e-4 at most on SmolLM2-135M (tests/oracle/eval.py precision, tests/bench/RESULTS.md).
agrees() {
    python3 - "$E/$1.expected.jsonl" <<'END'
import json, sys
ours = [json.loads(line) for line in open("items.jsonl")][1:]
theirs = [json.loads(line) for line in open(sys.argv[1])]
assert len(ours) == len(theirs) > 0
for a, b in zip(ours, theirs):
    mine = [c["log_prob"] for c in a["choices"]]
    assert len(mine) == len(b["log_probs"]), (a, b)
    assert all(abs(x - y) <= 1e-4 for x, y in zip(mine, b["log_probs"])), (a, b)
    if sys.argv[1].endswith("mc2.expected.jsonl"):
        assert abs(a["right_mass"] - b["acc"]) < 1e-4, (a, b)
    else:
        assert a["acc"] == b["acc"], (a, b)
    assert "acc_norm" not in b or a["acc_norm_chars"] == b["acc_norm"], (a, b)
END
}

@test "every layout: lm-eval's log-probabilities and decisions, item by item" {
    need_tool python3
    for task in "$E"/*.expected.jsonl; do
        task=${task##*/}
        task=${task%.expected.jsonl}
        [[ $task == gsm8k || $task == *.shots3 ]] && continue
        judged "$task"
        agrees "$task" || fail "$task"
    done
}

@test "white space is Python's, as in lm-eval: at the end of a context, around HellaSwag's texts and answers; words" {
    near() { jq -s -c "[.[1].choices | to_entries[] | (.value.log_prob - [$*][.key]) | fabs < 1e-4] | unique" items.jsonl; }
    score() { rm -f items.jsonl && jq -c . | llm-bench eval -q -m "$M" --task "$1" --precision f32 --items items.jsonl - > table.tsv; }
    score winogrande <<< '{"sentence": "once upon _ a time there was", "option1": "cat\u00a0", "option2": "red \u3000", "answer": "1"}'
    assert_equal "$(near -56.4912, -80.53469)" "[true]"
    score hellaswag <<< '{"ind": 0, "activity_label": "\u00a0cat", "ctx_a": "once upon a time", "ctx_b": "there was\u3000", "label": "1",
        "endings": ["a little cat\u00a0", "\u2003red ball", "she liked", "the garden"]}'
    assert_equal "$(near -30.89985, -24.20623, -41.54309, -38.99058)" "[true]"
    score text <<< '{"text": " once upon\u00a0a time\n"}'
    assert_equal "$(jq -s '.[1].words' items.jsonl)" 6 # Python: len(re.split(r"\s+", text))
}

@test "examples before each item: lm-eval's log-probabilities with the first three other items" {
    need_tool python3
    need_tool jq
    for task in hellaswag piqa arc mmlu; do
        llm-bench eval -q -m "$M" --task $task --show-task | jq '.shots_pick = "first"' > $task.json
        llm-bench eval -q -m "$M" --task $task.json --shots 3 --precision f32 --items items.jsonl "$E/$task.jsonl" > table.tsv
        agrees $task.shots3 || fail "$task"
    done
}

@test "generations: lm-eval's greedy completions" {
    need_tool python3
    llm-bench eval -q -m "$M" --task gsm8k --show-task | sed 's/"max_tokens":256/"max_tokens":24/; s/"shots":5/"shots":0/' > gsm8k.json
    llm-bench eval -q -m "$M" --task gsm8k.json --precision f32 --items items.jsonl "$E/gsm8k.jsonl" > table.tsv
    python3 - "$E/gsm8k.expected.jsonl" <<'END'
import json, sys
ours = [json.loads(line) for line in open("items.jsonl")][1:]
theirs = [json.loads(line) for line in open(sys.argv[1])]
assert [a["completions"][0] for a in ours] == [b["completion"] for b in theirs], (ours, theirs)
END
}

@test "any batch, any threads, resumed or not: the same bytes" {
    judged hellaswag --shots 2
    cp items.jsonl whole.jsonl
    judged hellaswag --shots 2 -b 7 -j 1
    cmp items.jsonl whole.jsonl
    head -n 9 whole.jsonl > items.jsonl
    printf '{"item":8,"ids":[1,' >> items.jsonl # a torn line
    judged hellaswag --shots 2 --resume
    cmp items.jsonl whole.jsonl
    run -65 --separate-stderr llm-bench eval -q -m "$M" --task hellaswag --shots 1 --items items.jsonl --resume --precision f32 "$E/hellaswag.jsonl"
    [[ $stderr == *'--resume: items.jsonl: "shots": expected 1, found 2' ]]
}

@test "the file's other forms give the same items: text, CSV, labels apart" {
    need_tool python3
    judged mmlu
    python3 -c '
import csv, json, sys
w = csv.writer(sys.stdout, lineterminator="\n")
for line in open(sys.argv[1]):
    o = json.loads(line)
    w.writerow([o["question"], *o["choices"], "ABCD"[o["answer"]]])' "$E/mmlu.jsonl" > mmlu.csv
    llm-bench eval -q -m "$M" --task mmlu --show-task |
        sed 's/about {{.*replace[^}]*}}{% endif %}/about cat care{% endif %}/; s/{% if subject is defined %}/{% if true %}/' > mmlu.json
    llm-bench eval -q -m "$M" --task mmlu.json --precision f32 --items csv.jsonl mmlu.csv > csv.tsv
    diff <(sed 1d items.jsonl) <(sed 1d csv.jsonl)
    judged piqa
    sed 's/, "label".*/}/' "$E/piqa.jsonl" > questions.jsonl
    sed 's/.*"label": //; s/}//' "$E/piqa.jsonl" > labels
    llm-bench eval -q -m "$M" --task piqa --precision f32 --labels labels --items apart.jsonl questions.jsonl > apart.tsv
    diff <(sed 1d items.jsonl) <(sed 1d apart.jsonl)
    cmp table.tsv apart.tsv
}

@test "a task of one's own: perplexity of texts agrees with llm-infer --score" {
    printf 'Once upon a time there was a little cat.\n' > text
    llm-bench eval -q -m "$M" --task text --precision f32 text > table.tsv
    # the end token stands before the text, so that its first token is scored too
    awk -F'\t' '$2 == "token_perplexity" { print $3 }' table.tsv | grep -Eq '^[0-9]+\.[0-9]{4}$'
    awk -F'\t' '$2 == "bits_per_byte" { print $3 }' table.tsv | grep -Eq '^[0-9]+\.[0-9]{4}$'
    printf 'Once upon a time there was a little cat.' > line
    llm-infer -q -m "$M" --precision f32 --ids --score "0 $(llm-tokenize encode -q -T "$M/tokenizer.json" --text line)" |
        awk '{ s -= $NF } END { printf "%.4f\n", exp(s / NR) }' > wanted
    # both are printed, with 4 and 6 digits
    awk -F'\t' 'NR == FNR { wanted = $1; next } $2 == "token_perplexity" { exit !(($3 - wanted) ^ 2 < 1e-6) }' wanted table.tsv
}

@test "pass@k of several samples; a seed says which" {
    printf '{"q": "Once", "a": "cat"}\n{"q": "The", "a": "ball"}\n' > data.jsonl
    echo '{"context": "{{ q }}", "target": "{{ a }}", "generate": true, "max_tokens": 8, "extract": "[a-z]+", "data": "data.jsonl"}' > task.json
    llm-bench eval -q -m "$M" --task task.json --samples 4 --seed 3 --items a.jsonl > a.tsv
    llm-bench eval -q -m "$M" --task task.json --samples 4 --seed 3 --parallel 1 -b 5 --items b.jsonl > b.tsv
    cmp a.jsonl b.jsonl
    assert_equal "$(cut -f2 a.tsv | tr '\n' ' ')" "metric exact_match pass@1 pass@2 pass@4 "
}

@test "two runs compared: McNemar's exact p, the interval of the difference" {
    {
        echo '{"task":"t","task_hash":"1","data_hash":"2"}'
        for i in {0..19}; do echo "{\"item\":$i,\"acc\":$((i < 15))}"; done
    } > a.jsonl
    {
        echo '{"task":"t","task_hash":"1","data_hash":"2"}'
        for i in {0..19}; do echo "{\"item\":$i,\"acc\":$((i >= 1 && i < 7))}"; done
    } > b.jsonl
    llm-bench eval --compare a.jsonl b.jsonl > table.tsv
    # 9 against 0: p = 2 * 2^-9
    assert_equal "$(awk -F'\t' 'NR == 2 { print $1, $2, $3, $4, $5, $8, $9, $10 }' table.tsv)" "acc 20 0.7500 0.3000 -0.4500 9 0 0.003906"
    awk -F'\t' 'NR == 2 { exit !($6 < -.2 && $6 > -.8 && $7 < -.1 && $7 > $6) }' table.tsv
    for run in a b; do head -n 2 $run.jsonl > $run.one; done
    assert_equal "$(llm-bench eval --compare a.one b.one | awk -F'\t' 'NR == 2 { print $2, $5, $6, $7 }')" '1 -1.0000 nan nan'
    sed 's/"2"/"3"/' b.jsonl > c.jsonl
    run -65 --separate-stderr llm-bench eval --compare a.jsonl c.jsonl
    [[ $stderr == *'expected runs of one task over the same data, found another "data_hash"' ]]
}

@test "a model that gives every token the same probability is refused" {
    need_tool python3
    mkdir flat
    cp "$M/config.json" "$M/tokenizer.json" flat
    python3 - "$M/model.safetensors" <<'END'
import sys
b = open(sys.argv[1], "rb").read()
n = int.from_bytes(b[:8], "little")
open("flat/model.safetensors", "wb").write(b[:8 + n] + bytes(len(b) - 8 - n))
END
    run -1 --separate-stderr llm-bench eval -q -m flat --task piqa "$E/piqa.jsonl"
    [[ $stderr == *": a constant score: the model gives each of "*" tokens the log-probability -5.70"* ]]
}

# refused STATUS TEXT ARGUMENT...: one line on stderr that ends with TEXT
refused() {
    local status=$1 text=$2
    shift 2
    run "-$status" --separate-stderr llm-bench eval -q -m "$M" "$@"
    [[ $stderr == *"$text"* && $(wc -l <<< "$stderr") -le 2 ]] || fail "expected '$text', found '$stderr'"
}

@test "bad input: one line each" {
    echo '{"context": "{{ a }}"}' > none.json
    refused 65 "found a task without choices, target or text" --task none.json data
    echo '{"context": "{{ a }}", "choises": ["a"]}' > typo.json
    refused 65 '"choises": there is no such member of a task' --task typo.json data
    echo '{"goal": "x", "sol1": "a", "sol2": "", "label": 1}' > data
    refused 65 "data: item 0: choice 2: expected a text, found an empty one" --task piqa data
    echo '{"goal": "x", "sol1": "a", "sol2": "b", "label": ""}' > data
    refused 65 'item 0: "label": expected the answer, found an empty one' --task piqa data
    echo '{"goal": "x", "sol1": "a", "sol2": "b", "label": 2}' > data
    refused 65 "item 0: \"label\": expected one of 2 choices, found '2'" --task piqa data
    echo '{"question": "x", "choices": {"text": [], "label": []}, "answerKey": "A"}' > data
    refused 65 "found" --task arc data
    echo '{"question": "x", "answer": ""}' > data
    refused 65 "expected an answer, found an empty one" --task gsm8k --shots 0 data
    echo '{"goal": "x"' > data
    refused 65 "data: line 1" --task piqa data
    : > data
    refused 65 "data: " --task piqa data
    refused 2 "did you mean piqa" --task piqaa data
    refused 66 "nothing.jsonl" --task piqa nothing.jsonl
    refused 2 "24 examples: expected as many records to take them from, found 23" --task piqa --shots 24 "$E/piqa.jsonl"
    printf '1\n' > labels
    refused 65 "labels: expected 24 labels (the number of records), found 1" --task piqa --labels labels "$E/piqa.jsonl"
}

@test "a tokenizer without the tokens of a choice is refused, and a text that is longer than the context is cut and said" {
    printf 'What is this? a b d e f g j k l m n o p q r u v w x y z a a b\n' > words
    llm-tokenize train -q --model char --vocab-size 60 words > chars.json
    echo '{"context": "{{ a }}", "choices": ["b", "{{ b }}"], "answer": "c"}' > task.json
    echo '{"a": "a", "b": "\u4e2d", "c": 1}' > data
    run -65 --separate-stderr llm-bench eval -q -m "$M" -T chars.json --task task.json data
    [[ $stderr == "llm-bench eval: data: item 0: choice 2: "* ]]
    llm-bench eval -m "$M" --task lambada -c 8 --items items.jsonl "$E/lambada.jsonl" > table.tsv 2> err
    grep -q 'items were longer than the context of 8 tokens: their first tokens were dropped' err
    grep -q '"cut":true' items.jsonl
}
