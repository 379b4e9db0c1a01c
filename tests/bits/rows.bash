# The commands whose bits are recorded in tests/bits/hashes.tsv. `bits_rows` runs all of them in the current, empty folder and prints a line
# a row: its name, a tab, and the first 16 digits of the SHA-256 of what the row's command printed ("failed" when the command failed).
#
# A row prints results only: checkpoints as their unpacked bytes (zstd may pack them otherwise), logs without times.
# Needs $ROOT (the checkout), the programs first in PATH, zstd and jq.

bits_row() {
    local hash
    if hash=$(set -o pipefail; "${@:2}" < /dev/null 2>> errors | sha256sum); then hash=${hash:0:16}; else hash=failed; fi
    printf '%s\t%s\n' "$1" "$hash"
}

# bits_train NAME OPTION...: two steps of NAME.llm; prints its bytes, among them the validation loss.
bits_train() {
    llm-train -q -T tok.json -n 2 -b 2 -l 24 --val .02 "${@:2}" -o "$1.llm" && zstd -dcq "$1.llm"
}

# bits_log NAME OPTION...: prints the log of the steps, without times and memory (it costs the time of measuring the machine's peak).
bits_log() {
    bits_train "$@" --log "$1.jsonl" > "$1.bytes" && command jq -c 'del(.tokens_per_second, .peak_share, .seconds, .activation_bytes)' "$1.jsonl"
}

# bits_quantize TYPE IN OUT OPTION...: prints OUT and the first columns of the table of errors, so that a further column changes no row.
bits_quantize() {
    llm-quantize -q -t "$1" --report report.tsv "${@:4}" "$2" "$3" || return
    case $3 in *.llm) zstd -dcq "$3" ;; *) cat "$3" ;; esac && cut -f 1-11 report.tsv
}

bits_infer() { llm-infer -m "$@" --ids --no-timings --jsonl prompts.jsonl; }

bits_inputs() {
    awk 'BEGIN { split("red green small old quick cat dog bird fish hen", w); split("is sees likes hears", v)
        for (i = 0; i < 300; i++) { a = w[i % 10 + 1]; b = w[i * 7 % 9 + 1]; c = w[int(i / 3) % 10 + 1]
            printf "the %s %s %s the %s\n", a, b, v[i * 3 % 4 + 1], c > "text"
            printf "{\"q\": \"%s %s\", \"a\": \"%s %s\"}\n", a, b, b, a > "pairs.jsonl"
            printf "%s %s\t%s\n", a, c, i % 3 ? "one" : "other" > "classes.tsv" } }'
    printf '%s\n' '{"ids": [3, 1, 4, 1, 5, 9, 2, 6]}' '{"ids": [7]}' '{"ids": [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9]}' > prompts.jsonl
    llm-tokenize train --vocab-size 280 --special '</s>' --special '[MASK]' --special '<|fim_prefix|>' --special '<|fim_suffix|>' \
        --special '<|fim_middle|>' -o tok.json text
    llm-tokenize encode -T tok.json --lines -o data.tok text
    llm-tokenize encode -T tok.json --pair q,a --append-eos -o pairs.tok pairs.jsonl
    llm-tokenize encode -T tok.json --tsv --label 2 -o classes.tok classes.tsv
}

# The header of a safetensors file.
bits_header() { tail -c +9 "$1" | head -c "$(($(od -An -N8 -tu8 "$1")))"; }

# bits_generates MODEL NAME...: rows of texts that MODEL.llm continues.
bits_generates() {
    bits_row "infer/$1/greedy" bits_infer "$1.llm" --temp 0 -n 12
    bits_row "infer/$1/sampled" bits_infer "$1.llm" --seed 7 --samples 2 -n 12
}

# bits_gguf MODEL NAME: rows of MODEL.llm as GGUF, and of what that continues.
bits_gguf() {
    bits_row "quantize/$1/gguf" bits_quantize keep "$1.llm" "$1.gguf"
    bits_row "infer/$1/gguf" bits_infer "$1.gguf" --temp 0 -n 6
}

# Two steps of every configuration of tests/golden/families, in both precisions.
bits_families() {
    local file name options precision
    for file in "$ROOT"/tests/golden/families/*.safetensors; do
        name=${file##*/}
        name=${name%.safetensors}
        bits_header "$file" | command jq -r .__metadata__.config > "$name.json"
        options=(data.tok)
        case $name in
        gemma3-bidirectional) options=(--objective mlm data.tok) ;;
        bert) options=(--objective mlm data.tok) ;;
        bert-model) options=(--objective contrastive pairs.tok) ;;
        t5*) options=(--objective seq2seq pairs.tok) ;;
        esac
        for precision in f32 bf16; do
            bits_row "train/$name/$precision" bits_train "$name" -c "$name.json" --set vocab_size=280 --seed 5 --precision $precision \
                "${options[@]}"
        done
        case $name in
        bert* | gemma3-bidirectional) ;;
        gpt2-unscaled | gpt2-inverse-layer | mamba-act | mamba2-act | qwen3_moe-dense | qwen3_moe-window | deepseek_v3 | gemma* | hyena* | llama-dynamic | lstm | mamba2 | mamba-bias | qwen2-window | qwen3_moe-plain | rnn | rwkv* | smollm3 | t5*)
            bits_generates "$name" ;; # GGUF cannot say what these configurations ask for
        *) bits_generates "$name" && bits_gguf "$name" ;;
        esac
    done
}

# What other options of training compute.
bits_options() {
    local shape=(--set num_hidden_layers=2 --set hidden_size=32)
    local tiny=(-c tiny "${shape[@]}" --set intermediate_size=48 --set num_attention_heads=2) optimizer preset
    for optimizer in adam sgd adagrad lion muon; do
        bits_row "train/optimizer/$optimizer" bits_train o "${tiny[@]}" --optimizer $optimizer data.tok
    done
    for preset in nano mla mlp bengio perceiver mamba mamba2 rwkv rwkv5 rwkv6 rwkv7 moe; do
        case $preset in
        nano) set -- --set n_layer=2 --set n_embd=32 --set n_head=2 --dropout .1 ;;
        mla) set -- "${shape[@]}" --set intermediate_size=48 --set num_attention_heads=2 ;;
        mlp | bengio) set -- --set embedding_size=16 --set intermediate_size=32 ;;
        perceiver) set -- "${shape[@]}" --set intermediate_size=48 --set num_attention_heads=2 --set num_latents=8 ;;
        moe) set -- "${shape[@]}" --set intermediate_size=32 --set num_local_experts=5 --set n_shared_experts=1 --set first_k_dense_replace=1 \
            --set scoring_func=sigmoid --set router_bias=true --set router_z_loss_coef=0.001 ;;
        mamba | rwkv) set -- "${shape[@]}" ;;
        rwkv7) set -- "${shape[@]}" --set head_dim=16 ;;
        rwkv?) set -- "${shape[@]}" --set head_size=16 ;;
        mamba2) set -- "${shape[@]}" --set num_heads=2 --set head_dim=32 ;;
        esac
        bits_row "train/preset/$preset" bits_train "preset-$preset" -c $preset "$@" data.tok
        bits_generates "preset-$preset"
    done
    bits_row train/log bits_log log "${tiny[@]}" data.tok
    bits_row train/log-moe bits_log log -c moe "${shape[@]}" --set intermediate_size=32 --set num_local_experts=5 data.tok
    bits_row train/option/stored-bf16 bits_train o "${tiny[@]}" --activations bf16 data.tok
    bits_row train/option/stored-int8 bits_train o "${tiny[@]}" --activations int8 data.tok
    bits_row train/option/accumulate bits_train o "${tiny[@]}" --accumulate 2 --checkpoint-every 1 data.tok
    bits_row train/option/ema bits_train o "${tiny[@]}" --ema .9 --z-loss 1e-3 --eval-ema data.tok
    bits_row train/option/wsd bits_train o "${tiny[@]}" --schedule wsd --decay-style minus-sqrt --order random data.tok
    bits_row train/option/mup bits_train o "${tiny[@]}" --mup --base-width 16 data.tok
    bits_row train/option/next bits_train next "${tiny[@]}" --set num_nextn_predict_layers=2 data.tok
    bits_row train/option/shared-kv bits_train o "${tiny[@]}" --set kv_sharing=2 data.tok
    bits_row train/option/carry bits_train o -c lstm --set hidden_size=32 --set num_layers=2 --carry-state data.tok
    bits_row train/objective/prefix bits_train o "${tiny[@]}" --objective prefix pairs.tok
    bits_row train/objective/fim bits_train o "${tiny[@]}" --objective fim -l 48 data.tok
    bits_row train/objective/classify bits_train classes "${tiny[@]}" --objective classify classes.tok
    bits_row train/objective/contrastive bits_train o "${tiny[@]}" --objective contrastive pairs.tok
    bits_row infer/classes llm-infer -m classes.llm --classify --jsonl prompts.jsonl
    bits_row infer/draft bits_infer next.llm --temp 0 -n 12 --draft-max 2
}

# A model wide enough for every type of quantised blocks.
bits_quantised() {
    local type format
    bits_row train/wide bits_train wide -c tiny --set num_hidden_layers=1 --set hidden_size=256 --set intermediate_size=256 \
        --set num_attention_heads=4 --set num_key_value_heads=2 --lr 1e-2 data.tok
    llm-quantize -q -t f32 wide.llm wide-f32.llm
    for type in f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4 nvfp4 iq3_s iq3_xxs iq2_m iq2_xs; do
        llm-quantize --help=all | grep -qw $type || continue
        bits_row "quantize/$type" bits_quantize $type wide-f32.llm "$type.llm"
        bits_row "infer/$type" bits_infer "$type.llm" --temp 0 -n 12
    done
    bits_row quantize/prune bits_quantize q8_0 wide-f32.llm prune.llm --prune 2:4 --calibrate text --calibrate-tokens 600
    bits_row quantize/wanda bits_quantize q8_0 wide-f32.llm wanda.llm --prune .4 --method wanda --calibrate text --calibrate-tokens 600
    bits_row quantize/awq bits_quantize q4_0 wide-f32.llm awq.llm --method awq --calibrate text --calibrate-tokens 600
    bits_row quantize/gptq bits_quantize q4_k wide-f32.llm gptq.llm --method gptq --calibrate text --calibrate-tokens 600
    bits_row quantize/kl bits_quantize q4_k wide-f32.llm kl.llm --method kl --calibrate text --calibrate-tokens 600
    bits_row quantize/refine bits_quantize q3_k wide-f32.llm refine.llm --refine 4 --calibrate text --calibrate-tokens 600
    bits_row train/keep-zeros bits_train keep-zeros --init prune.llm --keep-zeros --precision f32 data.tok
    for format in gguf safetensors; do
        bits_row "quantize/to-$format" bits_quantize q8_0 wide.llm "q8.$format"
        bits_row "infer/from-$format" bits_infer "q8.$format" --temp 0 -n 12
    done
    bits_row train/wide-moe bits_train moe -c moe --set num_hidden_layers=1 --set hidden_size=64 --set intermediate_size=32 \
        --set num_local_experts=4 data.tok
    llm-quantize -q -t q4_0 --except '*embed*' wide.llm frozen.llm
    for type in f32 bf16; do
        bits_row "train/frozen/$type" bits_train frozen-$type --init frozen.llm --train '*norm*' --train '*embed*' --precision $type data.tok
    done
    bits_row quantize/moe-q8_0 bits_quantize q8_0 moe.llm moe-q8.llm
    bits_row quantize/moe-gguf bits_quantize q8_0 moe.llm moe-q8.gguf
    bits_row infer/moe-gguf bits_infer moe-q8.gguf --temp 0 -n 12
    bits_row quantize/gpt2-safetensors bits_quantize keep gpt2.llm gpt2.safetensors
    for type in f32 f16 q8_0 q4_0; do
        bits_row "infer/cache/$type" bits_infer wide.llm --temp 0 -n 12 --cache-type $type
    done
    bits_row infer/score llm-infer -m wide.llm --score "the red cat sees the old hen"
    bits_row infer/score-f32 llm-infer -m wide.llm --precision f32 --score "the red cat sees the old hen"
    bits_row infer/logits llm-infer -m q4_0.llm --logits "the red cat"
    bits_row infer/embed llm-infer -m wide.llm --embed "the red cat"
    bits_row infer/kv llm-infer -m wide.llm --kv-out - "the red cat"
}

bits_tokens() {
    local model golden=$ROOT/tests/golden/ngram
    for model in bpe unigram wordpiece char byte; do
        bits_row "tokenize/train/$model" llm-tokenize train --model $model --vocab-size 300 text
        llm-tokenize train --model $model --vocab-size 300 -o $model.json text 2>> errors
        bits_row "tokenize/encode/$model" llm-tokenize encode -T $model.json text
    done
    jq -Rc '{text: .}' "$golden/letters.txt" > letters.jsonl
    llm-tokenize train --model char --special '</s>' --jsonl --field text -o letters.json letters.jsonl
    llm-tokenize encode -T letters.json --jsonl --field text --append-eos -o letters.tok letters.jsonl
    bits_row ngram/train bits_ngram letters --order 4
    bits_row ngram/pruned bits_ngram pruned --order 4 --prune 0,0,1,2
    bits_row ngram/arpa llm-quantize -q -t keep --to arpa letters.llm -
    bits_row ngram/infer bits_infer letters.llm --seed 3 -n 20
    bits_row ngram/score llm-infer -m letters.llm --score "abab"
}

bits_ngram() {
    llm-train -q --objective ngram "${@:2}" -T letters.json -o "$1.llm" letters.tok && zstd -dcq "$1.llm"
}

bits_rows() {
    local LLM_THREADS=1
    export LLM_THREADS
    bits_inputs && bits_families && bits_options && bits_quantised && bits_tokens
}
