#!/usr/bin/env python3
"""A small SentencePiece model with the settings of SigLIP's spiece.model, and the ids that transformers' SiglipTokenizer makes of awkward texts with it.

    python3 tests/oracle/siglip_tokenizer.py tests/golden/siglip_tokenizer     (sentencepiece 0.2.3, transformers)

writes spiece.model, tokenizer_config.json and expected.jsonl: {"text", "ids", "cased"}; cased: the ids with do_lower_case false. No text ends with
"</s>", after which transformers adds no second one."""
import io
import json
import os
import random
import sys

import sentencepiece
from transformers.models.siglip.tokenization_siglip import SiglipTokenizer

folder = sys.argv[1]
rng = random.Random(5)
words = ("a photo of the cat dog bird tree red green blue circle square on under beside with two three dogs running jumping it's don't well-known "
         "u.s. 3d 42 Berlin PARIS naïve café straße ΣΑΣ ος").split()
lines = [" ".join(rng.choice(words) for _ in range(rng.randint(3, 12))) + rng.choice([".", "!", ", ", "?", ""]) for _ in range(600)]
out = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, num_threads=1, hard_vocab_limit=False, minloglevel=2,
                                         model_type="unigram", vocab_size=190, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                                         normalization_rule_name="nmt_nfkc", self_test_sample_size=0, character_coverage=1.0)
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "spiece.model"), "wb") as f:
    f.write(out.getvalue())
lower = SiglipTokenizer(os.path.join(folder, "spiece.model"))
cased = SiglipTokenizer(os.path.join(folder, "spiece.model"), do_lower_case=False)
with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
    json.dump({"tokenizer_class": "SiglipTokenizer", "do_lower_case": True, "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>",
               "model_max_length": 64, "added_tokens_decoder": {
                   str(lower.convert_tokens_to_ids(t)): {"content": t, "lstrip": True, "rstrip": True, "normalized": False, "single_word": False,
                                                         "special": True} for t in ("</s>", "<unk>")}}, f, indent=1)
texts = ["", " ", "   \t\n", "a photo of a cat", "A Photo, of a CAT!", "  two  dogs\trunning\n", "it's a well-known café", "don't!!!", "...", "!?", "▁the▁▁cat",
         "▁", "a▁", "U.S. 3D 42", "NAÏVE CAFE\u0301", "ΟΔΟΣ ΣΑΣ Σ ΑΣ. Α'Σ' ΑΣΑ", "İstanbul", "straße STRASSE ﬁsh ①", "\u3000a\u3000\u3000dog\u3000", "a\u200bb",
         "a\x1cb\x1dc\x1e\x1fd", "\x00a", "\ufeffthe", "中文 the 中", "😀 the 😀😀", "the_cat {red} [green] <blue> ~`@#$%^&*()-=+|\\\";:'", "a" * 70, "\u00a0a\u00a0",
         "a </s> b", "</s>a", " </s> the </s>cat", "the<unk>cat <unk> dog", "<s>the</s> cat", "a.\u0301b", "ŁÓDŹ ÅNGSTRÖM", "x\r\ny", "“red” ‘blue’…—"]
letters = "aàbcdeéiostuΣσςαΑİıßſ .,!?'-_▁\t\n\u3000\u00a0\u200b中①ﬁ😀ABCDE12"
texts += ["".join(rng.choice(letters) for _ in range(rng.randint(1, 24))) for _ in range(400)]
with open(os.path.join(folder, "expected.jsonl"), "w") as f:
    for text in texts:
        f.write(json.dumps({"text": text, "ids": lower(text)["input_ids"], "cased": cased(text)["input_ids"]}) + "\n")
