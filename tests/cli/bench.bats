# llm-bench: what it counts is exact, what it measures agrees with llm-infer; speeds are never asserted, only that they are numbers.
load ../helper

setup_file() {
    local t=$ROOT/tests/golden/tiny
    printf 'Once upon a time there was a girl.\n' > a.txt
    printf 'She had a red ball and a blue hat, and so on.\n' > b.txt
    cat a.txt b.txt > ab.txt
    llm-tokenize encode -T "$t/tokenizer.json" a.txt > a.tok
    llm-tokenize encode -T "$t/tokenizer.json" a.txt b.txt > both.tok
    cat > llama2-7b.json << 'END'
{"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}
END
    cat > llama3-70b.json << 'END'
{"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
 "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rope_theta": 500000.0, "tie_word_embeddings": false}
END
}

setup() {
    D=$BATS_FILE_TMPDIR M=$ROOT/tests/golden/tiny
}

# cell FILE ROW COLUMN: of a TSV table; ROW is the text of the first column
cell() {
    awk -F'\t' -v row="$2" -v column="$3" '$1 == row { print $column }' "$1"
}

@test "cost: Llama-2 7B to the parameter, its block to the FLOP" {
    llm-bench cost "$D/llama2-7b.json" > t
    [[ $(cell t model 3) == 6738415616 ]]
    [[ $(cell t block 3) == 202383360 ]]
    [[ $(cell t "32 blocks" 3) == 6476267520 ]]
    [[ $(cell t embeddings 3) == 131072000 ]]
    [[ $(cell t "final norm, head" 3) == 131076096 ]]
    [[ $(cell t model.layers.0.self_attn.q_proj.weight 5) == 33554432 ]]
    [[ $(cell t model.layers.0.mlp.down_proj.weight 3) == 45088768 ]]
    [[ $(cell t model.layers.0.mlp.down_proj.weight 5) == 90177536 ]]
    [[ $(cell t "scores and values, context 4096" 5) == $((4 * 4096 * 4096)) ]]
    # 8 d² + 6 d d_ff for the matrices, 4 d L for the scores; the head once
    [[ $(cell t block 5) == $((8 * 4096 ** 2 + 6 * 4096 * 11008 + 4 * 4096 * 4096)) ]]
    [[ $(cell t model 5) == $((32 * (8 * 4096 ** 2 + 6 * 4096 * 11008 + 4 * 4096 * 4096) + 2 * 32000 * 4096)) ]]
    # a third of the parameters in attention, two thirds in the feed-forward part
    [[ $(cell t "block: attention" 4) == 0.3316 && $(cell t "block: feed-forward" 4) == 0.6684 ]]
}

@test "cost: Llama-2 7B in bytes: weights, cache, training" {
    llm-bench cost --table totals "$D/llama2-7b.json" > t
    [[ $(cell t "weights in f32" 2) == $((4 * 6738415616)) ]]
    [[ $(cell t "weights in bf16" 2) == $((2 * 6738415616)) ]]
    local matrices=$((6738415616 - 65 * 4096))
    [[ $(cell t "weights in q8_0" 2) == $((matrices / 32 * 34 + 65 * 4096 * 4)) ]]
    [[ $(cell t "weights in q4_0" 2) == $((matrices / 32 * 18 + 65 * 4096 * 4)) ]]
    [[ $(cell t "KV cache in bf16, one token" 2) == 524288 ]]
    [[ $(cell t "KV cache in bf16, context 4096" 2) == 2147483648 ]]
    [[ $(cell t "KV cache in q8_0, one token" 2) == 278528 ]]
    [[ $(cell t "KV cache in q4_0, one token" 2) == 147456 ]]
    [[ $(cell t "training by the rule 6N" 2) == $((6 * 6738415616)) ]]
    [[ $(cell t "training: AdamW's two moments" 2) == $((8 * 6738415616)) ]]
    [[ $(cell t "training: the three together, without activations" 2) == $((16 * 6738415616)) ]]
}

@test "cost: Llama-3 70B, whose keys have an eighth of the heads" {
    llm-bench cost "$D/llama3-70b.json" > t
    [[ $(cell t model 3) == 70553706496 ]]
    [[ $(cell t model.layers.0.self_attn.k_proj.weight 2) == "[1024, 8192]" ]]
    [[ $(cell t "block: attention" 3) == $((9 * 8192 ** 2 / 4)) ]] # 2.25 d²
    [[ $(cell t "KV cache in bf16, one token" 2) == 327680 ]]
    [[ $(cell t "scores and values, context 8192" 5) == $((4 * 8192 * 8192)) ]]
    llm-bench cost --table totals --context 100000 --set num_key_value_heads=64 "$D/llama3-70b.json" > t
    [[ $(cell t "KV cache in bf16, one token" 2) == $((8 * 327680)) ]]
    [[ $(cell t "KV cache in bf16, context 100000" 2) == $((8 * 327680 * 100000)) ]]
}

@test "cost: GPT-2 and SmolLM have the published sizes, with a tied head counted once" {
    llm-bench cost gpt2 > t
    [[ $(cell t model 3) == 124439808 && $(cell t "final norm, tied head" 3) == 1536 ]]
    [[ $(cell t "final norm, tied head" 5) == $((2 * 50257 * 768)) ]]
    llm-bench cost --table parts --set n_layer=24 --set n_embd=1024 --set n_head=16 gpt2 > t
    [[ $(cell t model 3) == 354823168 ]]
    llm-bench cost smollm > t
    [[ $(cell t model 3) == 134515008 ]]
}

@test "cost: layers that predict further stand apart from the model, with the head once more for each" {
    llm-bench cost --set vocab_size=4096 tiny > plain
    llm-bench cost --set vocab_size=4096 --set num_nextn_predict_layers=2 tiny > t
    for what in "5 blocks" model forward "weights in bf16" "weights in q4_0"; do
        assert_equal "$(cell t "$what" 2)|$(cell t "$what" 3)|$(cell t "$what" 5)" "$(cell plain "$what" 2)|$(cell plain "$what" 3)|$(cell plain "$what" 5)"
    done
    # each: a block, three norms, the matrix that joins [256, 512]; and the head
    local name="2 layers that predict further" params flops
    params=$((2 * ($(cell plain block 3) + 3 * 256 + 256 * 512)))
    flops=$((2 * ($(cell plain block 5) + 2 * 256 * 512 + 2 * 4096 * 256)))
    assert_equal "$(cell t "$name" 3) $(cell t "$name" 5)" "$params $flops"
    assert_equal "$(cell t "forward, layers that predict further" 2)" $flops
    assert_equal "$(cell t "training: forward, and twice that backward" 2)" $((3 * ($(cell t forward 2) + flops)))
    assert_equal "$(cell t "training: gradients" 2)" $((4 * ($(cell plain model 3) + params)))
}

@test "cost: a BertModel has no head of masked tokens" {
    local sizes='"model_type": "bert", "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 128, "max_position_embeddings": 32, "type_vocab_size": 2'
    printf '{"architectures": ["BertModel"], %s}' "$sizes" > bare.json
    printf '{"architectures": ["BertForMaskedLM"], %s}' "$sizes" > masked.json
    llm-bench cost bare.json > bare
    llm-bench cost masked.json > masked
    # the head: a matrix [64, 64] with its bias, a norm, a bias of the vocabulary, and the product with the embeddings
    assert_equal $(($(cell masked model 3) - $(cell bare model 3))) $((64 * 64 + 64 + 2 * 64 + 1000))
    assert_equal $(($(cell masked model 5) - $(cell bare model 5))) $((2 * 64 * 64 + 2 * 64 * 1000))
    assert_equal "$(cell bare model 5)" "$(cell bare "2 blocks" 5)"
    assert_equal "$(cell bare "norms, no head" 3)" 128
}

@test "cost: a window bounds what attention sees" {
    llm-bench cost --table parts --set sliding_window=1024 "$D/llama2-7b.json" > t
    [[ $(cell t model 5) == $((32 * (8 * 4096 ** 2 + 6 * 4096 * 11008 + 4 * 4096 * 1024) + 2 * 32000 * 4096)) ]]
}

@test "cost: of a preset, a config.json, a folder, a model: the same" {
    llm-quantize -q -t f32 "$M" m.llm
    llm-bench cost "$M" > folder
    llm-bench cost "$M/config.json" > config
    llm-bench cost m.llm > model
    cmp folder config
    cmp folder model
    llm-quantize -q -t f32 "$M" m.gguf
    llm-bench cost m.gguf | cmp folder -
    [[ $(cell folder model 3) == 34336 ]]
}

@test "cost: JSON Lines hold every number in full, TSV has one heading a table" {
    run -0 llm-bench cost --json --table totals "$D/llama2-7b.json"
    assert_line '{"what":"weights in f32","value":26953662464,"unit":"bytes"}'
    run -0 llm-bench cost "$D/llama2-7b.json"
    assert_line -n 0 $'part\tshape\tparameters\tparameters_share\tflops_per_token\tflops_share'
    assert_line $'what\tvalue\tunit'
    llm-bench cost -o file.tsv "$D/llama2-7b.json"
    [[ $output == "$(cat file.tsv)" ]]
}

@test "quality: the mean of llm-infer --score, its exponential, and bits a byte" {
    llm-bench quality --json -m "$M" --precision f32 "$D/ab.txt" > q
    llm-infer -m "$M" --precision f32 --score -f "$D/ab.txt" | awk '{ s -= $NF } END { print NR, s }' > score
    read -r n sum < score
    awk -v n="$n" -v sum="$sum" -F'[:,}]' '{
        for (i = 1; i < NF; i += 2) { gsub(/[{"]/, "", $i); v[$i] = $(i + 1) }
        row("tokens", v["tokens"], n)
        row("nats", v["nats_per_token"], sum / n)
        row("perplexity", v["perplexity"], exp(sum / n))
        row("bits", v["bits_per_byte"], sum / log(2) / v["bytes"])
        row("error", v["bits_error"], v["nats_error"] * n / log(2) / v["bytes"])
    }
    function row(what, x, y) { print what, x, y }' q > pairs
    assert_equal "$(wc -l < pairs)" 5
    while read -r what found expected; do near "$found" "$expected" 1e-4 || fail "$what"; done < pairs
    # all bytes but those of the first token
    [[ $(cut -f 2 <(llm-infer -m "$M" --score -f "$D/ab.txt") | wc -l) == "$n" ]]
}

@test "quality: a token stream is scored document by document, or as one" {
    llm-bench quality -m "$M" --precision f32 "$D/a.txt" "$D/b.txt" "$D/ab.txt" > text
    llm-bench quality -m "$M" --precision f32 "$D/both.tok" > stream
    local a b ab
    a=$(cell text "$D/a.txt" 2) b=$(cell text "$D/b.txt" 2) ab=$(cell text "$D/ab.txt" 2)
    [[ $(cell stream "$D/both.tok" 2) == $((a + b)) ]]
    awk -v x="$(cell stream "$D/both.tok" 4)" -v a="$a" -v na="$(cell text "$D/a.txt" 4)" -v b="$b" -v nb="$(cell text "$D/b.txt" 4)" \
        'BEGIN { y = (a * na + b * nb) / (a + b); exit !(x - y < 1e-4 && y - x < 1e-4) }'
    llm-bench quality -m "$M" --precision f32 --cross-document "$D/both.tok" > one
    [[ $(cut -f 2- one | tail -n 1) == $(cut -f 2- text | tail -n 1) ]]
    [[ $(cell one "$D/both.tok" 2) == "$ab" && $ab == $((a + b + 1)) ]]
}

@test "quality: text and token streams from standard input, a model from standard input" {
    llm-bench quality -m "$M" "$D/ab.txt" "$D/both.tok" | cut -f 2- > files
    llm-bench quality -m "$M" < "$D/ab.txt" | cut -f 2- > text
    cat "$D/both.tok" | llm-bench quality -m "$M" - | cut -f 2- > stream
    [[ $(sed -n 2p files) == "$(sed -n 2p text)" && $(sed -n 3p files) == "$(sed -n 2p stream)" ]]
    llm-quantize -q -t bf16 "$M" - | llm-bench quality -m - "$D/ab.txt" | cut -f 2- > piped
    cmp <(sed -n 2p piped) <(sed -n 2p files)
}

@test "quality: windows, and the first tokens alone" {
    [[ $(cell <(llm-bench quality -m "$M" -n 5 "$D/ab.txt") "$D/ab.txt" 2) == 4 ]]
    llm-bench quality -m "$M" "$D/ab.txt" > whole
    llm-bench quality -m "$M" -c 8 "$D/ab.txt" > windows
    [[ $(cell whole "$D/ab.txt" 2) == $(cell windows "$D/ab.txt" 2) ]]
    [[ $(cell whole "$D/ab.txt" 4) != $(cell windows "$D/ab.txt" 4) ]]
}

@test "quality: the same bits whatever the threads and the pass" {
    llm-bench quality --json -m "$M" "$D/ab.txt" > all
    llm-bench quality --json -j 1 -b 1 -m "$M" "$D/ab.txt" | cmp - all
    llm-bench quality --json -j 3 -b 7 -m "$M" "$D/ab.txt" | cmp - all
}

@test "speed: a row a test at each depth, named as llama-bench names them" {
    llm-bench speed -m "$M" -p 16,8 -n 4 -d 0,8 -r 2 > t
    [[ $(cut -f 7 t | tr '\n' ,) == "test,pp16,pp8,tg4,pp16 @ d8,pp8 @ d8,tg4 @ d8," ]]
    awk -F'\t' 'NR > 1 && !($8 > 0 && $9 >= 0 && $11 > 0 && $2 == 34336 && $3 == 68672) { print; exit 1 }' t
    [[ $(awk -F'\t' 'NR > 1 { print $10 }' t | sort -u | grep -c memory) == 1 ]]
    llm-bench speed -m "$M" -p 0 -n 5 -d 0,3 -b 8 --sequences 1,3 -r 2 > t
    [[ $(cut -f 7,10 t | tail -n +2 | tr '\n\t' ', ') == "tg5 memory,tg5 x 3 prefill,tg5 @ d3 memory,tg5 x 3 @ d3 prefill," ]]
    awk -F'\t' 'NR > 1 && !($8 > 0 && $9 >= 0 && $11 > 0) { print; exit 1 }' t
    llm-bench speed -c nano -t q8_0 -p 0 -n 2 -r 1 > t
    [[ $(cut -f 4,7 t | tail -n 1) == $'q8_0\ttg2' && $(wc -l < t) == 2 ]]
}

@test "train: one row, whose rates belong together" {
    mkdir temporary
    TMPDIR=$PWD/temporary llm-bench train -c nano --batch 2 --context 16 --accumulate 2 -r 2 > t
    # tokens/s × seconds = 2 × 2 × 16 tokens; 6N × tokens/s
    awk -F'\t' 'NR == 2 { n = $8 * $13 / 64; f = $10 * 1e9 / (6 * $2 * $8); exit !(n > .99 && n < 1.01 && f > .99 && f < 1.01 && $3 == 4 && $4 == 16) }' t
    [[ -z $(ls -A temporary) ]]
}

@test "kernels: the peaks and the barrier, then a product of each kind that the shape allows" {
    llm-bench kernels --peaks > t
    [[ $(cut -f 1 t | tr '\n' ,) == "peak,f32,bf16,int8,f32 reading,int8 reading,cpu_share,read,barrier," ]]
    [[ $(llm-bench kernels -j 1 --peaks | awk -F'\t' '$1 == "barrier" {print $2}') == - ]]
    llm-bench kernels --shape 16x32x64 --shape 2x3x5 --seconds 0.001 | sed '1,/^$/d' > t
    isa=$(llm-bench kernels --peaks --json | jq -r 'select(.isa).isa' | head -n 1)
    want=0
    [[ $isa != amx && $isa != avx512bf16 ]] || want=4 # inputs that the op before has packed, where BF16 has panels
    [[ $(grep -c packed t) == "$want" ]]
    grep -v packed t > u
    [[ $(cut -f 1-4 u | tr '\t\n' ' ,') == "product m n k,"*"f32 16 32 64,"*"q4_0 16 32 64,f32 2 3 5,bf16 2 3 5,bf16 dx 2 3 5,bf16 dw 2 3 5," ]]
    awk -F'\t' 'NR > 1 && !($6 > 0 && $7 >= $6) { print; exit 1 }' t
}

@test "kernels: attention forward and both ways, in FP32 and BF16" {
    llm-bench kernels --attention 70x2x16 --seconds 0.001 | sed '1,/^$/d' > t
    [[ $(cut -f 1-4 t | tr '\t\n' ' ,') == "attention tokens heads head_dim,"*"f32 forward 70 2 16,f32 both ways 70 2 16,bf16 forward 70 2 16,bf16 both ways 70 2 16," ]]
    awk -F'\t' 'NR > 1 && !($6 > 0 && $7 >= $6 && $9 > 0 && $10 >= 4 * 4 * 70 * 32) { print; exit 1 }' t
    run -2 --separate-stderr llm-bench kernels --attention 70x2
    [[ $stderr == *"expected TxHxD, found '70x2'"* ]]
}

@test "kernels: decoding by latent attention, of one sequence and eight" {
    llm-bench kernels --latent 130x3x32 --seconds 0.001 | sed '1,/^$/d' > t
    [[ $(sed 1d t | cut -f 1-4 | tr '\t\n' ' ,') == "bf16 latent, 1 sequence 130 3 96,bf16 latent, 8 sequences 130 3 96," ]]
    awk -F'\t' 'NR > 1 && !($6 > 0 && $7 >= $6 && $9 > 0) { print; exit 1 }' t
    [[ $(cut -f 10 t | xargs) == "bytes $((130 * 96 * 2)) $((8 * 130 * 96 * 2))" ]]
    run -2 --separate-stderr llm-bench kernels --latent 130x3
    [[ $stderr == *"expected KxHxR, found '130x3'"* ]]
}

@test "misuse is status 2" {
    refused 2 'expected a command' llm-bench
    refused 2 'speeed' llm-bench speeed
    refused 2 'one of -m and -c' llm-bench speed
    refused 2 'one of -m and -c' llm-bench speed -m "$M" -c nano
    refused 2 '--set goes with' llm-bench speed -m "$M" --set n_layer=1
    refused 2 '--prompt' llm-bench speed -m "$M" -p 5,x
    refused 2 '--prompt' llm-bench speed -m "$M" -p 5,,6
    refused 2 '--generate' llm-bench speed -m "$M" -n=-1
    refused 2 '--sequences' llm-bench speed -m "$M" --sequences 9 -b 8
    refused 2 '--depth' llm-bench speed -m "$M" -d ''
    refused 2 'expected a test' llm-bench speed -m "$M" -p 0 -n 0
    refused 2 '--runs' llm-bench speed -m "$M" -r 0
    refused 2 '--type' llm-bench speed -m "$M" -t q9_9
    refused 2 '--threads' llm-bench speed -m "$M" -j 0
    refused 2 'no operand' llm-bench train nano
    refused 2 '--context' llm-bench train --context 0
    refused 2 '--shape' llm-bench kernels --shape 5x5
    refused 2 '--shape' llm-bench kernels --shape 5x5x5x5
    refused 2 '--shape' llm-bench kernels --shape 0x5x5
    refused 2 '--seconds' llm-bench kernels --seconds nan
    refused 2 'expected one model' llm-bench cost
    refused 2 'expected one model' llm-bench cost nano tiny
    refused 2 '--table' llm-bench cost --table some nano
    refused 2 '--set' llm-bench cost --set n_layer nano
    refused 2 'expected a model' llm-bench quality "$D/ab.txt"
    refused 2 'standard input' llm-bench quality -m - -
    refused 2 'standard input' llm-bench quality -m -
    refused 2 'standard input' llm-bench quality -m "$M" - -
    refused 2 '--context' llm-bench quality -c 1 -m "$M" "$D/ab.txt"
}

@test "missing and bad inputs: 66 and 65, the file named" {
    refused 66 absent llm-bench cost absent.json
    refused 66 absent llm-bench speed -m absent.llm
    refused 66 absent llm-bench quality -m "$M" absent.txt
    refused 66 'config.json' llm-bench cost .
    echo '{"model_type": "abacus"}' > unknown.json
    run --separate-stderr llm-bench cost unknown.json
    [[ $status == 65 || $status == 69 ]] && [[ $stderr == *abacus* ]]
    echo '{"model_type": ' > cut.json
    refused 65 cut.json llm-bench cost cut.json
    echo '{"model_type": "llama", "hidden_size": -4}' > negative.json
    refused 65 hidden_size llm-bench cost negative.json
    head -c 3000 "$M/model.safetensors" > cut.safetensors
    refused 65 cut.safetensors llm-bench speed -m cut.safetensors
    : > empty
    refused 65 empty llm-bench quality -m "$M" empty
    refused 65 'empty' llm-bench cost empty
    printf a > one.txt
    refused 65 'at least 2 tokens' llm-bench quality -m "$M" one.txt
    head -c -9 "$D/both.tok" > cut.tok
    refused 65 cut.tok llm-bench quality -m "$M" cut.tok
    printf ab | llm-tokenize train --model char -o other.json
    printf abab | llm-tokenize encode -T other.json > other.tok
    refused 65 okenizer llm-bench quality -m "$M" other.tok
    refused 65 'expected text or a token stream, found a checkpoint' llm-bench quality -m "$M" "$ROOT/tests/golden/formats/checkpoint.llm"
    mkdir bare
    cp "$M"/config.json "$M"/model.safetensors bare
    refused 65 'one.txt: the model carries no tokenizer: expected a token stream, found text' llm-bench quality -m bare one.txt
    refused 65 'found a GGUF file' llm-bench quality -m "$M" "$ROOT/tests/golden/formats/sample.gguf"
    run -65 --separate-stderr llm-bench quality -m "$M" -T "$ROOT/tests/golden/formats/tokenizer.safetensors" "$D/ab.txt"
}

@test "outputs that cannot be: 73 and 74" {
    refused 73 nowhere llm-bench cost -o nowhere/out.tsv nano
    for what in "speed -m absent" "train -c nano" "quality -m absent text" kernels "zoo -T absent absent"; do # before the work
        refused 73 nowhere bash -c 'ulimit -t 20; exec llm-bench "$@"' - $what -o nowhere/out.tsv
    done
    run -74 --separate-stderr bash -c 'llm-bench cost nano > /dev/full'
    one_line "$stderr"
    run -74 --separate-stderr bash -c 'llm-bench cost nano >&-'
    refused 73 nowhere env TMPDIR="$PWD/nowhere" llm-bench train -c nano
}

@test "an interrupt ends it by that signal, and nothing is printed" {
    run -130 --separate-stderr timeout --preserve-status -s INT 1 llm-bench train -c nano --runs 1000
    [[ -z $output ]]
}

@test "the commands of the manual's EXAMPLES run" {
    llm-quantize -q -t bf16 "$M" model.llm
    llm-quantize -q -t q4_0 "$M" kl.gguf
    llm-quantize -q -t q5_0 "$M" gptq.gguf
    cp "$D/ab.txt" held-out.txt
    mkdir runs # with the logs of 16 runs
    for n in 1e6 4e6 2e7 1e8; do
        for d in 1e7 1e8 1e9 1e10; do
            awk -v n=$n -v d=$d 'BEGIN { printf "{\"step\": 9, \"parameters\": %d, \"tokens\": %d, \"val_loss\": %.9f}\n", n, d, 1.7 + 400 / n ^ .34 + 400 / d ^ .28 }'
        done
    done | awk '{ print > "runs/" NR ".jsonl" }'
    manual_examples llm-bench 9
}

@test "kernels --peaks: loops that read operands beside those of registers; what the host gives of the processors" {
    need_tool jq
    llm-bench kernels --peaks --json -q > rows
    [[ $(jq -s '[.[].peak] | join(" ")' rows) == '"f32 bf16 int8 f32 reading int8 reading cpu_share read barrier"' ]]
    jq -es '.[] | select(.peak == "f32 reading").value > 0' rows
    jq -es '.[] | select(.peak == "cpu_share").value | . > 0 and . <= 1' rows
    # two busy threads for one CPU are given half of what they ask for
    run -0 --separate-stderr taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" llm-bench kernels --peaks --json -j 2
    [[ $stderr == "llm-bench kernels: warning: the loops were given "*"% of the processor time that 2 threads asked for:"* ]] || fail "$stderr"
}
