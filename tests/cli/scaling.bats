# llm-bench scaling: the parameters of laws come back from logs and tables, and what cannot be fitted is said in a line.
load ../helper

# Hoffmann's law at six sizes and six amounts of data, as a table; without noise.
law() {
    awk -v form="${1-tsv}" 'BEGIN {
        if (form == "tsv") print "parameters\ttokens\tval_loss"
        for (i = 0; i < 6; i++) for (j = 0; j < 6; j++) {
            n = 1e7 * 300 ^ (i / 5); d = 2e8 * 300 ^ (j / 5)
            printf form == "tsv" ? "%.17g\t%.17g\t%.17g\n" : "{\"n\": %.17g, \"d\": %.17g, \"l\": \"%.17g\"}\n", n, d, 1.69 + 406.4 / n ^ .34 + 410.7 / d ^ .28
        }
    }'
}

# value PARAMETER: of the first table on standard input
value() {
    awk -F'\t' -v row="$1" '$1 == row { print $2 }'
}

@test "L(N, D): exponents to 1e-6, of tables in TSV and JSON Lines, from a file and standard input" {
    law > t.tsv
    llm-bench scaling --replicates 100 --json t.tsv > fit
    near "$(jq -r 'select(.parameter == "alpha").value' fit)" .34 1e-6
    near "$(jq -r 'select(.parameter == "beta").value' fit)" .28 1e-6
    near "$(jq -r 'select(.parameter == "E").value' fit)" 1.69 1e-6
    near "$(jq -r 'select(.parameter == "A").value' fit)" 406.4 1e-3
    jq -es 'all(select(.low_95).points == 36 and .replicates == 100)' fit
    law json | llm-bench scaling --replicates 100 --params n --tokens d --loss l --json | cmp - fit
    llm-bench scaling --replicates 100 --json -j 1 t.tsv | cmp - fit
    llm-bench scaling --replicates 100 --json -j 3 t.tsv | cmp - fit
}

@test "--budget: the split that a search over N finds" {
    law > t.tsv
    llm-bench scaling --replicates 100 --budget 1e18,5.76e23 t.tsv | sed '1,/^$/d' > best
    assert_equal "$(wc -l < best)" 3
    awk -F'\t' 'function loss(n, c) { return 1.69 + 406.4 / n ^ .34 + 410.7 / (c / 6 / n) ^ .28 }
        NR > 1 {
            for (i = 1e6; i < 1e13; i *= 1.0005) if (!best || loss(i, $1) < least) { best = i; least = loss(i, $1) }
            if ((q = $2 / best - 1) * q > 1e-6 || (q = 6 * $2 * $5 / $1 - 1) * q > 1e-9 || (q = $9 - least) * q > 1e-10 || $3 > $2 || $4 < $2) exit bad = 1
            best = 0
        } END { exit bad }' best
}

@test "a law of compute, with and without a floor; of learning rates" {
    awk 'BEGIN { print "flops,val_loss,l0,best"; for (c = 1e15; c < 1e21; c *= 4) printf "%.17g,%.17g,%.17g,%.17g\n", c, 1.5 + 40 * c ^ -.11, 40 * c ^ -.11, .31 * c ^ -.06 }' > c.csv
    near "$(llm-bench scaling --law c --json c.csv | jq -r 'select(.parameter == "alpha").value')" .11 1e-6
    { printf '\xef\xbb\xbf'; sed 's/$/\r/' c.csv; } > windows.csv # as a spreadsheet of Windows writes it
    cmp <(llm-bench scaling --law c --json c.csv) <(llm-bench scaling --law c --json windows.csv)
    llm-bench scaling --law c --zero-floor --loss l0 --budget 1e22 --json c.csv > fit
    near "$(jq -r 'select(.parameter == "alpha").value' fit)" .11 1e-9
    [[ -z $(jq -r 'select(.parameter == "E")' fit) ]]
    near "$(jq -r 'select(.loss).loss' fit)" "$(awk 'BEGIN { printf "%.12g", 40 * 1e22 ^ -.11 }')" 1e-6
    llm-bench scaling --law lr --lr best --loss none --budget 1e22 --json c.csv > fit
    near "$(jq -r 'select(.parameter == "b").value' fit)" -.06 1e-9
    near "$(jq -r 'select(.lr).lr' fit)" "$(awk 'BEGIN { printf "%.12g", .31 * 1e22 ^ -.06 }')" 1e-8
    # where a compute has several rates: the minimum of the parabola over log(rate), between those tried
    awk 'BEGIN { print "flops,val_loss,lr"; for (c = 1e15; c < 1e21; c *= 10) for (k = -2; k <= 2; k++) {
        r = 1e-3 * c ^ -.01 * 2 ^ k; d = log(r / (.31 * c ^ -.15)); printf "%.17g,%.17g,%.17g\n", c, 3 + .1 * d * d, r } }' > sweep.csv
    run -0 --separate-stderr llm-bench scaling --law lr --json sweep.csv
    near "$(jq -r 'select(.parameter == "b").value' <<< "$output" | head -n 1)" -.15 .02
    # a rate that was tried with two seeds is one rate, whose loss is their mean: the same minima
    awk -F, -v OFS=, 'NR == 1 { print; next } { d = .05 * (NR % 3); print $1, $2 - d, $3; print $1, $2 + d, $3 }' sweep.csv > seeds.csv
    llm-bench scaling --law lr --replicates 100 sweep.csv > once
    run -0 --separate-stderr llm-bench scaling --law lr --replicates 100 seeds.csv
    [[ -z $stderr ]]
    awk -F'\t' 'NR == FNR { want[$1] = $2; next } $1 ~ /^[ab]$/ && (d = $2 / want[$1] - 1) * d > 1e-8 { exit 1 }' once - <<< "$output"
    # computes of almost one size in a table of best rates are two points
    printf 'flops\tlr\n1e15\t3e-3\n1.0005e15\t3.1e-3\n1e17\t2e-3\n1e18\t1e-3\n' > near.tsv
    run -0 --separate-stderr llm-bench scaling --law lr --json near.tsv
    [[ -z $stderr && $(jq -r .points <<< "$output" | head -n 1) == 4 ]]
}

@test "logs of llm-train: one point a run, its last validation; several runs in one file" {
    llm-tokenize train --model byte -o byte.json /dev/null
    seq 3000 | llm-tokenize encode -T byte.json -o data.tok
    : > all.jsonl
    for width in 16 32 48; do
        for steps in 4 8 12; do
            llm-train -q -c tiny --set hidden_size=$width --set intermediate_size=32 --set num_hidden_layers=1 --set num_attention_heads=2 \
                --set num_key_value_heads=2 -T byte.json -n $steps -b 2 -l 32 --lr 1e-2 --val .1 --eval-every 3 --log $width-$steps.jsonl -o x.llm data.tok
            cat $width-$steps.jsonl >> all.jsonl
            jq -r 'select(.val_loss) | [.parameters, .tokens, .flops, .val_loss] | @tsv' $width-$steps.jsonl | tail -n 1 >> points
        done
    done
    # six operations a parameter and token; tokens are steps × rows × context
    [[ -z $(awk '$3 != 6 * $1 * $2' points) ]]
    assert_equal "$(cut -f 2 points | sort -nu | xargs)" '256 512 768'
    sed 1i$'parameters\ttokens\tflops\tval_loss' points > points.tsv
    llm-bench scaling --law c --zero-floor --replicates 100 -- *-*.jsonl > of_logs
    llm-bench scaling --law c --zero-floor --replicates 100 all.jsonl > of_all
    assert_equal "$(cut -f 5 of_logs | sed -n 2p)" 9
    llm-bench scaling --law c --zero-floor --replicates 100 points.tsv > of_table
    for what in A alpha "rms residual"; do
        near "$(value "$what" < of_logs)" "$(value "$what" < of_table)" 1e-5
        near "$(value "$what" < of_all)" "$(value "$what" < of_table)" 1e-5
    done
}

@test "--plot: a picture, or text in place of the tables" {
    law > t.tsv
    llm-bench scaling --replicates 100 --plot law.png -o tables t.tsv
    [[ $(head -c 4 law.png | tail -c 3) == PNG && -s tables ]]
    llm-bench scaling --replicates 100 --plot law.svg --budget 1e22 t.tsv > tables
    # 36 points, and a line of 100
    assert_equal "$(grep -c 'width="7" height="7"' law.svg)" 36
    [[ -s tables ]]
    run -0 llm-bench scaling --replicates 100 --plot - t.tsv
    assert_line --index 0 'a best split of the compute'
    assert_line --index 1 'b runs'
    refute_line --partial alpha
}

@test "what cannot be fitted: a line, and the status" {
    law > t.tsv
    head -n 6 t.tsv > few.tsv
    refused 65 'expected at least 6 points (the law has 5 parameters), found 5' llm-bench scaling few.tsv
    awk -F'\t' 'NR == 1 || $1 < 2e7' t.tsv > one.tsv
    refused 65 'parameters: expected at least 3 different values, which determine the exponent alpha; found 1' \
        llm-bench scaling <(cat one.tsv; sed 1d one.tsv)
    awk -F'\t' -v OFS='\t' 'NR > 1 { $2 = 20 * $1; $3 = 1 + 400 / $1 ^ .3 + 400 / $2 ^ .3 } 1' t.tsv > tied.tsv
    refused 65 'do not determine the exponents' llm-bench scaling tied.tsv
    refused 2 "expected one of the columns parameters tokens val_loss; found 'los'" llm-bench scaling --loss los t.tsv
    refused 2 "found 'lr'" llm-bench scaling --law lr t.tsv
    refused 2 "--budget: expected FLOPs above 0" llm-bench scaling --budget 1e18,x t.tsv
    refused 2 "--budget" llm-bench scaling --budget 0 t.tsv
    refused 2 "--plot: expected FILE.png, FILE.svg or -" llm-bench scaling --plot law.pdf t.tsv
    refused 2 "--zero-floor" llm-bench scaling --law lr --zero-floor t.tsv
    refused 2 "--law" llm-bench scaling --law n t.tsv
    sed '3s/\t[^\t]*$/\t-1/' t.tsv > negative.tsv
    refused 65 "column 'val_loss': expected numbers above 0, found -1" llm-bench scaling negative.tsv
    : > empty
    refused 65 'expected rows' llm-bench scaling empty
    refused 66 absent llm-bench scaling absent
    refused 73 nowhere llm-bench scaling --plot nowhere/x.png t.tsv
    run -74 --separate-stderr bash -c 'llm-bench scaling t.tsv > /dev/full'
}
