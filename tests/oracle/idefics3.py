#!/usr/bin/env python3
"""A small Idefics 3 and a small SmolVLM with large weights, and the logits that transformers computes with them in double for texts with pictures of
tests/golden/image and tests/golden/llava_next, as its processor makes tokens and tiles of them.

    python3 tests/oracle/idefics3.py tests/golden/idefics3

Needs torch, transformers, tokenizers, Pillow."""
import json
import os
import sys

import torch
from PIL import Image, ImageOps
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor, LlamaConfig, PreTrainedTokenizerFast, SmolVLMConfig,
                          SmolVLMForConditionalGeneration)
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.configuration_smolvlm import SmolVLMVisionConfig

TEXTS = [("what is<image> it", ["rgb.png"]), ("<image>a\n<image>b", ["tall.png", "turned6.jpg"]), ("<image><image>", ["wide.png", "odd.png"]),
         ("what", [])]
SIDE, PATCH, SCALE = 24, 4, 3
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
torch.manual_seed(29)
special = (["</s>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]
           + [f"<row_{r}_col_{c}>" for r in range(1, 4) for c in range(1, 4)])
letters = sorted(set("what is it\\nab".replace("\\n", "") + "\u0120\u010a"))
bpe = Tokenizer(models.BPE({w: i for i, w in enumerate(letters + ["wh", "\u010a\u010a"])}, [("w", "h"), ("\u010a", "\u010a")]))
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
bpe.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="</s>", pad_token="</s>")
processor = Idefics3Processor(Idefics3ImageProcessorPil(size={"longest_edge": 3 * SIDE}, max_image_size={"longest_edge": SIDE}), tokenizer,
                              image_seq_len=(SIDE // PATCH // SCALE) ** 2)
tower = dict(hidden_size=36, intermediate_size=50, num_hidden_layers=3, num_attention_heads=3, image_size=SIDE, patch_size=PATCH, layer_norm_eps=1e-4)
text = dict(vocab_size=43, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
            max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=None, eos_token_id=bpe.token_to_id("</s>"), pad_token_id=None)
image = dict(image_token_id=bpe.token_to_id("<image>"), scale_factor=SCALE, pad_token_id=None)
assert bpe.get_vocab_size() <= text["vocab_size"]


def picture(name):
    path = os.path.join(folder, "..", "llava_next", name)
    path = path if os.path.exists(path) else os.path.join(folder, "..", "image", name)
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def logits(model, words, pictures):
    inputs = processor(text=words, images=[picture(name) for name in pictures] or None, return_tensors="pt")
    inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items() if k != "attention_mask"}
    with torch.no_grad():
        return inputs["input_ids"][0].tolist(), [[float(f"{x:.8g}") for x in row] for row in model(**inputs).logits[0].tolist()]


found = {"texts": [], "variants": {}}
for kind, config, of in [
        ("idefics3", Idefics3Config(vision_config=Idefics3VisionConfig(**tower), text_config=LlamaConfig(**text), **image),
         Idefics3ForConditionalGeneration),
        ("smolvlm", SmolVLMConfig(vision_config=SmolVLMVisionConfig(**tower), text_config=LlamaConfig(tie_word_embeddings=True, **text),
                                  tie_word_embeddings=True, **image), SmolVLMForConditionalGeneration)]:
    model = of(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * (.3 if p.dim() > 1 else .5))
    out = os.path.join(folder, kind)
    model.save_pretrained(out)
    processor.image_processor.save_pretrained(out)
    bpe.save(os.path.join(out, "tokenizer.json"))
    both = [logits(model.double(), words, pictures) for words, pictures in TEXTS]
    found["variants"][kind] = [l for _, l in both]
    found["texts"] = [{"text": words, "ids": ids, "images": pictures} for (words, pictures), (ids, _) in zip(TEXTS, both)]
with open(os.path.join(folder, "expected.json"), "w") as f:
    json.dump(found, f)
