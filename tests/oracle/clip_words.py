#!/usr/bin/env python3
"""A small CLIP as transformers saves it, with a tokenizer of CLIP's kind (words end in "</w>") and its preprocessor, and what transformers computes
with it in double: the ids and vectors of texts, and how a picture of tests/golden/image compares with labels.

    python3 tests/oracle/clip_words.py tests/golden/clip-words CORPUS

CORPUS: an English text to learn the merges from. Needs torch, transformers, Pillow."""
import json
import os
import sys

import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

TEXTS = ["a photo of a cat", "A  Photo\n of the DOG's 42 tails!!", "naïve café e\u0301te\u0301 — 中文 🙂👩‍🚀", "", "   \t", "don't WE'LL 's '''s",
         "supercalifragilistic " * 2, "x" * 70, "<|endoftext|> and <|STARTOFTEXT|>", "\x00\x07\u00a0\u200b\ufeff", "İstanbul ΌΔΟΣ Straße"]
LABELS = ["cat", "small dog", "the sea's colours"]
folder, corpus = sys.argv[1:]

trained = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
trained.train([corpus], trainers.BpeTrainer(vocab_size=600, end_of_word_suffix="</w>", initial_alphabet=alphabet, show_progress=False))
merges = [tuple(m) for m in json.loads(trained.to_str())["model"]["merges"]]
texts = alphabet + [c + "</w>" for c in alphabet] + ["".join(m) for m in merges] + ["<|startoftext|>", "<|endoftext|>"]
vocab = {text: i for i, text in enumerate(dict.fromkeys(texts))}
tokenizer = CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=77)

torch.manual_seed(6)
config = CLIPConfig(
    text_config=dict(vocab_size=len(vocab), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                     max_position_embeddings=77, bos_token_id=len(vocab) - 2, eos_token_id=len(vocab) - 1),
    vision_config=dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=20, patch_size=5),
    projection_dim=12)
model = CLIPModel(config).eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_(torch.randn_like(p) * (.3 if p.dim() > 1 else .5))
model.logit_scale.data.fill_(2.5)
processor = CLIPImageProcessorPil(size={"shortest_edge": 20}, crop_size={"height": 20, "width": 20})
for part in [model, tokenizer, processor]:
    part.save_pretrained(folder)
model = model.double()

with torch.no_grad():
    ids = [tokenizer(t).input_ids for t in TEXTS]
    vectors = [model.text_projection(model.text_model(input_ids=torch.tensor([i])).pooler_output)[0].tolist() for i in ids]
    pixels = processor(Image.open(os.path.join(folder, "../image/rgb.png")).convert("RGB"), return_tensors="pt")["pixel_values"].double()
    asked = tokenizer([f"a photo of a {label}" for label in LABELS], padding=True, return_tensors="pt")
    logits = model(**asked, pixel_values=pixels).logits_per_image[0]
with open(os.path.join(folder, "expected.json"), "w") as f:
    json.dump({"texts": TEXTS, "ids": ids, "vectors": vectors, "decoded": [tokenizer.decode(i) for i in ids], "labels": LABELS,
               "probabilities": logits.softmax(0).tolist()}, f)
