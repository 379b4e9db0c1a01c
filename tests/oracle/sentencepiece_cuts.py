#!/usr/bin/env python3
"""Files of SentencePiece cut after each field of the message: what Google's library makes of them, and what llm-tokenize does.

    python3 tests/oracle/sentencepiece_cuts.py llm-tokenize FILE.model...     (sentencepiece 0.2.3)

Prints a line a file: cuts, those that Google's library takes, those that llm-tokenize takes. Fails if llm-tokenize takes a cut that the library
refuses, or if the whole file is not taken by both.
"""
import subprocess
import sys
from pathlib import Path

import sentencepiece


def boundaries(data):
    """The end of each top-level field; all have wire type 2."""
    at = 0
    while at < len(data):
        length = shift = 0
        while True:
            at += 1
            length |= (data[at] & 0x7F) << shift
            shift += 7
            if data[at] < 0x80:
                break
        at += 1 + length
        yield at


def library_takes(data):
    try:
        sentencepiece.SentencePieceProcessor().LoadFromSerializedProto(data)
    except RuntimeError:
        return False
    return True


def tool_takes(program, data):
    return subprocess.run([program, "info", "-T", "-"], input=data, capture_output=True, check=False).returncode == 0


def main():
    program, bad = sys.argv[1], 0
    for path in sys.argv[2:]:
        data = Path(path).read_bytes()
        ends = list(boundaries(data))
        near = ends[:20] + ends[20:-20:max(1, len(ends) // 100)] + ends[max(20, len(ends) - 20):]
        theirs = {end for end in near if library_takes(data[:end])}
        ours = {end for end in near if tool_takes(program, data[:end])}
        whole = len(data) in theirs and len(data) in ours
        bad += not whole or bool(ours - theirs)
        print(f"{path}\t{len(near)}\t{len(theirs)}\t{len(ours)}{'' if whole and not ours - theirs else chr(9) + 'WRONG'}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
