#!/usr/bin/env python3
"""Runs TRL's own trainers (DPOTrainer, KTOTrainer, RewardTrainer, SFTTrainer, GRPOTrainer's loss) on the model of tests/golden/tiny in double precision
for some steps each, and records the loss of every step: tests/golden/trl, which tests/cli/trl.bats compares llm-train with. Data are in the order
of the file; AdamW without weight decay, without clipping, at a constant rate.

Usage: tests/oracle/trl_runs.py  (from the checkout; needs torch, transformers, trl, datasets)"""
import json
import os
import pathlib
import random
import shutil
import tempfile

os.environ.update(WANDB_DISABLED="true", HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1")
import torch
from datasets import Dataset
from torch.utils.data import SequentialSampler
from transformers import LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast
from trl import (DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer, SFTConfig, SFTTrainer)

tiny, out = pathlib.Path("tests/golden/tiny"), pathlib.Path("tests/golden/trl")
STEPS, ROWS, LR = 6, 4, 2e-3
TEMPLATE = ("{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
            "{% else %}{{ m.content }}{{ '\\n' }}{% endif %}{% endfor %}")
shutil.rmtree(out, ignore_errors=True)
out.mkdir(parents=True)
torch.manual_seed(3)
random.seed(3)


PLAIN = ("{% for m in messages %}{% if m.role == 'user' %}{{ '[I] ' + m.content + ' [/I]' }}{% else %}{{ ' ' + m.content + eos_token }}{% endif %}"
         "{% endfor %}")


def tokenizer(template=TEMPLATE):
    tok = PreTrainedTokenizerFast(tokenizer_file=str(tiny / "tokenizer.json"), eos_token="<|endoftext|>")
    tok.pad_token = tok.convert_ids_to_tokens(1)  # no text has it: padding is told from the end of a text
    tok.chat_template = template
    return tok


def policy():
    return LlamaForCausalLM.from_pretrained(tiny, dtype=torch.float64, attn_implementation="eager")


def optimizer(model):
    a = torch.optim.AdamW(model.parameters(), lr=LR, betas=(.9, .999), eps=1e-8, weight_decay=0)
    return a, torch.optim.lr_scheduler.LambdaLR(a, lambda step: 1)


def options(rows=ROWS):
    return dict(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=rows, max_steps=STEPS, report_to=[], use_cpu=True, bf16=False, fp16=False,
                max_grad_norm=0, save_strategy="no", disable_tqdm=True, gradient_checkpointing=False, dataloader_pin_memory=False, logging_steps=1000)


def run(trainer, config, model, data, template=TEMPLATE, **more):
    losses = []

    class Recorded(trainer):
        def _get_train_sampler(self, *a, **k):
            return SequentialSampler(self.train_dataset)

        def compute_loss(self, *a, **k):
            got = super().compute_loss(*a, **k)
            losses.append((got[0] if isinstance(got, tuple) else got).item())
            return got

    Recorded(model=model, args=config, train_dataset=Dataset.from_list(data), processing_class=tokenizer(template), optimizers=optimizer(model),
             **more).train()
    return losses


def sentence(n):
    return " ".join(random.choice("the cat red ball garden she liked once upon a time was in had".split()) for _ in range(n))


def write(name, lines):
    (out / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


pairs = [{"prompt": sentence(3 + i % 4), "chosen": " " + sentence(1 + i % 5), "rejected": " " + sentence(2 + i % 3)} for i in range(8)]
unpaired = [{"prompt": p["prompt"], "completion": p["chosen" if i % 3 else "rejected"], "label": i % 3 > 0} for i, p in enumerate(pairs[:6])]
talks = [{"messages": [{"role": "user", "content": sentence(4)}, {"role": "assistant", "content": sentence(1 + i % 5)}] * (1 + i % 2)} for i in range(8)]
write("pairs.jsonl", pairs)
write("unpaired.jsonl", unpaired)
write("talks.jsonl", talks)
(out / "template.jinja").write_text(TEMPLATE)
losses = {}
for kind in ("sigmoid", "ipo", "hinge", "robust"):
    more = {"label_smoothing": .1} if kind == "robust" else {}
    losses["dpo " + kind] = run(DPOTrainer, DPOConfig(loss_type=[kind], beta=.3, max_length=None, **more, **options()), policy(), pairs, ref_model=policy())
losses["kto"] = run(KTOTrainer, KTOConfig(beta=.3, desirable_weight=1.0, undesirable_weight=1.5, max_length=None, **options(6)), policy(), unpaired,
                    ref_model=policy())
losses["sft"] = run(SFTTrainer, SFTConfig(assistant_only_loss=True, max_length=None, **options()), policy(), talks)
judge = LlamaForSequenceClassification.from_pretrained(tiny, num_labels=1, dtype=torch.float32, attn_implementation="eager")
judge.config.pad_token_id = 1
judge.save_pretrained(out / "judge")
shutil.copy(tiny / "tokenizer.json", out / "judge")
losses["reward"] = run(RewardTrainer, RewardConfig(max_length=None, center_rewards_coefficient=.05, **options()), judge.to(torch.float64), pairs)

# GRPO: rollouts of another policy with their log-probabilities and rewards, learned from in several passes.
old, tok = policy(), tokenizer()
with torch.no_grad():
    for p in old.parameters():
        p.add_(.02 * torch.randn(p.shape, dtype=torch.float64) * p.std())
lines = []
for g in range(2):
    prompt = tok(sentence(4 + g), add_special_tokens=False).input_ids[:5]  # one length: rows of padding alone have no attention in eager mode
    for s in range(4):
        ids = [random.randrange(2, 300) for _ in range(1 + 3 * s)] + [0]
        with torch.no_grad():
            logp = torch.log_softmax(old(torch.tensor([prompt + ids])).logits[0], -1)
        lines.append({"group": g, "groups": 2, "sample": s, "samples": 4, "prompt_ids": prompt, "ids": ids, "finish_reason": "stop", "text": "",
                      "logprobs": [torch.tensor(logp[len(prompt) - 1 + i, t].item(), dtype=torch.float32).item() for i, t in enumerate(ids)],
                      "model": "0", "precision": "f32", "cache_type": "f32", "isa": "none", "policy_step": 0, "sampling": {}, "reward": [0, 1, 3, .5][s] * (1 - 2 * g)})
write("rollouts.jsonl", lines)


def grpo(**more):
    model = policy()
    config = GRPOConfig(num_generations=4, max_completion_length=16, **more, **options(8))
    trainer = GRPOTrainer(model=model, args=config, train_dataset=Dataset.from_list([{"prompt": "a"}]), processing_class=tok, optimizers=optimizer(model),
                          reward_funcs=lambda completions, **_: [0.0] * len(completions))
    trainer.current_gradient_accumulation_steps = 1
    reward = torch.tensor([line["reward"] for line in lines], dtype=torch.float64).view(2, 4)
    scale = reward.std(1, keepdim=True) + 1e-4 if more.get("scale_rewards", "group") == "group" else 1
    advantages = ((reward - reward.mean(1, keepdim=True)) / scale).flatten()
    prompts, replies = max(len(x["prompt_ids"]) for x in lines), max(len(x["ids"]) for x in lines)
    left = lambda x: [1] * (prompts - len(x)) + x
    right = lambda x, fill: x + [fill] * (replies - len(x))
    of = lambda m: torch.tensor([[t for t in m(x)] for x in lines])
    inputs = {"prompt_ids": of(lambda x: left(x["prompt_ids"])), "completion_ids": of(lambda x: right(x["ids"], 1)), "advantages": advantages,
              "prompt_mask": of(lambda x: [0] * (prompts - len(x["prompt_ids"])) + [1] * len(x["prompt_ids"])),
              "completion_mask": of(lambda x: right([1] * len(x["ids"]), 0)), "num_items_in_batch": torch.tensor(sum(len(x["ids"]) for x in lines)),
              "old_per_token_logps": of(lambda x: right([float(v) for v in x["logprobs"]], 0.)).double()}
    whole = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1), torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    reference = policy()
    found = []
    for step in range(STEPS):
        with torch.no_grad():
            if config.beta:
                logits = reference(input_ids=whole[0], attention_mask=whole[1]).logits[:, -replies - 1:-1]
                inputs["ref_per_token_logps"] = torch.log_softmax(logits, -1).gather(2, inputs["completion_ids"][:, :, None])[:, :, 0]
        model.train()
        loss = trainer._compute_loss(model, inputs)
        found.append(loss.item())
        trainer.optimizer = trainer.optimizer or optimizer(model)[0]
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
    return found


losses["grpo"] = grpo(loss_type="grpo", epsilon_high=.28)
losses["grpo kl"] = grpo(loss_type="grpo", beta=.2, scale_rewards="none", use_bias_correction_kl=False)
losses["grpo bnpo"] = grpo(loss_type="bnpo")
losses["grpo sequence"] = grpo(loss_type="grpo", importance_sampling_level="sequence", epsilon=3e-4, epsilon_high=4e-4)

# Prompts with completions, texts and conversations; the turns of the assistant in a prompt are not learned.
completions = [{"prompt": p["prompt"], "completion": p["rejected"]} for p in pairs]
asked = [{"prompt": (t["messages"] if i % 2 else []) + [{"role": "user", "content": p["prompt"]}],
          "completion": [{"role": "assistant", "content": p["chosen"].strip()}]} for i, (p, t) in enumerate(zip(pairs, talks))]
write("completions.jsonl", completions)
write("asked.jsonl", asked)
(out / "plain.jinja").write_text(PLAIN)
losses["sft completions"] = run(SFTTrainer, SFTConfig(max_length=None, **options()), policy(), completions)
losses["sft asked"] = run(SFTTrainer, SFTConfig(max_length=None, **options()), policy(), asked, template=PLAIN)
(out / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")
