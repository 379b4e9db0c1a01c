# Losses of runs against TRL's own trainers (tests/golden/trl, made by tests/oracle/trl_runs.py). TRL takes log-probabilities in single
# precision even of a model in double; six steps of Adam carry that on. Losses of ipo are squares of differences of them.
load ../helper
export LLM_THREADS=1

setup() {
    need_tool jq
    need_tool python3
    trl=$ROOT/tests/golden/trl
    adam=(--precision f32 --order sequential --schedule constant --warmup 0 --lr 2e-3 --beta2 .999 --weight-decay 0 --clip 0 --log log -l 64 -o m.llm -q)
}

# same NAME TOLERANCE: the losses of the log are TRL's
same() {
    python3 - "$1" "$2" "$trl/losses.json" <<'PY'
import json, sys
want = json.load(open(sys.argv[3]))[sys.argv[1]]
found = [json.loads(line)["loss"] for line in open("log")]
assert len(found) == len(want), (found, want)
worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(found, want))
print(sys.argv[1], worst)
assert worst <= float(sys.argv[2]), (worst, found, want)
PY
    rm log
}

@test "DPO: sigmoid, ipo, hinge, robust" {
    for kind in sigmoid ipo hinge robust; do
        more=
        [[ $kind != robust ]] || more='--label-smoothing .1'
        llm-train --objective dpo --loss $kind --beta .3 $more --init "$ROOT/tests/golden/tiny" "${adam[@]}" -b 4 -n 6 "$trl/pairs.jsonl"
        same "dpo $kind" $([[ $kind == ipo ]] && echo 1e-5 || echo 3e-6)
    done
}

@test "KTO" {
    llm-train --objective kto --beta .3 --undesirable-weight 1.5 --init "$ROOT/tests/golden/tiny" "${adam[@]}" -b 6 -n 6 "$trl/unpaired.jsonl"
    same kto 3e-6
}

@test "SFT on the assistant's turns" {
    llm-train --objective sft --packing no --chat-template "$trl/template.jinja" --init "$ROOT/tests/golden/tiny" "${adam[@]}" -b 4 -n 6 "$trl/talks.jsonl"
    same sft 3e-6
}

@test "SFT of prompts with completions: texts without a template, and conversations" {
    llm-train --objective sft --packing no --init "$ROOT/tests/golden/tiny" "${adam[@]}" -b 4 -n 6 "$trl/completions.jsonl"
    same 'sft completions' 3e-6
    llm-train --objective sft --packing no --chat-template "$trl/plain.jinja" --init "$ROOT/tests/golden/tiny" "${adam[@]}" -l 128 -b 4 -n 6 \
        "$trl/asked.jsonl"
    same 'sft asked' 3e-6
}

@test "a reward model" {
    llm-train --objective reward --center-rewards .05 --init "$trl/judge" "${adam[@]}" -b 4 -n 6 "$trl/pairs.jsonl"
    same reward 3e-6
}

@test "GRPO: clipped ratios of old rollouts, a KL in the loss, the mean over tokens, ratios of sequences" {
    learn() { llm-train --objective grpo --off-policy "$@" --init "$ROOT/tests/golden/tiny" "${adam[@]}" -b 8 --epochs 6 "$trl/rollouts.jsonl"; }
    learn --clip-high .28
    same grpo 3e-6
    learn --grpo-scale none --kl-coef .2 --reference "$ROOT/tests/golden/tiny"
    same 'grpo kl' 3e-6
    learn --grpo-norm none
    same 'grpo bnpo' 3e-6
    learn --ratio sequence --clip-low 3e-4 --clip-high 4e-4
    same 'grpo sequence' 3e-6
}
