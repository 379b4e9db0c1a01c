#!/usr/bin/env python3
"""What DINOv3's processor of transformers, which computes over torchvision, makes of the pictures of make.py: dinov3.tsv has picture,
configuration, shape and SHA-256 of the FP32 numbers. Needs what make.py needs, torchvision .29 and PyTorch 2.15 on x86-64, whose order of sums is that of
AVX2.

    ATEN_CPU_CAPABILITY=avx2 python3 tests/golden/image/dinov3.py
"""
import hashlib
import json
import os

import numpy as np
from PIL import Image, ImageOps
from transformers.models.dinov3_vit.image_processing_dinov3_vit import DINOv3ViTImageProcessor

HERE = os.path.dirname(os.path.abspath(__file__))


def sides(height, width):
    return {"height": height, "width": width}


CONFIGS = {
    "dinov3": (DINOv3ViTImageProcessor, {"image_processor_type": "DINOv3ViTImageProcessorFast", "size": sides(16, 16), "crop_size": None,
                                         "do_center_crop": None, "resample": 2}),
    "dinov3-low": (DINOv3ViTImageProcessor, {"image_processor_type": "DINOv3ViTImageProcessor", "size": sides(3, 40)}),
    "dinov3-crop": (DINOv3ViTImageProcessor, {"image_processor_type": "DINOv3ViTImageProcessor", "size": {"shortest_edge": 12}, "do_center_crop": True,
                                              "crop_size": sides(9, 15)}),
}


def main():
    with open(f"{HERE}/expected.tsv") as f:
        names = dict.fromkeys(line.split("\t")[0] for line in f)
    with open(f"{HERE}/dinov3.tsv", "w") as out:
        for config, (kind, options) in CONFIGS.items():
            with open(f"{HERE}/{config}.json", "w") as f:
                json.dump(options, f)
                f.write("\n")
            processor = kind(**{k: v for k, v in options.items() if k != "image_processor_type"})
            for name in names:
                rgb = ImageOps.exif_transpose(Image.open(f"{HERE}/{name}")).convert("RGB")
                v = np.array(processor(rgb, return_tensors="np")["pixel_values"]).astype("<f4")
                print(name, config, ",".join(map(str, v.shape)), hashlib.sha256(v.tobytes()).hexdigest(), sep="\t", file=out)


if __name__ == "__main__":
    main()
