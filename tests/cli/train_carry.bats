# Truncated backpropagation through time: the state of recurrent layers carried from window to window.
load ../helper
export LLM_THREADS=1

setup_file() {
    awk 'BEGIN { srand(5); for (i = 0; i < 900; i++) printf "%s ", substr("the red cat sees a bird and hears fish", int(rand() * 30) + 1, 6) }' > text
    head -c 1500 text > a
    tail -c +1501 text > b
    llm-tokenize train --model byte -o bytes.json < /dev/null
    llm-tokenize encode -T bytes.json -o data.tok text
    llm-tokenize encode -T bytes.json -o documents.tok a b
    export F=$PWD
}

# carried PRESET OPTION...: a short run of a small model
carried() {
    local preset=$1 small=()
    shift
    case $preset in
    rnn | lstm) small=(--set hidden_size=24 --set dropout=0.2 --set num_layers=2) ;;
    mamba | rwkv) small=(--set hidden_size=24 --set num_hidden_layers=2) ;;
    rwkv7) small=(--set hidden_size=24 --set num_hidden_layers=2 --set head_dim=8 --set decay_low_rank_dim=8) ;;
    rwkv?) small=(--set hidden_size=24 --set num_hidden_layers=2 --set head_size=8) ;;
    mamba2) small=(--set hidden_size=24 --set num_hidden_layers=2 --set num_heads=6 --set head_dim=8 --set n_groups=2) ;;
    esac
    llm-train -q -c "$preset" "${small[@]}" -l 16 -b 4 -T "$F/bytes.json" --carry-state --schedule constant --warmup 0 "$@"
}

# golden NAME: $golden is PyTorch's model, text.tok what it learned, `want` its losses.
golden() {
    golden=$ROOT/tests/golden/train/$1.safetensors
    head -c 20000 "$golden" | tail -c +9 | jq -n 'input' > header.json
    jq -rj '.__metadata__.text' header.json > text
    jq -r '.__metadata__.losses | fromjson[]' header.json > want
    llm-tokenize encode -T "$F/bytes.json" -o text.tok text
}

# apart MOST: how many of the 12 losses in log.jsonl are further than MOST, relative, from those of `want`.
apart() {
    jq -r .loss log.jsonl | paste want - | awk -v most="$1" 'NF == 2 { d = ($1 - $2) / $1; n += d > most || d < -most; lines++ }
        END { if (lines != 12) exit 1; print n + 0 }'
}

@test "the losses of PyTorch, whose state is handed on without its gradient" {
    for kind in rnn lstm; do
        golden carried-$kind
        for how in "-b 3" "-b 1 --accumulate 3"; do
            llm-train -q --init "$golden" --carry-state -l 7 $how -n 12 --optimizer sgd --momentum 0 --weight-decay 0 --clip 0 --lr .5 \
                --schedule constant --warmup 0 --precision f32 --log log.jsonl -o model.llm text.tok
            assert_equal "$(apart 3e-6)" 0 || fail "$kind $how"
        done
        # and without the state they are others
        llm-train -q --init "$golden" --order sequential -l 7 -b 3 -n 12 --optimizer sgd --momentum 0 --weight-decay 0 --clip 0 --lr .5 \
            --schedule constant --warmup 0 --precision f32 --log log.jsonl -o model.llm text.tok
        (($(apart 1e-3) >= 6)) || fail "$kind: no state"
    done
}

@test "dropout between layers, and not behind the last: the losses of PyTorch's layers with our masks between them" {
    for kind in rnn lstm; do
        golden dropped-$kind
        run=(llm-train -q --init "$golden" --carry-state -l 7 -b 3 -n 12 --optimizer sgd --momentum 0 --weight-decay 0 --clip 0 --lr .5 --seed 9
             --schedule constant --warmup 0 --precision f32)
        "${run[@]}" --log log.jsonl -o model.llm text.tok
        assert_equal "$(apart 3e-6)" 0 || fail "$kind"
        for wrong in "--seed 10" "--dropout .29"; do
            "${run[@]}" $wrong --log log.jsonl -o model.llm text.tok
            (($(apart 1e-4) >= 6)) || fail "$kind $wrong"
        done
    done
}

@test "threads, accumulation, activation checkpointing and a pause change no bit" {
    for preset in rnn lstm mamba mamba2 rwkv rwkv5 rwkv6 rwkv7; do
        carried $preset -n 7 -o whole.llm "$F/documents.tok"
        LLM_THREADS=2 carried $preset -n 7 --checkpoint-every 1 -o threads.llm "$F/documents.tok"
        cmp whole.llm threads.llm || fail "$preset: threads"
        carried $preset -n 3 -o part.llm "$F/documents.tok"
        llm-train -q --resume part.llm -n 7 -o part.llm
        cmp whole.llm part.llm || fail "$preset: resume"
        carried $preset -n 7 --log whole.jsonl -o whole.llm "$F/documents.tok"
        carried $preset -n 7 -b 1 --accumulate 4 --log parts.jsonl -o parts.llm "$F/documents.tok"
        diff <(jq -c '[.loss, .grad_norm]' whole.jsonl) <(jq -c '[.loss, .grad_norm]' parts.jsonl) || fail "$preset: accumulation"
    done
}

@test "a document begins with nothing, unless documents see each other" {
    # two parts of 1,500 and more tokens: the second row begins with the second document, or goes on
    for preset in lstm mamba rwkv rwkv6; do
        carried $preset -b 1 -n 1 --lr 0 -l 1500 --log one.jsonl -o m.llm "$F/documents.tok"
        carried $preset -b 1 -n 2 --lr 0 -l 1500 --log apart.jsonl -o m.llm "$F/documents.tok"
        carried $preset -b 1 -n 2 --lr 0 -l 1500 --cross-document --log across.jsonl -o m.llm "$F/documents.tok"
        carried $preset -b 1 -n 2 --lr 0 -l 1500 --log text.jsonl -o m.llm "$F/data.tok"
        [ "$(tail -n 1 across.jsonl | jq .loss)" = "$(tail -n 1 text.jsonl | jq .loss)" ] || fail "$preset: across"
        [ "$(tail -n 1 apart.jsonl | jq .loss)" != "$(tail -n 1 across.jsonl | jq .loss)" ] || fail "$preset: apart"
    done
}

@test "what has no state to carry is refused" {
    run -2 --separate-stderr llm-train -q -c tiny -T "$F/bytes.json" --carry-state -n 1 -o m.llm "$F/data.tok"
    [[ $stderr == *"--carry-state: expected a model with a state"* ]]
    run -2 --separate-stderr carried lstm --overfit-one -n 1 "$F/data.tok"
    [[ $stderr == *"not with --overfit-one"* ]]
    run -2 --separate-stderr carried lstm --stream -n 1 -o m.llm "$F/data.tok"
    [[ $stderr == *"not with --stream"* ]]
    run -65 --separate-stderr carried lstm -l 1000 -b 32 -n 1 -o m.llm "$F/data.tok"
    [[ $stderr == *"expected a context of 1000 tokens (--context) for each of 32 rows"* ]]
}
