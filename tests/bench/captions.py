#!/usr/bin/env python3
"""Pictures of one shape each, with captions: 5 shapes, 8 colours and 9 places, 32 x 32 pixels, sizes and backgrounds at random. Every fifth
combination of shape, colour and place is held out: it is never learned from.

    python3 tests/bench/captions.py FOLDER [PICTURES]

writes FOLDER/train.jsonl and FOLDER/held.jsonl (lines of llm-tokenize image --jsonl), their pictures, FOLDER/captions.txt, a text of all captions
to make a tokenizer of, FOLDER/labels.txt, the held out captions, and conversations about the pictures: FOLDER/questions.jsonl of those to learn
from, and FOLDER/held-questions.jsonl, each with its "answer". The same bytes every time. Needs Python's standard library alone."""
import json
import os
import random
import struct
import sys
import zlib

SHAPES = ["circle", "square", "triangle", "cross", "ring"]
COLOURS = {"red": (220, 30, 30), "green": (30, 170, 40), "blue": (40, 60, 230), "yellow": (235, 220, 40), "purple": (150, 40, 190),
           "orange": (245, 140, 20), "white": (250, 250, 250), "black": (5, 5, 5)}
ROWS, COLUMNS = ["top", "middle", "bottom"], ["left", "centre", "right"]
SIDE = 32
COMBINATIONS = [(s, c, r, k) for s in SHAPES for c in COLOURS for r in range(3) for k in range(3)]


def inside(shape, x, y, radius):
    """Whether the point, from the shape's middle, is in it."""
    if shape == "circle":
        return x * x + y * y <= radius * radius
    if shape == "ring":
        return .3 * radius * radius <= x * x + y * y <= radius * radius
    if shape == "square":
        return max(abs(x), abs(y)) <= .85 * radius
    if shape == "cross":
        return min(abs(x), abs(y)) <= .3 * radius and max(abs(x), abs(y)) <= radius
    return -radius <= y <= radius and 2 * abs(x) <= y + radius


def picture(combination, rng):
    shape, colour, row, column = combination
    radius = rng.uniform(4.6, 5.4)
    cx, cy = 5.5 + 10.5 * column + rng.uniform(-.6, .6), 5.5 + 10.5 * row + rng.uniform(-.6, .6)
    grey = rng.randrange(90, 150)
    ink = [min(255, max(0, v + rng.randrange(-12, 13))) for v in COLOURS[colour]]
    lines = bytearray()
    for y in range(SIDE):
        lines.append(0)
        for x in range(SIDE):
            in_shape = inside(shape, x - cx, y - cy, radius)
            lines += bytes(v for v in (ink if in_shape else [grey + rng.randrange(-6, 7)] * 3))
    return lines


def png(lines):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(bytes(lines), 6)) + chunk(b"IEND", b""))


def place(row, column):
    return f"{ROWS[row]} {COLUMNS[column]}"


def caption(combination, rng):
    shape, colour, row, column = combination
    return rng.choice(["a {c} {s} at the {p}", "at the {p} a {c} {s}", "a picture of a {c} {s} in the {p}"]).format(
        c=colour, s=shape, p=place(row, column))


def label(combination):
    shape, colour, row, column = combination
    return f"{colour} {shape} at the {place(row, column)}"


def question(combination, kind):
    shape, colour, row, column = combination
    return [(f"what colour is the {shape}?", colour), (f"where is the {shape}?", place(row, column)), ("what is it?", f"a {colour} {shape}")][kind]


def conversation(path, words, answer=None):
    said = [{"role": "user", "content": [{"type": "image", "path": path}, {"type": "text", "text": words}]}]
    return said + ([{"role": "assistant", "content": answer}] if answer else [])


def write(folder, name, wanted, n, rng):
    held = name == "held"
    with open(os.path.join(folder, name + ".jsonl"), "w") as f, open(os.path.join(folder, "held-" * held + "questions.jsonl"), "w") as q:
        for i in range(n):
            combination = wanted[i % len(wanted)]
            path = os.path.join(folder, f"{name}{i}.png")
            with open(path, "wb") as p:
                p.write(png(picture(combination, rng)))
            text = label(combination) if held else caption(combination, rng)
            f.write(json.dumps({"image": path, "text": text}) + "\n")
            words, answer = question(combination, 0 if held else i // len(wanted) % 3)
            line = {"messages": conversation(path, words), "answer": answer} if held else {"messages": conversation(path, words, answer)}
            q.write(json.dumps(line) + "\n")


def main():
    folder, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6000
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(17)
    shuffled = COMBINATIONS[:]
    rng.shuffle(shuffled)
    held, learned = shuffled[::5], [c for i, c in enumerate(shuffled) if i % 5]
    write(folder, "train", learned, n, rng)
    write(folder, "held", held, 4 * len(held), rng)
    with open(os.path.join(folder, "labels.txt"), "w") as f:
        f.writelines(label(c) + "\n" for c in held)
    with open(os.path.join(folder, "captions.txt"), "w") as f:
        for _ in range(3):
            f.writelines(caption(c, rng) + "\n" for c in COMBINATIONS)


main()
