# Importance files beside llama.cpp's. tests/golden/imatrix/llama.gguf is what llama-imatrix of llama.cpp (llama-cpp-python 0.3.36) wrote:
#
#   llm-quantize -q -t f32 tests/golden/tiny tiny.gguf
#   llama-imatrix -m tiny.gguf -f tests/golden/imatrix/text -c 64 --chunks 6 -t 1 --no-ppl -o tests/golden/imatrix/llama.gguf
load ../helper

setup() {
    M=$ROOT/tests/golden/tiny
    THEIRS=$ROOT/tests/golden/imatrix/llama.gguf
    CALIBRATE=(--calibrate "$ROOT/tests/golden/imatrix/text" --calibrate-tokens 384 --calibrate-context 64)
}

@test "llama.cpp's importances weight all matrices of the layers" {
    llm-quantize -q -t q4_0 --imatrix "$THEIRS" --report r.tsv "$M" a.gguf
    [[ $(awk -F'\t' '$1 ~ /layers.*proj/ {print $13, $14}' r.tsv | sort -u) == 'search yes' ]]
    [[ $(awk -F'\t' '$1 ~ /layers.*proj/' r.tsv | wc -l) == 14 ]]
    llm-quantize -q -t q4_0 "$M" b.gguf
    run -1 cmp -s a.gguf b.gguf
    llm-quantize -q -t q4_0 --method awq --imatrix "$THEIRS" "$M" c.gguf
    llm-quantize -q -t f32 --prune .5 --method wanda --imatrix "$THEIRS" "$M" d.gguf
}

# Sums of our pass, whose products are in BF16, are within 2% of the largest of theirs: a window more or less would be a sixth.
@test "what --imatrix-out writes of a text is what llama-imatrix wrote: names, shapes, counts, sums" {
    need_tool python3
    llm-quantize -q -t q8_0 "${CALIBRATE[@]}" --imatrix-out ours.gguf "$M" x.gguf
    python3 - "$THEIRS" ours.gguf << 'END'
import array, struct, sys


class Reader:
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        self.data, self.at = open(path, "rb").read(), 4
        assert self.data[:4] == b"GGUF" and self.number("I") == 3
        tensors, keys = self.number("Q"), self.number("Q")
        self.keys = {self.text(): self.value(self.number("I")) for _ in range(keys)}
        heads = [(self.text(), [self.number("Q") for _ in range(self.number("I"))], self.number("I"), self.number("Q")) for _ in range(tensors)]
        base = (self.at + 31) // 32 * 32
        self.tensors = {}
        for name, shape, kind, at in heads:
            n = 1
            for d in shape:
                n *= d
            assert kind == 0, name
            while len(shape) > 1 and shape[-1] == 1:
                shape.pop()
            self.tensors[name] = (shape, array.array("f", self.data[base + at:base + at + 4 * n]))

    def number(self, code):
        value = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of = self.number("I")
            return [self.value(of) for _ in range(self.number("Q"))]
        return self.number(self.sizes[kind])


theirs, ours = Reader(sys.argv[1]), Reader(sys.argv[2])
assert theirs.keys.keys() == ours.keys.keys(), (theirs.keys, ours.keys)
for key in ("general.type", "imatrix.chunk_count", "imatrix.chunk_size"):
    assert theirs.keys[key] == ours.keys[key], key
assert len(theirs.tensors) == 28
for name, (shape, values) in theirs.tensors.items():
    found, own = ours.tensors[name]
    assert shape == found, (name, shape, found)
    bound = 0 if name.endswith("counts") else 0.02 * max(values)
    assert all(abs(a - b) <= bound for a, b in zip(values, own)), name
END
}
