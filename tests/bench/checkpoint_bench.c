/* Writing and reading checkpoints against libzstd at its default level on the same bytes, in frames of the same size, on the same threads.
 *
 *   make build/libllm.a && cc -O2 -D_GNU_SOURCE -Ilib -o build/checkpoint_bench tests/bench/checkpoint_bench.c build/libllm.a \
 *       -lzstd -ljansson -lxxhash -lcrypto -lm -lpthread && build/checkpoint_bench [MODEL [TENSOR-PREFIX]]
 *
 * MODEL is a .llm or .safetensors whose float tensors (of this prefix) are taken as they are; without it normal numbers in BF16 and, as the moments
 * of AdamW look, in F32. Prints per dtype: packed / raw bytes, GB/s of raw bytes written and read (in memory), the same per second of CPU (what a
 * core does, also when others are busy), and the median of paired ratios to the peer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#include "base/log.h"
#include "base/rng.h"
#include "cpu/pool.h"
#include "io/checkpoint.h"
#include "io/planes.h"

enum { ROUNDS = 9, MAX_FRAMES = 1024 };
static unsigned char *packed[MAX_FRAMES];
static size_t packed_bytes[MAX_FRAMES];
static const unsigned char *raw;
static size_t raw_bytes;
static unsigned char *back;

static size_t frame_at(size_t i, const unsigned char **p)
{
    size_t at = i * LLM_FRAME_BYTES;
    *p = raw + at;
    return raw_bytes - at < LLM_FRAME_BYTES ? raw_bytes - at : LLM_FRAME_BYTES;
}

static void peer_pack(void *arg, size_t i, int thread)
{
    const unsigned char *p;
    size_t n = frame_at(i, &p);
    ZSTD_CCtx *c = ZSTD_createCCtx();
    (void)arg;
    (void)thread;
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    packed_bytes[i] = ZSTD_compress2(c, packed[i], ZSTD_compressBound(n), p, n);
    ZSTD_freeCCtx(c);
}

static void peer_unpack(void *arg, size_t i, int thread)
{
    const unsigned char *p;
    size_t n = frame_at(i, &p);
    (void)arg;
    (void)thread;
    if (ZSTD_decompress(back + (p - raw), n, packed[i], packed_bytes[i]) != n) exit(1);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v)
{
    qsort(v, ROUNDS, sizeof *v, compare);
    return v[ROUNDS / 2];
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(int got, struct llm_err *e)
{
    if (got < 0) exit(llm_report(e));
}

static void write_ours(const char *path, enum llm_dtype dtype)
{
    struct llm_err e = {0};
    const struct llm_checkpoint_options opt = {.planes = true};
    const struct llm_tensor_out t = {"w", dtype, 1, {(int64_t)(raw_bytes / (size_t)llm_dtypes[dtype].block_bytes)}, raw};
    struct llm_output *o = llm_output_open(path, true, &e);
    check(o ? 0 : -1, &e);
    check(llm_checkpoint_write(o, NULL, &t, 1, &opt, &e), &e);
    check(llm_output_commit(o, &e), &e);
}

static void read_ours(const char *path)
{
    struct llm_err e = {0};
    struct llm_checkpoint *c = llm_checkpoint_open(path, &e);
    check(c ? 0 : -1, &e);
    check(llm_checkpoint_read(c, &llm_checkpoint_header(c)->entries[0], back, &e), &e);
    llm_checkpoint_close(c);
}

static void measure(const char *what, enum llm_dtype dtype)
{
    static const char path[] = "/dev/shm/llm-checkpoint-bench.llm";
    size_t n = (raw_bytes + LLM_FRAME_BYTES - 1) / LLM_FRAME_BYTES, peer = 0;
    double ours[2][ROUNDS], faster[2][ROUNDS], core[2][ROUNDS];
    back = malloc(raw_bytes);
    memset(back, 1, raw_bytes);
    write_ours(path, dtype);
    FILE *f = fopen(path, "rb");
    fseek(f, 0, SEEK_END);
    double size = (double)ftell(f);
    fclose(f);
    for (int i = 0; i < ROUNDS; i++) {
        double t[5] = {llm_now()}, cpu = cpu_now();
        write_ours("/dev/null", dtype);
        t[1] = llm_now();
        core[0][i] = (double)raw_bytes / (cpu_now() - cpu) / 1e9;
        llm_parallel(n, peer_pack, NULL);
        t[2] = llm_now();
        cpu = cpu_now();
        read_ours(path);
        t[3] = llm_now();
        core[1][i] = (double)raw_bytes / (cpu_now() - cpu) / 1e9;
        if (memcmp(back, raw, raw_bytes) != 0) exit(1);
        double before = llm_now();
        llm_parallel(n, peer_unpack, NULL);
        t[4] = llm_now() - before;
        ours[0][i] = (double)raw_bytes / (t[1] - t[0]) / 1e9;
        ours[1][i] = (double)raw_bytes / (t[3] - t[2]) / 1e9;
        faster[0][i] = (t[2] - t[1]) / (t[1] - t[0]);
        faster[1][i] = t[4] / (t[3] - t[2]);
    }
    for (size_t i = 0; i < n; i++) peer += packed_bytes[i];
    printf("%s\t%s\t%.1f\t%.4f\t%.4f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", what, llm_dtypes[dtype].name, (double)raw_bytes / 1e6,
           size / (double)raw_bytes, (double)peer / (double)raw_bytes, median(ours[0]), median(core[0]), median(faster[0]), median(ours[1]),
           median(core[1]), median(faster[1]));
    fflush(stdout);
    remove(path);
    free(back);
}

/* Normal numbers; `second`: like AdamW's second moment, squares with a scale of their own for each row. */
static void synthetic(const char *what, enum llm_dtype dtype, bool second, size_t count)
{
    size_t width = (size_t)llm_dtypes[dtype].block_bytes;
    unsigned char *p = malloc(count * width);
    for (size_t i = 0; i < count; i++) {
        struct llm_rng r = llm_rng_at(1, 0, LLM_RNG_TEST, 0, (uint32_t)(i >> 10), (uint32_t)(i & 1023)),
                       row = llm_rng_at(2, 0, LLM_RNG_TEST, 0, (uint32_t)(i >> 10), 0);
        float x = 0.02f * llm_rng_normal(&r, 0);
        if (second) x = x * x * llm_rng_uniform(&row, 0);
        llm_dtypes[dtype].encode(&x, p + i * width, 1);
    }
    raw = p;
    raw_bytes = count * width;
    measure(what, dtype);
    free(p);
}

static void real(const char *path, const char *prefix)
{
    struct llm_err e = {0};
    struct llm_checkpoint *c = llm_checkpoint_open(path, &e);
    check(c ? 0 : -1, &e);
    const struct llm_header *h = llm_checkpoint_header(c);
    for (int d = 0; d < LLM_N_DTYPES; d++) {
        unsigned char *p = malloc(h->data_bytes + 1);
        raw_bytes = 0;
        for (size_t i = 0; i < h->n_entries; i++) {
            const struct llm_entry *t = &h->entries[i];
            if ((int)t->dtype != d || !llm_dtypes[d].is_float || strncmp(t->name, prefix, strlen(prefix)) != 0) continue;
            check(llm_checkpoint_read(c, t, p + raw_bytes, &e), &e);
            raw_bytes += t->bytes;
        }
        raw = p;
        if (raw_bytes && raw_bytes <= MAX_FRAMES * LLM_FRAME_BYTES) measure(*prefix ? prefix : "weights", (enum llm_dtype)d);
        free(p);
    }
    llm_checkpoint_close(c);
}

int main(int argc, char **argv)
{
    struct llm_err e = {0};
    check(llm_pool_start(0, &e), &e);
    for (size_t i = 0; i < MAX_FRAMES; i++) packed[i] = malloc(ZSTD_compressBound(LLM_FRAME_BYTES));
    printf("# threads %d, libzstd %s\n# what\tdtype\tMB\tsize\tpeer's size\twrite GB/s\tper core\tfaster\tread GB/s\tper core\tfaster\n",
           llm_pool_threads(), ZSTD_versionString());
    if (argc > 1) {
        real(argv[1], argc > 2 ? argv[2] : "");
    } else {
        synthetic("weights", LLM_BF16, false, (size_t)64 << 20);
        synthetic("weights", LLM_F32, false, (size_t)32 << 20);
        synthetic("second moment", LLM_F32, true, (size_t)32 << 20);
    }
    return 0;
}
