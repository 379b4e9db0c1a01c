#!/usr/bin/env python3
"""Tiny classifiers as transformers keeps them, for tests/cli/classify.bats: tests/golden/classify.

    python tests/oracle/classifiers.py tests/golden/classify

A BERT with pairs of texts and a Llama; weights are random and strong. Each folder's expected.json holds ids (and kinds of segments), the labels and the
probabilities that transformers computes in double precision; of one batch the loss, and the norm of each tensor's gradient with eight projections.
"""
import json
import os
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

out = sys.argv[1]
torch.manual_seed(3)


def strong(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            norm = "orm" in name and "weight" in name
            p.copy_((torch.randn(p.shape, dtype=torch.float64) * (.3 if p.dim() == 1 else 2 / p.shape[-1] ** .5) + norm).float().double())


def texts(n, vocab):
    g = torch.Generator().manual_seed(5)
    return [torch.randint(3, vocab, (5 + 4 * i,), generator=g).tolist() for i in range(n)]


def write(folder, model, batch, kinds):
    labels = [model.config.id2label[i] for i in range(model.config.num_labels)]
    expected = {"labels": labels, "texts": []}
    for i, ids in enumerate(batch):
        extra = {"token_type_ids": torch.tensor([kinds[i]])} if kinds else {}
        with torch.no_grad():
            p = model(torch.tensor([ids]), **extra).logits[0].softmax(-1)
        expected["texts"].append({"ids": ids, "label": labels[int(p.argmax())], "probabilities": dict(zip(labels, p.tolist()))}
                                 | ({"second": kinds[i].index(1)} if kinds and 1 in kinds[i] else {}))
    os.makedirs(folder, exist_ok=True)
    model.float().save_pretrained(folder)
    with open(os.path.join(folder, "expected.json"), "w") as f:
        f.write(json.dumps(expected) + "\n")


names = {0: "no", 1: "perhaps", 2: "yes"}
common = dict(id2label=names, label2id={v: k for k, v in names.items()})
bert = BertForSequenceClassification(BertConfig(vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                                                max_position_embeddings=32, type_vocab_size=2, **common)).double().eval()
strong(bert)
batch = texts(5, 60)
write(os.path.join(out, "bert"), bert, batch, [[0] * len(b) if i < 3 else [0] * (len(b) // 3) + [1] * (len(b) - len(b) // 3) for i, b in enumerate(batch)])
llama = LlamaForSequenceClassification(LlamaConfig(vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                                   intermediate_size=40, max_position_embeddings=64, pad_token_id=0, num_labels=2)).double().eval()
strong(llama)
write(os.path.join(out, "llama"), llama, texts(5, 60), None)
