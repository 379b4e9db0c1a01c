#!/usr/bin/env python3
"""A small vision transformer with large weights, and what transformers computes of two pictures of tests/golden/image with it in double: the classes'
probabilities and the final hidden states of the class token; and the losses of six steps of AdamW on ten grey pictures, which are the first bytes of
tests/golden/image/make.py.

    python3 tests/oracle/vit.py tests/golden/vit

Needs torch, transformers, Pillow."""
import json
import os
import sys

import torch
from PIL import Image, ImageOps
from transformers import ViTConfig, ViTForImageClassification
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

PICTURES = ["rgb.png", "turned6.jpg"]
folder = sys.argv[1]
torch.manual_seed(3)
config = ViTConfig(hidden_size=36, num_hidden_layers=3, num_attention_heads=3, intermediate_size=50, image_size=22, patch_size=5, layer_norm_eps=1e-6,
                   id2label={i: f"class {i}" for i in range(7)})
model = ViTForImageClassification(config).eval()
with torch.no_grad():
    for p in model.parameters():
        p.copy_(torch.randn_like(p) * (.3 if p.dim() > 1 else .5))
processor = ViTImageProcessorPil(size={"height": 22, "width": 22})
model.save_pretrained(folder)
processor.save_pretrained(folder)
model = model.double()
expected = {}
for name in PICTURES:
    picture = ImageOps.exif_transpose(Image.open(os.path.join(folder, "..", "image", name))).convert("RGB")
    pixels = processor(picture, return_tensors="pt")["pixel_values"].double()
    with torch.no_grad():
        expected[name] = {"probabilities": model(pixels).logits.softmax(-1)[0].tolist(), "vector": model.vit(pixels).last_hidden_state[0, 0].tolist()}
with open(os.path.join(folder, "..", "image", "make.py"), "rb") as f:
    grey = torch.frombuffer(bytearray(f.read(10 * 22 * 22)), dtype=torch.uint8).reshape(10, 22, 22)
pixels = torch.stack([processor(Image.fromarray(g.numpy()).convert("RGB"), return_tensors="pt")["pixel_values"][0] for g in grey]).double()
labels = torch.arange(10) * 3 % 7
steps = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(.9, .95), eps=1e-8, weight_decay=0)
expected["losses"] = []
model.train()
for step in range(6):
    rows = slice(5 * (step % 2), 5 * (step % 2) + 5)
    loss = model(pixel_values=pixels[rows], labels=labels[rows]).loss
    steps.zero_grad()
    loss.backward()
    steps.step()
    expected["losses"].append(loss.item())
with open(os.path.join(folder, "expected.json"), "w") as f:
    json.dump(expected, f)
