#!/usr/bin/env python3
"""Pictures of every kind, and what transformers' processors over Pillow 13 make of them: expected.tsv has picture, configuration, shape of the crops and
SHA-256 of their FP32 numbers. Needs numpy, Pillow 13.0 (whose libjpeg-turbo gives the samples of Debian's) and transformers 5.

    python3 tests/golden/image/make.py
"""
import hashlib
import json
import os

import numpy as np
from PIL import Image, ImageOps
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

HERE = os.path.dirname(os.path.abspath(__file__))


def sides(height, width):
    return {"height": height, "width": width}


CONFIGS = {
    **{f"vit{k}": (ViTImageProcessorPil, {"image_processor_type": "ViTImageProcessor", "size": sides(17, 13), "resample": k}) for k in range(6)},
    "vit-large": (ViTImageProcessorPil, {"image_processor_type": "ViTFeatureExtractor", "size": sides(51, 64)}),
    "vit-edges": (ViTImageProcessorPil, {"image_processor_type": "ViTImageProcessorFast", "size": {"shortest_edge": 30, "longest_edge": 35}}),
    "deit": (DeiTImageProcessorPil, {"image_processor_type": "DeiTImageProcessor", "size": sides(24, 24), "crop_size": sides(16, 15)}),
    "clip": (CLIPImageProcessorPil, {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 18}, "crop_size": sides(16, 21)}),
    "siglip": (SiglipImageProcessorPil, {"image_processor_type": "SiglipImageProcessor", "size": sides(16, 16)}),
    "llava": (LlavaImageProcessorPil, {"image_processor_type": "LlavaImageProcessor", "do_pad": True, "size": {"shortest_edge": 16},
                                       "crop_size": sides(16, 16)}),
    "next": (LlavaNextImageProcessorPil, {"image_processor_type": "LlavaNextImageProcessor", "size": {"shortest_edge": 12}, "crop_size": sides(12, 12),
                                          "image_grid_pinpoints": [[12, 24], [24, 12], [24, 24], [36, 12], [12, 36]]}),
    "idefics": (Idefics3ImageProcessorPil, {"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 40},
                                            "max_image_size": {"longest_edge": 16}}),
}


def picture(i, width, height):
    """Slopes, an edge and noise: RGBA."""
    y, x = np.mgrid[0:height, 0:width]
    noise = np.random.default_rng(i).integers(-30, 30, (height, width, 4))
    v = np.stack([x * 255 // width, y * 255 // height, 255 * (x + y > width), 90 + x * 2 + y], -1) + noise
    return Image.fromarray(np.clip(v, 0, 255).astype(np.uint8), "RGBA")


def pictures():
    """name, picture, options of its file"""
    rgba = [picture(i, 20 + 7 * i % 23, 18 + 11 * i % 29) for i in range(12)]
    yield "rgb.png", rgba[0].convert("RGB"), {}
    yield "alpha.png", rgba[1], {}
    yield "grey.png", rgba[2].convert("L"), {}
    yield "grey-alpha.png", rgba[3].convert("LA"), {}
    yield "bits.png", rgba[4].convert("1"), {}
    yield "palette.png", rgba[5].convert("RGB").quantize(60), {}
    yield "palette4.png", rgba[6].convert("RGB").quantize(11), {}
    yield "grey16.png", Image.fromarray(np.array(rgba[7].convert("L")).astype(np.uint16) * 2), {}
    tall = picture(20, 9, 61).convert("RGB")
    yield "tall.png", tall, {}
    yield "rgb.jpg", rgba[8].convert("RGB"), {"quality": 80}
    yield "grey.jpg", rgba[9].convert("L"), {"quality": 60}
    yield "cmyk.jpg", rgba[10].convert("RGB").convert("CMYK"), {"quality": 90}
    yield "progressive.jpg", rgba[11].convert("RGB"), {"quality": 70, "progressive": True, "subsampling": 0}
    for how in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = how
        yield f"turned{how}.{'png' if how == 5 else 'jpg'}", picture(30 + how, 14, 11).convert("RGB"), {"exif": exif}


def main():
    for name, (_, config) in CONFIGS.items():
        with open(f"{HERE}/{name}.json", "w") as f:
            json.dump(config, f)
            f.write("\n")
    with open(f"{HERE}/expected.tsv", "w") as out:
        for i, (name, image, options) in enumerate(pictures()):
            image.save(f"{HERE}/{name}", **options)
            rgb = ImageOps.exif_transpose(Image.open(f"{HERE}/{name}")).convert("RGB")
            plain = (np.array(rgb).astype(np.float64) * (1 / 255)).astype(np.float32).transpose(2, 0, 1)[None]
            results = {"-": plain}
            for config, (kind, options) in CONFIGS.items():
                if i % 3 == 0 or config in ("clip", "next", "vit-edges"):
                    options = {k: v for k, v in options.items() if k != "image_processor_type"}
                    results[config] = np.array(kind(**options)(rgb, return_tensors="np")["pixel_values"])
            for config, v in results.items():
                v = v.reshape(-1, *v.shape[-3:]).astype("<f4")
                print(name, config, ",".join(map(str, v.shape)), hashlib.sha256(v.tobytes()).hexdigest(), sep="\t", file=out)


# At the end of the file: its first 4,840 bytes are the pictures of tests/oracle/vit.py and vit_tokens.py.
CONFIGS["next-whole"] = (LlavaNextImageProcessorPil, {"image_processor_type": "LlavaNextImageProcessor", "size": {"shortest_edge": 9},
                                                      "do_center_crop": False, "crop_size": sides(6, 6),
                                                      "image_grid_pinpoints": [[6, 12], [12, 6], [12, 12]]})
main()
