"""WordPiece vocabularies as Hugging Face's trainer makes them, for tests/cli/tokenize_wordpiece.bats:

    python tests/oracle/wordpiece.py [CORPUS SIZE TOKENIZER_JSON]

Alone it writes tests/golden/wordpiece: words with their numbers, and vocabularies from them, sorted. The trainer numbers the characters within words in the order of
a hash table, another one in each run, so they are sets, of sizes at which no tie between equally frequent pairs is cut in two: 24 runs must
agree. With arguments: compares the vocabulary of TOKENIZER_JSON, trained by llm-tokenize on CORPUS, with SIZE entries of the trainer's.
"""
import json
import pathlib
import sys
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Words whose numbers are powers of 1.37, so that pairs are seldom equally frequent.
WORDS = """the cat sat mat mats matter matted cats chatter catalogue sitting Caf\u00e9s na\u00efve \u4e2d\u6587 1234 Street! other-wise them then
there that's Matterhorn cattle settle letter setting""".split()
COUNTS = [int(2 + 1.37 ** (i * 7 % len(WORDS))) for i in range(len(WORDS))]
TEXT = "\n".join(" ".join([w] * n) for w, n in zip(WORDS, COUNTS)) + "\n"


def train(lines, size, cased=False):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(lines, trainers.WordPieceTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False))
    return t


if len(sys.argv) > 1:
    lines = open(sys.argv[1], encoding="utf-8", newline="").read().splitlines(keepends=True)
    theirs = set(train(lines, int(sys.argv[2])).get_vocab())
    ours = set(Tokenizer.from_file(sys.argv[3]).get_vocab())
    print(f"{len(ours)} and {len(theirs)} entries, {len(ours & theirs)} common; only ours: {sorted(ours - theirs)[:10]}, "
          f"only theirs: {sorted(theirs - ours)[:10]}")
    sys.exit(0 if len(ours & theirs) >= 0.99 * len(theirs) else 1)

folder = pathlib.Path(__file__).parent.parent / "golden" / "wordpiece"
folder.mkdir(exist_ok=True)
(folder / "words").write_text("".join(f"{n} {w}\n" for w, n in zip(WORDS, COUNTS)), encoding="utf-8")
for cased in (False, True):
    agreed = []
    for size in range(50, 140, 3):
        runs = [sorted(train([TEXT], size, cased).get_vocab()) for _ in range(24)]
        if len(agreed) < 4 and all(r == runs[0] for r in runs) and len(runs[0]) == size:
            agreed.append(size)
            (folder / f"{'cased' if cased else 'uncased'}-{size}").write_text("\n".join(runs[0]) + "\n", encoding="utf-8")
    print(cased, agreed)
