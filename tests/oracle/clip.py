#!/usr/bin/env python3
"""A small CLIP with large weights, and what transformers computes with it in double: the vectors of texts and of pictures of tests/golden/image, and
how the logits compare them, with the end token as configurations name it today and as those from before transformers 4.31 do.

    python3 tests/oracle/clip.py tests/golden/clip

Needs torch, transformers, Pillow."""
import json
import os
import sys

import torch
from PIL import Image, ImageOps
from transformers import CLIPConfig, CLIPModel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

PICTURES = ["rgb.png", "turned6.jpg"]
BOS, EOS = 59, 60
TEXTS = [[BOS, 5, 17, 33, 2, EOS], [BOS, 8, EOS, EOS, EOS], [BOS, EOS], [BOS, 41, 12, 12, 50, 7, 3, 28, 19, 22, 14, EOS]]
folder = sys.argv[1]
torch.manual_seed(5)
config = CLIPConfig(
    text_config=dict(vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=2, max_position_embeddings=12,
                     bos_token_id=BOS, eos_token_id=EOS, layer_norm_eps=1e-6),
    vision_config=dict(hidden_size=36, intermediate_size=50, num_hidden_layers=2, num_attention_heads=3, image_size=22, patch_size=5,
                       hidden_act="gelu", layer_norm_eps=1e-4),
    projection_dim=20)
model = CLIPModel(config).eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_(torch.randn_like(p) * (.3 if p.dim() > 1 else .5))
processor = CLIPImageProcessorPil(size={"shortest_edge": 22}, crop_size={"height": 22, "width": 22})
model.logit_scale.data.fill_(3.3)  # below ln 100, at which programs that train clamp it
model.save_pretrained(folder)
processor.save_pretrained(folder)
model = model.double()


def pixels(name):
    picture = ImageOps.exif_transpose(Image.open(os.path.join(folder, "..", "image", name))).convert("RGB")
    return processor(picture, return_tensors="pt")["pixel_values"].double()


def text_vectors():
    with torch.no_grad():
        return [model.text_projection(model.text_model(input_ids=torch.tensor([t])).pooler_output)[0] for t in TEXTS]


with torch.no_grad():
    pictures = [model.visual_projection(model.vision_model(pixel_values=pixels(name)).pooler_output)[0] for name in PICTURES]
    texts = text_vectors()
    longest = max(map(len, TEXTS))
    ids = torch.tensor([t + [EOS] * (longest - len(t)) for t in TEXTS])
    logits = model(input_ids=ids, pixel_values=torch.cat([pixels(name) for name in PICTURES])).logits_per_image
    model.text_model.eos_token_id = 2
    legacy = text_vectors()
expected = {"ids": TEXTS, "texts": [t.tolist() for t in texts], "legacy": [t.tolist() for t in legacy],
            "pictures": {n: v.tolist() for n, v in zip(PICTURES, pictures)}, "logits": {n: row.tolist() for n, row in zip(PICTURES, logits)}}
with open(os.path.join(folder, "expected.json"), "w") as f:
    json.dump(expected, f)
