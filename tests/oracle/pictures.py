#!/usr/bin/env python3
"""Pictures of odd sizes in every mode, through every processor and filter: compares what `llm-tokenize image` writes with what transformers' processors
over Pillow 13 compute (DINOv3: over torchvision with AVX2), bit by bit. Prints the number of pictures and comparisons; status 1 if one differs.

    PATH=$PWD/bin:$PATH ATEN_CPU_CAPABILITY=avx2 python3 tests/oracle/pictures.py [PICTURES]
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image, ImageOps

HERE = os.path.dirname(os.path.abspath(__file__))


def golden(name):
    """A script of tests/golden/image, whose tables count here; make.py runs when it is imported, so its main is left out."""
    with open(f"{HERE}/../golden/image/{name}.py") as f:
        source = f.read()
    there = {"__file__": f"{HERE}/../golden/image/{name}.py", "__name__": name}
    exec(compile(source.removesuffix("\nmain()\n"), there["__file__"], "exec"), there)  # pylint: disable=exec-used
    return there


MAKE = golden("make")
CONFIGS = MAKE["CONFIGS"] | golden("dinov3")["CONFIGS"]
MODES = ["RGB", "RGBA", "L", "LA", "1", "P", "I;16", "CMYK", "RGB", "YCbCr"]


def picture(i, random):
    """A picture of random sides: its mode, file suffix and options of saving."""
    width, height = (int(v) for v in np.exp(random.uniform(0, np.log(500), 2)))
    rgba, mode = MAKE["picture"](i, width, height), MODES[i % len(MODES)]
    if mode == "I;16":
        return Image.fromarray(np.array(rgba.convert("L")).astype(np.uint16) * 3), "png", {}
    if mode == "P":
        return rgba.convert("RGB").quantize(2 + i % 250), "png", {}
    jpeg = mode in ("CMYK", "YCbCr") or (mode in ("RGB", "L") and i % 3 == 0)
    image = rgba.convert("RGB") if mode in ("CMYK", "YCbCr") else rgba.convert(mode)
    exif = Image.Exif()
    exif[0x0112] = 1 + i % 8
    options = {"exif": exif} if mode == "RGB" else {}
    if jpeg:
        options |= {"quality": 40 + i % 60, "progressive": i % 2 == 0, "subsampling": i % 3}
    return image.convert("CMYK") if mode == "CMYK" else image, "jpg" if jpeg else "png", options


def messages(data):
    """The pixel values of each message of a stream."""
    at = 0
    while at < len(data):
        length = struct.unpack_from("<Q", data, at)[0]
        header = json.loads(data[at + 8:at + 8 + length])
        begin = at + 8 + length
        end = max([t["data_offsets"][1] for k, t in header.items() if k != "__metadata__"], default=0)
        if "pixel_values" in header:
            t = header["pixel_values"]
            yield np.frombuffer(data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]], "<f4").reshape(t["shape"][1:])
        at = begin + end


def main():
    n, random = int(sys.argv[1]) if len(sys.argv) > 1 else 400, np.random.default_rng(21)
    compared = different = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for i in range(n):
            image, suffix, options = picture(i, random)
            names.append(f"{folder}/{i}.{suffix}")
            image.save(names[-1], **options)
        pictures = [ImageOps.exif_transpose(Image.open(name)).convert("RGB") for name in names]
        for config, (kind, options) in CONFIGS.items():
            processor = kind(**{k: v for k, v in options.items() if k != "image_processor_type"})
            with open(f"{folder}/{config}.json", "w") as f:
                json.dump(options, f)
            ours = subprocess.run(["llm-tokenize", "image", "--for", f"{folder}/{config}.json", *names], stdout=subprocess.PIPE, check=True).stdout
            for name, rgb, v in zip(names, pictures, messages(ours), strict=True):
                try:
                    theirs = np.array(processor(rgb, return_tensors="np")["pixel_values"])
                except (ValueError, TypeError, ZeroDivisionError) as e:
                    print(f"{name} {rgb.size} {config}: transformers refuses: {e}", file=sys.stderr)
                    refused += 1
                    continue
                compared += 1
                if theirs.shape[-3:] != v.shape[-3:] or theirs.astype("<f4").tobytes() != v.tobytes():
                    print(f"{name} {rgb.size} {config}: {theirs.shape} and {v.shape} differ", file=sys.stderr)
                    different += 1
    print(f"{n} pictures, {len(CONFIGS)} configurations, {compared} comparisons: {different} differ, {refused} refused by transformers")
    sys.exit(different > 0)


main()
