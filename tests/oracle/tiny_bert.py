#!/usr/bin/env python3
"""A tiny encoder as sentence-transformers keeps it, for tests/cli/encoders.bats: tests/golden/tiny-bert.

    python tests/oracle/tiny_bert.py tests/golden/tiny-bert

Weights are random and strong; expected.json holds texts, their ids by `tokenizers` and the vectors that transformers makes of them in double precision.
"""
import json
import os
import sys

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

TEXTS = ["the red cat liked the garden", "A Cat! a garden?", "x", "reddish cats", "she liked the red, red garden and the cat"]
WORDS = "the red cat liked garden a she and".split()

out = sys.argv[1]
os.makedirs(os.path.join(out, "1_Pooling"), exist_ok=True)
vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, ",", "!", "?", *"abcdefghijklmnopqrstuvwxyz", *("##" + c for c in "abcdefghijklmnopqrstuvwxyz"),
         "##ish", "##s"]
vocab = {t: i for i, t in enumerate(dict.fromkeys(vocab))}
tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.decoder = decoders.WordPiece()
tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                         special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])])
tokenizer.enable_truncation(6)  # as such folders have it: for callers that want it
tokenizer.enable_padding(length=16)
tokenizer.save(os.path.join(out, "tokenizer.json"))
tokenizer.no_truncation()
tokenizer.no_padding()

torch.manual_seed(11)
config = BertConfig(vocab_size=len(vocab), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, max_position_embeddings=32)
model = BertModel(config).double().eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_((torch.randn(p.shape, dtype=torch.float64) * (.3 if p.dim() == 1 else 2 / p.shape[-1] ** .5) + ("LayerNorm.weight" in name)).float().double())
    texts = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        hidden = model(torch.tensor([ids])).last_hidden_state[0]
        v = hidden.mean(0)
        texts.append({"prompt": text, "ids": ids, "mean": (v / v.norm()).tolist(), "cls": hidden[0].tolist(), "last": hidden[-1].tolist()})
model.float().save_pretrained(out)


def write(name, value):
    with open(os.path.join(out, name), "w") as f:
        f.write(json.dumps(value) + "\n")


kinds = ["Transformer", "Pooling", "Normalize"]
write("modules.json", [{"idx": i, "name": str(i), "path": ["", "1_Pooling", "2_Normalize"][i], "type": "sentence_transformers.models." + k}
                       for i, k in enumerate(kinds)])
write("1_Pooling/config.json", {"word_embedding_dimension": 24, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
                                "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False})
write("expected.json", texts)
