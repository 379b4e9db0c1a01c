#!/usr/bin/env python3
"""QLoRA beside PEFT: SmolLM2-135M-Instruct in Q4_1, on conversations. Each run of the script is one turn, which takes two to four minutes, and prints a
line of TSV for each process as it ends: instruction set, what, tokens a second, tokens a second of processor time, peak MB. Turns are collected in a
file, of which `sum` makes ratios. On a machine that has other work the second rate is the one that counts.

    GGUF=SmolLM2-135M-Instruct.Q4_1.gguf DATA=v1_sft_demo.jsonl [BIN=bin] [STEPS=4] [PEERS=f32,bf16] [POLICIES=default] [LLM_ISA=avx2] \
        python tests/bench/qlora.py >> turns.tsv
    python tests/bench/qlora.py sum turns.tsv

Ours keeps the base quantised; PEFT gets it dequantised, in F32 and in BF16. Both adapt all matrices of the layers with rank 8 in rows of 512 tokens, two a
step, in full rows (the peer sees no borders of conversations, which costs it nothing), with AdamW. The rate is tokens through the model a second, the
median of the steps after the first; memory is the peak of the resident set. The peer is held to AVX2 where LLM_ISA says avx2, to AVX-512 with VNNI where
it says avx512vnni, and runs under each policy for threads that wait (fair.py), of which the best counts.
"""
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import fair

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, CONTEXT, ROWS = int(os.environ.get("STEPS", "4")), 512, 2
ISAS = {"avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
        "avx512vnni": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "ATEN_CPU_CAPABILITY": "avx512", "MKL_ENABLE_INSTRUCTIONS": "AVX512"}}


def peer(dtype):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.manual_seed(1)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    folder, name = os.path.split(os.environ["GGUF"])
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    ids = []
    for line in open(os.environ["DATA"]):
        for m in json.loads(line)["messages"]:
            ids += tokenizer(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n")["input_ids"]
        if len(ids) > (STEPS + 1) * ROWS * CONTEXT:
            break
    rates, begun = [], 0
    for batch in torch.tensor(ids[:STEPS * ROWS * CONTEXT]).view(STEPS, ROWS, CONTEXT):
        start = time.perf_counter()
        begun = begun or (time.process_time() if rates else 0)
        model(input_ids=batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rates.append(ROWS * CONTEXT / (time.perf_counter() - start))
    print(json.dumps([statistics.median(rates[1:]), (STEPS - 1) * ROWS * CONTEXT / (time.process_time() - begun)]))


def run(command, env=None):
    """Standard output, the peak of the resident set in bytes, and the processor time of a process that has ended."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=out, stderr=said, env=env)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), said.seek(0)
        if status != 0:
            sys.exit(f"qlora.py: {command[0]}: {said.read().decode(errors='replace').strip().splitlines()[-1:]}")
        return out.read().decode(), used.ru_maxrss * 1024, used.ru_utime + used.ru_stime


def ours(folder):
    command = [os.environ.get("BIN", str(ROOT / "bin")) + "/llm-train", "-q", "--init", os.environ["GGUF"], "--adapter", "lora", "--rank", "8", "--alpha", "16",
               "--objective", "sft", "-l", str(CONTEXT), "-b", str(ROWS), "--log", "-", "-o", f"{folder}/adapter.llm", os.environ["DATA"]]
    _, _, one = run([*command, "-n", "1"])
    out, memory, all_steps = run([*command, "-n", str(STEPS)])
    rate = statistics.median(json.loads(line)["tokens_per_second"] for line in out.splitlines()[1:])
    return rate, (STEPS - 1) * ROWS * CONTEXT / (all_steps - one), memory


def turn():
    isa = os.environ.get("LLM_ISA", "") or "best"
    put = lambda what, *numbers: print(isa, what, *(f"{x:.1f}" for x in numbers), sep="\t", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        rate, of_cpu, memory = ours(folder)
    put("ours", rate, of_cpu, memory / 1e6)
    for dtype in os.environ.get("PEERS", "f32,bf16").split(","):
        for policy in fair.TRIED:
            out, memory, _ = run([sys.executable, __file__, "peer", dtype], {**fair.environment(policy), **ISAS.get(isa, {})})
            put(f"{dtype}-{policy}", *json.loads(out), memory / 1e6)


def summary(path):
    """Ratios of ours to the better peer of each turn, by each column."""
    turns = collections.defaultdict(list)
    for line in open(path):
        isa, what, *numbers = line.split()
        if what == "ours":
            turns[isa].append({})
        turns[isa][-1][what] = [float(x) for x in numbers]
    print("isa", "turns", "column", "ours", "peer", "ours / peer", sep="\t")
    for isa, of in turns.items():
        of = [t for t in of if len(t) > 1]
        for i, column in enumerate(("tokens/s", "tokens/s of processor time", "peak MB")):
            best = (min if column == "peak MB" else max)
            pairs = [(t["ours"][i], best(v[i] for k, v in t.items() if k != "ours")) for t in of]
            middle = lambda values: f"{statistics.median(values):.4g} ({min(values):.4g}-{max(values):.4g})"
            print(isa, len(pairs), column, middle([a for a, _ in pairs]), middle([b for _, b in pairs]), middle([a / b for a, b in pairs]), sep="\t")


if sys.argv[1:2] == ["peer"]:
    peer(sys.argv[2])
elif sys.argv[1:2] == ["sum"]:
    summary(sys.argv[2])
else:
    turn()
