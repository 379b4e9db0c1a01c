#!/usr/bin/env python3
"""Time to the first byte of a chat's answers, turn by turn: the 20th turn's beside the 2nd's, for messages of equal length.

    [BIN=bin] [TALKS=5] [TURNS=20] [THREADS=2] [TOKENS=24] python tests/bench/chat.py MODEL.gguf

Each conversation is a process of its own, which gets a message when the answer to the one before it has ended. The messages have 20 words. The
first turn packs weights and does not count. A ratio is that of the mean of the last two turns to that of turns 2 and 3.
"""
import os
import pathlib
import select
import statistics
import subprocess
import sys
import time

BIN = os.environ.get("BIN", str(pathlib.Path(__file__).resolve().parents[2] / "bin"))
TALKS, TURNS, TOKENS = (int(os.environ.get(name, default)) for name, default in (("TALKS", "5"), ("TURNS", "20"), ("TOKENS", "24")))
THREADS = os.environ.get("THREADS", str(len(os.sched_getaffinity(0))))
NOUNS = "river mountain garden window bridge winter summer teacher doctor farmer sailor castle forest island market village engine letter picture mirror".split()


def conversation(model):
    """Seconds to the first byte of each turn's answer."""
    process = subprocess.Popen([BIN + "/llm-infer", "-q", "-j", THREADS, "-m", model, "--chat", "--lines", "--temp", "0", "--ignore-eos", "-n", str(TOKENS),
                                "-c", "4096"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    seconds = []
    for turn in range(TURNS):
        noun = NOUNS[turn % len(NOUNS)]
        message = f"Please tell me in one short line what you think of the {noun} that my old friend showed me this year\n"
        began = time.perf_counter()
        process.stdin.write(message.encode())
        process.stdout.read(1)
        seconds.append(time.perf_counter() - began)
        while select.select([process.stdout], [], [], .1)[0]:  # the answer's other tokens; a tenth of a second without any ends it
            os.read(process.stdout.fileno(), 65536)
    process.stdin.close()
    process.wait()
    return seconds


talks = [conversation(sys.argv[1]) for _ in range(TALKS)]
early = [statistics.mean(t[1:3]) for t in talks]
late = [statistics.mean(t[-2:]) for t in talks]
ratios = sorted(b / a for a, b in zip(early, late))
print(f"first byte, ms: turns 2, 3: {1e3 * statistics.median(early):.1f}; turns {TURNS - 1}, {TURNS}: {1e3 * statistics.median(late):.1f}")
print(f"ratio {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}); of the least of each turn "
      f"{min(min(t[-2:]) for t in talks) / min(min(t[1:3]) for t in talks):.3f}")
