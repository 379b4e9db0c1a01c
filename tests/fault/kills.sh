#!/bin/bash
# kills.sh N [SEED]: N kills and signals at random moments of every kind of work that writes files, in the current folder (empty), with the programs
# in PATH. After each, every output is compared: a file stands as it was or whole; a run of training goes on to the same model, averages, best model
# and log; nothing else is left once the work is done. Prints what was done; status 1 at the first difference.
# shellcheck disable=SC2054
set -u
N=${1-200}
RANDOM=${2-$$}
echo "$N kills, seed ${2-$$}"

give_up() {
    echo "kills.sh: $*" >&2
    ls -la >&2
    exit 1
}

now() { # milliseconds
    local t=${EPOCHREALTIME//[.,]/}
    echo $((t / 1000))
}

# The work: a name, its command, its outputs.
TOK=(-T tok.json)
train=(-c nano "${TOK[@]}" -n 24 -b 2 -l 24 --schedule constant --warmup 2 --val .3 --eval-every 5 --eval-rows 8 --ema .9)
where=(--save-every 7 --keep-best best.llm --ema-output ema.llm --log log.jsonl)
work_encode=(llm-tokenize encode -q "${TOK[@]}" -o out.tok text)
work_tokenizer=(llm-tokenize train -q --vocab-size 400 -o out.json text)
work_quantize=(llm-quantize -q -t q8_0 --report out.tsv fresh.llm out.safetensors)
work_infer=(llm-infer -q -m fresh.llm --jsonl --no-timings -n 40 --ignore-eos -o out.jsonl prompts.jsonl)
work_cache=(llm-infer -q -m fresh.llm -n 60 --ignore-eos --kv-out out.kv -o out.txt "the red cat")
work_ngram=(llm-train -q --objective ngram --order 4 "${TOK[@]}" -o out.ngram data.tok)
works=(encode tokenizer quantize infer cache ngram)
outputs="out.tok out.json out.tsv out.safetensors out.jsonl out.kv out.txt out.ngram"

prepare() {
    awk 'BEGIN { split("red green small old quick", a); split("cat dog bird fish hen", b); split("sees likes hears follows", v)
        for (i = 0; i < 3000; i++) printf "the %s %s %s the %s %d\n", a[i % 5 + 1], b[i * 7 % 5 + 1], v[i * 3 % 4 + 1], b[i * 11 % 5 + 1], i }' > text
    llm-tokenize train -q --vocab-size 300 -o tok.json text
    llm-tokenize encode -q "${TOK[@]}" --lines -o data.tok text
    llm-train -q -c nano "${TOK[@]}" -n 0 -l 128 -o fresh.llm data.tok
    seq 12 | sed 's/.*/{"prompt": "the red cat &"}/' > prompts.jsonl
    mkdir whole
    local w start
    for w in "${works[@]}"; do
        local -n command=work_$w
        start=$(now)
        "${command[@]}" || give_up "$w fails"
        took[$w]=$(($(now) - start))
    done
    # shellcheck disable=SC2086
    mv $outputs whole/
    start=$(now)
    llm-train -q "${train[@]}" "${where[@]}" -o run.llm data.tok || give_up "training fails"
    took[train]=$(($(now) - start))
    mv run.llm best.llm ema.llm log.jsonl whole/
}

# without_times LOG: what of it does not depend on the clock.
without_times() {
    sed -E 's/, "(tokens_per_second|peak_share|seconds|activation_bytes)": [^,}]*//g' "$1"
}

signals=(KILL KILL KILL TERM INT HUP)
declare -A took by_signal=([0]=0) by_work
killed=0 late=0

# strike NAME COMMAND...: runs it, and kills it at a random moment by a random signal. 1: it was done before.
strike() {
    local name=$1 signal=${signals[RANDOM % ${#signals[@]}]} got=0 delay pid
    shift
    delay=$((RANDOM % (took[$name] * 11 / 10 + 2)))
    set -m # background work does not ignore SIGINT
    "$@" < /dev/null > /dev/null 2> said &
    pid=$!
    set +m
    sleep "$((delay / 1000)).$(printf %03d $((delay % 1000)))"
    kill -s "$signal" "$pid" 2> /dev/null
    wait "$pid" 2> /dev/null || got=$?
    case $signal:$got in
    KILL:137 | TERM:143 | INT:130 | HUP:129) ;;
    *:0)
        late=$((late + 1))
        return 1
        ;;
    *) give_up "$name: SIG$signal after $delay ms: status $got: $(cat said)" ;;
    esac
    killed=$((killed + 1))
    by_signal[$signal]=$((${by_signal[$signal]-0} + 1))
    by_work[$name]=$((${by_work[$name]-0} + 1))
}

# A file stands as before the work ("old", or not at all), or whole.
is_old_or_whole() {
    if [[ ! -e $1 ]]; then [[ $2 != old ]]; else [[ $2 == old && $(head -c 3 "$1" | tr -d "\0") == old ]] || cmp -s "$1" "whole/$1"; fi
}

one_work() {
    local w=$1 before f
    local -n command=work_$w
    before=$([[ $((RANDOM % 2)) == 0 ]] && echo old || echo absent)
    rm -f out.*
    for f in "${command[@]}"; do [[ $f == out.* && $before == old ]] && echo old > "$f"; done
    strike "$w" "${command[@]}"
    for f in "${command[@]}"; do
        [[ $f != out.* ]] || is_old_or_whole "$f" "$before" || give_up "$w: $f is neither as it was nor whole"
    done
    "${command[@]}" < /dev/null > /dev/null || give_up "$w: does not run again"
    for f in "${command[@]}"; do [[ $f != out.* ]] || cmp "$f" "whole/$f" || give_up "$w: $f differs"; done
    [[ -z $(compgen -G '*llm-tmp-*') ]] || give_up "$w: left behind"
}

# Is killed again and again, going on each time where it was saved, until it is done.
one_training() {
    local command i
    rm -f run.llm best.llm ema.llm log.jsonl
    for ((i = 0; i < 6; i++)); do
        command=(llm-train -q "${train[@]}" "${where[@]}" -o run.llm data.tok)
        [[ -e run.llm ]] && command=(llm-train -q --resume run.llm "${where[@]}")
        strike train "${command[@]}" || break
    done
    if [[ -e run.llm ]]; then llm-train -q --resume run.llm "${where[@]}" 2> said || give_up "train: does not go on: $(cat said)"
    else llm-train -q "${train[@]}" "${where[@]}" -o run.llm data.tok || give_up "train: does not begin again"; fi
    for i in run.llm best.llm ema.llm; do cmp "$i" "whole/$i" || give_up "train: $i differs"; done
    cmp <(without_times log.jsonl) <(without_times whole/log.jsonl) || give_up "train: the logs differ"
    [[ -z $(compgen -G '*llm-tmp-*') ]] || give_up "train: left behind"
}

prepare
while ((killed < N)); do
    one_training
    for w in "${works[@]}"; do ((killed < N)) && one_work "$w"; done
done
echo "$killed killed, $late done before:" "$(for s in KILL TERM INT HUP; do echo -n " SIG$s ${by_signal[$s]-0}"; done);" \
    "$(for w in train "${works[@]}"; do echo -n " $w ${by_work[$w]-0}"; done)"
