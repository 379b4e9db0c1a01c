#!/usr/bin/env python3
"""Small vision transformers with tokens beside the class token and with large weights, and what transformers computes of two pictures of
tests/golden/image with them in double: the final hidden state of the class token, of the last patch and the mean of all; of those with classes their probabilities; and, of those with classes, the
losses of six steps of AdamW on ten grey pictures, which are the first bytes of tests/golden/image/make.py. DeiT's two heads are trained by the mean of
their losses.

    python3 tests/oracle/vit_tokens.py tests/golden/vit_tokens

Needs torch, transformers, Pillow."""
import json
import os
import sys

import torch
from PIL import Image, ImageOps
from transformers.models.deit.configuration_deit import DeiTConfig
from transformers.models.deit.modeling_deit import DeiTForImageClassification, DeiTForImageClassificationWithTeacher
from transformers.models.dinov2.configuration_dinov2 import Dinov2Config
from transformers.models.dinov2.modeling_dinov2 import Dinov2ForImageClassification
from transformers.models.dinov2_with_registers.configuration_dinov2_with_registers import Dinov2WithRegistersConfig
from transformers.models.dinov2_with_registers.modeling_dinov2_with_registers import Dinov2WithRegistersForImageClassification
from transformers.models.dinov3_vit.configuration_dinov3_vit import DINOv3ViTConfig
from transformers.models.dinov3_vit.modeling_dinov3_vit import DINOv3ViTModel
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

PICTURES = ["rgb.png", "turned6.jpg"]
folder = sys.argv[1]
sizes = dict(hidden_size=36, num_hidden_layers=3, num_attention_heads=3, image_size=22, patch_size=5)
labels = dict(id2label={i: f"class {i}" for i in range(7)}, layer_norm_eps=1e-6)
MODELS = {
    "deit": lambda: DeiTForImageClassification(DeiTConfig(intermediate_size=50, **labels, **sizes)),
    "deit_distilled": lambda: DeiTForImageClassificationWithTeacher(DeiTConfig(intermediate_size=50, **labels, **sizes)),
    "dinov2": lambda: Dinov2ForImageClassification(Dinov2Config(mlp_ratio=2, **labels, **sizes)),
    "dinov2_with_registers": lambda: Dinov2WithRegistersForImageClassification(
        Dinov2WithRegistersConfig(mlp_ratio=2, num_register_tokens=3, **labels, **sizes)),
    "dinov3": lambda: DINOv3ViTModel(DINOv3ViTConfig(intermediate_size=50, num_register_tokens=2, **sizes)),
    "dinov3_gated": lambda: DINOv3ViTModel(DINOv3ViTConfig(intermediate_size=50, use_gated_mlp=True, hidden_act="silu", mlp_bias=False, **sizes)),
}
processor = ViTImageProcessorPil(size={"height": 22, "width": 22})


def prepared(picture):
    return processor(picture.convert("RGB"), return_tensors="pt")["pixel_values"].double()


with open(os.path.join(folder, "..", "image", "make.py"), "rb") as f:
    grey = torch.frombuffer(bytearray(f.read(10 * 22 * 22)), dtype=torch.uint8).reshape(10, 22, 22)
train = torch.cat([prepared(Image.fromarray(g.numpy())) for g in grey])
targets = torch.arange(10) * 3 % 7


def losses(model):
    steps = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(.9, .95), eps=1e-8, weight_decay=0)
    result = []
    model.train()
    for step in range(6):
        rows = slice(5 * (step % 2), 5 * (step % 2) + 5)
        out = model(pixel_values=train[rows])
        heads = [out.cls_logits, out.distillation_logits] if hasattr(out, "cls_logits") else [out.logits]
        loss = sum(torch.nn.functional.cross_entropy(h, targets[rows]) for h in heads) / len(heads)
        steps.zero_grad()
        loss.backward()
        steps.step()
        result.append(loss.item())
    return result


for number, (name, make) in enumerate(MODELS.items()):
    torch.manual_seed(30 + number)
    model = make().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * (.3 if p.dim() > 1 else .5))
    own = os.path.join(folder, name)
    model.save_pretrained(own)
    processor.save_pretrained(own)
    model = model.double()
    classes = hasattr(model, "num_labels") and name[:6] != "dinov3"
    expected = {}
    for file in PICTURES:
        pixels = prepared(ImageOps.exif_transpose(Image.open(os.path.join(folder, "..", "image", file))))
        base = getattr(model, model.base_model_prefix) if classes else model
        with torch.no_grad():
            states = base(pixels).last_hidden_state[0]
            expected[file] = {"cls": states[0].tolist(), "last": states[-1].tolist(), "mean": states.mean(0).tolist()}
            if classes:
                expected[file]["probabilities"] = model(pixels).logits.softmax(-1)[0].tolist()
    if name[:6] == "dinov2":
        picture = Image.open(os.path.join(folder, "..", "image", "rgb.png"))
        expected["sizes"] = {}
        for side in 12, 17, 24, 33:
            other = ViTImageProcessorPil(size={"height": side, "width": side})
            with torch.no_grad():
                states = base(other(picture.convert("RGB"), return_tensors="pt")["pixel_values"].double()).last_hidden_state[0]
            expected["sizes"][side] = {"cls": states[0].tolist(), "mean": states.mean(0).tolist()}
    if classes:
        expected["losses"] = losses(model)
    with open(os.path.join(own, "expected.json"), "w") as f:
        json.dump(expected, f)
