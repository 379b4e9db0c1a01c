#!/usr/bin/env python3
"""A small LLaVA-NeXT with large weights, and the logits that transformers computes with it in double for texts with pictures of tests/golden/image of
many proportions; of a Llama, and of a Mistral with a window.

    python3 tests/oracle/llava_next.py tests/golden/llava_next

Needs torch, transformers, Pillow."""
import json
import os
import sys

import torch
from PIL import Image, ImageOps
from transformers import CLIPVisionConfig, LlamaConfig, LlavaNextConfig, LlavaNextForConditionalGeneration, MistralConfig
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

IMAGE, SIDE, PATCH = 41, 22, 5
GRIDS = [[22, 44], [44, 22], [44, 44], [66, 22], [22, 66]]
TEXTS = [([1, IMAGE, 5, 17, 33, 2], ["rgb.png"]), ([1, 8, IMAGE, 9, IMAGE, 30, 4], ["tall.png", "turned6.jpg"]),
         ([1, IMAGE, IMAGE, 9, IMAGE, 3], ["wide.png", "dot.png", "odd.png"]), ([1, 7, 3, 28], [])]
SIZES = {"tall.png": (9, 61), "wide.png": (200, 3), "dot.png": (1, 1), "odd.png": (35, 43)}
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
torch.manual_seed(19)
tower = CLIPVisionConfig(hidden_size=36, intermediate_size=50, num_hidden_layers=3, num_attention_heads=3, image_size=SIDE, patch_size=PATCH,
                         layer_norm_eps=1e-4)
text = dict(vocab_size=43, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
            max_position_embeddings=256, rms_norm_eps=1e-5)
texts = {"llama": LlamaConfig(attention_bias=True, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}, **text),
         "mistral": MistralConfig(sliding_window=20, **text)}
processor = LlavaNextImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, image_grid_pinpoints=GRIDS)


def picture(name):
    path = os.path.join(folder, name)
    if name in SIZES:
        width, height = SIZES[name]
        Image.frombytes("RGB", (width, height), bytes(i * 37 % 251 for i in range(3 * width * height))).save(path)
    else:
        path = os.path.join(folder, "..", "image", name)
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def logits(model, ids, pictures):
    see, wide = {}, list(ids)
    if pictures:
        see = {k: v for k, v in processor([picture(name) for name in pictures], return_tensors="pt").items()}
        see["pixel_values"] = see["pixel_values"].double()
        with torch.no_grad():
            lengths = [len(f) for f in model.get_image_features(**see).pooler_output]
        wide = [i for id in ids for i in [id] * (lengths.pop(0) if id == IMAGE else 1)]
    with torch.no_grad():
        return [[float(f"{x:.8g}") for x in row] for row in model(input_ids=torch.tensor([wide]), **see).logits[0].tolist()]


expected = {"texts": [{"ids": ids, "images": pictures} for ids, pictures in TEXTS], "variants": {}}
for kind, config in texts.items():
    model = LlavaNextForConditionalGeneration(LlavaNextConfig(vision_config=tower, text_config=config, image_token_index=IMAGE,
                                                              image_grid_pinpoints=GRIDS)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (.3 if p.dim() > 1 else .5))
    out = os.path.join(folder, kind)
    model.save_pretrained(out)
    processor.save_pretrained(out)
    expected["variants"][kind] = [logits(model.double(), ids, pictures) for ids, pictures in TEXTS]
with open(os.path.join(folder, "expected.json"), "w") as f:
    json.dump(expected, f)
