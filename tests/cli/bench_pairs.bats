# llm-bench speed --against: what the two sides are given, the interval and the verdict; --parts; options of llama-bench.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
}

# other RATE...: a program that answers as llm-bench does, with each of these rates in turn, and notes its words, a call a line
other() {
    printf '%s\n' "$@" > rates
    cat > other << 'END'
#!/bin/bash
printf '<%s>' "$@" >> calls
echo >> calls
n=$(wc -l < calls)
rate=$(sed -n "$(((n - 1) % $(wc -l < rates) + 1))p" rates)
echo "{\"test\": \"pp4\", \"tokens_per_s\": $rate}"
END
    chmod +x other
    : > calls
}

@test "both sides get the options, the other one further ones, split as a shell does it; pairs alternate" {
    other 5
    cp -r "$M" "a model"
    run -0 llm-bench speed -m "a model" -p 4 -n 0 -qr 6 --json --against-program ./other --against "-t q8_0 --set 'x y'"
    assert_equal "$(sort -u calls)" '<speed><--json><--runs=1><--model=a model><--prompt=4><--generate=0><-t><q8_0><--set><x y>'
    assert_equal "$(wc -l < calls)" 6
    assert_equal "$(jq -c '[.test, .unit, .against, .pairs, .replicates]' <<< "$output")" '["pp4","tokens/s",5,6,2000]'
}

@test "several -m: each model's tests in turn, in one table; of a side the one that --against names" {
    cp -r "$M" b
    llm-bench speed -qm "$M" -m b -p 4,8 -n 0 -r 1 > t
    assert_equal "$(cut -f 1,7 t | tail -n +2)" "$(printf '%s\t%s\n' "$M" pp4 "$M" pp8 b pp4 b pp8)"
    run -66 --separate-stderr llm-bench speed -qm "$M" -m absent -p 4 -n 0 -r 1 # what was measured is printed
    assert_equal "$(cut -f 1,7 <<< "$output" | tail -n +2)" "$M"$'\t'pp4
    run -66 llm-bench speed -qm "$M" -p 4 -n 0 --against '-m absent'
    assert_output --partial 'absent: No such file or directory'
    run -0 llm-bench speed -qm b -p 4 -n 0 -r 6 --against "-m '$M'" --json
    jq -e '.pairs == 6' <<< "$output"
    for wrong in "--against -jq" --parts; do
        run -2 llm-bench speed -qm "$M" -m b -p 4 -n 0 $wrong
        assert_output --partial 'expected one -m, found 2'
    done
    run -2 llm-bench speed -qm "$M" -p 4 -n 0 --against '-m b -m b'
    run -2 llm-bench speed -qm - -m - -p 4 -n 0 < "$M/model.safetensors"
    assert_output --partial 'standard input'
}

@test "the order within pairs alternates; the ratio is the median over the pairs" {
    for side in A B; do
        cat > $side << 'END'
#!/bin/bash
echo -n "${0: -1}" >> order
n=$(grep -o "${0: -1}" order | wc -l)
[[ $0 == ./A ]] && rate=12 || rate=$(sed -n "${n}p" rates)
echo "{\"test\": \"tg4\", \"tokens_per_s\": $rate}"
END
    done
    chmod +x A B
    printf '%s\n' 3 4 6 12 2 1 24 > rates
    run -0 bash -c 'exec -a ./A llm-bench speed -m "$0" -n 4 --json --against-program ./B' "$M" # this side is called as the program was
    assert_equal "$(cat order)" ABBAABBAABBAAB
    # ratios 4 3 2 1 6 12 .5, whose median is 3
    jq -e '.this == 12 and .against == 4 and (.ratio - 3 | fabs < 1e-9) and .low_95 <= 1 and .low_95 > .49 and .high_95 > 5.9 and .high_95 < 12.1' \
        <<< "$output"
    assert_equal "$(jq -r .verdict <<< "$output")" 'no difference shown'
    printf '%s\n' 12 12 6 1.5 1 1 > rates
    rm order
    run -0 bash -c 'exec -a ./A llm-bench speed -m "$0" -n 4 --json -r 6 --against-program ./B' "$M"
    jq -e '.ratio - 4 | fabs < 1e-9' <<< "$output" # 1 1 2 8 12 12: that of the other side is 1/4
}

@test "verdicts: faster, slower, no difference shown" {
    other 1e-6
    llm-bench speed -m "$M" -p 4 -n 0 --against-program ./other > t
    assert_equal "$(cut -f 1,2,8,9,10 t | tail -n 1)" $'pp4\ttokens/s\t7\t2000\tfaster'
    awk -F'\t' 'NR == 2 && !($5 > 1 && $6 > 1 && $6 <= $5 && $5 <= $7) { exit 1 }' t
    other 1e15
    run -0 llm-bench speed -m "$M" -p 4 -n 0 --against-program ./other --json
    assert_equal "$(jq -r .verdict <<< "$output")" slower
    jq -e '.ratio < 1 and .high_95 < 1' <<< "$output"
    other 1e-6 1e15
    run -0 llm-bench speed -m "$M" -p 4 -n 0 -r 8 --against-program ./other --json
    assert_equal "$(jq -r .verdict <<< "$output")" 'no difference shown'
    jq -e '.low_95 < 1 and .high_95 > 1 and .pairs == 8' <<< "$output"
}

@test "two models of the toolkit, with the parts of a start" {
    llm-quantize -q -t q8_0 "$M" q8.llm
    llm-bench speed -m "$M" -p 8 -n 4 -r 6 --parts --against "-m q8.llm" > t
    assert_equal "$(cut -f 1,2 t | tr '\t\n' ' ,')" 'test unit,pp8 tokens/s,tg4 tokens/s,load s,prompt s,decoding s,rest s,all s,'
    awk -F'\t' 'NR > 1 && !($3 > 0 && $4 > 0 && $6 > 0 && $6 <= $5 && $5 <= $7) { print; exit 1 }' t
}

@test "--parts: the parts are the whole" {
    llm-bench speed -m "$M" -p 8 -n 4 -r 1 --parts | sed '1,/^$/d' > t
    assert_equal "$(cut -f 1 t | xargs)" 'part load prompt decoding rest all'
    awk -F'\t' 'NR > 1 && $1 != "all" { s += $2; q += $3 } $1 == "all" { exit !((d = s / $2 - 1) * d < 1e-6 && (d = q - 1) * d < 1e-3) }' t
    llm-bench speed -m "$M" -p 0 -n 4 -r 1 --parts | sed '1,/^$/d' > t
    assert_equal "$(cut -f 1 t | xargs)" 'part load decoding rest all'
}

@test "sides that fail, and mistakes" {
    run -66 --separate-stderr llm-bench speed -m "$M" -p 4 -n 0 --against '-m absent.llm'
    [[ $stderr == *absent.llm* && $stderr == *'the side of --against: status 66' && -z $output ]]
    printf '#!/bin/sh\necho nonsense\n' > other
    chmod +x other
    run -65 --separate-stderr llm-bench speed -m "$M" -p 4 -n 0 --against-program ./other
    [[ $stderr == *'the side of --against: what it printed'* ]]
    printf '#!/bin/sh\necho "{}"\n' > other
    run -65 --separate-stderr llm-bench speed -m "$M" -p 4 -n 0 --against-program ./other
    [[ $stderr == *'expected lines of tests'* ]]
    printf '#!/bin/sh\necho %s\n' "'{\"test\": \"pp5\", \"tokens_per_s\": 1}'" > other
    run -65 --separate-stderr llm-bench speed -m "$M" -p 4 -n 0 --against-program ./other
    [[ $stderr == *'expected both sides to measure it'* ]]
    printf '#!/bin/sh\nkill -9 $$\n' > other
    run -1 --separate-stderr llm-bench speed -m "$M" -p 4 -n 0 --against-program ./other
    [[ $stderr == *'signal 9 ended it'* ]]
    refused 2 'at least 6 pairs' llm-bench speed -m "$M" -r 5 --against '-t q8_0'
    refused 2 'found -' llm-bench speed -m - --against '-t q8_0'
    refused 73 nowhere llm-bench speed -m "$M" --against '-t q8_0' -o nowhere/x
}

@test "options of llama-bench are understood, or answered" {
    llm-bench speed -m "$M" --n-prompt 4 --n-gen 2 --n-depth 3 --repetitions 1 --batch-size 8 > t
    assert_equal "$(cut -f 7 t | xargs)" 'test pp4 @ d3 tg2 @ d3'
    for option in -pg -ub -ctk -ctv -ngl -fa -mmp -sm -mg -ts -nkvo -embd --delay --prio --poll --no-warmup --progress; do
        refused 2 "there is no $option here" llm-bench speed -m "$M" $option 1
    done
    refused 2 "-t: expected a type of weights, found '4'; -j sets the number of threads" llm-bench speed -m "$M" -t 4
    refused 2 '-j sets the number' llm-bench speed -m "$M" -t1,2
    refused 2 '--format chooses' llm-bench speed -m "$M" -o md
}
