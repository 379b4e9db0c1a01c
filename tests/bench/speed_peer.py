#!/usr/bin/env python3
"""The table that infer.sh prints: prefill and decoding beside llama.cpp on the same GGUF files, and as shares of what this machine can do.

    speed_peer.py FOLDER [NAME=MODEL.gguf ...]

FOLDER keeps models with random weights (made when absent, 4 GB): TinyLlama's shape (1.1B parameters) in Q8_0, Q4_K and BF16, a 15M Llama in Q8_0, and four
layers of SmolLM2's shape, whose long contexts llama.cpp reads in seconds. Of the further models SmolLM2 and Gemma have rows. llm-bench is taken from PATH. ROUNDS [5]: the two take turns, what counts is the median of paired ratios, and
that of the shares (llm-bench speed: of the arithmetic peak, of a streaming read of the same bytes, in turns). THREADS [the CPUs allowed]. ONLY: rows of
which the name has this in it. DEPTH [8000]. Prints a table; status 1 when a bar is missed or something could not be measured."""
import json
import os
import pathlib
import statistics
import subprocess
import sys

from llama_process import Died, LlamaProcess

THREADS = os.environ.get("THREADS") or str(len(os.sched_getaffinity(0)))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
DEPTH = int(os.environ.get("DEPTH", "8000"))
ONLY = os.environ.get("ONLY", "")
missed = 0
# model, test, ratio to llama.cpp, share of the limit; None: no bar
ROWS = (("1.1B Q8_0", "pp512", 2, None), ("1.1B Q8_0", "tg128", 1.3, .92), ("1.1B Q4_K", "pp512", 2, None), ("1.1B Q4_K", "tg128", 1.3, .92),
        ("1.1B BF16", "pp512", 1.3, None), ("1.1B BF16", "tg128", 1.3, .92), ("SmolLM2", "pp512", 2, None), ("SmolLM2", "tg128", 1.3, .75),
        ("Gemma", "pp512", 2, None), ("Gemma", "tg128", 1.3, None), ("15M Q8_0", "tg128", 2, None))
DEEP = (("4 layers", "f16", 2), ("4 layers", "q8_0", 2))
PEAK = (("1.1B Q8_0", .55), ("1.1B BF16", .75))  # pp512 with AVX-512, where products of tiles do not decide


class Llama(LlamaProcess):
    """Without its AMX products, which crash; a model is loaded when `load` names one."""

    def __init__(self, **load):
        super().__init__(OMP_WAIT_POLICY="passive")
        if load:
            self.ask(do="load", threads=int(THREADS), **load)


def peer_of(path, context, cache="f16"):
    """Its AMX products crash where it has them: then without the repacked weights that they belong to."""
    peer = Llama()
    system = peer.ask(do="load", model=path, context=32, threads=1, repack=False)["system"]
    peer.close()
    return Llama(model=path, context=context, cache=cache, repack="AMX_INT8 = 1" not in system)


def make(path, hidden, layers, heads, kv_heads, inner, vocab, tied):
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize
    rng, width = np.random.default_rng(1), hidden // heads
    w = GGUFWriter(str(path) + ".part", "llama")
    for add, value in ((w.add_context_length, 2048), (w.add_embedding_length, hidden), (w.add_block_count, layers), (w.add_feed_forward_length, inner),
                       (w.add_head_count, heads), (w.add_head_count_kv, kv_heads), (w.add_layer_norm_rms_eps, 1e-5), (w.add_rope_dimension_count, width),
                       (w.add_rope_freq_base, 10000.0), (w.add_vocab_size, vocab), (w.add_file_type, 7)):
        add(value)
    w.add_tokenizer_model("llama")
    w.add_token_list([f"t{i}" for i in range(vocab)])
    w.add_token_scores([0.0] * vocab)
    w.add_token_types([1] * vocab)

    def put(name, rows, cols):
        if rows:
            data = quantize(rng.standard_normal((rows, cols), np.float32) * np.float32(.02), GGMLQuantizationType.Q8_0)
            w.add_tensor(name + ".weight", data, raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            w.add_tensor(name + ".weight", np.ones(cols, np.float32))

    put("token_embd", vocab, hidden)
    for i in range(layers):
        for name, rows, cols in (("attn_norm", 0, hidden), ("ffn_norm", 0, hidden), ("attn_q", hidden, hidden), ("attn_k", kv_heads * width, hidden),
                                 ("attn_v", kv_heads * width, hidden), ("attn_output", hidden, hidden), ("ffn_gate", inner, hidden),
                                 ("ffn_up", inner, hidden), ("ffn_down", hidden, inner)):
            put(f"blk.{i}.{name}", rows, cols)
    put("output_norm", 0, hidden)
    if not tied:
        put("output", vocab, hidden)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.rename(str(path) + ".part", path)


def models_of(folder):
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / (name.replace(" ", "-") + ".gguf") for name in ("1.1B Q8_0", "1.1B Q4_K", "1.1B BF16", "15M Q8_0", "4 layers")}
    if not files["15M Q8_0"].exists():
        make(files["15M Q8_0"], 288, 6, 6, 6, 768, 32000, True)
    if not files["4 layers"].exists():
        make(files["4 layers"], 576, 4, 9, 3, 1536, 8192, True)
    if not files["1.1B Q8_0"].exists():
        make(files["1.1B Q8_0"], 2048, 22, 32, 4, 5632, 32000, False)
    for name, number in (("1.1B Q4_K", 14), ("1.1B BF16", 32)):
        if not files[name].exists():
            peer = Llama()
            peer.ask(do="convert", model=str(files["1.1B Q8_0"]), to=str(files[name]) + ".part", type=number)
            peer.close()
            os.rename(str(files[name]) + ".part", files[name])
    return {name: str(path) for name, path in files.items()}


def ours(path, prompt, generate, depth=0, cache="f16", isa=None):
    """Tokens a second and the share of the limit."""
    run = subprocess.run(["llm-bench", "speed", "--json", "-j", THREADS, "-m", path, "-p", str(prompt), "-n", str(generate), "-d", str(depth), "-r", "1",
                          "--cache-type", cache], check=True, capture_output=True, env={**os.environ, **({"LLM_ISA": isa} if isa else {})})
    found = json.loads(run.stdout.splitlines()[-1])
    return float(found["tokens_per_s"]), float(found["share_of_limit"]), found["limit"]


def row(model, test, mine, theirs, ratio_bar, share_bar):
    """mine: what `ours` found, a round each; theirs: tokens a second, or none."""
    global missed
    bad, words = False, []
    rate, share = (statistics.median(m[i] for m in mine) for i in (0, 1))
    if theirs:
        ratios = sorted(m[0] / t for m, t in zip(mine, theirs))
        ratio = statistics.median(ratios)
        bad = ratio_bar is not None and ratio < ratio_bar
        words = [f"{statistics.median(theirs):.1f}", f"{ratio:.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})" + f" >= {ratio_bar}" * (ratio_bar is not None)]
    else:
        words = ["", ""]
    bad = bad or (share_bar is not None and share < share_bar)
    words.append(f"{share:.3f} of {mine[0][2]}" + f" >= {share_bar}" * (share_bar is not None))
    missed += bad
    print("| " + " | ".join([model, test, f"{rate:.1f}", *words, "MISSED" if bad else "ok"]) + " |", flush=True)


def beside(model, path, test, ratio_bar, share_bar):
    prompt, generate = (512, 0) if test == "pp512" else (0, 128)
    peer = peer_of(path, 1024)
    pairs = [(ours(path, prompt, generate), peer.ask(do="speed", prompt=prompt, generate=generate)["prompt" if prompt else "generate"])
             for _ in range(ROUNDS)]
    peer.close()
    row(model, test, [p[0] for p in pairs], [p[1] for p in pairs], ratio_bar, share_bar)


def deep(model, path, cache, ratio_bar):
    peer = peer_of(path, DEPTH + 64, cache)
    pairs = [(ours(path, 0, 32, DEPTH, cache), peer.ask(do="deep", depth=DEPTH, generate=32)["generate"]) for _ in range(ROUNDS)]
    peer.close()
    row(model, f"tg32 @ {DEPTH}, cache {cache}", [p[0] for p in pairs], [p[1] for p in pairs], ratio_bar, None)


def peak(model, path, share_bar):
    row(model, "pp512, AVX-512", [ours(path, 512, 0, isa="avx512bf16") for _ in range(ROUNDS)], [], None, share_bar)


def attempt(name, what, models, model, *arguments):
    global missed
    if ONLY not in name:
        return
    try:
        what(model, models[model], *arguments)
    except (Died, OSError, KeyError, subprocess.CalledProcessError) as e:
        missed += 1
        said = (getattr(e, "stderr", None) or b"").decode().strip().splitlines()
        print(f"| {name} | | | | not measured: {e!r} {said[-1] if said else ''} | MISSED |", flush=True)


def main():
    models = {**models_of(pathlib.Path(sys.argv[1])), **dict(argument.split("=", 1) for argument in sys.argv[2:])}
    print("| model | test | ours | llama.cpp | ratio | share | |\n|---|---|---|---|---|---|---|", flush=True)
    for model, test, *bars in ROWS:
        attempt(f"{model} {test}", beside, models, model, test, *bars)
    for model, cache, bar in DEEP:
        attempt(f"{model} deep {cache}", deep, models, model, cache, bar)
    if "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text():
        for model, bar in PEAK:
            attempt(f"{model} peak", peak, models, model, bar)
    return missed > 0


sys.exit(main())
