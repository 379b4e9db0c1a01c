"""Texts that llm-infer writes under JSON Schemas, judged by PyPI's jsonschema; for tests/slow/constrain.bats:

    python tests/oracle/constrained.py MODEL SCHEMAS

SCHEMAS is JSONSchemaBench's schemas.jsonl. Two texts are sampled under each schema, with a bias towards what ends strings and objects; those that -n
cuts are counted apart. Prints a line for each invalid text and one with counts; exits with 1 if any text is invalid.
"""
import json
import pathlib
import subprocess
import sys
from jsonschema import Draft202012Validator, FormatChecker, validators

model, path = sys.argv[1:]
rows = [json.loads(line) for line in open(path)]
vocabulary = json.loads((pathlib.Path(model) / "tokenizer.json").read_text())["model"]["vocab"]
bias = {str(vocabulary[text]): x for text, x in (('"', 5), ("}", 4), ("]", 3), (",", 1)) if text in vocabulary}
lines = [{"id": i, "prompt": "{", "json_schema": row["schema"], "tokens": 600, "samples": 2, "temp": 1, "top_k": 0, "top_p": 1, "min_p": 0,
          "logit_bias": bias} for i, row in enumerate(rows)]
run = subprocess.run(["llm-infer", "-q", "-m", model, "--jsonl", "--no-timings", "-c", "1000"], input="".join(json.dumps(x) + "\n" for x in lines),
                     capture_output=True, text=True)
counts = {"stop": 0, "length": 0, "refused": 0, "invalid": 0}
for line in run.stdout.rstrip("\n").split("\n"):
    answer = json.loads(line)
    schema = rows[answer["id"]]["schema"]
    if "error" in answer:
        counts["refused"] += 1
        continue
    counts[answer["finish_reason"]] += 1
    if answer["finish_reason"] != "stop":
        continue
    judge = validators.validator_for(schema, default=Draft202012Validator)(schema, format_checker=FormatChecker())
    for error in judge.iter_errors(json.loads(answer["text"])):
        counts["invalid"] += 1
        print(rows[answer["id"]]["name"], error.message[:200])
        break
print(" ".join(f"{name} {n}" for name, n in counts.items()))
sys.exit(counts["invalid"] > 0 or counts["stop"] == 0)
