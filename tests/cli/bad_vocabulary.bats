# Vocabularies that do not fit the embedding, and merges that lack: from a folder and from GGUF; experts and latent matrices of another shape.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    cp -r "$M" m
    chmod -R u+w m
    cat > vocabulary.py << 'END'
# vocabulary.py IN OUT N: the GGUF file with N tokens, and as many fewer merges
import struct, sys
raw, n = open(sys.argv[1], "rb").read(), int(sys.argv[3])
before = len(raw)
def resize(raw, key, keep):
    at = raw.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
    _, of, count = struct.unpack_from("<IIQ", raw, at)
    p, items = at + 16, []
    for _ in range(count):
        size = 8 + struct.unpack_from("<Q", raw, p)[0] if of == 8 else 4
        items.append(raw[p:p + size])
        p += size
    items = items[:keep] + [struct.pack("<Q", 4) + b"z%03d" % k if of == 8 else struct.pack("<I", 4) for k in range(keep - count)]
    return raw[:at + 8] + struct.pack("<Q", len(items)) + b"".join(items) + raw[p:], count
raw, count = resize(raw, b"tokenizer.ggml.tokens", n)
raw, _ = resize(raw, b"tokenizer.ggml.token_type", n)
if n < count:
    _, merges = resize(raw, b"tokenizer.ggml.merges", 0)
    raw, _ = resize(raw, b"tokenizer.ggml.merges", merges - (count - n))
at = raw.index(b"general.name") + 12 + 4  # data begin on a multiple of 32 as before
length = struct.unpack_from("<Q", raw, at)[0]
pad = (before - len(raw)) % 32
raw = raw[:at] + struct.pack("<Q", length + pad) + raw[at + 8:at + 8 + length] + b" " * pad + raw[at + 8 + length:]
open(sys.argv[2], "wb").write(raw)
END
}

# runs MODEL: it says something, and scores known text
runs() {
    llm-infer -q -m "$1" --temp 0 -n 5 "Once upon" > text
    [[ -s text ]]
    llm-infer -q -m "$1" --score "Once upon" | awk -F '\t' '!($3 ~ /^-[0-9]/) {bad = 1} END {exit bad || NR < 2}'
}

@test "a folder whose vocabulary is smaller than the embedding runs; of one that is larger the ids beyond are refused" {
    need_tool jq
    jq 'del(.model.merges[-20:]) | .model.vocab |= with_entries(select(.value < 280))' "$M/tokenizer.json" > m/tokenizer.json
    runs m
    jq '.added_tokens += [range(300; 320) | {id: ., content: "<x\(.)>", special: false, single_word: false, lstrip: false, rstrip: false,
        normalized: false}]' "$M/tokenizer.json" > m/tokenizer.json
    runs m
    refused 65 "prompt: token 3: expected an id below 300 (the model's vocabulary), found 305" llm-infer -m m "Once <x305>"
    refused 65 "expected at most 300 tokens, one a row of the embeddings, found 320" llm-quantize -q -t keep m out.gguf
    [[ ! -e out.gguf ]]
}

@test "the same of GGUF files" {
    need_tool python3
    llm-quantize -q -t keep "$M" whole.gguf
    for n in 257 280 320; do
        python3 vocabulary.py whole.gguf m.gguf $n
        runs m.gguf
    done
    refused 65 "prompt: token 3: expected an id below 300 (the model's vocabulary), found 300" llm-infer -m m.gguf "Once z000"
}

@test "merges that lack, or are of no token" {
    need_tool jq
    jq 'del(.model.merges)' "$M/tokenizer.json" > m/tokenizer.json
    refused 65 "m/tokenizer.json: model BPE: expected 'vocab' and 'merges'" llm-infer -m m x
    jq '.model.merges[3] = "zq zz"' "$M/tokenizer.json" > m/tokenizer.json
    refused 65 "m/tokenizer.json: model BPE: merges\[3\]: 'zq' is not in the vocabulary" llm-infer -m m x
    jq '.model.vocab |= with_entries(select(.value < 280))' "$M/tokenizer.json" > m/tokenizer.json
    refused 65 "is not in the vocabulary" llm-infer -m m x
}

# damaged FROM TO PATTERN: the mixture with some bytes changed is refused
damaged() {
    sed "s/$1/$2/" m.gguf > bad.gguf
    if cmp -s m.gguf bad.gguf; then fail "nothing changed by $1"; fi
    refused 65 "$3" llm-infer -m bad.gguf --ids 1
}

@test "mixtures in GGUF whose keys and tensors disagree" {
    printf '{"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 300, "num_attention_heads": 4, "intermediate_size": 96,
        "kv_lora_rank": 32, "q_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 6,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1}' > config.json
    llm-tokenize encode -T "$M/tokenizer.json" "$ROOT/README.md" > t.tok
    llm-train -q -c config.json -T "$M/tokenizer.json" --set max_position_embeddings=64 --steps 0 -o m.llm t.tok
    llm-quantize -q -t keep m.llm m.gguf
    llm-infer -q -m m.gguf --ids "1 2" --temp 0 -n 2 > /dev/null
    local u32='\x04\x00\x00\x00'
    damaged "expert_count$u32\\x06" "expert_count$u32\\x05" "n_group, topk_group: expected equal groups"
    damaged "expert_count$u32\\x06" "expert_count$u32\\x08" "tensor 'blk.1.ffn_gate_inp.weight': expected \[8, 64\]"
    damaged "expert_used_count$u32\\x02" "expert_used_count$u32\\x07" "num_experts_per_tok: expected 1 to 6, found 7"
    damaged "expert_feed_forward_length$u32\\x20" "expert_feed_forward_length$u32\\x21" "tensor 'blk.1.ffn_gate_exps.weight': expected \[6, 33, 64\]"
    damaged "value_length_mla$u32\\x10" "value_length_mla$u32\\x11" "tensor 'blk.0.attn_v_b.weight': expected \[4, 17, 32\]"
    damaged "key_length_mla$u32\\x18" "key_length_mla$u32\\x08" "expected kv_lora_rank, lengths of keys and values"
    damaged "leading_dense_block_count$u32\\x01" "leading_dense_block_count$u32\\x00" "tensor 'blk.0.ffn_gate_inp.weight': expected by the"
    damaged "blk.1.ffn_up_exps" "blk.1.ffn_up_expz" "tensor 'blk.1.ffn_up_exps.weight': expected by the"
    damaged "blk.0.attn_k_b" "blk.0.attn_k_c" "tensor 'blk.0.attn_kv_b.weight': expected by the"
    damaged "expert_gating_func$u32\\x02" "expert_gating_func$u32\\x03" "expert_gating_func: expected 0 to 2, found 3"
}
