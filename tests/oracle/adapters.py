#!/usr/bin/env python3
"""Makes tests/golden/adapters by PEFT in double precision, on the model of tests/golden/tiny: `init`, a LoRA adapter of random pairs as PEFT's folder;
`losses.json`, the losses of 20 steps that train it, and the log-probabilities of a prompt with the adapter as it was and as it became; `trained`, the
folder after these steps. The same with magnitudes (DoRA): `dora` and `dora-losses.json`; with ranks and alphas of modules' own: `patterns` and
`patterns-losses.json`.

Usage: tests/oracle/adapters.py  (from the checkout; needs torch, transformers, peft, tokenizers)"""
import json
import pathlib
import shutil

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

STEPS, ROWS, LENGTH, LR = 20, 4, 24, 5e-3
tiny, out = pathlib.Path("tests/golden/tiny"), pathlib.Path("tests/golden/adapters")
shutil.rmtree(out, ignore_errors=True)
out.mkdir(parents=True)
tok = Tokenizer.from_file(str(tiny / "tokenizer.json"))
text = "".join(f"Once upon a time the cat number {i * 37 % 101} had {i * 11 % 29} red balls in the garden.\n" for i in range(60))
(out / "text").write_text(text)
ids = tok.encode(text).ids


def base():
    return LlamaForCausalLM.from_pretrained(tiny, dtype=torch.float64, attn_implementation="eager")


def scores(model):
    prompt = tok.encode("Once upon a time there was a red cat. She liked the garden.").ids
    with torch.no_grad():
        logp = torch.log_softmax(model(torch.tensor([prompt])).logits[0], -1)
    return [logp[i, t].item() for i, t in enumerate(prompt[1:])]


def save(model, name):
    model.to(torch.float32).save_pretrained(out / name)
    (out / name / "README.md").unlink(missing_ok=True)
    config = json.loads((out / name / "adapter_config.json").read_text())
    config["target_modules"] = sorted(config["target_modules"])
    config["base_model_name_or_path"] = str(tiny)
    (out / name / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")


def make(folder, losses, trained_folder, **options):
    """An adapter of random pairs in `folder`, 20 steps from it in the file `losses`, and the adapter after them in `trained_folder`, unless None."""
    torch.manual_seed(7)
    config = LoraConfig(r=4, lora_alpha=6, use_rslora=True, task_type="CAUSAL_LM",
                        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], **options)
    model = get_peft_model(base(), config, autocast_adapter_dtype=False)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.copy_(.05 * torch.randn(p.shape))
            if "lora_magnitude" in name:
                p.mul_(1 + .1 * torch.randn(p.shape))
    save(model, folder)
    model = PeftModel.from_pretrained(base(), out / folder, is_trainable=True, autocast_adapter_dtype=False).to(torch.float64)
    result = {"before": scores(model), "losses": []}
    trained = [p for p in model.parameters() if p.requires_grad]
    vectors = [p for p in trained if p.dim() < 2]  # without weight decay, as llm-train has it
    optim = torch.optim.AdamW([{"params": [p for p in trained if p.dim() > 1]}, {"params": vectors, "weight_decay": 0}], lr=LR, betas=(.9, .95),
                              eps=1e-8, weight_decay=.1)
    for step in range(STEPS):
        starts = [(step * ROWS + i) * LENGTH for i in range(ROWS)]
        x = torch.tensor([ids[s:s + LENGTH] for s in starts])
        y = torch.tensor([ids[s + 1:s + LENGTH + 1] for s in starts])
        loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
        optim.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0, error_if_nonfinite=True)
        optim.step()
        result["losses"].append(loss.item())
    result["after"] = scores(model)
    if trained_folder:
        save(model, trained_folder)
    (out / losses).write_text(json.dumps(result) + "\n")
    print(len(ids), result["losses"][0], result["losses"][-1])


make("init", "losses.json", "trained")
make("dora", "dora-losses.json", None, use_dora=True)
make("patterns", "patterns-losses.json", None, rank_pattern={"q_proj": 6, r"layers\.0\.mlp\..*": 2},
     alpha_pattern={"model.layers.0.self_attn.q_proj": 3, "q_proj": 9, r"layers\.[1-9]\.mlp\.(up|down)_proj": 11})
