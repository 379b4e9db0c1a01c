# llm-kvinspect on caches of models whose layers keep something else than keys and values of attention.
load ../helper
export LLM_THREADS=1

setup_file() {
    sentences 200 > text
    llm-tokenize train --model char -o tok.json text
    llm-tokenize encode -T tok.json -o data.tok text
    export F=$PWD TEXT OTHER
    TEXT=$(head -n 1 text) OTHER=$(tail -n 1 text)
}

# model NAME CONFIG: a model that learned one step, as NAME.llm
model() {
    printf '%s\n' "$2" > "$1.json"
    llm-train -q -c "$1.json" -T "$F/tok.json" -n 1 --batch 1 --context 32 -o "$1.llm" "$F/data.tok"
}

hyena='{"model_type": "hyenadna", "vocab_size": 64, "d_model": 32, "n_layer": 2, "hyena_order": 4, "emb_dim": 5, "filter_order": 16,
    "pad_vocab_size_multiple": 1, "embed_dropout": 0}'
mla='{"model_type": "deepseek_v2", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "kv_lora_rank": 32,
    "q_lora_rank": null, "qk_nope_head_dim": 8, "qk_rope_head_dim": 32, "v_head_dim": 8, "n_routed_experts": null}'

@test "Hyena has no queries: none are traced, and what looks at attention is refused; what it sums up is compared and exported" {
    model hyena "$hyena"
    refused 69 'queries to trace: the model has no attention over keys' llm-infer -m hyena.llm -n 0 --trace-queries 4 --kv-out x.kv "$TEXT"
    llm-infer -q -m hyena.llm -n 0 --kv-out hyena.kv "$TEXT"
    llm-infer -q -m hyena.llm -n 0 --kv-out other.kv "$OTHER"
    for command in heads attention quant; do refused 65 'expected keys of attention, found none' llm-kvinspect $command hyena.kv; done
    refused 65 'its convolutions are sums over all tokens' llm-kvinspect evict hyena.kv
    [[ $(llm-kvinspect spectrum hyena.kv | cut -f 1-3 | tail -n +2 | wc -l) == 6 ]]
    run -1 llm-kvinspect diff -q hyena.kv other.kv
    [[ $(cut -f 1,3 <<< "$output" | sort | uniq -c | xargs) == '1 0 conv 3 0 k 1 1 conv 3 1 k 1 layer tensor' ]]
    [[ $(llm-kvinspect export --tensor layers.1.latent hyena.kv | head -c 128 | tr -d '\0') == *"'shape': ($(llm-kvinspect --json hyena.kv | jq .tokens), 3, 32,)"* ]]
}

@test "latent attention: a value is the first channels of the key, and so are its norms and errors" {
    need_tool python3
    model mla "$mla"
    for type in f32 q4_0; do llm-infer -q -m mla.llm --precision f32 -n 0 --cache-type $type --trace-queries 3 --kv-out $type.kv "$TEXT"; done
    for type in f32 q4_0; do llm-kvinspect export --tensor layers.0.latent -o $type.npy $type.kv; done
    llm-kvinspect heads --json f32.kv > heads
    llm-kvinspect quant --json f32.kv > quant
    python3 - <<'END_PYTHON'
import array, json, math
def rows(name):
    x = array.array("f", open(name, "rb").read()[128:])
    return [x[i:i + 64] for i in range(0, len(x), 64)]
def norm(x): return math.sqrt(sum(a * a for a in x))
exact, rounded = rows("f32.npy"), rows("q4_0.npy")
for head in map(json.loads, open("heads")):
    for name, width in ("k_norm", 64), ("v_norm", 32):
        want = [norm(x[:width]) for x in exact]
        assert abs(head[name] - sum(want) / len(want)) < 1e-5 * head[name], (name, head)
        assert abs(head[name + "_first"] - want[0]) < 1e-5 * want[0], (name, head)
loss = {r["type"]: r for r in map(json.loads, open("quant"))}["q4_0"]
for name, width in ("k_error", 64), ("v_error", 32):
    d = norm([a - b for x, y in zip(exact, rounded) for a, b in zip(x[:width], y[:width])]) / norm([a for x in exact for a in x[:width]])
    assert abs(loss[name] - d) < 1e-4 * d, (name, loss, d)
END_PYTHON
}
