#!/usr/bin/env python3
"""What the tokens of tests/golden/image/rgb.png attend to in the vision transformer of tests/golden/vit, as transformers computes it in double.

    python3 tests/oracle/vit_attention.py tests/golden/vit

Needs torch, transformers, Pillow. The folder is that of tests/oracle/vit.py."""
import json
import os
import sys

import torch
from PIL import Image
from transformers import ViTForImageClassification
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

folder = sys.argv[1]
model = ViTForImageClassification.from_pretrained(folder, attn_implementation="eager").double().eval()
processor = ViTImageProcessorPil.from_pretrained(folder)
picture = Image.open(os.path.join(folder, "..", "image", "rgb.png")).convert("RGB")
pixels = processor(picture, return_tensors="pt")["pixel_values"].double()
with torch.no_grad():
    attentions = model(pixels, output_attentions=True).attentions
with open(os.path.join(folder, "attention.json"), "w") as f:
    json.dump([[[[round(p, 7) for p in query] for query in head] for head in layer[0].tolist()] for layer in attentions], f)
