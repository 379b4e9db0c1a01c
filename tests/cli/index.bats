# Indexes: searches by vectors and words, rows that come and go, and what is refused.
load ../helper

setup() {
    G=$ROOT/tests/golden/index
    M=$ROOT/tests/golden/tiny-bert
}

# rows N: N lines with vectors of 6 elements, in an order of no kind
rows() {
    awk -v n="$1" 'BEGIN { srand(5); for (i = 0; i < n; i++) { id = i * 7919 % n
        printf "{\"id\": %d, \"text\": \"word%d word%d\", \"group\": %d, \"embedding\": [", id, id % 7, id % 11, id % 3
        for (k = 0; k < 6; k++) printf "%s%.4f", k ? ", " : "", rand() - .5; print "]}" } }'
}

@test "the golden index has the bytes of its rows; stat says what it holds" {
    llm-index build --plain -o rows.idx "$G/rows.jsonl"
    cmp rows.idx "$G/rows.idx"
    tac "$G/rows.jsonl" | llm-index build --plain -j 1 | cmp - "$G/rows.idx"
    run -0 llm-index stat "$G/rows.idx"
    assert_line $'rows\t3'
    assert_line $'metric\tcosine'
    assert_line $'words\t7'
    assert_line $'plain\tyes'
    assert_line $'kind\tflat'
    assert_line $'linked\t-'
    assert_line $'recall_at_10\t-'
    run -0 llm-index stat --json "$G/rows.idx"
    [[ $output == '{"rows":3,'* ]]
}

@test "vectors, words and both find rows; a hit as JSON has text and metadata; a context has ids and texts" {
    need_tool jq
    local q='{"id": "q", "text": "TEA", "embedding": [2.9, 0.1, 4]}'
    run -0 llm-index search -x "$G/rows.idx" -k 2 <<< "$q"
    assert_line -n 0 $'query\trank\tid\tscore'
    [[ ${lines[1]} == $'q\t1\tb\t0.999'* && ${lines[2]} == $'q\t2\t10\t0.7'* ]]
    run -0 llm-index search -x "$G/rows.idx" -k 3 --by words --format csv <<< "$q"
    assert_equal "$(tr -d '\r' <<< "$output" | cut -d, -f 3 | tr '\n' ' ')" "id b 10 "
    run -0 llm-index search -x "$G/rows.idx" -k 3 --by words --query 'bread, salt'
    [[ ${lines[1]} == $'1\t1\ta\t'* ]]
    run -0 llm-index search -x "$G/rows.idx" -k 3 --by both --json <<< "$q"
    assert_equal "$(jq -s -c 'map(.id)' <<< "$output")" '["b","10","a"]'
    assert_equal "$(command jq -s -c '.[0] | del(.score)' <<< "$output")" '{"query":"q","rank":1,"id":"b","text":"Tea with milk","metadata":{"page":2}}'
    assert_equal "$(jq -s '.[0].score - 2 / 61 | fabs < 1e-15' <<< "$output")" true
    run -0 llm-index search -x "$G/rows.idx" -k 1 --format context <<< "$q"
    assert_output '{"id":"b","text":"Tea with milk"}'
}

@test "conditions on metadata: numbers, texts, lists" {
    local q='{"embedding": [1, 1, 1]}' found
    for row in 'page>2:10' 'page<=2:b' 'page!=2:10' 'tags=old:a' 'page>=2 page<9:b 10'; do
        local where=() word
        for word in ${row%%:*}; do where+=(--where "$word"); done
        found=$(llm-index search -x "$G/rows.idx" -k 3 "${where[@]}" <<< "$q" | tail -n +2 | cut -f 3 | sort -r | tr '\n' ' ')
        assert_equal "${found% }" "${row#*:}"
    done
    printf '{"id": "%s", "embedding": [1, 1, 1], "post": %s}\n' low 9007199254740992 high 9007199254740993 | llm-index build -o posts.idx
    for row in =9007199254740993:high '<9007199254740993:low' '>9007199254740992:high'; do # more digits than a double has
        assert_equal "$(llm-index search -x posts.idx -k 2 --where "post${row%:*}" <<< "$q" | tail -n +2 | cut -f 3)" "${row#*:}"
    done
    printf '{"id": "%s", "embedding": [1, 1, 1], "metadata": {"lang": "%s", "source": {"page": %d}}}\n' x de 7 y en 9 | llm-index build -o inner.idx
    for row in 'lang = de:x' 'source.page >= 8:y' 'source.page<8:x'; do
        assert_equal "$(llm-index search -x inner.idx -k 2 --where "${row%:*}" <<< "$q" | tail -n +2 | cut -f 3)" "${row#*:}"
    done
    run -0 --separate-stderr llm-index search -x inner.idx -k 2 --where source.line=7 <<< "$q"
    assert_equal "$stderr" "llm-index search: warning: --where: no row has 'source.line'"
    llm-index search -x inner.idx -k 2 --json <<< "$q" | sed 's/}$/, "embedding": [1, 1, 1]}/' | jq -c 'del(.query, .rank, .score)' | llm-index build -o again.idx
    assert_equal "$(llm-index search -x again.idx -k 1 --where lang=en --json <<< "$q" | jq -c .metadata)" '{"lang":"en","source":{"page":9}}'
    run -2 --separate-stderr llm-index search -x "$G/rows.idx" -k 1 --where 'page' <<< "$q"
    assert_equal "$stderr" "llm-index search: --where: expected KEY=VALUE (or != < <= > >=), found 'page'"
    run -2 --separate-stderr llm-index search -x "$G/rows.idx" -k 1 --where 'page<x' <<< "$q"
}

@test "the same bytes with any threads, any order and any split of adds" {
    rows 500 > all.jsonl
    for vectors in f32 f16 i8; do
        llm-index build --vectors $vectors -j 1 -o one.idx all.jsonl
        llm-index build --vectors $vectors -j 4 -o four.idx <(sort -r all.jsonl)
        cmp one.idx four.idx
        for step in 1 100 250 499; do
            llm-index build --vectors $vectors -o parts.idx <(head -n $step all.jsonl)
            tail -n +$((step + 1)) all.jsonl | head -n 70 | llm-index add -x parts.idx
            tail -n +$((step + 71)) all.jsonl > rest
            [[ ! -s rest ]] || llm-index add -x parts.idx rest
            cmp parts.idx one.idx
        done
    done
    llm-index check one.idx
}

@test "rows are deleted, come again, and are dropped beyond a quarter" {
    rows 40 > all.jsonl
    llm-index build --plain x.idx all.jsonl
    [[ $(llm-index stat --json x.idx) == '{"rows":40,"deleted":0,'* && $(llm-index check --json x.idx) == '{"rows":40,'* ]]
    cp x.idx whole.idx
    llm-index search -x x.idx -k 1 <<< "$(head -n 1 all.jsonl)" | tail -n 1 | cut -f 3 > first
    llm-index delete -x x.idx "$(< first)"
    assert_equal "$(llm-index stat x.idx | sed -n 's/^deleted\t//p')" 1
    run -1 grep -qx "$(< first)" <(llm-index search -x x.idx -k 39 <<< "$(head -n 1 all.jsonl)" | cut -f 3)
    run -65 --separate-stderr llm-index delete -x x.idx "$(< first)"
    assert_equal "$stderr" "llm-index delete: x.idx: id '$(< first)': expected in the index, found none"
    head -n 1 all.jsonl | llm-index add x.idx
    cmp x.idx whole.idx
    seq 0 10 > ids
    llm-index delete x.idx --ids ids -o less.idx
    cmp x.idx whole.idx
    assert_equal "$(llm-index stat less.idx | head -n 3 | tr '\n\t' ' =')" "key=value rows=29 deleted=0 "
    grep -v -E '"id": ([0-9]|10),' all.jsonl | llm-index build --plain | cmp - less.idx
}

@test "vectors of a model go through the pipe; a text finds itself; messages carry the model's fingerprint" {
    need_tool jq
    jq -c '.[] | {text: .prompt}' "$ROOT/tests/golden/tiny-bert/expected.json" > texts.jsonl
    llm-infer -q -m "$M" --embed --jsonl texts.jsonl | llm-index build -o t.idx
    llm-infer -q -m "$M" --embed --jsonl texts.jsonl | llm-index search -x t.idx -k 1 | tail -n +2 | awk '$1 != $3 && $4 < .99999' > missed
    assert_equal "$(cat missed)" ""
    llm-infer -q -m "$M" --embed "red cats" > one.llmt
    llm-index build -o m.idx one.llmt
    [[ $(llm-index stat m.idx | sed -n 's/^fingerprint\t//p') =~ ^[0-9a-f]{16}$ ]]
    llm-index search m.idx -k 1 one.llmt
    jq -n -c '{id: 1, embedding: [range(24)], fingerprint: "zzzz"}' > other.jsonl
    run -65 --separate-stderr llm-index search -x m.idx -k 1 other.jsonl
    one_line "$stderr"
    [[ $stderr == *"expected queries of model "*" (that of m.idx), found those of zzzz" ]]
    run -65 --separate-stderr llm-index add -x m.idx other.jsonl
    one_line "$stderr"
}

@test "what is refused is one line with its status, and the index stays as it was" {
    llm-index build -o x.idx "$G/rows.jsonl"
    cp x.idx before
    while IFS='|' read -r status line says; do
        run "-$status" --separate-stderr llm-index add -x x.idx <<< "$line"
        one_line "$stderr"
        [[ $stderr == "llm-index add: "*"$says"* ]] || fail "$line: $stderr"
        cmp x.idx before
    done << 'END'
65|{"id": "z", "embedding": [1, 2]}|expected vectors of 3 elements, found 2
65|{"id": "z", "embedding": [1, 2, "x"]}|element 2: expected a number
65|{"id": "z", "embedding": []}|expected a vector of 1 to
65|{"id": "z", "embedding": [1e39, 0, 0]}|expected a finite number
65|{"id": "z", "embedding": [NaN, 0, 0]}|line 1
65|{"id": "a", "embedding": [1, 2, 3]}|id 'a': expected once, found in the index already
65|{"id": "", "embedding": [1, 2, 3]}|"id": expected 1 to 4096 bytes without NUL
65|{"embedding": [1, 2, 3]}|expected "id"
65|{"id": "z"}|expected "embedding" (a list of numbers), which rows do without in an index of words alone (--vectors none)
65|{"id": "z", "error": "prompt: expected fewer"}|line 1: expected "embedding" (a list of numbers), found an error: prompt: expected fewer
65|[1]|expected an object
65|{"id": "z", "embedding": [1, 2, 3], "text": 5}|"text": expected a string
END
    run -65 --separate-stderr llm-index build -o y.idx <(printf '{"id": 1, "embedding": [1]}\n{"id": "1", "embedding": [2]}\n')
    assert_equal "$stderr" "llm-index build: id '1': expected once, found twice"
    run -65 --separate-stderr llm-index build -o y.idx /dev/null
    assert_equal "$stderr" "llm-index build: expected rows, found none"
    run -2 --separate-stderr llm-index search -x x.idx -k 4 <<< '{"embedding": [1, 2, 3]}'
    assert_equal "$stderr" "llm-index search: -k: expected at most 3 (the rows of x.idx), found 4"
    run -0 llm-index search -x x.idx <<< '{"embedding": [1, 2, 3]}'
    assert_equal "${#lines[@]}" 4 # a heading, and all rows, of which there are fewer than ten
    run -65 --separate-stderr llm-index search -x x.idx -k 1 <<< '{"embedding": [1, 2]}'
    assert_equal "$stderr" "llm-index search: expected queries of 3 elements (the vectors of x.idx), found 2"
    run -65 --separate-stderr llm-index search -x "$ROOT/tests/golden/formats/checkpoint.llm" <<< '{}'
    [[ $stderr == *"expected an index (llm-index build), found checkpoint" ]]
    [[ ! -e y.idx ]]
    nothing_left
}

@test "an index that is cut or changed anywhere is refused" {
    local size at
    for form in --plain '' '--kind hnsw --plain'; do
        # shellcheck disable=SC2086  # words
        llm-index build $form --vectors i8 -o x.idx "$G/rows.jsonl"
        size=$(wc -c < x.idx)
        for ((at = 0; at < size; at += 37)); do
            head -c "$at" x.idx > cut.idx
            run --separate-stderr llm-index stat cut.idx
            [[ $status == 65 ]] || fail "cut to $at of $size bytes: status $status"
            one_line "$stderr"
            { head -c "$at" x.idx; tail -c +$((at + 1)) x.idx | head -c 1 | tr '\000-\377' '\001-\377\000'; tail -c +$((at + 2)) x.idx; } > changed.idx
            run --separate-stderr llm-index check changed.idx
            [[ $status == 65 ]] || { [[ $status == 0 ]] && cmp -s <(llm-index search -x changed.idx -k 3 --json <<< '{"embedding": [1, 2, 3]}') \
                <(llm-index search -x x.idx -k 3 --json <<< '{"embedding": [1, 2, 3]}'); } || fail "$form: byte $at changed: status $status"
        done
    done
}

@test "a graph has the same bytes with any threads and any split of adds, is whole, and finds what a flat search finds" {
    rows 1500 > all.jsonl
    llm-index build --kind hnsw -j 1 -o one.idx all.jsonl
    llm-index build --kind hnsw -j 3 -o - all.jsonl | cmp - one.idx
    sed 's/.*"id": \([0-9]*\),.*/\1\t&/' all.jsonl | sort -n | cut -f 2 > sorted.jsonl
    for step in 1 33 700 1024 1499; do
        llm-index build --kind hnsw -o parts.idx <(head -n $step sorted.jsonl)
        tail -n +$((step + 1)) sorted.jsonl | head -n 300 | llm-index add -x parts.idx -j 2
        tail -n +$((step + 301)) sorted.jsonl > rest
        [[ ! -s rest ]] || llm-index add -x parts.idx rest
        cmp parts.idx one.idx
    done
    tail -n +700 sorted.jsonl | llm-index build --kind hnsw -o late.idx # earlier ids come later: the graph is made anew
    head -n 699 sorted.jsonl | llm-index add -x late.idx
    cmp late.idx one.idx
    run -0 llm-index stat one.idx
    assert_line $'kind\thnsw'
    assert_line $'neighbours\t16'
    assert_line $'ef_build\t200'
    assert_equal "$(awk '$1 == "linked" { print ($2 > 1400 && $2 <= 1500) }' <<< "$output")" 1
    assert_line "$(llm-index check one.idx | sed -n 's/^stored_//p')"
    run -0 llm-index check one.idx
    awk -F'\t' '$1 == "recall_at_10" { recall = $2 } $1 == "found_by_own_vector" { own = $2 } $1 == "stored_recall_at_10" { stored = $2 }
        END { exit !(recall > .98 && own > .99 && stored == recall) }' <<< "$output"
    llm-index search -x one.idx --ef 400 all.jsonl | cut -f 1-3 > walked
    llm-index search -x one.idx --flat all.jsonl | cut -f 1-3 > flat
    assert_equal "$(($(comm -12 <(sort walked) <(sort flat) | wc -l) > 14900))" 1
    for metric in dot l2; do
        llm-index build --kind hnsw --metric $metric -o m.idx all.jsonl
        llm-index check m.idx | awk -F'\t' '$1 == "recall_at_10" { exit !($2 > .95) }'
    done
    for how in --ef=100 --flat; do # a distance is not below 0, of a row and itself either
        llm-index search -x m.idx -k 1 $how all.jsonl | awk -F'\t' 'NR > 1 && $4 > 0 { bad++ } END { exit NR != 1501 || bad > 0 }'
    done
    llm-index build -o flat.idx all.jsonl # misses nothing: nothing is stored
    [[ $(llm-index check flat.idx | awk -F'\t' '$1 == "stored_recall_at_10" { print $2 }') == - ]]
    llm-index build --vectors i8 -o i8.idx all.jsonl
    llm-index check i8.idx | awk -F'\t' '$1 == "stored_recall_at_10" { exit !($2 > .95 && $2 <= 1) }'
    head -n 700 all.jsonl | sed 's/.*"id": \([0-9]*\),.*/\1/' > gone
    before=$(llm-index check one.idx)
    llm-index delete one.idx --ids gone # measured anew
    llm-index check one.idx | awk -F'\t' '$1 == "recall_at_10" { recall = $2 } $1 == "stored_recall_at_10" { exit !($2 == recall) }'
    [[ $(llm-index check one.idx) != "$before" ]]
}

@test "of a graph whose nearest rows are deleted all hits that were asked for come" {
    rows 200 > all.jsonl
    llm-index build --kind hnsw -o x.idx all.jsonl
    head -n 1 all.jsonl > query
    llm-index search -x x.idx -k 45 query | tail -n +2 | cut -f 3 | llm-index delete -x x.idx --ids -
    assert_equal "$(llm-index stat x.idx | sed -n 's/^deleted\t//p')" 45
    run -0 llm-index search -x x.idx -k 20 --ef 20 query
    assert_equal "${#lines[@]}" 21
    diff <(llm-index search -x x.idx -k 155 query | cut -f 3 | sort) <(llm-index search -x x.idx -k 155 --flat query | cut -f 3 | sort)
    diff <(llm-index search -x x.idx -k 5 --where group=1 query) <(llm-index search -x x.idx -k 5 --flat --where group=1 query)
}

@test "an index of words alone needs no vectors: it is searched by BM25, grows, shrinks, and refuses what vectors are for" {
    printf '{"id": "%s", "text": "%s", "page": %d}\n' a "Tea, tea and milk" 1 b "bread" 2 c "No tea here, no" 3 d "Rye bread" 4 > texts.jsonl
    llm-index build --vectors none x.idx texts.jsonl
    run -0 llm-index search x.idx --query tea
    assert_equal "${#lines[@]}" 3
    # idf = ln(1 + (4 - 2 + .5) / (2 + .5)), 4, 1, 4 and 2 words: 2.75 on average
    awk 'BEGIN { idf = log(2); K = 1.2 * (.25 + .75 * 4 / 2.75)
        printf "1\t1\ta\t%.7f\n1\t2\tc\t%.7f\n", idf * 2 * 2.2 / (2 + K), idf * 2.2 / (1 + K) }' > want
    tail -n +2 <<< "$output" | awk -F'\t' -v OFS='\t' '{ $4 = sprintf("%.7f", $4) } 1' | cmp - want
    llm-index search x.idx --by words --query tea | cmp - <(echo "$output")
    llm-index search x.idx --where 'page>1' --format context <<< '{"prompt": "tea"}' | cmp - <(echo '{"id":"c","text":"No tea here, no"}')
    sed 's/}/, "embedding": [1, 2], "fingerprint": "f"}/' texts.jsonl | llm-index build --vectors none | cmp - x.idx # vectors are left out
    tail -n 1 texts.jsonl | llm-index build --vectors none -o parts.idx
    head -n 3 texts.jsonl | llm-index add parts.idx
    cmp parts.idx x.idx
    llm-index delete parts.idx a
    [[ $(llm-index search parts.idx --query tea | tail -n +2 | cut -f 3) == c ]]
    head -n 1 texts.jsonl | llm-index add parts.idx
    cmp parts.idx x.idx
    assert_equal "$(llm-index stat x.idx | head -n 6 | tr '\n\t' ' =')" "key=value rows=4 deleted=0 dims=0 metric=- vectors=none "
    assert_equal "$(llm-index check x.idx | tr '\n\t' ' =')" "key=value rows=4 found_by_own_vector=- recall_at_10=- stored_recall_at_10=- "
    llm-index build --vectors none --plain -o plain.idx texts.jsonl
    llm-index search plain.idx --query tea | cmp - <(echo "$output")
    head -c -9 plain.idx > cut.idx
    refused 65 "cut.idx" llm-index check cut.idx
    for by in vectors both; do
        refused 2 "--by: expected words, as x.idx has no vectors (--vectors none)" llm-index search x.idx --by $by <<< '{"text": "tea", "embedding": [1]}'
    done
    refused 2 "--kind hnsw is a graph of vectors" llm-index build --vectors none --kind hnsw y.idx texts.jsonl
    refused 2 "--metric compares vectors" llm-index build --vectors none --metric dot y.idx texts.jsonl
    echo '{"id": 1, "contents": "tea", "embedding": [1]}' > other.jsonl
    refused 65 'line 1: expected "text" (a string), as there are no vectors' llm-index build --vectors none y.idx other.jsonl
    refused 65 'expected "text" (a string), as there are no vectors' llm-index add x.idx other.jsonl
    llm-infer -q -m "$M" --embed "red cats" > one.llmt
    refused 65 "one.llmt: expected lines of JSON with texts, found tensor messages" llm-index build --vectors none y.idx one.llmt
    refused 65 "expected an index of hidden states" llm-infer -q -m "$ROOT/tests/golden/tiny" --knn x.idx -n 1 hello
    llm-index build v.idx "$G/rows.jsonl"
    refused 2 "--query goes with --by words" llm-index search v.idx --query tea
    [[ ! -e y.idx ]]
}

@test "the manual's examples run" {
    cp -r "$M" model
    printf '{"id": %d, "text": "%s"}\n' 1 "the red cat" 2 "a dog saw the old house" > passages.jsonl
    echo '{"id": 3, "text": "the garden"}' > new.jsonl
    echo '{"text": "red cats"}' > questions.jsonl
    echo "It is never too late for tea." > notes.txt
    manual_examples llm-index 5
}

@test "the index is the first operand; only -o replaces a file that is none" {
    llm-index build x.idx "$G/rows.jsonl"
    cp x.idx y.idx
    llm-index build x.idx "$G/rows.jsonl"
    llm-index build -o z.idx "$G/rows.jsonl"
    cmp x.idx y.idx
    cmp x.idx z.idx
    cp "$G/rows.jsonl" rows
    refused 65 "rows: expected an index or no file" llm-index build rows "$G/rows.jsonl"
    refused 65 "rows: expected an index or no file" llm-index build rows
    cmp rows "$G/rows.jsonl"
    run -2 llm-index build rows rows
    run -2 llm-index build x.idx x.idx
    run -2 llm-index add x.idx x.idx
    run -2 llm-index add
    run -2 llm-index search --by words --query bread
    cmp x.idx y.idx
    llm-index build -o rows "$G/rows.jsonl"
    cmp rows y.idx
    llm-index search x.idx -k 1 --by words --query bread > first
    llm-index search -x x.idx -k 1 --by words --query bread | cmp - first
    id=$(tail -n 1 first | cut -f 3)
    llm-index delete x.idx "$id"
    llm-index delete -x y.idx "$id"
    cmp x.idx y.idx
}
