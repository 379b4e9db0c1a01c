load ../helper

setup_file() {
    [[ -z ${SANITIZER-} ]] || return 0
    cd "$BATS_FILE_TMPDIR"
    counting_model 2 -b 2 --steps 2
    mv m.llm two.llm
    counting_model 8 -b 2 --steps 2
}

setup() {
    [[ -z ${SANITIZER-} ]] || skip "minutes under $SANITIZER, which the unit tests of this code run under"
    M=$BATS_FILE_TMPDIR/m.llm
}

types_of() { # REPORT: "type count" lines of tensors that changed
    awk -F'\t' 'NR > 1 && $5 == "-" {print $4}' "$1" | sort | uniq -c | awk '{print $2, $1}'
}

@test "K and IQ types in all formats: decoded weights score the same to the bit" {
    local type
    for type in q2_k q3_k_m q4_k_m q5_k_m q6_k iq4_xs iq4_nl q4_1 q5_0 q5_1 mxfp4 nvfp4 iq3_s iq2_m iq2_xs; do
        for suffix in llm safetensors gguf; do
            llm-quantize -q -t $type "$BATS_FILE_TMPDIR/two.llm" m.$suffix
            llm-infer -m m.$suffix --precision f32 --score "1 2 3 4 5 6 7" > $suffix.score
        done
        cmp llm.score safetensors.score
        for suffix in llm gguf; do # rows of queries and keys have another order in GGUF
            llm-quantize -q -t f32 m.$suffix decoded.llm
            llm-infer -m decoded.llm --precision f32 --score "1 2 3 4 5 6 7" | cmp - $suffix.score
        done
    done
}

@test "mixes: types by tensor, smaller blocks for rows that are no multiple of 256, one type with --pure" {
    llm-quantize -q -t q4_k_m --report r.tsv "$M" m.llm
    [[ $(types_of r.tsv) == $'q4_k 45\nq5_0 2\nq6_k 7\nq8_0 6' || $(types_of r.tsv | awk '{n += $2} END {print n}') == 58 ]]
    [[ $(awk -F'\t' '$1 == "lm_head.weight" {print $4}' r.tsv) == q6_k ]]
    [[ $(awk -F'\t' '$1 ~ /layers.0.self_attn.v_proj/ {print $4, $13}' r.tsv) == 'q6_k search' ]]
    [[ $(awk -F'\t' '$1 ~ /layers.0.mlp.down_proj/ {print $4}' r.tsv) == q8_0 ]] # Q6_K in the mix
    [[ $(awk -F'\t' '$1 ~ /layers.2.mlp.down_proj/ {print $4}' r.tsv) == q5_0 ]] # Q4_K in the mix
    llm-quantize -q -t q4_k_m --pure --report r.tsv "$M" m.llm
    [[ $(types_of r.tsv) == $'q4_k 50\nq5_0 8' ]]
    [[ $(awk -F'\t' '$4 == "q4_k" {print $12}' r.tsv | sort -u) == 4.5 ]]
}

@test "mixes: llama.cpp's rules count layers of mixtures by their numbers, and are not for Mamba's matrices" {
    local small='"vocab_size": 256, "hidden_size": 256, "num_hidden_layers": 4, "tie_word_embeddings": false'
    echo "{\"model_type\": \"mamba\", $small, \"expand\": 1}" > c.json
    llm-train -q -c c.json -T "$BATS_FILE_TMPDIR/tok.json" -n 0 -o m.llm
    llm-quantize -q -t q3_k_m --report r.tsv m.llm x.llm
    [[ $(awk -F'\t' '$1 ~ /in_proj|out_proj/ {print $4}' r.tsv | sort | uniq -c | xargs) == '8 q3_k' ]]
    echo "{\"model_type\": \"deepseek_v3\", $small, \"intermediate_size\": 256, \"moe_intermediate_size\": 256, \"n_routed_experts\": 2, \"num_attention_heads\": 2,
        \"num_experts_per_tok\": 1, \"kv_lora_rank\": 256, \"q_lora_rank\": 256, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128,
        \"n_group\": 1, \"topk_group\": 1, \"first_k_dense_replace\": 1}" > c.json
    llm-train -q -c c.json -T "$BATS_FILE_TMPDIR/tok.json" -n 0 -o m.llm
    llm-quantize -q -t q4_k_m --report r.tsv m.llm x.llm
    [[ $(awk -F'\t' '$1 ~ /layers.0.mlp.down_proj/ {print $4}' r.tsv) == q4_k ]]
    [[ $(awk -F'\t' '$1 ~ /layers.2.mlp.experts.0.down_proj/ {print $4}' r.tsv) == q6_k ]]
    [[ $(awk -F'\t' '$1 ~ /layers.1.mlp.experts.0.down_proj/ {print $4}' r.tsv) == q4_k ]]
    sed -i 's/"num_hidden_layers": 4/"num_hidden_layers": 16, "n_shared_experts": 1/' c.json
    llm-train -q -c c.json -T "$BATS_FILE_TMPDIR/tok.json" -n 0 -o m.llm
    llm-quantize -q -t iq2_m --only '*down_proj*' --report r.tsv m.llm x.llm # two of 16 layers' matrices, each layer's experts as one
    run -0 awk -F'\t' '$4 == "iq3_s" {gsub(/model.layers.|.down_proj.weight/, "", $1); print $1}' r.tsv
    assert_output $'0.mlp\n1.mlp.experts.0\n1.mlp.experts.1'
}

@test "--tensor-type, --output-tensor-type, --token-embedding-type" {
    llm-quantize -q -t q3_k_m --tensor-type '*layers.1.*v_proj*=f16' --tensor-type '*v_proj*=q8_0' --output-tensor-type bf16 \
        --token-embedding-type keep --report r.tsv "$M" m.gguf
    [[ $(awk -F'\t' '/v_proj/ {print $4}' r.tsv | sort | uniq -c | tr -s ' \n' ' ') == ' 1 f16 7 q8_0 ' ]]
    [[ $(awk -F'\t' '/lm_head/ {print $4}' r.tsv) == bf16 ]]
    [[ $(awk -F'\t' '/embed_tokens/ {print $5}' r.tsv) == keep ]]
    llm-quantize -q -t q3_k_m --tensor-type 'blk\.(1|2)\.attn_v=f16' --tensor-type 'blk.1.ffn_*=q8_0' --tensor-type attn_v=q5_0 --report r.tsv "$M" g.gguf
    [[ $(awk -F'\t' '/v_proj/ {print $4}' r.tsv | sort | uniq -c | tr -s ' \n' ' ') == ' 2 f16 6 q5_0 ' ]]
    [[ $(awk -F'\t' '/layers.1.mlp/ {print $4}' r.tsv | sort | uniq -c | tr -s ' \n' ' ') == ' 3 q8_0 ' ]]
    refused 2 "expected PATTERN=TYPE" llm-quantize -t q8_0 --tensor-type v_proj "$M" x.llm
    refused 2 "expected PATTERN=TYPE" llm-quantize -t q8_0 --tensor-type '*v_proj*=q4_k_m' "$M" x.llm
    refused 2 "found the mix 'q4_k_m'" llm-quantize -t q8_0 --output-tensor-type q4_k_m "$M" x.llm
    llm-quantize -q -t q8_0 --only '*.attn_v.*' --except blk.2.attn_v.weight --report r.tsv "$M" g.gguf
    [[ $(awk -F'\t' '$4 == "q8_0" {print $1}' r.tsv | grep -c 'v_proj') == 7 && $(awk -F'\t' '$4 == "q8_0"' r.tsv | wc -l) == 7 ]]
    refused 2 "--only: expected a pattern that matches the name of a tensor, found 'v_proj'" llm-quantize -t q8_0 --only v_proj "$M" x.llm
    run -0 --separate-stderr llm-quantize -t q8_0 --except nothing "$M" g.gguf
    assert_equal "${stderr_lines[0]}" "llm-quantize: warning: --except: no tensor's name matches 'nothing'"
    refused 2 "'v_proj'" llm-quantize -t q8_0 --tensor-type v_proj=f16 "$M" x.llm
    refused 2 "'*absent*'" llm-quantize -t q8_0 --tensor-type '*absent*=f16' "$M" x.llm
    [[ ! -e x.llm ]]
}

@test "--method: rtn loses more than search; the bytes do not depend on threads" {
    local type two=$BATS_FILE_TMPDIR/two.llm
    for type in q2_k q4_0 iq4_xs; do
        llm-quantize -q -t $type --method rtn --report rtn.tsv "$two" a.llm
        llm-quantize -q -j 1 -t $type --method search --report search.tsv "$two" b.llm
        llm-quantize -q -j 3 -t $type --method search "$two" c.llm
        cmp b.llm c.llm
        awk -F'\t' '$5 == "-" {sum[FILENAME] += $8} END {exit !(sum["search.tsv"] < sum["rtn.tsv"])}' rtn.tsv search.tsv
        [[ $(awk -F'\t' '$5 == "-" {print $13}' rtn.tsv | sort -u) == rtn ]]
    done
    refused 2 '--method' llm-quantize -t q4_0 --method best "$two" x.llm
}

@test "copy is another name of keep" {
    llm-quantize -q -t keep "$M" a.gguf
    llm-quantize -q -t copy "$M" b.gguf
    cmp a.gguf b.gguf
}

@test "--calibrate: importances of a text, the same from files, for any threads; less weighted error" {
    seq 500 900 > calibration
    llm-quantize -t q3_k_s --calibrate calibration --calibrate-tokens 400 --calibrate-context 64 --imatrix-out i.gguf --report r.tsv "$M" a.llm 2> err
    grep -q 'calibration: 400 tokens in 7 windows' err
    [[ $(awk -F'\t' '$5 == "-" {print $13, $14}' r.tsv | sort -u) == $'search yes' || $(grep -c $'search\tyes' r.tsv) -ge 57 ]]
    llm-quantize -q -t q3_k_s --imatrix i.gguf "$M" b.llm
    cmp a.llm b.llm
    llm-quantize -q -j 1 -t q3_k_s --calibrate calibration --calibrate-tokens 400 --calibrate-context 64 --imatrix-out i.dat "$M" b.llm
    cmp a.llm b.llm
    llm-quantize -q -j 3 -t q3_k_s --imatrix i.dat --imatrix-out j.gguf "$M" c.llm
    llm-quantize -q -t q3_k_s --imatrix j.gguf "$M" d.llm
    cmp c.llm d.llm
    llm-tokenize encode -T "$M" -o calibration.tok calibration
    llm-quantize -q -t q3_k_s --calibrate calibration.tok --calibrate-tokens 400 --calibrate-context 64 "$M" b.llm
    cmp a.llm b.llm
    llm-quantize -q -t q3_k_s "$M" b.llm
    run -1 cmp -s a.llm b.llm
}

@test "calibration that cannot be: one line, nothing written" {
    : > empty
    refused 65 'expected a text with tokens, found none' llm-quantize -t q4_0 --calibrate empty "$M" x.llm
    refused 66 'absent' llm-quantize -t q4_0 --calibrate absent "$M" x.llm
    refused 65 'expected text or a token stream' llm-quantize -t q4_0 --calibrate "$M" "$M" x.llm
    echo nonsense > bad.dat
    refused 65 'bad.dat: byte ' llm-quantize -t q4_0 --imatrix bad.dat "$M" x.llm
    refused 2 'found both' llm-quantize -t q4_0 --imatrix bad.dat --calibrate empty "$M" x.llm
    refused 2 'expected --calibrate' llm-quantize -t q4_0 --imatrix-out i.gguf "$M" x.llm
    [[ ! -e x.llm && ! -e i.gguf ]]
}

@test "--memory: sums that wait on disk give the same bytes; no room there is one line" {
    seq 500 900 > calibration
    llm-tokenize encode -q -T "$M" -o calibration.tok calibration
    llm-train -q -c tiny --set num_hidden_layers=2 --set vocab_size=300 -T "$M" -l 64 -n 0 -o wide.llm calibration.tok
    for method in gptq kl; do
        of=(-q -t q4_0 --method $method --calibrate calibration --calibrate-tokens 300 --calibrate-context 64)
        llm-quantize "${of[@]}" wide.llm all.gguf
        llm-quantize "${of[@]}" --memory 1 wide.llm each.gguf
        cmp all.gguf each.gguf
        llm-quantize "${of[@]}" --memory 1M -j 3 wide.llm some.gguf
        cmp all.gguf some.gguf
        TMPDIR=/nowhere refused 74 'expected room for' llm-quantize "${of[@]}" --memory 1 wide.llm x.gguf
    done
    refused 2 '--memory: expected what gathers' llm-quantize -t q4_0 --memory 1M --method search --calibrate calibration wide.llm x.gguf
}

@test "--method gptq: needs a text, the same bytes for any threads, other than those of search" {
    seq 500 900 > calibration
    for threads in 1 3; do
        llm-quantize -q -j $threads -t q4_0 --method gptq --calibrate calibration --calibrate-tokens 300 --calibrate-context 64 --report r.tsv "$M" $threads.gguf
    done
    cmp 1.gguf 3.gguf
    [[ $(awk -F'\t' '$1 ~ /layers.*proj/ {print $13, $14, $15}' r.tsv | sort -u) == 'gptq yes 0.01' ]]
    [[ $(awk -F'\t' '/embed_tokens/ {print $13, $15}' r.tsv) == 'rtn 0' ]] # nothing multiplies it
    llm-quantize -q -t q4_0 --method search --calibrate calibration --calibrate-tokens 300 --calibrate-context 64 "$M" s.gguf
    run -1 cmp -s 1.gguf s.gguf
    llm-infer -m 1.gguf -n 4 "1 2 3" > /dev/null
    refused 2 'expected --calibrate' llm-quantize -t q4_0 --method gptq "$M" x.llm
}

@test "the network that makes Hyena's filters stays as it is under every type" {
    llm-train -q -c hyena --set d_model=64 --set n_layer=2 --set filter_order=64 -T "$BATS_FILE_TMPDIR/tok.json" -l 8 -b 2 --steps 1 -o hyena.llm \
        "$BATS_FILE_TMPDIR/data.tok"
    for type in q8_0 q4_k_m; do
        llm-quantize -q -t $type --report r.tsv hyena.llm m.llm
        [[ $(awk -F'\t' '$1 ~ /implicit_filter.*weight/ {print $3, $4, $5}' r.tsv | sort -u) == 'bf16 bf16 exact' ]]
        awk -F'\t' '$5 == "-" {n++} END {exit !(n > 0)}' r.tsv
    done
}
