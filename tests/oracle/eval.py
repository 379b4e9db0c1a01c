#!/usr/bin/env python3
"""What lm-eval (EleutherAI's lm-evaluation-harness) computes of the items of a task, in FP32, a JSON line an item: {"item": 3, "log_probs": [...],
"greedy": [...], "acc": 1, "acc_norm": 0}. Its own task definitions are used, on local files.

Usage: tests/oracle/eval.py goldens [TASK...]                        (from the checkout: makes tests/golden/eval)
       tests/oracle/eval.py run TASK DATA MODEL [GGUF] [LIMIT] [BATCH] > items.jsonl
       tests/oracle/eval.py precision ITEMS MODEL [GGUF] [LIMIT]   (ITEMS: of llm-bench eval --precision f32 --items, multiple choice)
The last compares the log-probabilities of ITEMS with transformers' of the same tokens, in FP32 and in FP64: greatest and median difference.
TASK: a name of `llm-bench eval --task`. DATA: JSON Lines with the members that the task's data set has. MODEL: a Hugging Face folder; with GGUF, the
name of a file in it. Needs lm_eval, transformers, torch, datasets."""
import json
import pathlib
import random
import sys
import time

TASKS = {  # yaml of lm_eval/tasks
    "hellaswag": "hellaswag/hellaswag.yaml", "piqa": "piqa/piqa.yaml", "arc": "arc/arc_easy.yaml", "winogrande": "winogrande/default.yaml",
    "openbookqa": "openbookqa/openbookqa.yaml", "lambada": "lambada/lambada_openai.yaml", "mmlu": "mmlu/default/_default_template_yaml",
    "truthfulqa-mc1": "truthfulqa/truthfulqa_mc1.yaml", "truthfulqa-mc2": "truthfulqa/truthfulqa_mc2.yaml", "gsm8k": "gsm8k/gsm8k.yaml"}

FEW_SHOT = "hellaswag", "piqa", "arc", "mmlu"  # also with the first three other items as examples


def task_of(name, data, shots=0):
    import lm_eval.tasks
    from lm_eval import utils
    from lm_eval.api.task import ConfigurableTask
    root = pathlib.Path(lm_eval.tasks.__file__).parent
    load = getattr(utils, "load_yaml_config", None)
    if load:
        config = load(str(root / TASKS[name]))
    else:
        from lm_eval.tasks._yaml_loader import load_yaml
        config = load_yaml(str(root / TASKS[name]))
    config.pop("include", None)
    config.update(task=name, dataset_path="json", dataset_name=None, dataset_kwargs={"data_files": {"test": str(data)}}, test_split="test",
                  training_split=None, validation_split=None, fewshot_split="test" if shots else None, num_fewshot=shots)
    if shots:
        config["fewshot_config"] = {"sampler": "first_n", "split": "test"}  # its other sampler draws by Python's generator
    config.pop("tag", None)
    if name == "mmlu":
        config["description"] = "The following are multiple choice questions (with answers) about {{subject|replace('_', ' ')}}.\n\n"
    if name.startswith("truthfulqa"):  # without the questions of others that lm-eval puts first
        config["doc_to_text"] = "Q: {{question}}\nA:"
        if name.endswith("mc2"):
            config["output_type"] = "multiple_choice"
    if name == "gsm8k":
        config["generation_kwargs"]["max_gen_toks"] = 24
    return ConfigurableTask(config=config)


def evaluate(name, data, folder, gguf=None, limit=None, batch=1, shots=0):
    import lm_eval
    import torch
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer
    if gguf:
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf)
    else:
        from transformers import PreTrainedTokenizerFast
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", eos_token="<|endoftext|>")
    lm = HFLM(pretrained=model.eval(), tokenizer=tokenizer, device="cpu", batch_size=batch)
    began, cpu = time.time(), time.process_time()
    out = lm_eval.simple_evaluate(model=lm, tasks=[task_of(name, data, shots)], limit=limit, log_samples=True, bootstrap_iters=0)
    print(f"{time.time() - began:.1f} s, {time.process_time() - cpu:.1f} s of CPU", file=sys.stderr)
    samples = {s["doc_id"]: s for s in out["samples"][name]}  # one of each item: gsm8k has two filters
    for _, s in sorted(samples.items()):
        row = {"item": s["doc_id"]}
        if name == "gsm8k":
            row["completion"] = s["resps"][0][0]
        else:
            pairs = [r[0] for r in s["resps"]] if len(s["resps"]) > 1 or name != "lambada" else [s["resps"][0][0]]
            row["log_probs"] = [float(p[0]) for p in pairs]
            row["greedy"] = [str(p[1]) == "True" for p in pairs]
        row.update({k: float(s[k]) for k in ("acc", "acc_norm", "exact_match") if k in s})
        yield row


def precision(path, folder, gguf=None, limit=None):
    import torch
    from transformers import AutoModelForCausalLM
    items = [item for item in map(json.loads, open(path)) if "choices" in item][:limit]
    choices = [(item["ids"] + c["ids"], c["scored"], c["log_prob"]) for item in items for c in item["choices"]]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **({"gguf_file": gguf} if gguf else {})).eval()
    sums = {"ours": [c[2] for c in choices]}
    for dtype in (torch.float32, torch.float64):
        model, sums[str(dtype)] = model.to(dtype), []
        for ids, scored, _ in choices:
            with torch.no_grad():
                p = torch.log_softmax(model(torch.tensor([ids[:-1]])).logits[0], -1)
            sums[str(dtype)].append(p[range(len(ids) - 1), ids[1:]][-scored:].sum().item())
    names = list(sums)
    for i, a in enumerate(names):
        for b in names[i + 1:]:
            d = sorted(abs(x - y) for x, y in zip(sums[a], sums[b]))
            print(f"{a}\t{b}\tmax {d[-1]:.3g}\tmedian {d[len(d) // 2]:.3g}\tabove 1e-4: {sum(x > 1e-4 for x in d)} of {len(d)}")


# ---- items of each layout, made of the words that the tiny model's tokenizer was trained on ----

def sentence(r, n):
    words = "once upon a time there was little cat had red ball she liked to play with the in garden one day gone where is my said".split()
    return " ".join(r.choice(words) for _ in range(n))


def make(name, i):
    r = random.Random(f"{name} {i}")
    s = lambda low=2, high=7: sentence(r, r.randint(low, high))
    if name == "hellaswag":
        return {"ind": i, "activity_label": s(1, 2), "ctx_a": s().capitalize() + ".", "ctx_b": s(1, 3), "label": str(r.randint(0, 3)),
                "endings": [s() + r.choice([".", " [title] done", " [step] x  y."]) for _ in range(4)]}
    if name == "piqa":
        return {"goal": s(), "sol1": s() + r.choice(["", " "]), "sol2": s() + " caf\u00e9", "label": r.randint(0, 1)}
    if name == "arc":
        n = r.randint(3, 5)
        labels = list("ABCDE" if r.random() < .5 else "12345")[:n]
        return {"id": f"q{i}", "question": s() + "?", "choices": {"text": [s() for _ in range(n)], "label": labels}, "answerKey": r.choice(labels)}
    if name == "winogrande":
        return {"sentence": f"{s().capitalize()} _ {s()}.", "option1": s(1, 2), "option2": s(1, 2), "answer": r.choice("12")}
    if name == "openbookqa":
        choices = {"text": [s() for _ in range(4)], "label": list("ABCD")}
        return {"id": f"o{i}", "question_stem": s(), "choices": choices, "answerKey": r.choice("ABCD")}
    if name == "lambada":
        return {"text": s(5, 12)}
    if name == "mmlu":
        return {"question": s() + "?", "subject": "cat_care", "choices": [s(1, 3) for _ in range(4)], "answer": r.randint(0, 3)}
    if name == "gsm8k":
        return {"question": s() + "?", "answer": f"{s()} #### {r.randint(1, 99)}"}
    n = r.randint(3, 6)
    labels = [1] + [0] * (n - 1) if name.endswith("mc1") else [r.randint(0, 1) for _ in range(n - 1)] + [1]
    return {"question": s() + "?", name.replace("truthfulqa-", "") + "_targets": {"choices": [s() + "." for _ in range(n)], "labels": labels}}


def goldens():
    out = pathlib.Path("tests/golden/eval")
    out.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or TASKS:
        n = 4 if name == "gsm8k" else 24
        path = out / f"{name}.jsonl"
        path.write_text("".join(json.dumps(make(name, i)) + "\n" for i in range(n)))
        rows = list(evaluate(name, path.absolute(), "tests/golden/tiny"))
        (out / f"{name}.expected.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        if name in FEW_SHOT:
            rows = list(evaluate(name, path.absolute(), "tests/golden/tiny", shots=3))
            (out / f"{name}.shots3.expected.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(name, len(rows), file=sys.stderr)


if sys.argv[1] == "goldens":
    goldens()
elif sys.argv[1] == "precision":
    precision(*sys.argv[2:4], *(x if x != "-" else None for x in sys.argv[4:5]), *map(int, sys.argv[5:6]))
else:
    name, data, folder = sys.argv[2:5]
    gguf = sys.argv[5] if len(sys.argv) > 5 and sys.argv[5] != "-" else None
    limit = int(sys.argv[6]) if len(sys.argv) > 6 else None
    batch = int(sys.argv[7]) if len(sys.argv) > 7 else 1
    for row in evaluate(name, pathlib.Path(data).absolute(), folder, gguf, limit, batch):
        print(json.dumps(row))
