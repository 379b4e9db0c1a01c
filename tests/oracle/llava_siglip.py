#!/usr/bin/env python3
"""A small LLaVA with SigLIP's vision tower and Qwen 2 (as llava-interleave), with large weights, and the logits that transformers computes with it in
double for texts with pictures of tests/golden/image; also without the first patch and with an earlier layer.

    python3 tests/oracle/llava_siglip.py tests/golden/llava_siglip

Needs torch, transformers, Pillow."""
import json
import os
import sys

import torch
from PIL import Image, ImageOps
from transformers import LlavaConfig, LlavaForConditionalGeneration, Qwen2Config, SiglipVisionConfig
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

IMAGE = 41
TEXTS = [([1, IMAGE, 5, 17, 33, 2], ["rgb.png"]), ([1, 8, IMAGE, 9, IMAGE, 30, 4], ["turned6.jpg", "rgb.png"])]
VARIANTS = {"full": {}, "default": {"vision_feature_layer": -2, "vision_feature_select_strategy": "default"}}
folder = sys.argv[1]
torch.manual_seed(39)
config = LlavaConfig(
    vision_config=SiglipVisionConfig(hidden_size=36, intermediate_size=50, num_hidden_layers=3, num_attention_heads=3, image_size=22, patch_size=5),
    text_config=Qwen2Config(vocab_size=43, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                            max_position_embeddings=128, bos_token_id=None, eos_token_id=2, pad_token_id=None),
    image_token_index=IMAGE, image_seq_length=16, vision_feature_layer=-1, vision_feature_select_strategy="full")
model = LlavaForConditionalGeneration(config).eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_(torch.randn_like(p) * (.3 if p.dim() > 1 else .5))
processor = SiglipImageProcessorPil(size={"height": 22, "width": 22})
model.save_pretrained(folder)
processor.save_pretrained(folder)
model = model.double()


def pixels(name):
    picture = ImageOps.exif_transpose(Image.open(os.path.join(folder, "..", "image", name))).convert("RGB")
    return processor(picture, return_tensors="pt")["pixel_values"].double()


def logits(ids, pictures, vision_feature_layer=-1, vision_feature_select_strategy="full"):
    places = 16 - (vision_feature_select_strategy == "default")
    wide = [i for id in ids for i in [id] * (places if id == IMAGE else 1)]
    model.config.vision_feature_layer = vision_feature_layer
    model.config.vision_feature_select_strategy = vision_feature_select_strategy
    with torch.no_grad():
        found = model(input_ids=torch.tensor([wide]), pixel_values=torch.cat([pixels(name) for name in pictures])).logits[0].tolist()
    return [[float(f"{x:.8g}") for x in row] for row in found]


with open(os.path.join(folder, "expected.json"), "w") as f:
    json.dump({"texts": [{"ids": ids, "images": pictures} for ids, pictures in TEXTS],
               "variants": {v: [logits(ids, pictures, **o) for ids, pictures in TEXTS] for v, o in VARIANTS.items()}, "settings": VARIANTS}, f)
