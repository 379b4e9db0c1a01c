#!/usr/bin/env python3
"""A small SigLIP with large weights, and what transformers computes with it in double: the vectors of texts and of pictures of tests/golden/image, and
the logits and probabilities that compare them. Texts are filled with the padding token, as the model's processor does.

    python3 tests/oracle/siglip.py tests/golden/siglip

Needs torch, transformers, Pillow."""
import json
import os
import sys

import torch
from PIL import Image, ImageOps
from transformers import SiglipConfig, SiglipModel
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

PICTURES = ["rgb.png", "turned6.jpg"]
PAD, PLACES = 1, 10
TEXTS = [[5, 17, 33, 2, PAD], [8, PAD], [41, 12, 12, 50, 7, 3, 28, 19, 22, PAD], [PAD]]
folder = sys.argv[1]
torch.manual_seed(7)
config = SiglipConfig(
    text_config=dict(vocab_size=61, hidden_size=24, intermediate_size=40, num_hidden_layers=3, num_attention_heads=2, max_position_embeddings=PLACES,
                     pad_token_id=PAD, bos_token_id=3, eos_token_id=PAD, layer_norm_eps=1e-5, projection_size=36),
    vision_config=dict(hidden_size=36, intermediate_size=50, num_hidden_layers=2, num_attention_heads=3, image_size=22, patch_size=5,
                       layer_norm_eps=1e-4))
model = SiglipModel(config).eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_(torch.randn_like(p) * (.3 if p.dim() > 1 else .5))
    model.logit_scale.fill_(1.2)
    model.logit_bias.fill_(-.7)
processor = SiglipImageProcessorPil(size={"height": 22, "width": 22})
model.save_pretrained(folder)
processor.save_pretrained(folder)
model = model.double()


def pixels(name):
    picture = ImageOps.exif_transpose(Image.open(os.path.join(folder, "..", "image", name))).convert("RGB")
    return processor(picture, return_tensors="pt")["pixel_values"].double()


with torch.no_grad():
    ids = torch.tensor([t + [PAD] * (PLACES - len(t)) for t in TEXTS])
    pixel_values = torch.cat([pixels(name) for name in PICTURES])
    out = model(input_ids=ids, pixel_values=pixel_values)
    texts = model.text_model(input_ids=ids).pooler_output
    pictures = model.vision_model(pixel_values=pixel_values).pooler_output
expected = {"ids": ids.tolist(), "texts": texts.tolist(), "pictures": dict(zip(PICTURES, pictures.tolist())),
            "probabilities": dict(zip(PICTURES, out.logits_per_image.sigmoid().tolist()))}
with open(os.path.join(folder, "expected.json"), "w") as f:
    json.dump(expected, f)
