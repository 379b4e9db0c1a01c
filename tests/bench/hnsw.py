"""HNSW beside hnswlib, alternating: queries a second, recall at 10, build time, bytes.

    python tests/bench/hnsw.py VECTORS.npy QUERIES.npy [THREADS]

Needs numpy, hnswlib and llm-index in PATH. Vectors are F32 [n, dims] of length 1. llm-index is a process that answers one file of queries: its time is that of
many queries less that of one, over the difference in their number.
"""
import json, os, struct, subprocess, sys, tempfile, time

import hnswlib
import numpy as np

ROUNDS, MANY = 5, 20000


def save(path, x):
    header = json.dumps({"embeddings": {"dtype": "F32", "shape": list(x.shape), "data_offsets": [0, x.size * 4]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + x.astype("<f4").tobytes())


def search(index, queries, ef, threads):
    begun = time.time()
    out = subprocess.run(["llm-index", "search", "-j", threads, "--trust", "-x", index, "--ef", str(ef), queries], check=True, capture_output=True)
    return time.time() - begun, out.stdout


def main():
    x, q = np.load(sys.argv[1]), np.load(sys.argv[2])
    threads = sys.argv[3] if len(sys.argv) > 3 else "2"
    truth = np.argsort(-(q @ x.T), axis=1)[:, :10]
    many = np.tile(q, (-(-MANY // len(q)), 1))[:MANY]
    with tempfile.TemporaryDirectory() as d:
        save(f"{d}/x", x), save(f"{d}/q", q), save(f"{d}/many", many), save(f"{d}/one", q[:1])
        begun = time.time()
        subprocess.run(["llm-index", "build", "-j", threads, "--plain", "--kind", "hnsw", "-o", f"{d}/i", f"{d}/x"], check=True)
        ours = time.time() - begun
        peer = hnswlib.Index(space="ip", dim=x.shape[1])
        peer.init_index(max_elements=len(x), ef_construction=200, M=16)
        peer.set_num_threads(int(threads))
        begun = time.time()
        peer.add_items(x)
        theirs = time.time() - begun
        peer.save_index(f"{d}/peer")
        print(f"build\tllm-index {ours:.1f} s\thnswlib {theirs:.1f} s\tratio {theirs / ours:.2f}")
        print(f"bytes\tllm-index {os.path.getsize(f'{d}/i')}\thnswlib {os.path.getsize(f'{d}/peer')}")
        for ef in 10, 12, 16, 24, 40, 80:
            peer.set_ef(ef)
            ratios, rates = [], []
            for _ in range(ROUNDS):
                begun = time.time()
                labels, _ = peer.knn_query(many, k=10)
                rate = MANY / (time.time() - begun)
                one, _ = search(f"{d}/i", f"{d}/one", ef, threads)
                all_, _ = search(f"{d}/i", f"{d}/many", ef, threads)
                mine = (MANY - 1) / (all_ - one)
                ratios.append(mine / rate)
                rates.append((mine, rate))
            _, out = search(f"{d}/i", f"{d}/q", ef, threads)
            found = [set() for _ in q]
            for line in out.decode().splitlines()[1:]:
                query, _, row, _ = line.split("\t")
                found[int(query)].add(int(row))
            own = np.mean([len(a & set(b)) for a, b in zip(found, truth)]) / 10
            other = np.mean([len(set(a) & set(b)) for a, b in zip(labels[: len(q)], truth)]) / 10
            mine, rate = sorted(rates)[ROUNDS // 2]
            print(f"ef {ef}\trecall {own:.4f} {other:.4f}\tqueries/s {mine:.0f} {rate:.0f}\tratio {sorted(ratios)[ROUNDS // 2]:.2f}", flush=True)


main()
