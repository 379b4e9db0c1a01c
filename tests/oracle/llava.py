#!/usr/bin/env python3
"""A small LLaVA 1.5 with large weights, and the logits that transformers computes with it in double for texts with pictures of tests/golden/image;
also with the tower's first layer and all of its states, and with the last layer.

    python3 tests/oracle/llava.py tests/golden/llava

Needs torch, transformers, Pillow."""
import json
import os
import sys

import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

IMAGE, PLACES = 41, 16
PICTURES = ["rgb.png", "turned6.jpg"]
TEXTS = [([1, IMAGE, 5, 17, 33, 2], ["rgb.png"]), ([1, 8, IMAGE, 9, IMAGE, 30, 4], ["turned6.jpg", "rgb.png"]), ([1, 7, 3, 28], [])]
VARIANTS = {"default": {}, "first": {"vision_feature_layer": 1, "vision_feature_select_strategy": "full"}, "last": {"vision_feature_layer": -1}}
folder = sys.argv[1]
torch.manual_seed(9)
config = LlavaConfig(
    vision_config=CLIPVisionConfig(hidden_size=36, intermediate_size=50, num_hidden_layers=3, num_attention_heads=3, image_size=22, patch_size=5,
                                   layer_norm_eps=1e-4),
    text_config=LlamaConfig(vocab_size=43, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                            head_dim=10, max_position_embeddings=128, attention_bias=True, rms_norm_eps=1e-5,
                            rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}),
    image_token_index=IMAGE, image_seq_length=PLACES, projector_hidden_act="gelu")
model = LlavaForConditionalGeneration(config).eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_(torch.randn_like(p) * (.3 if p.dim() > 1 else .5))
processor = CLIPImageProcessorPil(size={"shortest_edge": 22}, crop_size={"height": 22, "width": 22})
model.save_pretrained(folder)
processor.save_pretrained(folder)
# the names of files before transformers 5, in which the tower has one more level
path = os.path.join(folder, "model.safetensors")
weights = load_file(path)
save_file({n.replace("vision_tower.", "vision_tower.vision_model.") if "vision_model" not in n else n: w for n, w in weights.items()}, path,
          metadata={"format": "pt"})
model = model.double()


def pixels(name):
    picture = ImageOps.exif_transpose(Image.open(os.path.join(folder, "..", "image", name))).convert("RGB")
    return processor(picture, return_tensors="pt")["pixel_values"].double()


def logits(ids, pictures, places, **variant):
    wide = [i for id in ids for i in [id] * (places if id == IMAGE else 1)]
    see = {"pixel_values": torch.cat([pixels(name) for name in pictures])} if pictures else {}
    model.config.vision_feature_layer = variant.get("vision_feature_layer", -2)
    model.config.vision_feature_select_strategy = variant.get("vision_feature_select_strategy", "default")
    with torch.no_grad():
        return model(input_ids=torch.tensor([wide]), **see).logits[0].tolist()


expected = {"texts": [{"ids": ids, "images": pictures} for ids, pictures in TEXTS],
            "variants": {v: [logits(ids, pictures, PLACES + (o.get("vision_feature_select_strategy") == "full"), **o) for ids, pictures in TEXTS[:2 if o else 3]]
                         for v, o in VARIANTS.items()},
            "settings": VARIANTS}
with open(os.path.join(folder, "expected.json"), "w") as f:
    json.dump(expected, f)
