# llm-bench plot: charts of logs and tables as PNG, SVG and text.
load ../helper

setup() {
    printf 'step\tloss\n0\t0\n10\t5\n20\t10\n' > line.tsv
    printf 'test\tdepth\trate\npp\t0\t8\ntg\t0\t2\npp\t64\t4\ntg\t64\t1\n' > speed.tsv
}

# numbers SVG: the coordinates of the lines in it that are 2 pixels thick: those of the series.
numbers() {
    sed -n 's/^<path d="M\([^"]*\)".*stroke-width="2".*/\1/p' "$1" | tr 'L' '\n'
}

@test "a line as text: its points stand at their numbers" {
    run -0 llm-bench plot --size 24x9 line.tsv
    assert_output 'loss
10┤                  ▄▄▞
 8┤             ▄▄▞▀▀
 6┤        ▄▄▟▀▀
 2┤   ▄▄▞▀▀
 0┤▞▀▀
  └─────────────────────
   0    5   10   15   20
           step'
    llm-bench plot --size 24x9 < line.tsv | cmp - <(llm-bench plot --size 24x9 line.tsv)
}

@test "several lines have a letter each; rows without a number are left out" {
    printf '%s\n' '{"step": 1, "loss": 4, "val": null}' '{"step": 2, "loss": 3, "val": 3.5}' '{"step": 3, "loss": 2}' '{"step": 4, "loss": 1, "val": 2}' > log.jsonl
    run -0 llm-bench plot -y loss -y val --title T --size 30x12 log.jsonl
    assert_line --index 0 T
    assert_line --index 1 'a loss'
    assert_line --index 2 'b val'
    [[ $output == *a*b* ]]
    llm-bench plot -y val -o v.svg log.jsonl
    assert_equal "$(numbers v.svg | wc -l)" 2
    cp log.jsonl other.jsonl
    run -0 llm-bench plot --size 40x10 log.jsonl other.jsonl
    assert_line --index 0 'a log.jsonl'
    assert_line --index 1 'b other.jsonl'
}

@test "SVG: linear and logarithmic axes put points where their numbers are" {
    llm-bench plot -o a.svg line.tsv
    # Three points of a straight line: the middle one is halfway.
    numbers a.svg | awk '{ x[NR] = $1; y[NR] = $2 } END { exit !(NR == 3 && x[1] < x[2] && y[1] > y[2] && (d = x[1] + x[3] - 2 * x[2]) * d < .05 &&
        (d = y[1] + y[3] - 2 * y[2]) * d < .05) }'
    printf 'n,rate\n1,1\n10,10\n100,1000\n' > powers.csv
    llm-bench plot --log-x --log-y -o b.svg powers.csv
    # Factors of 10 and 10: equal steps; factors of 10 and 100: one step and two.
    numbers b.svg | awk '{ x[NR] = $1; y[NR] = $2 } END { exit !(NR == 3 && (d = x[1] + x[3] - 2 * x[2]) * d < .05 &&
        (d = 2 * (y[1] - y[2]) - (y[2] - y[3])) * d < .05) }'
    llm-bench plot --title 'a<b & "c"' -o c.svg line.tsv
    grep -q 'aria-label="a&#60;b &#38; &#34;c&#34;"' c.svg
    cmp c.svg <(llm-bench plot --title 'a<b & "c"' --to svg line.tsv)
}

@test "PNG: the pixels of a small chart, on white and on black; bars over names" {
    llm-bench plot --size 320x200 -o line.png line.tsv
    cmp line.png "$ROOT/tests/golden/pictures/plot.png"
    llm-bench plot --size 320x200 -x test -y rate --by depth --dark -o bars.png speed.tsv
    cmp bars.png "$ROOT/tests/golden/pictures/plot-bars.png"
    run -0 file line.png
    assert_output --partial '320 x 200'
    # A bar of twice the number is twice as high.
    llm-bench plot -x test -y rate --by depth -o bars.svg speed.tsv
    grep -E 'fill="#(005fa8|c44e00)"' bars.svg | sed -n 's/.* height="\([0-9]*\)".*/\1/p' | tail -n 4 > heights
    assert_equal "$(awk '{ h[NR] = $1 - 1 } END { r = h[1] / h[3]; s = h[2] / h[4]; print (r > 1.98 && r < 2.02), (s > 1.96 && s < 2.04) }' heights)" '1 1'
}

@test "logs of llm-train and tables of the programs" {
    sentences_tokens
    llm-train -q -c nano --set n_layer=1 --set n_embd=32 --set n_head=2 -T tok.json -l 16 -b 2 -n 12 --log log.jsonl -o m.llm data.tok
    llm-bench plot -o log.svg log.jsonl
    assert_equal "$(numbers log.svg | wc -l)" 12
    llm-bench plot -y grad_norm -y lr --log-y -o two.png log.jsonl
    llm-bench speed -q -m m.llm -p 8,16 -n 0 -r 1 --format csv | llm-bench plot -x test -y tokens_per_s --size 40x10 > text
    [[ $(< text) == *pp8*pp16* ]]
    awk 'BEGIN { print "i\tv"; for (i = 0; i < 200000; i++) print i "\t" (i * 7919) % 1000 }' | llm-bench plot -o long.svg
    (($(stat -c %s long.svg) < 200000))
}

@test "bad input is one line, and no file is made" {
    refused 2 "expected one of the columns step loss; found 'lss' (did you mean loss?)" llm-bench plot -y lss -o a.png line.tsv
    refused 2 "found 'dept' (did you mean depth?)" llm-bench plot -x test -y rate --by dept speed.tsv
    refused 65 'loss: expected numbers above 0 on a logarithmic axis, found 0' llm-bench plot --log-y line.tsv
    refused 2 "--size: expected WxH, from 20x8 to 8192x8192, found '9x9'" llm-bench plot --size 9x9 line.tsv
    refused 2 'expected more pixels than 60 × 20' llm-bench plot --size 60x20 -o a.png line.tsv
    printf 'a,b\n1,2\n3\n' > ragged.csv
    refused 65 'ragged.csv: line 3: expected 2 fields, found 1' llm-bench plot ragged.csv
    printf '{"step": 1, "loss": 2}\n{"step": 2\n' > cut.jsonl
    refused 65 'cut.jsonl: line 2: ' llm-bench plot cut.jsonl
    printf 'a\tb\nx\ty\n' > words.tsv
    refused 65 "words.tsv: line 2: expected a column of numbers besides 'a', found none" llm-bench plot words.tsv
    printf 'a\tb\n1\t1\nx\t2\n' > mixed.tsv
    refused 65 "mixed.tsv: line 3: column 'a': expected a number, as in the rows before" llm-bench plot mixed.tsv
    : > empty
    refused 65 'expected rows with numbers to draw, found none' llm-bench plot empty
    awk 'BEGIN { print "a,b,c"; for (i = 0; i < 9; i++) print i ",1," i }' > nine.csv
    refused 65 'expected at most 8 lines (files, columns, values of --by), found more' llm-bench plot -y b --by c nine.csv
    refused 66 'absent.jsonl' llm-bench plot absent.jsonl
    refused 2 '' llm-bench plot --to text -o line.tsv line.tsv
    assert_not_exist a.png
}
