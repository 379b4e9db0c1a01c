"""Our random numbers (lib/base/rng.h) in NumPy, for oracles that need the weights and tokens that a test in C makes."""
import numpy as np

INIT, ORDER, TEST = 1, 2, 7
M64 = (1 << 64) - 1


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
    return z ^ (z >> 31)


def philox(c0, c1, c2, c3, key):
    """Philox4x32-10 on arrays of counters; [n, 4]."""
    c0, c1, c2, c3 = (np.asarray(c, dtype=np.uint64) for c in np.broadcast_arrays(c0, c1, c2, c3))
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> np.uint64(32)) ^ c1 ^ np.uint64(k0), b & low, (a >> np.uint64(32)) ^ c3 ^ np.uint64(k1), a & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def key_of(seed, step):
    return mix((mix((seed + 0x9E3779B97F4A7C15) & M64) + step) & M64)


def u32(seed, step, site, layer, row, position, n):
    """Channels 0 … n - 1."""
    blocks = np.arange((n + 3) // 4, dtype=np.uint64)
    return philox(blocks, position, site << 24 | layer, row, key_of(seed, step)).reshape(-1)[:n]


def normal(seed, step, site, layer, row, position, n):
    u = u32(seed, step, site, layer, row, position, 2 * n) >> np.uint32(8)
    radius = np.sqrt(-2 * np.log((u[0::2].astype(np.float64) + 1) * 2.0**-24))
    return (radius * np.cos(6.283185307179586 * (u[1::2].astype(np.float64) * 2.0**-24))).astype(np.float32)


def matrix(seed, layer, rows, cols, site=INIT):
    """What lib/model/weights/create.c draws for parameter number `layer`, before scaling."""
    return np.stack([normal(seed, 0, site, layer, r, 0, cols) for r in range(rows)])


def below(seed, step, site, layer, row, position, count, n):
    u = u32(seed, step, site, layer, row, position, 2 * count).astype(object)
    out = []
    for i in range(count):
        x = int(u[2 * i]) << 32 | int(u[2 * i + 1])
        assert (x * n) & M64 >= (-n % (1 << 64)) % n, "drawn again: choose another seed"
        out.append(x * n >> 64)
    return np.array(out, dtype=np.int64)
