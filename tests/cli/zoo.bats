# llm-bench zoo: all architectures, the same arithmetic, one table.
load ../helper
export LLM_THREADS=1

setup_file() {
    sentences 900 > text
    llm-tokenize train --model char -o tok.json text
    llm-tokenize encode -T tok.json -o data.tok text
    export F=$PWD
}

zoo() { llm-bench zoo -q -T "$F/tok.json" --context 32 -b 4 "$@" "$F/data.tok"; }

@test "a row for every architecture, with what it costs and what it learned" {
    zoo --flops 1e9 -o zoo.tsv
    assert_equal "$(awk -F'\t' '{ print NF }' zoo.tsv | sort -u)" 10
    assert_equal "$(head -n 1 zoo.tsv | cut -f 1,9,10)" $'model\tval_nats\tval_bits_per_byte'
    for name in ngram-1 ngram-5 bengio mlp rnn lstm mamba mamba2 rwkv rwkv5 rwkv6 rwkv7 hyena gpt2 llama llama-mqa llama-window llama-shared-kv perceiver mla moe mla-moe; do
        assert_equal "$(cut -f 1 zoo.tsv | grep -cx -- $name)" 1
    done
    # the manual names them
    sed -n '/^\.It Fl -only /,/may be given/p' "$ROOT/man/llm-bench.1" | tr -s ' ,;' '\n' > manual
    for name in $(cut -f 1 zoo.tsv | grep -v -e ^model -e ^ngram-); do grep -qx -- "$name" manual; done
    # an unseen character costs no more than a uniform guess would, and counting pairs beats counting characters
    awk -F'\t' '$1 == "ngram-1" { one = $9 } $1 == "ngram-2" { exit !($9 < one) }' zoo.tsv
    awk -F'\t' 'NR > 1 && !($9 > 0 && $9 < 4) { exit 1 }' zoo.tsv
    # recurrent layers keep a state of one size
    awk -F'\t' '$1 == "lstm" { exit !($7 == 0 && $8 == 2 * 2 * 224 * 4) }' zoo.tsv
    # a mixture has more parameters than a token meets; latent and shared caches are smaller
    awk -F'\t' '$1 == "moe" { exit !($2 > $3) }' zoo.tsv
    awk -F'\t' '{ bytes[$1] = $7 } END { exit !(bytes["llama-shared-kv"] * 2 == bytes["llama"] && bytes["mla"] * 4 == bytes["llama"]) }' zoo.tsv
}

@test "it goes on with the rows that are missing, and a row is the same alone" {
    zoo --flops 3e8 --only gpt2 --only moe -o zoo.tsv
    cp zoo.tsv before
    zoo --flops 3e8 --only gpt2 --only llama -o zoo.tsv
    assert_equal "$(head -n 3 zoo.tsv)" "$(cat before)"
    assert_equal "$(cut -f 1 zoo.tsv | tr '\n' ' ')" "model gpt2 moe llama "
    zoo --flops 3e8 --only llama --only moe > alone
    assert_equal "$(cut -f 1 alone | tr '\n' ' ')" "model llama moe "
    assert_equal "$(grep ^llama alone | cut -f 1-5,7-)" "$(tail -n 1 zoo.tsv | cut -f 1-5,7-)"
}

@test "a terminal shows the table" {
    need_tool script
    script -qec "llm-bench zoo -q -T $F/tok.json --context 32 -b 4 --only ngram-1 $F/data.tok" /dev/null < /dev/null > shown
    grep -q ^ngram-1 shown
}

@test "a signal leaves the rows that are done" {
    zoo --flops 3e8 --only gpt2 -o zoo.tsv
    cp zoo.tsv before
    env --default-signal=INT llm-bench zoo -q -T "$F/tok.json" --flops 1e15 --only llama -o zoo.tsv "$F/data.tok" &
    running $!
    sleep .3
    kill -INT $!
    ends_by 130 $!
    cmp zoo.tsv before
    nothing_left
}

@test "what it cannot do it says in one line" {
    run -2 --separate-stderr zoo --only perceptron
    one_line "$(head -n 1 <<< "$stderr")"
    [[ $stderr == *perceptron* ]]
    run -2 zoo --only ngram-2x
    run -2 zoo --only ngram-6
    run -2 --separate-stderr llm-bench zoo "$F/data.tok"
    [[ $stderr == *tokenizer* ]]
    echo "something else" > other
    run -65 --separate-stderr zoo --only gpt2 --flops 1e8 -o other
    one_line "$stderr"
    run -66 --separate-stderr llm-bench zoo -T "$F/tok.json" missing.tok
    one_line "$stderr"
}
