#!/usr/bin/env python3
"""Makes tests/golden/experts by PEFT: `model`, a small Mixtral; `lora`, pairs of its experts' matrices as transformers 5 has them, one tensor for the
experts of a layer (target_parameters), beside those of q_proj; `down`, pairs of the experts' down projections alone, of another rank, with rsLoRA;
`scores.json`, the log-probabilities of some tokens with each of them and without.

Usage: tests/oracle/adapter_experts.py  (from the checkout; needs torch, transformers 5, peft)"""
import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from transformers import MixtralConfig, MixtralForCausalLM

out = pathlib.Path("tests/golden/experts")
ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]
shutil.rmtree(out, ignore_errors=True)
torch.manual_seed(3)
config = MixtralConfig(vocab_size=32, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                       num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=64, initializer_range=.3)
MixtralForCausalLM(config).save_pretrained(out / "model")
(out / "model/generation_config.json").unlink()


def base():
    return MixtralForCausalLM.from_pretrained(out / "model", dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()


def scores(model):
    with torch.no_grad():
        logp = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
    return [logp[i, t].item() for i, t in enumerate(ids[1:])]


result = {"ids": ids, "model": scores(base())}
for name, options in {"lora": {"r": 4, "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], "target_modules": ["q_proj"]},
                      "down": {"r": 2, "target_parameters": ["mlp.experts.down_proj"], "target_modules": [], "use_rslora": True}}.items():
    model = get_peft_model(base(), LoraConfig(lora_alpha=8, task_type="CAUSAL_LM", **options), autocast_adapter_dtype=False).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_" in key:
                p.copy_((.3 * torch.randn(p.shape)).float())
    result[name] = scores(model)
    model.save_pretrained(out / name)
    (out / name / "README.md").unlink(missing_ok=True)
    path = out / name / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": None}, indent=1) + "\n")
(out / "scores.json").write_text(json.dumps(result) + "\n")
print({key: sum(v) for key, v in result.items()})
