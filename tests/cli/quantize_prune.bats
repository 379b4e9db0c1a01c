load quantize_suite

# zeros FILE.safetensors N M: reads F32 matrices of layers with Python alone; fails unless at most N of each M neighbours are not 0 (M 0: prints the share
# of zeros).
zeros() {
    python3 - "$@" << 'END'
import array, json, struct, sys
name, kept, of = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
f = open(name, "rb")
h = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
base, zeros, n = f.tell(), 0, 0
for key, t in h.items():
    if "layers" not in key or len(t.get("shape", [])) != 2:
        continue
    assert t["dtype"] == "F32", t
    f.seek(base + t["data_offsets"][0])
    x = array.array("f", f.read(t["data_offsets"][1] - t["data_offsets"][0]))
    zeros, n = zeros + sum(v == 0 for v in x), n + len(x)
    if of:
        assert t["shape"][1] % of == 0
        assert all(sum(v != 0 for v in x[i:i + of]) <= kept for i in range(0, len(x), of)), key
assert n > 0
print(f"{zeros / n:.4f}")
END
}

@test "--prune: the share of zeros, n of m neighbours, by every method; the same bytes for any threads" {
    need_tool python3
    local method
    for method in magnitude wanda sparsegpt; do
        llm-quantize -q -j 1 -t f32 --prune .5 --method $method "${CALIBRATE[@]}" --report r.tsv "$M" a.safetensors
        llm-quantize -q -j 3 -t f32 --prune .5 --method $method "${CALIBRATE[@]}" "$M" b.safetensors
        cmp a.safetensors b.safetensors
        [[ $(zeros a.safetensors 0 0) == 0.5000 ]]
        [[ $(awk -F'\t' '$1 ~ /layers.*proj/ {print $19, $20}' r.tsv | sort -u) == "0.5 $method" ]]
        [[ $(awk -F'\t' '$1 ~ /embed|lm_head/ {print $20}' r.tsv | sort -u) == - ]]
        llm-quantize -q -t f32 --prune 1:4 --method $method "${CALIBRATE[@]}" "$M" c.safetensors
        [[ $(zeros c.safetensors 1 4) == 0.7500 ]]
    done
    # the default is the best that what is known allows
    llm-quantize -q -t f32 --prune .5 --method sparsegpt "${CALIBRATE[@]}" --imatrix-out i.gguf "$M" a.safetensors
    llm-quantize -q -t f32 --prune .5 "${CALIBRATE[@]}" "$M" b.safetensors
    cmp a.safetensors b.safetensors
    llm-quantize -q -t f32 --prune .5 --imatrix i.gguf --report r.tsv "$M" c.safetensors
    [[ $(awk -F'\t' '$1 ~ /layers.*proj/ {print $20}' r.tsv | sort -u) == wanda ]]
    llm-quantize -q -t f32 --prune .5 --report r.tsv "$M" d.safetensors
    [[ $(awk -F'\t' '$1 ~ /layers.*proj/ {print $20}' r.tsv | sort -u) == magnitude ]]
}

@test "--prune, then types: zeros stay where the type has a level of 0; keep has the types that there were; patterns are left out" {
    need_tool python3
    llm-quantize -q -t q8_0 --prune 2:4 "${CALIBRATE[@]}" --except '*down_proj*' --report r.tsv "$M" q.gguf
    [[ $(awk -F'\t' '$1 ~ /down_proj/ {print $5, $20}' r.tsv | sort -u) == 'pattern -' ]]
    awk -F'\t' '$1 ~ /layers.*(q|k|v|o|up|gate)_proj/ && !($4 == "q8_0" && $19 >= .5 && $19 < .52 && $20 == "sparsegpt") {exit 1}' r.tsv
    llm-quantize -q -t keep --prune 2:4 q.gguf k.gguf --report r.tsv
    [[ $(awk -F'\t' '$1 ~ /layers.*q_proj/ {print $4, $20}' r.tsv | sort -u) == 'q8_0 magnitude' ]]
    llm-infer -m k.gguf -n 3 "1 2 3" > /dev/null
}

@test "--prune 2:4 with -t q8_0_2of4 and bf16_2of4: the model of the dense type in fewer bytes; the same tokens; what is not pruned so is refused" {
    need_tool python3
    local type
    for type in q8_0 bf16; do
        llm-quantize -q -t $type --prune 2:4 --method magnitude "$M" dense.llm
        llm-quantize -q -t ${type}_2of4 --prune 2:4 --method magnitude --report r.tsv "$M" sparse.llm
        awk -F'\t' -v t=$type '$1 ~ /layers.*proj/ && $4 != t "_2of4" || $1 ~ /embed/ && $4 != t {exit 1}' r.tsv
        llm-quantize -q -t f32 dense.llm a.safetensors
        llm-quantize -q -t f32 sparse.llm b.safetensors
        cmp a.safetensors b.safetensors
        zeros b.safetensors 2 4
        llm-infer -m dense.llm --temp 1 --seed 4 -n 30 "1 2 3" > a
        llm-infer -m sparse.llm --temp 1 --seed 4 -n 30 "1 2 3" > b
        cmp a b
        # a model that is pruned already, and back
        llm-quantize -q -t ${type}_2of4 dense.llm again.llm
        llm-quantize -q -t f32 again.llm b.safetensors
        cmp a.safetensors b.safetensors
        head -c $(($(wc -c < sparse.llm) / 2)) sparse.llm > cut.llm
        refused 65 'cut.llm' llm-infer -m cut.llm -n 1 "1"
    done
    refused 65 "q_proj.weight': expected two zeros in each four values" llm-quantize -t q8_0_2of4 "$M" x.llm
    refused 65 'expected two zeros' llm-quantize -t q8_0_2of4 --prune .5 --method magnitude "$M" x.llm
    refused 69 'GGUF has no type for bf16_2of4' llm-quantize -q -t bf16_2of4 --prune 2:4 --method magnitude "$M" x.gguf
    [[ ! -e x.llm && ! -e x.gguf ]]
}

@test "what --method sparsegpt leaves is nearer to the model than what magnitude leaves" {
    local method
    for method in magnitude sparsegpt; do
        llm-quantize -t f32 --prune .6 --method $method "${CALIBRATE[@]}" --measure "$HELD" --measure-tokens 600 "$M" x.gguf 2> $method
        sed -n 's/.*KL \([0-9.]*\).*/\1/p' $method
    done | { read -r magnitude; read -r sparsegpt; awk "BEGIN {exit !($sparsegpt < $magnitude)}"; }
}

@test "llm-train --keep-zeros: a pruned model stays pruned and learns, also when it is resumed" {
    need_tool python3 jq
    local data=$BATS_FILE_TMPDIR/text optimizer
    llm-quantize -q -t f32 --prune 2:4 --method magnitude "$M" p.llm
    llm-tokenize encode -T "$M" "$data" > data.tok
    llm-train -q --init p.llm --keep-zeros -l 64 -b 4 --steps 12 --lr 1e-3 --precision f32 -o a.llm data.tok --log a.log
    llm-quantize -q -t f32 a.llm a.safetensors
    zeros a.safetensors 2 4
    jq -es '.[-1].loss < .[0].loss' a.log > /dev/null
    llm-train -q --init p.llm -l 64 -b 4 --steps 12 --lr 1e-3 --precision f32 -o c.llm data.tok
    llm-quantize -q -t f32 c.llm c.safetensors
    run -1 zeros c.safetensors 2 4
    for optimizer in sgd adam adagrad lion; do
        llm-train -q --init p.llm --keep-zeros --optimizer $optimizer -l 64 -b 4 --steps 3 --lr 1e-3 --precision f32 -o $optimizer.llm data.tok
        llm-quantize -q -t f32 $optimizer.llm o.safetensors
        zeros o.safetensors 2 4
    done
    llm-train -q --resume a.llm --steps 15 -o d.llm
    llm-quantize -q -t f32 d.llm d.safetensors
    zeros d.safetensors 2 4
    refused 2 'element by element' llm-train --init p.llm --keep-zeros --optimizer muon -l 64 -o x.llm data.tok
    refused 2 '--keep-zeros: expected no --adapter' llm-train --init p.llm --keep-zeros --adapter lora -l 64 -o x.llm data.tok
    refused 2 'eps' llm-train --init p.llm --keep-zeros --eps 0 -l 64 -o x.llm data.tok
}

@test "--prune that cannot be: one line, nothing written" {
    refused 2 "found '2:2'" llm-quantize -t f32 --prune 2:2 "$M" x.llm
    refused 2 "found '1.5'" llm-quantize -t f32 --prune 1.5 "$M" x.llm
    refused 2 '--method wanda: expected --prune too' llm-quantize -t f32 --method wanda "$M" x.llm
    refused 2 '--method sparsegpt: expected --calibrate' llm-quantize -t f32 --prune .5 --method sparsegpt "$M" x.llm
    refused 2 '--method wanda: expected --calibrate FILE or --imatrix' llm-quantize -t f32 --prune .5 --method wanda "$M" x.llm
    refused 2 'found gptq' llm-quantize -t q4_0 --prune .5 --method gptq "${CALIBRATE[@]}" "$M" x.llm
    refused 2 'expected no --budget' llm-quantize -t q4_0 --prune .5 --budget 4bpw "${CALIBRATE[@]}" "$M" x.llm
    [[ ! -e x.llm ]]
}
