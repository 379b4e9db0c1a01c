#!/bin/bash
# A student of 5M parameters learns from a teacher of 30M (tests/slow/small.sh): from completions that it writes and the teacher judges token by token
# (--objective distill --on-policy), and from completions that the teacher wrote (--objective sft), with the same FLOPs. Prints for each what the
# divergences are on prompts that none of them has seen, in nats a token: KL(teacher || student) on the teacher's completions, which is what SFT makes
# small, and KL(student || teacher) on the student's.
#
#   tests/slow/distill.sh FOLDER [ITERATIONS [START]]   # FOLDER: of small.sh; START: steps of SFT that both begin with
#
# FLOPs of a token, with parameters S and T: SFT 6 S + 2 T / EPOCHS, since the teacher writes each text once; on policy 2 S to write, 6 S to learn, 2 T
# to judge.
set -eu -o pipefail
folder=$1 iterations=${2:-150} start=${3:-150}
teacher=$folder/small.llm tok=$folder/tok.json work=$folder/distill
rows=32 length=64 threads=${THREADS:-2} seed=${SEED:-1} rate=${RATE:-1e-3}
mkdir -p "$work"

# prompts TEXT N FROM: N prompts of the first words of lines, as JSON Lines
prompts() {
    awk 'NF > 24' "$1" | sed -n "$3,$(($3 + $2 - 1))p" | jq -Rc '{prompt: (split(" ")[:10] | join(" "))}'
}
# write MODEL PROMPTS SEED: completions, one of each prompt
write() {
    llm-infer -q -j "$threads" -m "$1" --jsonl --rollout --ignore-eos --no-timings --parallel 64 -n $length --seed "$3" "$2"
}
# log_probs MODEL < completions: the sum over all tokens of the completions, and how many tokens they are
log_probs() {
    jq -c '{ids: (.prompt_ids + .ids), n: (.ids | length)}' > "$work/lines"
    llm-infer -q -j "$threads" -m "$1" --jsonl --score --per-token "$work/lines" | paste -d'\n' - "$work/lines" |
        jq -n 'reduce inputs as $x ({}; if $x.per_token then .p = [$x.per_token[].log_prob] else .sum += (.p[-$x.n:] | add) | .n += $x.n end) | .sum, .n'
}
# judge NAME MODEL: a row of the table
judge() {
    local own other n mine theirs m
    write "$2" "$work/held" 7 > "$work/judged"
    { read -r own; read -r n; } < <(log_probs "$2" < "$work/judged")
    { read -r other; read -r _; } < <(log_probs "$teacher" < "$work/judged")
    { read -r mine; read -r m; } < <(log_probs "$2" < "$work/teacher.own")
    { read -r theirs; read -r _; } < <(log_probs "$teacher" < "$work/teacher.own")
    awk -v name="$1" -v own="$own" -v other="$other" -v n="$n" -v mine="$mine" -v theirs="$theirs" -v m="$m" \
        'BEGIN { printf "%s\t%.4f\t%.4f\n", name, (theirs - mine) / m, (own - other) / n }'
}

[[ -e $work/prompts ]] || prompts "$folder/train.txt" $((rows * (iterations * 5 / 4 + start))) 1 > "$work/prompts"
[[ -e $work/held ]] || prompts "$folder/val.txt" 256 1 > "$work/held"
(($(wc -l < "$work/held") >= 100)) || { echo "distill.sh: too few prompts" >&2; exit 1; }
# the texts of SFT: as many as the larger of its two runs can read
[[ -e $work/texts ]] || { write "$teacher" "$work/prompts" 3 > "$work/texts.new"; mv "$work/texts.new" "$work/texts"; }
[[ -e $work/teacher.own ]] || write "$teacher" "$work/held" 5 > "$work/teacher.own"
[[ -e $work/talks ]] || jq -c --slurpfile p "$work/prompts" \
    '{messages: [{role: "user", content: $p[.group].prompt}, {role: "assistant", content: .text}]}' "$work/texts" > "$work/talks"
printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' > "$work/template"

learn=(llm-train -q -j "$threads" --seed "$seed" -b $rows -l 96 --schedule constant --warmup 10 --weight-decay 0)
sft=("${learn[@]}" --objective sft --packing no --chat-template "$work/template")
if [[ ! -e $work/start.llm ]]; then
    head -n $((rows * start)) "$work/talks" > "$work/first"
    llm-train -q -j "$threads" -c tiny --set vocab_size=8192 --set num_hidden_layers=4 -T "$tok" -l 96 -n 0 -o "$work/new.llm" "$folder/train.tok"
    "${sft[@]}" --init "$work/new.llm" --lr "$rate" -n "$start" --log "$work/start.log" -o "$work/start.llm" "$work/first"
fi
flops() { llm-bench cost --table totals "$1" | awk -F'\t' '/rule 6N/ { print $2 / 6 }'; }
s=$(flops "$work/start.llm")
t=$(flops "$teacher")
tail -n +$((rows * start + 1)) "$work/talks" > "$work/more"
tail -n +$((rows * start + 1)) "$work/prompts" > "$work/own"

printf 'model\tKL(teacher || student)\tKL(student || teacher)\n'
judge start "$work/start.llm"
for epochs in 1 4; do
    steps=$(awk -v s="$s" -v t="$t" -v i="$iterations" -v e=$epochs 'BEGIN { printf "%d", i * (8 * s + 2 * t) / (6 * s + 2 * t / e) }')
    texts=$((rows * steps / epochs))
    head -n "$texts" "$work/more" > "$work/part"
    "${sft[@]}" --init "$work/start.llm" --lr "$rate" -n "$steps" --log "$work/sft$epochs.log" -o "$work/sft$epochs.llm" "$work/part"
    judge "sft, $epochs epochs, $steps steps" "$work/sft$epochs.llm"
done
for beta in 0 .5; do
    "${learn[@]}" --init "$work/start.llm" --lr "$rate" --objective distill --on-policy --teacher "$teacher" --jsd-beta $beta --prompts "$work/own" \
        --take $rows --samples 1 --tokens $length --parallel $rows --iterations "$iterations" --log "$work/own$beta.log" -o "$work/own$beta.llm"
    judge "on policy, --jsd-beta $beta, $iterations steps" "$work/own$beta.llm"
done
