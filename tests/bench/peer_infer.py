#!/usr/bin/env python3
"""The comparison that peer-infer.sh runs: llm-infer against llama.cpp and against transformers, on two real models.

    peer_infer.py NAME=MODEL.gguf ...

Programs are taken from PATH. TEXT: for perplexity and KL. THREADS, ROUNDS, PPL_TOKENS (0: all of TEXT), ONLY (names of parts) narrow it down.
Prints a table; status 1 when a bar is missed or something could not be measured."""
import io
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import xxhash

from llama_process import Died, LlamaProcess

HERE = pathlib.Path(__file__).parent
TEXT = os.environ.get("TEXT", "")
THREADS = os.environ.get("THREADS") or str(len(os.sched_getaffinity(0)))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
PPL_TOKENS = int(os.environ.get("PPL_TOKENS", "0"))
PARTS = ("ids", "kl", "greedy", "perplexity", "start", "memory")
ONLY = (os.environ.get("ONLY") or " ".join(PARTS)).split()
POSITIONS, WINDOW, PPL_WINDOW = 2000, 1000, 512
PROMPTS = ("The capital of France is", "Once upon a time, in a small village by the sea,", "Water boils at a temperature of",
           "The three primary colours are", "def fibonacci(n):\n    ", "In 1969, the first human", "The quick brown fox",
           "Dear Sir or Madam,\n\nI am writing to", "Q: What is the largest planet of the solar system?\nA:", "My favourite recipe for bread needs",
           "Photosynthesis is the process by which", "1, 1, 2, 3, 5, 8, 13,", "The history of the Roman Empire begins", "To be, or not to be,",
           "A list of fruits:\n- apple\n- ", "She opened the door slowly and saw", "import numpy as np\n\n", "Die Hauptstadt von Deutschland ist",
           "The stock market is", "#include <stdio.h>\n\nint main(void)\n{")
table, missed = [], 0


def row(what, model, ours, peer, bar, good):
    global missed
    missed += good is not True
    line = (what, model, ours, peer, bar, "ok" if good else "not measured" if good is None else "MISSED")
    table.append(line)
    print("| " + " | ".join(line) + " |", flush=True)


class Llama(LlamaProcess):
    def __init__(self, path, context):
        super().__init__()
        self.vocab = None
        loaded = self.ask(do="load", model=path, context=context, threads=int(THREADS))
        self.vocab, self.system = loaded["vocab"], loaded["system"]

    def logits(self, ids):
        for _ in range(self.ask(do="logits", ids=ids)["rows"]):
            data = self.process.stdout.read(self.vocab * 4)
            if len(data) < self.vocab * 4:
                raise Died(f"llama.cpp ended with status {self.process.wait()}")
            yield np.frombuffer(data, np.float32)


def messages(stream):
    """Tensor messages (formats/tensors.md): dictionaries of arrays."""
    kinds = {"F32": np.float32, "I32": np.int32, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64, "U8": np.uint8}
    while head := stream.read(8):
        header = json.loads(stream.read(int.from_bytes(head, "little")))
        meta = header.pop("__metadata__", {})
        ends = [t["data_offsets"][1] for t in header.values()]
        data = stream.read(max(ends, default=0))
        yield meta, {name: np.frombuffer(data[t["data_offsets"][0] : t["data_offsets"][1]], kinds[t["dtype"]]).reshape(t["shape"])
                     for name, t in header.items()}


def message(meta, tensors):
    header, at, parts = {"__metadata__": meta}, 0, []
    kinds = {"uint16": "U16", "uint32": "U32", "uint64": "U64"}
    for name, data in sorted(tensors.items(), key=lambda t: (-t[1].dtype.itemsize, t[0])):
        header[name] = {"dtype": kinds[str(data.dtype)], "shape": list(data.shape), "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
        parts.append(data.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def run(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, **more).stdout


def our_logits(path, ids, *options):
    with tempfile.NamedTemporaryFile("w") as f:
        f.write(" ".join(map(str, ids)))
        f.flush()
        with subprocess.Popen(["llm-infer", "-m", path, "-j", THREADS, "--ids", "--logits", "-f", f.name, *options],
                              stdout=subprocess.PIPE) as process:
            for _, tensors in messages(process.stdout):
                yield from tensors.get("logits", ())
    if process.returncode:
        raise Died(f"llm-infer ended with status {process.returncode}")


def encode(path, text):
    """Ids by llm-tokenize, with the token that begins a text where the model wants it; what names the tokenizer."""
    ids, meta = [], {}
    for m, tensors in messages(io.BytesIO(run("llm-tokenize", "encode", "-q", "-T", path, "-o", "-", "-", input=text.encode()))):
        if m.get("llm.kind") == "tokens":
            meta = m
            ids += tensors["ids"].tolist()
    return ids, meta


def windows(ids, n, begin):
    """Stretches of n tokens, each beginning with `begin` (where there is one)."""
    step = n - len(begin)
    return [begin + ids[at : at + step] for at in range(0, len(ids), step)]


class Model:
    def __init__(self, name, path):
        self.name, self.path, self.text = name, path, pathlib.Path(TEXT).read_text()
        peer = Llama(path, 32)
        with_begin = peer.ask(do="encode", text="a")["ids"]
        peer.close()
        self.ids, self.meta = encode(path, self.text)
        plain, _ = encode(path, "a")
        self.begin = with_begin[: len(with_begin) - len(plain)] if with_begin[len(with_begin) - len(plain) :] == plain else []


def part_ids(m):
    peer = Llama(m.path, 32)
    theirs = peer.ask(do="encode", text=m.text)["ids"][len(m.begin) :]
    peer.close()
    same = theirs == m.ids
    row("ids of the text", m.name, f"{len(m.ids)}", f"{len(theirs)}", "the same ids", same)


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max()
    return x - np.log(np.exp(x).sum())


def part_kl(m):
    from peer_reference import Reference
    reference, peer = Reference(m.path), Llama(m.path, 1024)
    kl, same, worst, done, lowest, highest = {"ours": [], "peer": []}, {"ours": 0, "peer": 0}, 0.0, 0, np.inf, -np.inf
    for ids in windows(m.ids[: 2 * POSITIONS], WINDOW, m.begin)[: POSITIONS // WINDOW]:
        hidden = reference.hidden(ids)
        sources = zip(our_logits(m.path, ids), our_logits(m.path, ids, "--precision", "f32"), peer.logits(ids))
        for at, (ours, exact, theirs) in enumerate(sources):
            if at % 64 == 0:
                rows = reference.logits(hidden[at : at + 64])
            want = rows[at % 64]
            p = log_softmax(want)
            weight = np.exp(p)
            for name, got in (("ours", ours), ("peer", theirs)):
                kl[name].append(float((weight * (p - log_softmax(got))).sum()))
                same[name] += got.argmax() == want.argmax()
            worst = max(worst, float(np.abs(exact - want).max()))
            lowest, highest = min(lowest, want.min()), max(highest, want.max())
            done += 1
    peer.close()
    if done != POSITIONS:
        raise Died(f"{done} positions instead of {POSITIONS}")
    ours, theirs = np.mean(kl["ours"]), np.mean(kl["peer"])
    row(f"KL from FP32, {done} positions, nats", m.name, f"{ours:.3e}", f"{theirs:.3e}", f"{ours / theirs:.3f} <= 1.05", bool(ours <= 1.05 * theirs))
    print(f"  its median {np.median(kl['ours']):.3e}, {np.median(kl['peer']):.3e}; 99 % below {np.quantile(kl['ours'], .99):.3e}, "
          f"{np.quantile(kl['peer'], .99):.3e}; same best token {same['ours'] / done:.4f}, {same['peer'] / done:.4f}", file=sys.stderr)
    spread = float(highest - lowest)
    row("--precision f32: worst logit / range", m.name, f"{worst:.2e} of {spread:.0f}", "", f"{worst / spread:.1e} <= 1e-3", worst <= 1e-3 * spread)


def part_greedy(m):
    prompts = [m.begin + encode(m.path, text)[0] for text in PROMPTS]
    lines = "".join(json.dumps({"ids": ids}) + "\n" for ids in prompts)
    out = run("llm-infer", "-m", m.path, "-j", THREADS, "--jsonl", "--ids", "--temp", "0", "-n", "64", "--precision", "f32", input=lines.encode())
    runs = [{"prompt": ids, "ids": o["ids"], "ended": o["finish_reason"] == "stop"} for ids, o in zip(prompts, map(json.loads, out.splitlines()))]
    found = json.loads(run(sys.executable, str(HERE / "peer_reference.py"), input=json.dumps({"model": m.path, "runs": runs}).encode()))
    wrong = found["wrong"]
    row("greedy, 64 tokens, 20 prompts, FP64", m.name, f"{found['positions']} tokens, {len(wrong)} others", "",
        f"0 others but at {found['ties']} ties", not wrong and len(runs) == len(PROMPTS))


def part_perplexity(m):
    ids = m.ids[: PPL_TOKENS or None]
    documents = [d for d in windows(ids, PPL_WINDOW, m.begin) if len(d) > 1]
    kind = np.uint16 if max(m.ids) < 65536 else np.uint32
    flat, ends = np.concatenate([np.array(d) for d in documents]), np.cumsum([len(d) for d in documents])
    body = message(m.meta, {"ids": flat.astype(kind), "doc_ends": ends.astype(np.uint64)})
    with tempfile.NamedTemporaryFile(suffix=".tok") as f:
        f.write(body + message({"llm.kind": "end", "llm.count": "1", "llm.xxh64": xxhash.xxh64(body).hexdigest()}, {}))
        f.flush()
        command = ("llm-bench", "quality", "--json", "-j", THREADS, "-m", m.path, "-c", str(PPL_WINDOW), f.name)
        ours, exact = (json.loads(run(*command, "--precision", precision)) for precision in ("bf16", "f32"))
    peer = Llama(m.path, PPL_WINDOW)
    nats = sum(peer.ask(do="score", documents=[d])["nats"][0] for d in documents)
    peer.close()
    scored = sum(len(d) - 1 for d in documents)
    theirs = float(np.exp(nats / scored))
    ratio = ours["perplexity"] / theirs
    row(f"perplexity, windows of {PPL_WINDOW}, {scored} tokens", m.name, f"{ours['perplexity']:.4f}", f"{theirs:.4f}",
        f"{100 * (ratio - 1):+.3f} % within 0.3 %", abs(ratio - 1) <= .003 and ours["tokens"] == scored)
    row("from that of --precision f32", m.name, *(f"{100 * (x / exact['perplexity'] - 1):+.3f} %" for x in (ours["perplexity"], theirs)),
        f"none ({exact['perplexity']:.4f})", True)


def our_speed(path, prompt, generate):
    out = run("llm-bench", "speed", "--json", "-j", THREADS, "-m", path, "-p", str(prompt), "-n", str(generate), "-r", "1")
    return [float(json.loads(line)["tokens_per_s"]) for line in out.splitlines()]


def part_start(m):
    """From the start of the process to the first byte of text, less what reading the same prompt takes in a process that has done it before; and the
    processor's time, which others on the machine disturb less."""
    prompt, times = "The capital of France is a city that many people have heard of, and", []
    n, before = len(encode(m.path, prompt)[0]), resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(max(ROUNDS, 5) + 1):
        start = time.perf_counter()
        with subprocess.Popen(["llm-infer", "-m", m.path, "-j", THREADS, "--temp", "0", "-n", "1", prompt], stdout=subprocess.PIPE) as process:
            process.stdout.read(1)
            times.append(time.perf_counter() - start)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / len(times)
    first, prefill = statistics.median(times[1:]), n / our_speed(m.path, n, 0)[0]
    over = 1e3 * (first - prefill)
    small = "135M" in m.path
    row(f"first token of {n}, ms", m.name, f"{1e3 * first:.0f} (CPU {busy:.0f})", "", f"{over:.0f} + prefill of {1e3 * prefill:.0f}" + small * "; 30 + prefill",
        over <= 30 or not small)


def part_memory(m):
    size, tokens, peak = os.path.getsize(m.path), 64, 0
    plan = dict(line.split("\t") for line in run("llm-infer", "-m", m.path, "--plan").decode().splitlines())
    with subprocess.Popen(["llm-infer", "-m", m.path, "-j", THREADS, "--jsonl", "--temp", "0", "--ignore-eos", "-n", str(tokens)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        prompt = m.text[:2000]
        process.stdin.write(json.dumps({"prompt": prompt}).encode() + b"\n")
        process.stdin.flush()
        done = json.loads(process.stdout.readline())
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        peak = 1024 * int(status.split("VmHWM:")[1].split()[0])
        process.stdin.close()
    peer = Llama(m.path, 1024)
    theirs = peer.ask(do="memory", ids=m.begin + encode(m.path, prompt)[0], generate=tokens)["bytes"]
    peer.close()
    cache = (done["prompt_tokens"] + tokens + 63) // 64 * 64 * float(plan["cache_bytes_per_token"])
    row("resident memory, MB", m.name, f"{peak / 1e6:.0f}", f"{theirs / 1e6:.0f}", f"{(peak - cache) / size:.2f} <= 1.05 of file {size / 1e6:.0f}, cache {cache / 1e6:.0f}",
        peak <= 1.05 * size + cache)


def attempt(part, model, *arguments):
    try:
        globals()[part](*arguments)
    except (Died, OSError, subprocess.CalledProcessError) as e:
        said = (getattr(e, "stderr", None) or b"").decode().strip().splitlines()
        row(part.replace("part_", ""), model, "", "", f"{e} {said[-1] if said else ''}", None)


def main():
    models = [argument.split("=", 1) for argument in sys.argv[1:]]
    print("| what | model | ours | llama.cpp | bar | |\n|---|---|---|---|---|---|", flush=True)
    for name, path in models:
        wanted = [part for part in PARTS if part in ONLY]
        m = Model(name, path) if wanted else None
        for part in wanted:
            attempt("part_" + part, name, m)
    return missed > 0


sys.exit(main())
