# llm-kvinspect attention --image: maps over the patches of pictures, beside transformers in double (tests/oracle/vit_attention.py).
load ../helper

setup() {
    V=$ROOT/tests/golden/vit
    I=$ROOT/tests/golden/image
}

# over FILE...: llm-kvinspect attention with maps over the golden's picture
over() { llm-kvinspect attention -l 2 --image "$I/rgb.png" --for "$V" "$@"; }

@test "maps of a vision transformer have the attentions of transformers, as page and text, of one query and of all" {
    need_tool python3
    llm-infer -m "$V" --precision f32 --image "$I/rgb.png" --kv-out cat.kv --trace-queries 1000
    over --grid --query 0 --png grid.png --svg grid.svg --html grid.html --json cat.kv > grid.json
    over -j 1 --grid --query 0 --png one.png --svg one.svg --html one.html --json cat.kv | cmp - grid.json
    for what in png svg html; do cmp grid.$what one.$what; done
    over --head 1 --show cat.kv > mean.txt
    python3 - "$V/attention.json" << 'END'
import base64, json, re, sys
golden = json.load(open(sys.argv[1]))[2]
page = open("grid.html", encoding="utf-8").read()
assert "rows=4,cols=4,ystep=1,xstep=1," in page and "yname='patch row',xname='patch column'" in page
panels = re.search(r"panels=(\[.*?\]),data=\[(.*?)\];", page)
assert json.loads(panels[1]) == ["head 0", "head 1", "head 2"]
largest = float(re.search("largest=([0-9.e-]+)", page)[1])
assert abs(largest - max(max(golden[h][0][1:]) for h in range(3))) < 1e-6
for head, text in enumerate(panels[2].split(",")):
    for patch, byte in enumerate(base64.b64decode(text.strip("'"))):
        assert abs((byte / 254) ** 2 * largest - golden[head][0][1 + patch]) < largest / 127, (head, patch)
rows = [json.loads(line) for line in open("grid.json")]
for head in range(3):
    for query in range(17):
        row, want = rows[head * 17 + query], golden[head][query]
        assert (row["head"], row["query"]) == (head, query) and abs(row["p"] - max(want)) < 2e-6 and abs(want[row["key"]] - max(want)) < 2e-6
mean = [sum(golden[1][q][1 + p] for q in range(17)) / 17 for p in range(16)]
text = open("mean.txt", encoding="utf-8").read().split("\n")
for y in range(4):
    shades = text[2 + y][6:14]
    for x in range(4):
        share = (mean[4 * y + x] / max(mean)) ** .5 * 5
        assert shades[2 * x] == shades[2 * x + 1] and abs("·░▒▓█".index(shades[2 * x]) - min(4, int(share))) <= (abs(share - round(share)) < 1e-4)
END
}

@test "the picture below the map is the model's crop, in shades of grey; another picture gives another drawing of the same numbers" {
    need_tool python3
    llm-infer -m "$V" --image "$I/rgb.png" --kv-out cat.kv --trace-queries 1
    over --html a.html cat.kv > a.tsv
    llm-kvinspect attention -l 2 --image "$I/cmyk.jpg" --for "$V" --html b.html cat.kv | cmp - a.tsv
    cmp <(grep -v '^const under' a.html) <(grep -v '^const under' b.html)
    sed -n "s/^const under='data:image.png;base64,\(.*\)';$/\1/p" a.html | base64 -d > under.png
    # patches of 5 pixels cover 20 of 22
    llm-tokenize image under.png -o under.images
    jq '.do_rescale = false | .do_normalize = false' "$V/preprocessor_config.json" > plain.json
    llm-tokenize image --for plain.json "$I/rgb.png" -o crop.images
    python3 - << 'END'
import json, struct
def pixels(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    t = next(v for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__" and v["dtype"] == "F32")
    return t["shape"], struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // 4}f", data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
shape, under = pixels("under.images")
assert shape[-3:] == [3, 20, 20], shape
_, crop = pixels("crop.images")
for y in range(20):
    for x in range(20):
        r, g, b = (crop[c * 484 + y * 22 + x] for c in range(3))
        for c in range(3):
            assert abs(under[c * 400 + y * 20 + x] * 255 - (.299 * r + .587 * g + .114 * b)) <= .501, (y, x)
END
    over --png a.png cat.kv > /dev/null
    llm-kvinspect attention -l 2 --image "$I/cmyk.jpg" --for "$V" --png b.png cat.kv > /dev/null
    refute cmp -s a.png b.png
    [[ $(head -c 4 a.png | tail -c 3) == PNG ]]
}

# tokens_of PAGE_OF_TOKENS PAGE_OF_PATCHES TOKEN...: the cells of the one query over the patches are those over these tokens
tokens_of() {
    python3 - "$@" << 'END'
import base64, re, sys
def cells(path):
    page = open(path, encoding="utf-8").read()
    largest = float(re.search("largest=([0-9.e-]+)", page)[1])
    return [(byte / 254) ** 2 * largest for byte in base64.b64decode(re.search(r"data=\['(.*?)'\]", page)[1])], largest
tokens, largest = cells(sys.argv[1])
patches, _ = cells(sys.argv[2])
assert len(patches) == len(sys.argv) - 3, len(patches)
for t, p in zip(sys.argv[3:], patches):
    assert abs(tokens[int(t)] - p) < largest / 100, (t, tokens[int(t)], p)
END
}

@test "a text's queries over the picture that the text has: LLaVA, LLaVA-NeXT and SmolVLM; the cache goes on as the text does" {
    need_tool python3
    local m=$ROOT/tests/golden/llava n=$ROOT/tests/golden/llava_next/llama s=$ROOT/tests/golden/idefics3/smolvlm mark
    mark=$(jq .image_token_index "$m/config.json")
    llm-infer -m "$m" --precision f32 -n 0 --image "$I/rgb.png" --kv-out a.kv --trace-queries 1 --ids "1 2 $mark 3 4"
    llm-kvinspect attention -l 1 --html tokens.html a.kv > /dev/null
    llm-kvinspect attention -l 1 --html over.html --image "$I/rgb.png" --for "$m" a.kv > /dev/null
    tokens_of tokens.html over.html $(seq 2 17)
    llm-infer -m "$m" --precision f32 --temp 0 -n 6 --kv-in a.kv --ids "5 6" > got
    llm-infer -m "$m" --precision f32 --temp 0 -n 6 --image "$I/rgb.png" --ids "1 2 $mark 3 4 5 6" | cmp - got
    mark=$(jq .image_token_index "$n/config.json")
    llm-infer -m "$n" --precision f32 -n 0 --image "$I/rgb.png" --kv-out b.kv --trace-queries 1 --ids "1 2 $mark 3 4"
    llm-kvinspect attention -l 1 --html tokens.html b.kv > /dev/null
    llm-kvinspect attention -l 1 --html over.html --image "$I/rgb.png" --for "$n" b.kv > /dev/null
    tokens_of tokens.html over.html $(seq 2 $((1 + $(grep -o 'rows=[0-9]*' over.html | head -n 1 | cut -d= -f2) ** 2)))
    llm-infer -m "$s" --precision f32 -n 0 --image "$I/rgb.png" --kv-out c.kv --trace-queries 1 "<image>what"
    llm-kvinspect export --tensor ids -o ids.npy c.kv
    llm-kvinspect attention -l 1 --html tokens.html c.kv > /dev/null
    llm-kvinspect attention -l 1 --html over.html --image "$I/rgb.png" --for "$s" c.kv > /dev/null
    local places=$(($(grep -o 'rows=[0-9]*' over.html | head -n 1 | cut -d= -f2) ** 2))
    tokens_of tokens.html over.html $(tail -c +129 ids.npy | od -An -v -tu4 -w4 | awk -v mark="$(jq .image_token_id "$s/config.json")" '$1 == mark { print NR - 1 }' | tail -n $places)
}

@test "a picture's cache is no text's: what cannot be done with it, and wrong pictures and queries, end with one line" {
    local over=(llm-kvinspect attention -l 2 --image "$I/rgb.png" --for "$V")
    llm-infer -m "$V" --image "$I/rgb.png" --kv-out cat.kv --trace-queries 5
    refused 2 "--query: expected a position that was traced, from 12 to 16, found 3" "${over[@]}" --query 3 --show cat.kv
    refused 2 "--image needs --png, --svg, --html or --show" "${over[@]}" cat.kv
    refused 2 "--image and --for go together: expected both, found --image" llm-kvinspect attention --image "$I/rgb.png" --show cat.kv
    refused 2 "--image and --for go together: expected both, found --for" llm-kvinspect attention --for "$V" --show cat.kv
    refused 2 "--query goes with --image" llm-kvinspect attention --query 1 --show cat.kv
    refused 2 "--tokenizer labels tokens" "${over[@]}" -T "$V" --png x.png cat.kv
    refused 66 "absent.png" llm-kvinspect attention --image absent.png --for "$V" --show cat.kv
    llm-infer -m "$ROOT/tests/golden/tiny" --ids -n 0 --kv-out text.kv "1 2 3 4"
    refused 65 "expected tokens of a picture, found those of texts (llama)" "${over[@]}" -l 1 --show text.kv
    llm-infer -m "$V" --image "$I/rgb.png" --kv-out none.kv
    refused 65 "expected traced queries" "${over[@]}" --show none.kv
    jq '.size = {"height": 12, "width": 12}' "$V/preprocessor_config.json" > small.json
    refused 65 "expected a crop of at least 20 x 20 pixels, found 12 x 12" llm-kvinspect attention --image "$I/rgb.png" --for small.json --show cat.kv
    refused 65 "expected a cache of a text, found one of a picture (vit)" llm-kvinspect slice --from 2 cat.kv
    refused 65 "expected a cache of a text, found one of a picture (vit)" llm-kvinspect cat cat.kv cat.kv
    refused 65 "expected a cache of a text, found one of a picture (vit)" llm-kvinspect size cat.kv
    refused 65 "its tokens see one another in both directions" llm-kvinspect evict --keep 4 cat.kv
    refused 65 "expected one picture for --kv-out, found more" llm-infer -m "$V" --image "$I/rgb.png" --image "$I/cmyk.jpg" --kv-out two.kv
    assert_not_exist two.kv
    refused 69 "clip" llm-infer -m "$ROOT/tests/golden/clip" --image "$I/rgb.png" --kv-out clip.kv
    head -c 900 cat.kv > cut.kv
    refused 65 "cut.kv" "${over[@]}" --show cut.kv
    llm-kvinspect heads --json -l 0 cat.kv | jq -e '.previous == null and .induction == null and .distance > 0' > /dev/null
}
