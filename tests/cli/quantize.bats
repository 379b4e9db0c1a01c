load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    P='Once upon a time there was a red cat.'
}

score() {
    llm-infer -m "$1" --precision f32 --score "$P" | cut -f3
}

@test "every type, in both formats: log-probabilities are those of the decoded weights" {
    need_tool jq
    local P type suffix
    P=$(jq -r .prompt "$M/expected.json")
    score "$M" > whole
    for type in f32 f16 bf16 q8_0 q4_0; do
        for suffix in llm safetensors; do
            llm-quantize -q -t $type "$M" m.$suffix
            score m.$suffix > $suffix.score
        done
        cmp llm.score safetensors.score
        [[ $type == f32 || $type == bf16 ]] && cmp llm.score whole # the file is BF16: nothing is lost
        # what the model says is what PyTorch says in double precision with the weights that the file's blocks stand for
        awk -F '\t' -v type="$type" '$1 == (type ~ /^q/ ? type : "f32") { for (i = 2; i <= NF; i++) print $i }' "$M/quantized_scores.tsv" > expected
        near_lines llm.score expected 1e-5
        # and what the decoded weights say, to the last bit
        llm-quantize -q -t f32 m.llm decoded.llm
        score decoded.llm | cmp - llm.score
    done
}

@test "blocks are those of ggml's reference, bit for bit" {
    need_tool jq
    for type in q8_0 q4_0; do
        llm-quantize -q -t $type "$M" $type.safetensors
        header=$(od -An -N8 -tu8 $type.safetensors | tr -d ' ')
        head -c $((8 + header)) $type.safetensors | tail -c "$header" > header.json
        while read -r name hash; do
            read -r from to < <(jq -r --arg name "$name" '.[$name].data_offsets | @tsv' header.json)
            found=$(tail -c +$((8 + header + from + 1)) $type.safetensors | head -c $((to - from)) | sha256sum)
            [[ ${found%% *} == "$hash" ]] || fail "$name in $type differs"
        done < <(awk -F'\t' -v type=$type '$1 == type {print $2, $3}' "$M/quantized.tsv")
    done
    [[ $(wc -l < "$M/quantized.tsv") == 30 ]]
}

@test "a folder of several files becomes one" {
    G=$ROOT/tests/golden/gpt2-shards
    llm-quantize -q -t bf16 "$G" m.safetensors
    llm-quantize -q -t bf16 "$G" m.llm
    ids=$(seq -s ' ' 1 90)
    llm-infer -m "$G" --score --ids "$ids" > whole
    llm-infer -m m.safetensors --score --ids "$ids" | cmp - whole
    llm-infer -m m.llm --score --ids "$ids" | cmp - whole
}

@test "the tokenizer and the configuration go along" {
    llm-quantize -q -t q8_0 "$M" m.llm
    [[ -n $(llm-infer -m m.llm -n 5 "$P") ]]
    zstd -dqc m.llm | grep -aq 'max_position_embeddings'
    zstd -tq m.llm
}

@test "the report: what changed, what stayed and why, how much was lost" {
    llm-quantize -t q4_0 --only '*proj*' --except '*.1.*down*' --report r.tsv "$M" m.llm 2> err
    [[ $(head -1 r.tsv) == $'name\tshape\tfrom\tto\tkept\tbytes_from\tbytes_to\trmse\tmax_error\tsnr_db\tcosine\tbits\tmethod\timportances\tdamping\tsensitivity\tpredicted_kl\tmeasured_kl\tzeros\tpruned\trank\tenergy' ]]
    [[ $(awk -F'\t' 'NR > 1 {print $5}' r.tsv | sort | uniq -c | tr -s ' ' | tr '\n' ';') == ' 13 -; 5 1-D; 2 pattern;' ]]
    awk -F'\t' 'NR > 1 && $5 == "-" && !($4 == "q4_0" && $8 > 0 && $9 >= $8 && $10 > 15 && $10 < 30 && $11 > .98 && $11 < 1) {exit 1}' r.tsv
    awk -F'\t' 'NR > 1 && $5 != "-" && !($3 == $4 && $6 == $7 && $8 == 0 && $10 == "inf") {exit 1}' r.tsv
    [[ $(< err) == *'13 of 20 tensors to q4_0'* ]]
    llm-quantize -q -t q4_0 --json --report - "$M" m.llm | jq -es 'length == 20 and .[0].to == "q4_0" and .[0].kept == null' > /dev/null
    run -0 --separate-stderr llm-quantize -q -t q4_0 "$M" m.llm
    [[ -z $output$stderr ]]
}

@test "what was rounded to a type once loses nothing more by it" {
    llm-quantize -q -t q8_0 --report a.tsv "$M" q8.llm
    llm-quantize -q -t q8_0 --report b.tsv q8.llm again.llm
    [[ $(awk -F'\t' 'NR > 1 {print $5}' b.tsv | sort -u | tr '\n' ' ') == '1-D same ' ]]
    cmp q8.llm again.llm
    # rounding to Q8_0 what was rounded to Q8_0 changes nothing more
    llm-quantize -q -t f32 q8.llm f32.llm
    llm-quantize -q -t q8_0 --report c.tsv f32.llm q8b.llm
    awk -F'\t' 'NR > 1 && $5 == "-" && $8 > 1e-6 {exit 1}' c.tsv
}

@test "rows that are no whole blocks stay" {
    need_shared models/stories260K/hf
    llm-quantize -q -t q8_0 --report r.tsv "$SHARED/data/models/stories260K/hf" m.llm
    [[ $(awk -F'\t' '$5 == "rows" {print $1}' r.tsv | grep -c down_proj) == 5 ]]
    [[ $(awk -F'\t' '$5 == "rows"' r.tsv | wc -l) == 5 ]]
}

@test "- on both sides, the same bytes as files, for any threads" {
    llm-quantize -q -t q8_0 "$M" m.llm
    llm-quantize -q -t f32 "$M" - | llm-quantize -q -t q8_0 - - | cmp - m.llm
    llm-quantize -q -j 1 -t q8_0 "$M" - | cmp - m.llm
    llm-quantize -q -j 3 -t q8_0 "$M" - | cmp - m.llm
    llm-quantize -q -t q8_0 --to safetensors "$M" - > m.safetensors
    llm-quantize -q -t q8_0 "$M" n.safetensors
    cmp m.safetensors n.safetensors
    llm-infer -m - -n 4 "$P" < m.safetensors > /dev/null
}

@test "safetensors of plain types are what others read" {
    need_tool python3
    llm-quantize -q -t f32 "$M" m.safetensors
    llm-quantize -q -t q8_0 "$M" q.safetensors
    python3 - << 'END'
import json, struct
for name, dtype, shape in (("m", "F32", [300, 32]), ("q", "U8", [10200])):
    f = open(name + ".safetensors", "rb")
    h = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    t = h["model.embed_tokens.weight"]
    assert t["dtype"] == dtype and t["shape"][0] * (t["shape"][1] if len(t["shape"]) > 1 else 1) == shape[0] * (shape[1] if len(shape) > 1 else 1), t
    if name == "q":
        assert json.loads(h["__metadata__"]["llm.tensors"])["model.embed_tokens.weight"]["shape"] == [300, 32]
END
}

@test "--planes=off: zstd -dc gives a plain safetensors file" {
    llm-quantize -q -t bf16 --planes off "$M" m.llm
    llm-quantize -q -t bf16 "$M" m.safetensors
    zstd -dqc m.llm > plain.safetensors
    [[ $(llm-infer -m plain.safetensors -n 0 --score "$P") == "$(llm-infer -m m.safetensors -n 0 --score "$P")" ]]
}

@test "what is no model is named for what it is" {
    printf 'the cat' | llm-tokenize encode -T "$M/tokenizer.json" -o c.tok
    llm-infer -m "$M" -n 0 --kv-out c.kv "the cat"
    refused 65 "c.tok: expected a checkpoint (.llm), safetensors or GGUF, found a tensor message of kind 'tokens'" llm-quantize -t f16 c.tok x.llm
    refused 65 "c.kv: expected a checkpoint (.llm), safetensors or GGUF, found a tensor message of kind 'kvcache'" llm-quantize -t f16 c.kv -
    refused 65 "standard input: expected a checkpoint (.llm), safetensors or GGUF, found text" bash -c 'echo text | llm-quantize -t f16 - x.llm'
    [[ ! -e x.llm ]]
}

@test "the commands of the manual's EXAMPLES run" {
    llm-quantize -q -t f32 "$M" model.llm
    printf 'Once upon a time there was a cat.' > held-out.txt
    cp held-out.txt corpus.txt
    manual_examples llm-quantize 9
}

@test "misuse is status 2" {
    refused 2 'expected a type' llm-quantize "$M" m.llm
    refused 2 '--type' llm-quantize -t q9_9 "$M" m.llm
    refused 2 'expected two operands' llm-quantize -t f16 "$M"
    refused 2 'expected two operands' llm-quantize -t f16 "$M" a b
    refused 2 'at once' llm-quantize -t f16 --report - "$M" -
    refused 2 '--threads' llm-quantize -j 0 -t f16 "$M" m.llm
    [[ ! -e m.llm && ! -e m.gguf ]]
}

@test "bad models: one line, and the target stays as it was" {
    echo kept > out.llm
    refused 66 'No such file' llm-quantize -t f16 absent out.llm
    : > empty
    refused 65 'empty' llm-quantize -t f16 empty out.llm
    llm-quantize -q -t f16 "$M" m.llm
    size=$(stat -c %s m.llm)
    for cut in 3 50 $((size / 3)) $((size - 1)); do
        head -c "$cut" m.llm > cut.llm
        refused 65 'cut.llm' llm-quantize -t q8_0 cut.llm out.llm
        refused 65 'standard input' bash -c 'llm-quantize -t q8_0 - out.llm < cut.llm'
    done
    # a NaN among the weights
    cp -r "$M" nan
    chmod -R u+w nan
    at=$(($(od -An -N8 -tu8 nan/model.safetensors) + 8))
    printf '\xff\x7f' | dd of=nan/model.safetensors bs=1 seek="$at" conv=notrunc status=none
    refused 65 'found NaN or infinity' llm-quantize -t q8_0 nan out.llm
    [[ $(< out.llm) == kept ]]
}

@test "outputs that cannot be written" {
    refused 74 '' bash -c 'llm-quantize -q -t f16 "$0" - > /dev/full' "$M"
    refused 74 '' bash -c 'llm-quantize -q -t f16 "$0" - >&-' "$M"
    refused 73 'absent/m.llm' llm-quantize -t f16 "$M" absent/m.llm # before the work, which a line would tell of
    refused 74 '' bash -c 'ulimit -f 8; llm-quantize -q -t f32 "$0" big.llm' "$M"
    [[ ! -e big.llm ]]
}

@test "a terminal gets no model, and the run ends before the work" {
    need_tool script
    run -2 script -qec "llm-quantize -t f16 $M -" /dev/null < /dev/null
    [[ $output == *"refusing to write binary data to a terminal"* && $output != *" MiB of weights"* ]] || fail "$output"
}

@test "memory: one tensor, neither the model that is read nor the result; without a temporary file the result too, and the same bytes" {
    need_tool python3
    [[ -z ${SANITIZER-} ]] || skip "$SANITIZER's own memory counts"
    mkdir wide
    python3 - << 'END'
import json, struct
h, f, layers, vocab = 512, 2048, 10, 256
config = {"model_type": "llama", "vocab_size": vocab, "hidden_size": h, "intermediate_size": f, "num_hidden_layers": layers, "num_attention_heads": 8,
          "num_key_value_heads": 8, "tie_word_embeddings": True}
shapes = {"model.embed_tokens.weight": [vocab, h], "model.norm.weight": [h]}
for i in range(layers):
    at = f"model.layers.{i}."
    shapes |= {at + "input_layernorm.weight": [h], at + "post_attention_layernorm.weight": [h], at + "mlp.gate_proj.weight": [f, h],
               at + "mlp.up_proj.weight": [f, h], at + "mlp.down_proj.weight": [h, f]}
    shapes |= {at + f"self_attn.{p}_proj.weight": [h, h] for p in "qkvo"}
header, end = {}, 0
for name, shape in shapes.items():
    n = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + n]}
    end += n
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open("wide/model.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    for i in range(0, end, 1 << 20):
        out.write(struct.pack("<f", 0.01 * (i % 7 + 1)) * (min(1 << 20, end - i) // 4))
json.dump(config, open("wide/config.json", "w"))
END
    python3 - << 'END'
import os, resource, subprocess
for to in "safetensors", "gguf", "llm":
    subprocess.run(["llm-quantize", "-q", "-j", "2", "-t", "q8_0", "wide", f"o.{to}"], check=True)
peak, result = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, os.path.getsize("o.safetensors")
assert peak < 1.2 * 4 * 2048 * 512 + (32 << 20) < result, (peak, result) # 16 MiB are compressed at a time; the model has 168 MB
subprocess.run(["llm-quantize", "-q", "-j", "2", "-t", "q8_0", "wide", "p.safetensors"], check=True, env={**os.environ, "TMPDIR": "/absent"})
assert open("o.safetensors", "rb").read() == open("p.safetensors", "rb").read()
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
assert peak < result + 1.2 * 4 * 2048 * 512 + (24 << 20), (peak, result)
END
}

@test "memory: a tensor that is most of the model is read piece by piece, wherever it becomes larger or smaller" {
    need_tool python3
    [[ -z ${SANITIZER-} ]] || skip "$SANITIZER's own memory counts"
    python3 - << 'END_PYTHON'
import json, os, resource, struct, subprocess
h, vocab = 256, 65536
config = {"model_type": "llama", "vocab_size": vocab, "hidden_size": h, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
          "num_key_value_heads": 4, "tie_word_embeddings": True}
shapes = {"embed_tokens.weight": [vocab, h], "norm.weight": [h], "layers.0.input_layernorm.weight": [h], "layers.0.post_attention_layernorm.weight": [h],
          "layers.0.mlp.gate_proj.weight": [32, h], "layers.0.mlp.up_proj.weight": [32, h], "layers.0.mlp.down_proj.weight": [h, 32]}
shapes |= {f"layers.0.self_attn.{p}_proj.weight": [h, h] for p in "qkvo"}
largest = 4 * vocab * h
for source, size, to in ("BF16", 2, "f32"), ("F32", 4, "q8_0"):
    header, end = {}, 0
    for name, shape in shapes.items():
        n = size * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header["model." + name] = {"dtype": source, "shape": shape, "data_offsets": [end, end + n]}
        end += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(source, exist_ok=True)
    with open(f"{source}/model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for i in range(0, end, 1 << 16):  # this process's own peak counts as that of its children
            out.write(b"\x80\x3c" * (min(1 << 16, end - i) // 2))
    json.dump(config, open(f"{source}/config.json", "w"))
    run = subprocess.Popen(["llm-quantize", "-q", "-j", "2", "-t", to, source, "o.safetensors"])
    _, status, used = os.wait4(run.pid, 0)
    assert status == 0 and used.ru_maxrss * 1024 < 1.2 * largest, (source, to, used.ru_maxrss * 1024, largest)
END_PYTHON
}

# peak ARGUMENT...: KiB of memory that llm-quantize takes.
peak() {
    python3 - "$@" << 'END'
import os, subprocess, sys
run = subprocess.Popen(["llm-quantize", "-q", *sys.argv[1:]])
_, status, used = os.wait4(run.pid, 0)
assert status == 0, sys.argv
print(used.ru_maxrss)
END
}

# peak_model FOLDER F32|BF16 HIDDEN INNER VOCABULARY: a Llama of one layer whose matrices of the feed-forward part are the largest.
peak_model() {
    python3 - "$@" << 'END'
import json, os, struct, sys
folder, dtype, h, f, vocab = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
config = {"model_type": "llama", "vocab_size": vocab, "hidden_size": h, "intermediate_size": f, "num_hidden_layers": 1, "num_attention_heads": 4,
          "num_key_value_heads": 4, "tie_word_embeddings": True}
shapes = {"embed_tokens.weight": [vocab, h], "norm.weight": [h], "layers.0.input_layernorm.weight": [h], "layers.0.post_attention_layernorm.weight": [h],
          "layers.0.mlp.gate_proj.weight": [f, h], "layers.0.mlp.up_proj.weight": [f, h], "layers.0.mlp.down_proj.weight": [h, f]}
shapes |= {f"layers.0.self_attn.{p}_proj.weight": [h, h] for p in "qkvo"}
header, end, size = {}, 0, 4 if dtype == "F32" else 2
for name, shape in shapes.items():
    n = size * shape[0] * (shape[1] if len(shape) > 1 else 1)
    header["model." + name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + n]}
    end += n
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
os.makedirs(folder)
values = b"".join(struct.pack("<f", ((i * 7919) % 1021 - 510) / 8192)[4 - size:] for i in range(1 << 14))
with open(f"{folder}/model.safetensors", "wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    for i in range(0, end, len(values)):  # this process's own peak counts as that of its children
        out.write(values[:end - i])
json.dump(config, open(f"{folder}/config.json", "w"))
END
}

@test "memory: pruning and rotations take one tensor in F32, and so does a .llm" {
    need_tool python3
    [[ -z ${SANITIZER-} ]] || skip "$SANITIZER's own memory counts"
    peak_model small F32 64 64 64
    local of option type least threads=1 to=gguf most=$((256 * 32768 * 4 / 1024 * 12 / 10))
    least=$(peak -j 2 -t q8_0 small o.safetensors)
    for of in F32 BF16; do
        peak_model $of $of 256 32768 256
        for option in '' '--prune .5' '--prune 2:4' --rotate '--rotate --prune 2:4'; do
            for type in f32 q8_0; do
                run peak -j $threads -t $type $option $of o.$to
                [[ $status == 0 && $output -lt $((least + most)) ]] || fail "$of $option $type $to, $threads threads: $output KiB, $least of a small model"
                threads=$((3 - threads))
            done
            if [[ $to == gguf ]]; then to=llm; else to=gguf; fi
        done
    done
    run peak -j 2 -t q8_0 --rank 4 --factors f.llm F32 o.llm # its difference in FP64
    [[ $status == 0 && $output -lt $((least + most * 22 / 10)) ]] || fail "--rank 4: $output KiB, $least of a small model"
    llm-quantize -q -t keep F32 whole.llm
    for option in '' --rotate; do # frames are decoded in 8 MiB a thread
        run peak -j 2 -t q8_0 $option whole.llm o.gguf
        [[ $status == 0 && $output -lt $((least + most + (16 << 10))) ]] || fail "whole.llm $option: $output KiB, $least of a small model"
    done
}
