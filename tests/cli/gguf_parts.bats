# GGUF in parts: written all or none, read as one; parts that are missing, in another order, or hold a tensor twice.
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    llm-quantize -q -t keep "$M" whole.gguf
    llm-quantize -q -t keep --split-max-size 8K "$M" m.gguf
    parts=(m-*.gguf)
}

refused() { # STATUS PATTERN FILE
    run "-$1" --separate-stderr llm-infer -m "$3" x
    one_line "$stderr"
    [[ -z $output && $stderr == *$2* ]] || fail "expected '$2', found: $output$stderr"
}

# set_part FILE NUMBER COUNT: its split.no and split.count (u16, behind the key and the type)
set_part() {
    python3 - "$@" << 'END'
import sys, struct
path, no, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
raw = bytearray(open(path, "rb").read())
for key, v in ((b"split.no", no), (b"split.count", count)):
    at = raw.index(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4
    raw[at:at + 2] = struct.pack("<H", v)
open(path, "wb").write(raw)
END
}

@test "parts hold what one file holds: the same bits back, the same words" {
    local n=${#parts[@]}
    ((n >= 3 && n < 20))
    [[ ${parts[0]} == m-00001-of-$(printf %05d "$n").gguf && ! -e m.gguf ]]
    llm-quantize -q -t keep "${parts[0]}" back.gguf
    cmp whole.gguf back.gguf
    llm-infer -q -m whole.gguf --temp 0 -n 20 "Once upon" > text
    llm-infer -q -m "${parts[0]}" --temp 0 -n 20 "Once upon" | cmp - text
    for part in "${parts[@]:1}"; do
        grep -qv 'general.architecture' <(strings "$part")
        (($(stat -c %s "$part") < 9000))
    done
    llm-quantize -q -t keep --split-max-tensors 1 --to gguf "$M" single
    [[ $(ls single-*.gguf | wc -l) == "$(llm-quantize -t keep --report - "$M" x.gguf | tail -n +2 | wc -l)" ]]
    llm-quantize -q -t keep "$(ls single-*.gguf | sed -n 1p)" back.gguf
    cmp whole.gguf back.gguf
    llm-quantize -q -j 3 -t keep --split-max-size 100M --to gguf "$M" one
    llm-quantize -q -t keep one-00001-of-00001.gguf back.gguf
    cmp whole.gguf back.gguf
}

@test "a part that is missing, in another place, of another count, or no part" {
    need_tool python3
    local n=${#parts[@]}
    mv "${parts[1]}" away
    refused 66 "${parts[1]}: No such file or directory" "${parts[0]}"
    cp "${parts[2]}" "${parts[1]}"
    refused 65 "${parts[1]}: expected split.no 1 of $n" "${parts[0]}"
    cp away "${parts[1]}"
    set_part "${parts[1]}" 1 $((n + 1))
    refused 65 "${parts[1]}: expected split.no 1 of $n" "${parts[0]}"
    cp "$M/model.safetensors" "${parts[1]}"
    refused 65 "${parts[1]}: expected a GGUF file" "${parts[0]}"
    head -c 300 away > "${parts[1]}"
    refused 65 "${parts[1]}: " "${parts[0]}"
    cp away "${parts[1]}"
    refused 65 "${parts[1]}: part 2 of $n: expected the first" "${parts[1]}"
    cp "${parts[0]}" renamed.gguf
    refused 65 "renamed.gguf: the first of $n parts: expected a name that ends in -00001-of-$(printf %05d "$n").gguf" renamed.gguf
    refused 65 "standard input" - < "${parts[0]}"
}

@test "a tensor in two parts, and fewer or more tensors than were said" {
    need_tool python3
    local n=${#parts[@]}
    cp "${parts[2]}" away
    cp "${parts[1]}" "${parts[2]}"
    set_part "${parts[2]}" 2 "$n"
    refused 65 "expected once, found in ${parts[1]} too" "${parts[0]}"
    cp away "${parts[2]}"
    sed -i 's/split.tensors.count\x05\x00\x00\x00./split.tensors.count\x05\x00\x00\x00\x07/' "${parts[0]}"
    refused 65 "${parts[1]}: expected split.tensors.count 7, found" "${parts[0]}"
    sed -i 's/split.tensors.count\x05\x00\x00\x00./split.tensors.count\x05\x00\x00\x00\x07/' "${parts[@]}"
    refused 65 "expected 7 tensors in all parts, found" "${parts[0]}"
}

@test "what cannot be written leaves no part behind" {
    mkdir d full
    run -73 --separate-stderr llm-quantize -q -t keep --split-max-size 8K "$M" absent/m.gguf
    cd full
    mkdir "m-00003-of-$(printf %05d "${#parts[@]}").gguf"
    run -73 --separate-stderr llm-quantize -q -t keep --split-max-size 8K "$M" m.gguf
    one_line "$stderr"
    [[ $(ls) == m-00003-of-*.gguf ]]
    cd ../d
    run -74 --separate-stderr bash -c 'ulimit -f 24; llm-quantize -q -t keep --split-max-size 8K "$0" m.gguf' "$M"
    [[ -z $(ls -A) ]]
    for wrong in "--to llm $M m.llm" "$M -" "$M m.safetensors"; do
        run -2 --separate-stderr llm-quantize -q -t keep --split-max-size 8K $wrong
        [[ $stderr == *"expected GGUF files as OUT"* ]]
    done
    [[ -z $(ls -A) ]]
}
