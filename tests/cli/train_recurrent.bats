# Recurrent networks, state spaces and windows of tokens, from configuration to text.
load ../helper
export LLM_THREADS=1

setup_file() {
    sentences 400 > text
    llm-tokenize train --vocab-size 280 -o tok.json text
    llm-tokenize encode -T tok.json -o data.tok text
    export F=$PWD
}

# train PRESET OPTION...: a small one of its kind
train() {
    local preset=$1 small=()
    shift
    case $preset in
    rnn | lstm) small=(--set hidden_size=24 --set dropout=0.1) ;;
    hyena) small=(--set d_model=24 --set n_layer=2 --set filter_order=16 --set hyena_order=3) ;;
    mamba | rwkv) small=(--set hidden_size=24 --set num_hidden_layers=2) ;;
    rwkv7) small=(--set hidden_size=24 --set num_hidden_layers=2 --set head_dim=8 --set decay_low_rank_dim=8) ;;
    rwkv?) small=(--set hidden_size=24 --set num_hidden_layers=2 --set head_size=8) ;;
    mamba2) small=(--set hidden_size=24 --set num_hidden_layers=2 --set num_heads=6 --set head_dim=8 --set n_groups=2) ;;
    mlp) small=(--set intermediate_size=24 --set embedding_size=8) ;;
    bengio) small=(--set intermediate_size=24 --set embedding_size=8) ;;
    esac
    llm-train -q -c "$preset" "${small[@]}" -l 24 -b 4 -T "$F/tok.json" "$@" "$F/data.tok"
}

@test "gradients pass the check" {
    for preset in mamba rwkv rwkv5 rwkv6 rwkv7 hyena mlp bengio; do
        train $preset -n 1 --precision f32 --gradcheck > checked || fail "$preset"
    done
    train mamba2 -n 1 --precision f32 --gradcheck --set hidden_size=32 --set num_heads=4 --set head_dim=16 -l 40 -b 3 > checked
    for preset in rnn lstm; do # with small embeddings: differences over long steps see how gates saturate
        train $preset -n 1 --precision f32 --gradcheck --set tie_word_embeddings=true > checked || fail "$preset"
    done
}

@test "threads, activation checkpointing and a pause change no bit" {
    for preset in rnn lstm mamba mamba2 rwkv rwkv5 rwkv6 rwkv7 hyena mlp bengio; do
        train $preset -n 6 --schedule constant --warmup 0 -o whole.llm
        LLM_THREADS=2 train $preset -n 6 --schedule constant --warmup 0 --checkpoint-every 1 -o threads.llm
        cmp whole.llm threads.llm || fail "$preset: threads"
        train $preset -n 3 --schedule constant --warmup 0 -o part.llm
        llm-train -q --resume part.llm -n 6 -o part.llm
        cmp whole.llm part.llm || fail "$preset: resume"
    done
}

@test "the same text by any cut of the prompt, and from a saved state" {
    for preset in rnn lstm mamba mamba2 rwkv rwkv5 rwkv6 rwkv7 hyena mlp bengio; do
        train $preset -n 30 --lr 1e-2 -o model.llm
        llm-infer -m model.llm -n 12 --temp 0 --kv-out state.kv "the red cat sees" > a
        llm-infer -m model.llm -n 12 --temp 0 -b 1 "the red cat sees" > b
        cmp a b || fail "$preset: passes"
        llm-kvinspect state.kv | grep -q '^state_bytes' || fail "$preset: state"
        llm-infer -m model.llm -n 5 --temp 0 --kv-in state.kv > /dev/null || fail "$preset: state not read"
    done
}

@test "the state's part of the cost has its name" {
    llm-bench cost --table parts mamba > t
    grep -q "^block: mamba	-	438016	1.000	913408	1.000" t
    grep -q "^steps of the state, any context	-	0	0.000	40960	" t
    llm-bench cost --table parts lstm > t
    grep -q "^block: lstm	-	2101248	1.000	4194304	1.000" t
    run -1 grep -E "attention|feed-forward|scores" t
    for preset in rnn mamba2 bengio; do
        llm-bench cost --table parts $preset > t
        run -1 grep -E "attention|feed-forward|scores" t
    done
}

@test "no limit of time steps is Infinity in Python's files, and 1e400 is still refused" {
    config() { printf '{"model_type": "mamba2", "vocab_size": 280, "hidden_size": 24, "num_heads": 6, "head_dim": 8, "n_groups": 2,
        "architectures": ["Infinity \\" NaN"], "num_hidden_layers": 1, "state_size": 4, "time_step_limit": [0.0, %s]}' "$1"; }
    config Infinity > infinity.json
    config null > null.json
    config 0.02 > limited.json
    for name in infinity null limited; do
        llm-train -q -c $name.json -l 24 -b 2 -n 2 -T "$F/tok.json" -o $name.llm "$F/data.tok"
        llm-infer -m $name.llm -n 8 --temp 0 "the red cat" > $name.text
        llm-infer -m $name.llm --logits "the red cat" > $name.logits
    done
    cmp infinity.logits null.logits
    run -1 cmp -s infinity.logits limited.logits
    config 1e400 > large.json
    run -65 --separate-stderr llm-bench cost large.json
    [[ $stderr == *"large.json: JSON: line 2"* ]]
}
