#!/usr/bin/env python3
"""The comparisons with peers: rows.py GROUP..., of products, attention, training, inference, pictures, sentences, tokenising. tests/bench/all runs it and says what the environment sets.

A line of TSV a row and peer: medians of ROUNDS alternating turns, ours / peer, limits that the same turns measured. Status 1 when a bar is missed or
something could not be measured."""
import json
import os
import pathlib
import sys
import tempfile
import time

import fair

ONLY = os.environ.get("ONLY", "")
BF16 = ("avx512bf16", "amx")


def dtypes(table):
    return ["f32"] + ["bf16"] * (table.isa in BF16)


# ---- products of activations with packed weights ----

SHAPES = [(m, n, k) for m in (1024, 64) for n, k in ((768, 768), (3072, 768), (768, 3072))] + [(1024, 50257, 768)]


def products(table):
    wanted = dtypes(table)
    shapes = [s for s in SHAPES if any(ONLY in f"product {'x'.join(map(str, s))} {dtype}" for dtype in wanted)]
    if not shapes:
        return

    def mine():
        lines = fair.ours("llm-bench", "kernels", "--json", "-j", fair.THREADS, "--seconds", "0.3", *(f"--shape={m}x{n}x{k}" for m, n, k in shapes))
        found = {}
        for o in lines:
            if o.get("product") in wanted or o.get("product") == "bf16 packed":  # the op before has packed the activations, as in training
                name = f"product {o['m']}x{o['n']}x{o['k']} {o['product']}"
                found[name] = (o["gflops"], o["gflops"] / o["share_of_limit"], o["limit"])
        return found

    def ask(library, kinds):
        def run(policy):
            request = {"do": "products", "library": library, "shapes": shapes, "dtypes": kinds, "seconds": 0.3}
            answer = fair.peer("peer_torch.py", request, policy)
            # the peer's activations are BF16 in memory too
            answer["rates"].update({row + " packed": rate for row, rate in answer["rates"].items() if row.endswith("bf16")})
            return answer
        return run

    peers = {"oneDNN": ask("onednn", wanted), "MKL": ask("mkl", ["f32"]), "OpenBLAS": ask("openblas", ["f32"])}
    bars = {(f"product {m}x{n}x{k} f32", name): 1.0 for m, n, k in shapes for name in peers}
    bars.update({(f"product {m}x{n}x{k} bf16 packed", "oneDNN"): .97 for m, n, k in shapes})
    table.compare("GFLOP/s", mine, peers, bars, ONLY)


# ---- attention, 12 heads of 64 ----

def attention(table):
    for tokens in (1024, 4096, 16384):
        rows = [f"attention {tokens} {name} forward and backward" for name in dtypes(table)]
        if not any(ONLY in row for row in rows):
            continue

        def mine():
            lines = fair.ours("llm-bench", "kernels", "--json", "-j", fair.THREADS, "--seconds", "0.3", "--attention", f"{tokens}x12x64")
            found = {o["attention"]: o for o in lines if "attention" in o}
            return {row: (o["gflops"], o["gflops"] / o["share_of_limit"], o["limit"])
                    for row, o in ((row, found[f"{row.split()[2]} both ways"]) for row in rows)}

        request = {"do": "attention", "tokens": [tokens], "heads": 12, "width": 64, "dtypes": dtypes(table)}
        table.compare("GFLOP/s", mine, {"PyTorch": lambda policy: fair.peer("peer_torch.py", request, policy)},
                      {(row, "PyTorch"): 1.8 for row in rows if " f32 " in row}, ONLY)


# ---- training ----

LLAMA = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 6,
         "num_key_value_heads": 6, "max_position_embeddings": 256, "tie_word_embeddings": True}
GPT2 = {"family": "gpt2", "layers": 12, "heads": 12, "width": 768, "hidden": 3072, "vocab": 50257}
TRAINED = (("GPT-2 124M, 4 x 256", "gpt2", {**GPT2, "batch": 4, "context": 256}, {"f32": 1.35, "bf16": 2.5}),
           ("GPT-2 124M, 8 x 512", "gpt2", {**GPT2, "batch": 8, "context": 512}, {"f32": 1.35, "bf16": 2.5}),
           ("Llama 15M, 16 x 256", LLAMA, {"family": "llama", "layers": 6, "heads": 6, "width": 288, "hidden": 768, "vocab": 32000, "batch": 16,
                                           "context": 256}, {"f32": 1.6, "bf16": 2.5}))
STEPS = 2


def training(table):
    with tempfile.TemporaryDirectory() as folder:
        for name, config, shape, bars in TRAINED:
            if not isinstance(config, str):
                path = pathlib.Path(folder) / "config.json"
                path.write_text(json.dumps(config))
                config = str(path)
            for precision in dtypes(table):
                row = f"training {name} {precision}"
                if ONLY in row:
                    trained(table, row, config, shape, precision, bars[precision] if precision == "f32" or table.isa == "amx" else None)


def trained(table, row, config, shape, precision, bar):
    def mine():
        o, = fair.ours("llm-bench", "train", "--json", "-c", config, "--batch", str(shape["batch"]), "--context", str(shape["context"]), "-r", str(STEPS),
                       "-j", fair.THREADS, "--precision", precision)
        return {row: (o["tokens_per_s"], o["tokens_per_s"] / o["share_of_peak"], precision), row + ", memory": (o["peak_rss_bytes"] / 1e6, None, None)}

    def ask(compiled):
        request = {"do": "train", "shape": shape, "precision": precision, "steps": STEPS, "compile": compiled, "name": row}
        return lambda policy: fair.peer("peer_torch.py", request, policy)

    peers = {"PyTorch": ask(False), "PyTorch, torch.compile": ask(True)}
    table.compare("tokens/s (memory: MB)", mine, peers, {(row, name): bar for name in peers if bar})


# ---- prefill and decoding beside llama.cpp ----

# model, test, least ratio by instruction set (None: no bar)
SPEEDS = [(model, "pp512", ratio) for model, ratio in (("SmolLM2", 3.5), ("Gemma", 2.5), ("1.1B Q8_0", 2), ("1.1B Q4_K", 3), ("1.1B Q6_K", 2))]
SPEEDS += [(model, "tg128", ratio) for model, ratio in (("SmolLM2", 2), ("Gemma", 2), ("1.1B Q8_0", 1.3), ("1.1B Q4_K", 1.3), ("1.1B Q6_K", 1.3))]
DEPTH = int(os.environ.get("DEPTH", "8000"))
DEEP = (("4 layers", "f16", 2), ("4 layers", "q8_0", 2))
BUILDS = os.environ.get("LLAMA", "").split(":")  # folders with llama_cpp, built for the instruction set: the better of them counts
PREFILL = {"avx512": 3, "avx512vnni": 3, "avx512bf16": 3, "amx": 4}
TOGETHER_TOKENS = 512  # of all sequences
PROMPTS = int(os.environ.get("PROMPTS", "3"))  # that are read one after another by a process and counted, after two that are not
TOGETHER = [(model, sequences) for model in ("SmolLM2", "1.1B Q4_K") for sequences in (16, 64)] + [("1.1B Q8_0", 64), ("Gemma", 64)]


def llama(row, what, load, **request):
    """llama.cpp as Table.compare wants peers, one of each build."""
    lines = "".join(json.dumps(o) + "\n" for o in ({"do": "load", "threads": int(fair.THREADS), **load}, request)).encode()

    def of(build):
        def ask(policy):
            answers = fair.run([fair.PYTHON, str(fair.HERE / "peer_llama.py")], fair.environment(policy, build), lines)
            loaded, found = map(json.loads, answers.splitlines())
            return {"rates": {row: found[what]}, "version": "llama-cpp-python " + loaded["version"], "flags": loaded["system"]}
        return ask

    return {"llama.cpp" + f", {pathlib.Path(build).name}" * (len(BUILDS) > 1): of(build) for build in BUILDS}


def convert(source, target, number):
    request = {"do": "convert", "model": source, "to": target, "type": number}
    fair.run([fair.PYTHON, str(fair.HERE / "peer_llama.py")], fair.environment("default", BUILDS[0]), (json.dumps(request) + "\n").encode())


def inference(table):
    import random_models
    files = {**random_models.of(pathlib.Path(os.environ.get("MODELS", "/tmp/llmutils-bench-models")), convert),
             **{name: path for name, path in (("SmolLM2", os.environ.get("SMOLLM2")), ("Gemma", os.environ.get("GEMMA"))) if path}}
    for model, test, bar in SPEEDS:
        row = f"{model} {test}"
        if ONLY in row and model not in files:
            table.note(f"not measured: {row}: name the model in {model.upper()}")
            table.missed += 1
        elif ONLY in row:
            beside(table, row, files[model], test, PREFILL.get(table.isa, bar) if test == "pp512" else bar)
    for model, cache, bar in DEEP:
        row = f"{model} tg32 after {DEPTH}, cache {cache}"
        if ONLY in row:
            deep(table, row, files[model], cache, bar)
    for model, sequences in TOGETHER:
        row = f"{model} tg{TOGETHER_TOKENS // sequences} x {sequences}"
        if ONLY in row and model in files:
            together(table, row, files[model], sequences)


def speed(row, path, *options):
    def mine():
        o = fair.ours("llm-bench", "speed", "--json", "-j", fair.THREADS, "-m", path, *options)[-1]
        return {row: (o["tokens_per_s"], o["tokens_per_s"] / o["share_of_limit"], o["limit"])}
    return mine


def beside(table, row, path, test, bar):
    prompt, generate = (512, 0) if test == "pp512" else (0, 128)

    peers = llama(row, "prompt" if prompt else "generate", {"model": path, "context": 1024}, do="speed", prompt=prompt, generate=generate, runs=PROMPTS)
    mine = speed(row, path, "-p", str(prompt), "-n", str(generate), "-r", str(PROMPTS if prompt else 1))
    table.compare("tokens/s", mine, peers, {(row, name): bar for name in peers})


def deep(table, row, path, cache, bar):
    peers = llama(row, "generate", {"model": path, "context": DEPTH + 64, "cache": cache}, do="deep", depth=DEPTH, generate=32)
    mine = speed(row, path, "-p", "0", "-n", "32", "-r", "1", "-d", str(DEPTH), "--cache-type", cache)
    table.compare("tokens/s", mine, peers, {(row, name): bar for name in peers})


def together(table, row, path, sequences):
    generate = TOGETHER_TOKENS // sequences
    peers = llama(row, "generate", {"model": path, "context": sequences * 64, "sequences": sequences}, do="together", generate=generate)
    mine = speed(row, path, "-p", "0", "-n", str(generate), "-r", "1", "--sequences", str(sequences))
    table.compare("tokens/s", mine, peers, {(row, name): 2 for name in peers} if sequences == 64 else {}, share=.8)


# ---- vectors of pictures: ViT-B/16, 224 x 224 ----

VIT = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "num_labels": 2}
PLAIN = {"image_processor_type": "ViTImageProcessor", "do_resize": False, "do_normalize": True, "image_mean": [.5] * 3, "image_std": [.5] * 3,
         "do_rescale": True, "rescale_factor": 1 / 255}
SEEN = {1: (8, 40), 32: (32, 160)}  # pictures of the two streams by batch: the difference of their times is that of as many


def pictures(table):
    wanted = [(batch, precision) for batch in SEEN for precision in dtypes(table) if ONLY in f"ViT-B/16 batch {batch} {precision}"]
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(VIT))
        fair.run(["llm-train", "-q", "--objective", "classify", "-c", str(folder / "config.json"), "-n", "0", "-o", str(folder / "vit.llm")])
        for n in {n for counts in SEEN.values() for n in counts}:
            header = bytes([0, 0, 8, 3]) + b"".join(k.to_bytes(4, "big") for k in (n, 224, 224))
            (folder / "idx").write_bytes(header + os.urandom(n * 224 * 224))
            (folder / "plain.json").write_text(json.dumps(PLAIN))
            fair.run(["llm-tokenize", "image", "--for", str(folder / "plain.json"), "-o", str(folder / f"{n}.images"), str(folder / "idx")])
        for batch, precision in wanted:
            seen(table, folder, batch, precision)


def seen(table, folder, batch, precision):
    row = f"ViT-B/16 batch {batch} {precision}"
    few, many = SEEN[batch]

    def seconds(n):
        start = time.perf_counter()
        fair.run(["llm-infer", "-q", "-m", str(folder / "vit.llm"), "--embed", "--image", str(folder / f"{n}.images"), "-b", str(batch * 197),
                  "-j", fair.THREADS, "--precision", precision, "-o", str(folder / "out")])
        return time.perf_counter() - start

    def mine():
        return {row: ((many - few) / (seconds(many) - seconds(few)), None, None)}

    def ask(compiled):
        request = {"do": "pictures", "batch": batch, "precision": precision, "seconds": 5, "compile": compiled, "name": row}
        return lambda policy: fair.peer("peer_torch.py", request, policy)

    peers = {"PyTorch": ask(False), "PyTorch, torch.compile": ask(True)}
    table.compare("pictures/s", mine, peers, {(row, name): 1.5 for name in peers})


# ---- vectors of sentences: MiniLM ----

SENTENCES = 500  # of WikiText-2's test text, 20 to 540 characters


def sentences(table):
    wanted = [f"MiniLM {precision}" for precision in dtypes(table) if ONLY in f"MiniLM {precision}"]
    model, corpus = os.environ.get("MINILM"), pathlib.Path(os.environ.get("SHARED", "../shared")) / "data/corpora/wikitext-2/wiki.test.raw"
    if wanted and not (model and corpus.is_file()):
        table.note(f"not measured: MiniLM: expected its folder in MINILM, and {corpus} (SHARED)")
        table.missed += 1
        return
    with tempfile.TemporaryDirectory() as folder:
        texts = pathlib.Path(folder) / "texts.jsonl"
        found = [part.strip() for line in corpus.read_text(encoding="utf-8").split("\n") for part in line.split(" . ") if 20 <= len(part.strip()) <= 540]
        texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in found[:SENTENCES]))
        for row in wanted:
            embedded(table, row, model, texts)


def embedded(table, row, model, texts):
    """Ours: the whole process less one that embeds a single text; the peer: its `encode`."""
    one = texts.with_name("one.jsonl")
    one.write_text(texts.read_text().split("\n")[0] + "\n")

    def seconds(path):
        start = time.perf_counter()
        fair.run(["llm-infer", "-q", "-m", model, "--embed", "--normalize", "--jsonl", "-j", fair.THREADS, "--precision", row.split()[-1], str(path)])
        return time.perf_counter() - start

    def mine():
        return {row: ((SENTENCES - 1) / (seconds(texts) - seconds(one)), None, None)}

    request = {"model": model, "texts": str(texts), "threads": int(fair.THREADS), "name": row}
    table.compare("texts/s", mine, {"sentence-transformers": lambda policy: fair.peer("peer_sentences.py", request, policy)},
                  {(row, "sentence-transformers"): 2})


# ---- tokenising English text on one core, processor time ----

TOKENIZERS = {"gpt2": "tiktoken/r50k_base.tiktoken", "llama3": "llama3/tokenizer.json"}
CORPORA = ("tinyshakespeare.txt", "wikitext-2/wiki.test.raw", "botchan.txt", "gsm8k/train.jsonl", "gsm8k/test.jsonl", "llama-factory/wiki_demo.txt")


def tokenising(table):
    data = pathlib.Path(os.environ.get("SHARED", "../shared")) / "data"
    if not data.is_dir():
        table.note(f"not measured: tokenising: {data}: expected a folder with corpora and tokenizers; name its parent in SHARED")
        table.missed += 1
        return
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        text.write_bytes(b"".join((data / "corpora" / name).read_bytes() for name in CORPORA))
        for name, vocabulary in TOKENIZERS.items():
            row = f"tokenising {name}"
            if ONLY in row:
                tokenised(table, row, name, str(data / "tokenizers"), vocabulary, str(text))


def tokenised(table, row, name, folder, vocabulary, text):
    size = os.path.getsize(text)
    counts = set()

    def mine():
        command = ["llm-tokenize", "encode", "-q", "-j", "1", "--count", "-T", f"{folder}/{vocabulary}"]
        _, loading = fair.processor([*command, "/dev/null"])
        count, seconds = fair.processor([*command, text])
        counts.add(int(count))
        return {row: (size / 1e6 / (seconds - loading), None, None)}

    def ask(library):
        def run(policy):
            answer = fair.peer("peer_tokenizers.py", {"library": library, "name": name, "folder": folder, "text": text}, policy)
            if {answer["ids"]} != counts:
                raise fair.Failed(f"{answer['ids']} ids, ours {sorted(counts)}")
            return {**answer, "rates": {row: size / 1e6 / answer["seconds"]}}
        return run

    peers = {"tiktoken": ask("tiktoken"), "Hugging Face tokenizers": ask("tokenizers")}
    table.compare("MB/s of text, one core", mine, peers, {(row, peer): 10 for peer in peers}, threads="1")


def main():
    table = fair.Table(sys.stdout)
    for group in sys.argv[1:]:
        {"products": products, "attention": attention, "training": training, "inference": inference, "pictures": pictures,
         "sentences": sentences, "tokenising": tokenising}[group](table)
    return table.missed > 0


sys.exit(main())
