# The table of shakespeare.sh against its bars. $SHAKESPEARE_TABLE: where it is kept between runs; rows that are missing are trained (minutes each on two cores).
load ../helper

setup_file() {
    export TABLE=${SHAKESPEARE_TABLE:-$PWD/table.tsv}
}

# row NAME: trained and, on average over its seeds, within its bar
row() {
    need_shared corpora/tinyshakespeare.txt
    "$ROOT/tests/slow/shakespeare.sh" "$TABLE" "$1"
    awk -F'\t' -v row="$1" '$1 == row { print; n++; sum += $5; most = $6 } END { exit !(n == 3 && sum / n <= most) }' "$TABLE" >&3
}

@test "Llama: at most 1.51 nats within 6e14 FLOPs" { row llama; }
@test "latent attention: at most 1.56 within 3e14" { row mla; }
@test "a mixture of experts: at most 1.56 within 3e14" { row moe; }
@test "Mamba: at most 1.56 within 3e14" { row mamba; }
@test "LSTM: at most 1.60 within 3e14" { row lstm; }
@test "nanoGPT's setting for a GPU, stopped at 2e14" { row nanogpt-gpu; }
