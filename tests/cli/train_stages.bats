# llm-train --shard pp=N: ranks that run the layers one after another have the bits of one process, at every step and in the checkpoint, whatever the
# schedule, the number of stages and that of replicas.
load ../helper
load ../mpi

setup_file() { sentences_tokens; }

setup() {
    need_mpi
    write_rank1
    of=(-q -j 1 -l 24 -T "$F/tok.json" "$F/data.tok")
    gpt=(llm-train -c nano --set n_layer=4 --set n_embd=32 --set n_head=2 "${of[@]}")
}

@test "GPT-2, tied: 2, 3 and 4 stages, both schedules, replicas, dropout, validation, recomputed and stored activations" {
    same_in "4 pp=4 dp=2,pp=2 dp=2,pp=2,schedule=gpipe" "${gpt[@]}" --dropout .1 -n 3 -b 2 --accumulate 6 --grad-shards 4 --val .2 --eval-every 2
    jq -es 'all(.ranks == 4 and .comm_bytes > 0 and .activation_bytes > 0)' ranks.log
    same_in "3 pp=3,schedule=gpipe pp=3,zero=1" "${gpt[@]}" --precision f32 -n 2 -b 3 --accumulate 2 --grad-shards 5 --checkpoint-every 2 --keep-zeros
    same_in "2 pp=2" "${gpt[@]}" -n 2 -b 7 --activations bf16 --optimizer muon
    same_in "4 dp=2,pp=2,zero=0 dp=1,pp=4,zero=0" "${gpt[@]}" -n 3 -b 2 --accumulate 5 --grad-shards 5 --optimizer muon --val .2 --eval-every 2
}

@test "Llama, a mixture, MLA, Mamba, RWKV, LSTM: BF16 and FP32" {
    local small=(--set hidden_size=32 --set intermediate_size=48)
    same_in "3 pp=3" llm-train -c tiny --set num_hidden_layers=3 "${small[@]}" "${of[@]}" -n 2 -b 2 --accumulate 4
    same_in "4 pp=4 dp=2,pp=2" llm-train -c moe --set num_hidden_layers=4 --set num_local_experts=5 --set router_bias=true "${small[@]}" "${of[@]}" -n 2 -b 2 \
        --accumulate 3 --grad-shards 3 --checkpoint-every 1
    same_in "2 pp=2" llm-train -c mla --set num_hidden_layers=2 "${small[@]}" --precision f32 "${of[@]}" -n 2 -b 3 --accumulate 2
    same_in "3 pp=3" llm-train -c mamba --set num_hidden_layers=3 --set hidden_size=32 "${of[@]}" -n 2 -b 2 --accumulate 2
    same_in "2 pp=2" llm-train -c rwkv6 --set num_hidden_layers=2 "${of[@]}" -n 1 -b 2 --accumulate 2
    same_in "2 pp=2" llm-train -c lstm --set hidden_size=32 --precision f32 "${of[@]}" -n 2 -b 6 --grad-shards 3
}

@test "interleaved: 2 and 4 chunks of layers a stage, uneven rounds of passes, replicas, tied and untied, a mixture whose experts ranks divide" {
    local moe=(llm-train -c moe --set num_hidden_layers=4 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=4
        --set router_aux_loss_coef=.5 "${of[@]}")
    export OMPI_MCA_btl_vader_eager_limit=256 # sends then wait for their receives, as those of large messages do
    same_in "2 pp=2,vp=2 pp=2,schedule=interleaved" "${gpt[@]}" --dropout .1 -n 3 -b 1 --accumulate 5 --grad-shards 5 --val .2 --eval-every 2
    same_in "4 dp=2,pp=2,vp=4 pp=4,vp=2" "${gpt[@]}" --set n_layer=8 --set tie_word_embeddings=false --precision f32 -n 2 -b 1 --accumulate 8 --grad-shards 4
    same_in "4 ep=2,pp=2,vp=2" "${moe[@]}" -n 2 -b 1 --accumulate 8 --grad-shards 2 --checkpoint-every 1
}

@test "ZeRO 2 and 3 in each stage: uneven shards, 1F1B, gpipe and chunks, tied and untied heads, recomputed layers, slices, parts of rows, experts" {
    local moe=(llm-train -c moe --set num_hidden_layers=4 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=4
        --set router_bias=true --set router_aux_loss_coef=.5 "${of[@]}" -n 2 -b 2)
    same_in "2 pp=2,zero=2 pp=2,zero=3" "${gpt[@]}" -n 3 -b 2 --accumulate 3 --grad-shards 3 --val .2 --eval-every 2
    same_in "4 dp=2,pp=2,zero=2 dp=2,pp=2,zero=3 pp=4,zero=3" "${gpt[@]}" --dropout .1 -n 3 -b 2 --accumulate 6 --grad-shards 7 --val .2 --eval-every 2
    same_in "4 dp=2,pp=2,zero=2,schedule=gpipe dp=2,pp=2,vp=2,zero=2 dp=2,pp=2,vp=2,zero=3" "${gpt[@]}" --precision f32 -n 2 -b 2 --accumulate 5 \
        --grad-shards 7
    same_in "4 dp=2,pp=2,zero=2 dp=2,pp=2,zero=3" "${gpt[@]}" --set n_layer=7 --set tie_word_embeddings=false --checkpoint-every 2 --optimizer muon -n 2 \
        -b 2 --accumulate 2 --grad-shards 3
    same_in "4 ep=2,pp=2,zero=2 ep=2,pp=2,zero=3" "${moe[@]}" --accumulate 3 --grad-shards 5 --checkpoint-every 1
    same_in "4 tp=2,pp=2,zero=2 tp=2,pp=2,zero=3 cp=2,pp=2,zero=3" "${gpt[@]}" --set n_head=4 --tensor-parts 2 --seq-parts 4 -n 2 -b 2 --accumulate 2 --grad-shards 2
}

@test "the loss of a mixture's balance reads the routers of all stages" {
    local moe=(llm-train -c moe --set num_hidden_layers=3 --set hidden_size=32 --set intermediate_size=24 --set num_local_experts=4
        --set router_aux_loss_coef=.5 "${of[@]}" -n 2 -b 2 --accumulate 2)
    same_in "3 pp=3" "${moe[@]}"
    "${moe[@]}" --set router_aux_loss_coef=0 -o without.llm
    run -1 cmp -s alone.llm without.llm
}

@test "frozen layers, objectives over documents, steps of other shapes" {
    same_in "2 pp=2" "${gpt[@]}" -n 2 -b 4 --freeze 'transformer.h.[0-2].*' --freeze transformer.wte.weight
    same_in "2 pp=2" "${gpt[@]}" -n 2 -b 2 --accumulate 3 --objective prefix
    printf '{"messages": [{"role": "user", "content": "the %s"}, {"role": "assistant", "content": "%s"}]}\n' a b cat "a black one" x y dog "two of them" \
        > sft.jsonl
    same_in "4 dp=2,pp=2" llm-train -q -j 1 -c nano --set n_layer=2 --set n_embd=32 --set n_head=2 -T "$F/tok.json" --objective sft \
        --chat-template chatml -l 64 -n 4 --batch-tokens 160 --grad-shards 2 sft.jsonl
}

@test "a run goes on with any other layout, and is saved as plain tensors too" {
    local of=(-b 2 --accumulate 6 --grad-shards 4 --schedule constant --warmup 2)
    "${gpt[@]}" "${of[@]}" -n 6 -o straight.llm
    ranks 4 "${gpt[@]}" "${of[@]}" -n 2 --shard dp=2,pp=2 -o part.llm
    ranks 3 llm-train -q -j 1 --resume part.llm -n 3 --shard pp=3,zero=0
    ranks 4 llm-train -q -j 1 --resume part.llm -n 4 --shard dp=2,pp=2,zero=3
    ranks 2 llm-train -q -j 1 --resume part.llm -n 5 --shard dp=2,zero=1
    ranks 2 llm-train -q -j 1 --resume part.llm -n 6 --shard pp=2 --save-every 1
    cmp straight.llm part.llm
    ranks 3 "${gpt[@]}" "${of[@]}" -n 2 --val .2 --keep-best ranks.best.llm --shard pp=3 -o ranks.safetensors
    "${gpt[@]}" "${of[@]}" -n 2 --val .2 --keep-best alone.best.llm -o alone.safetensors
    cmp alone.safetensors ranks.safetensors
    cmp alone.best.llm ranks.best.llm
}

@test "what is not built, or cannot be cut, is refused by name: status 2, one line" {
    refused() { # MESSAGE OPTION...: of a run; Open MPI takes a second or two to end one that fails, and under MPICH the other rank says so, too
        run -2 --separate-stderr ranks 2 llm-train "${@:2}" "${of[@]}" -n 1 -b 4 --grad-shards 2 -o x.llm
        [[ $LAUNCHER != mpiexec.hydra ]] || stderr=${stderr%%$'\n'*}
        assert_equal "$stderr" "llm-train: $1"
    }
    unplanned() { # MESSAGE OPTION...: of a plan, which is checked by the functions that check a run
        run -2 --separate-stderr llm-train "${@:2}" "${of[@]}" -n 1 -b 4 --grad-shards 2 --plan
        assert_equal "$stderr" "llm-train: $1"
    }
    local nano=(-c nano --set n_layer=2 --set n_embd=32 --set n_head=2)
    refused "--shard: expected schedule=1f1b, gpipe or interleaved, found schedule=x" "${nano[@]}" --shard pp=2,schedule=x
    unplanned "--shard: expected schedule=gpipe beside pp, found it alone" "${nano[@]}" --shard schedule=gpipe
    unplanned "--shard: expected schedule=interleaved beside pp, found it alone" "${nano[@]}" --shard schedule=interleaved
    unplanned "--shard: expected vp beside pp, found it alone" "${nano[@]}" --shard vp=2
    unplanned "--shard: expected vp=2 or more beside schedule=interleaved, found vp=1" "${nano[@]}" --shard pp=2,vp=1,schedule=interleaved
    unplanned "--shard: expected schedule=interleaved beside vp=2, found schedule=gpipe" "${nano[@]}" --shard pp=2,vp=2,schedule=gpipe
    unplanned "--shard: expected at most pp × vp=2, since the model (gpt2) has 2 layers, found pp × vp=4" "${nano[@]}" --shard pp=2,vp=2
    refused "--shard: zero=3: expected shards of one pass, of at most 4 rows (--batch), found 6 (--grad-shards)" "${nano[@]}" --accumulate 3 \
        --shard pp=2,zero=3
    refused "--shard: expected a launcher that starts 3 ranks (mpirun -n 3), or a multiple, found 2 ranks" "${nano[@]}" --shard pp=3
    refused "--shard: expected a launcher that starts 4 ranks (mpirun -n 4), found 2 ranks" "${nano[@]}" --shard dp=2,pp=2
    unplanned "--shard: expected at most pp=1, since the model (gpt2) has 1 layers, found pp=2" "${nano[@]}" --set n_layer=1 --shard pp=2
    unplanned "--shard: expected at most pp=1, since the model (rwkv7) has 5 layers, some of which need one another, found pp=2" -c rwkv7 --shard pp=2
    refused "--shard: pp=2: expected a run without averages (--ema)" "${nano[@]}" --shard pp=2 --ema .9
    unplanned "--shard: pp=2: expected a run without --outer" "${nano[@]}" --shard pp=2,zero=0 --outer diloco --replicas 2 --inner-steps 1
    unplanned "--shard: pp=2: expected a run without --gradients int8" "${nano[@]}" --shard pp=2 --gradients int8
    unplanned "--shard: pp=2: expected an objective that predicts the next token in one pass (lm, sft, prefix, fim), found dpo" "${nano[@]}" \
        --objective dpo --shard pp=2
    refused "--shard: pp: expected a model of one stack of layers, found one with statistics of batches (gpt2)" "${nano[@]}" --set norm=batch \
        --accumulate 2 --shard pp=2
    unplanned "--shard: pp: expected a model of one stack of layers, found one with layers that predict further (llama)" -c tiny \
        --set num_nextn_predict_layers=1 --shard pp=2
    [[ ! -e x.llm ]]
}

@test "--plan: the layers and the memory of each stage; what the first sends is what the log says" {
    local gpt=(llm-train -q -j 1 -c nano --set vocab_size=300 --set n_layer=6 -l 24 -b 2 --accumulate 6 --grad-shards 2) plan sent logged whole
    plan=$("${gpt[@]}" --shard pp=3 --plan)
    assert_equal "$(awk '/^stage_._layers/ { n += $2 } END { print n }' <<< "$plan")" 6
    assert_equal "$(grep -c '^stage_._total_bytes' <<< "$plan")" 3
    whole=$("${gpt[@]}" --plan | awk '$1 == "weight_bytes" { print $2 }')
    awk -v whole="$whole" '$1 == "weight_bytes" { exit !($2 < .6 * whole) }' <<< "$plan"
    sent=$("${gpt[@]}" --set tie_word_embeddings=false --shard dp=2,pp=2 --plan | awk '$1 == "rank_sent_bytes" { print $2 }')
    ranks 4 "${gpt[@]}" --set tie_word_embeddings=false -n 2 --shard dp=2,pp=2 -o x.llm --log log "$F/data.tok"
    logged=$(tail -n 1 log | jq .comm_bytes)
    awk -v planned="$sent" -v logged="$logged" 'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.05 * logged + 65536) ^ 2) }'
    awk -v moments="$("${gpt[@]}" --shard dp=2,pp=2,zero=0 --plan | awk '$1 == "moment_bytes" { print $2 }')" \
        -v halves="$("${gpt[@]}" --shard dp=2,pp=2 --plan | awk '$1 == "moment_bytes" { print $2 }')" 'BEGIN { exit !(moments >= 2 * halves && halves > 0) }'
    sent=$("${gpt[@]}" --set tie_word_embeddings=false --shard pp=2,vp=3 --plan | awk '$1 == "rank_sent_bytes" { print $2 }')
    ranks 2 "${gpt[@]}" --set tie_word_embeddings=false -n 2 --shard pp=2,vp=3 -o x.llm --log log "$F/data.tok"
    logged=$(tail -n 1 log | jq .comm_bytes)
    awk -v planned="$sent" -v logged="$logged" 'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.05 * logged + 65536) ^ 2) }'
    for whole in dp=2,pp=2,zero=2 dp=2,pp=2,zero=3 dp=2,pp=2,vp=3,zero=3; do
        sent=$("${gpt[@]}" --set tie_word_embeddings=false --set n_embd=256 --grad-shards 6 --shard $whole --plan | awk '$1 == "rank_sent_bytes" { print $2 }')
        ranks 4 "${gpt[@]}" --set tie_word_embeddings=false --set n_embd=256 --grad-shards 6 -n 2 --shard $whole -o x.llm --log log "$F/data.tok"
        logged=$(tail -n 1 log | jq .comm_bytes)
        awk -v planned="$sent" -v logged="$logged" 'BEGIN { print planned, logged; off = planned - logged; exit !(off * off < (.05 * logged + 65536) ^ 2) }'
    done
    run -2 --separate-stderr "${gpt[@]}" --shard pp=7 --plan
    assert_equal "$stderr" "llm-train: --shard: expected at most pp=6, since the model (gpt2) has 6 layers, found pp=7"
}

@test "1F1B keeps the activations of as many passes as there are stages, gpipe those of all" {
    local few many all
    ranks 2 "${gpt[@]}" -n 1 -b 1 --accumulate 2 --shard pp=2 -o x.llm --log log
    few=$(jq .activation_bytes log)
    ranks 2 "${gpt[@]}" -n 1 -b 1 --accumulate 12 --shard pp=2 -o x.llm --log log
    many=$(jq .activation_bytes log)
    ranks 2 "${gpt[@]}" -n 1 -b 1 --accumulate 12 --shard pp=2,schedule=gpipe -o x.llm --log log
    all=$(jq .activation_bytes log)
    ((100 * ${many%.*} < 101 * ${few%.*} && ${all%.*} > 4 * ${few%.*})) || fail "found: $few $many $all"
}

@test "a full disk at a rank: one line that names it, the old file stays" {
    run -74 --separate-stderr ranks 2 "${gpt[@]}" -n 1 -b 2 --shard pp=2 -o /dev/full
    [[ $stderr =~ ^"llm-train: rank 0 ("[^\)]*"): /dev/full: "[^$'\n']*"No space left on device"$ ]]
    need_plain_memory # a sanitizer's library wants to be the first that is loaded
    "${CC:-cc}" -shared -fPIC -O1 -w -o fail.so "$ROOT/tests/fault/fail.c" -ldl
    mkdir here
    "${gpt[@]}" -n 1 -b 2 -o here/run.llm
    cp here/run.llm before.llm
    run -74 --separate-stderr env FAIL_UNDER="$PWD/here" FAIL_CALL=write FAIL_AT=1 RANK1="LD_PRELOAD=$PWD/fail.so" bash -c '. "$0"; ranks 2 ./rank1 "$@"' \
        "$ROOT/tests/mpi.bash" "${gpt[@]}" -n 1 -b 2 --shard pp=2 -o here/run.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): here/run.llm: cannot write: No space left on device"$ ]] || fail "$stderr"
    cmp before.llm here/run.llm
    assert_equal "$(ls -A here)" run.llm
}

@test "one rank's file is missing, or is another: one line that names the rank" {
    run -66 --separate-stderr env RANK1="s|.*data.tok|none.tok|" bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${gpt[@]}" -n 1 -b 3 \
        --shard pp=2 -o x.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): none.tok: No such file or directory"$ ]] || fail "$stderr"
    run -1 --separate-stderr env RANK1=LLM_ISA=scalar bash -c '. "$0"; ranks 2 ./rank1 "$@"' "$ROOT/tests/mpi.bash" "${gpt[@]}" -n 1 -b 3 --shard pp=2 -o x.llm
    [[ $stderr =~ ^"llm-train: rank 1 ("[^\)]*"): instruction set: expected that of rank 0 ("[^\)]*"), "[a-z0-9]+", found scalar"$ ]] || fail "$stderr"
    [[ ! -e x.llm ]]
}

@test "a loss or a gradient that is not finite stops all stages" {
    local layout
    for layout in dp=1,pp=2 dp=1,pp=2,zero=3 dp=2,pp=2,zero=0 dp=2,pp=2,zero=3; do
        run -1 --separate-stderr ranks $((2 * ${layout:3:1})) "${gpt[@]}" -n 8 -b 4 --grad-shards 2 --lr 1e6 --clip 0 --warmup 0 --optimizer sgd \
            --shard $layout -o x.llm
        [[ $stderr =~ ^"llm-train: step "[0-9]+": the "(loss|norm of the gradient)" is "("not a number"|infinite)": first bad tensor: " ]] || fail "$stderr"
        [[ $(wc -l <<< "$stderr") == 1 ]]
    done
}
