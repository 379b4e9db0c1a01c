/* llm-bench kernels: this machine's peaks; matrix products and attention against them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "bin/bench/bench.h"
#include "cpu/detect.h"
#include "cpu/pool.h"
#include "measure/attention.h"
#include "measure/latent.h"
#include "measure/gemm.h"

struct args {
    struct llm_common common;
    struct llm_strs shapes, attention, latent;
    double seconds;
    int peaks_only;
};
#define LEAST_SHARE 0.9 /* of the processor time asked for; with less the peaks are too low */
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {0, "shape", "MxNxK", "size of a matrix product: tokens × outputs × inputs; may be given several times [GPT-2 124M's, and each with one token]",
     LLM_LIST,
     AT(shapes), 0, 0, NULL},
    {0, "attention", "TxHxD", "size of an attention: tokens × heads × head width; may be given several times [1024x12x64 and 4096x12x64]", LLM_LIST,
     AT(attention), 0, 0, NULL},
    {0, "latent", "KxHxR", "size of a decoding step of latent attention: keys × heads × rank; may be given several times [4096x16x512]",
     LLM_LIST, AT(latent),
     0, 0, NULL},
    {0, "seconds", "S", "seconds to measure each product for [0.2]", LLM_REAL, AT(seconds), 0, 60, NULL},
    {0, "peaks", NULL, "print the machine's peaks only", LLM_FLAG, AT(peaks_only), 0, 0, NULL},
    {0}};

const struct llm_cli bench_kernels_cli = {
    .name = "llm-bench kernels",
    .summary = "Measure this machine's arithmetic and memory peaks, and matrix products and attention against them.",
    .usage = "[OPTION]...",
    .examples = "llm-bench kernels --peaks\n"
                "llm-bench kernels --shape 512x4096x4096\n"
                "llm-bench kernels --attention 16384x12x64",
    .options = options,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE,
};

static const char *const peak_columns[] = {"peak", "value", "unit", "threads", "isa", "cpu", NULL};
static const char *const product_columns[] = {"product", "m", "n", "k", "arithmetic", "gflops", "best_gflops", "limit", "share_of_limit", NULL};

static const char *const attention_columns[] = {"attention", "tokens", "heads", "head_dim", "arithmetic", "gflops", "best_gflops", "limit",
                                                "share_of_limit", "bytes", NULL};

/* Adds a row with a peak. value 0: the machine has none of this kind, and the cell stays empty. */
static void peak(struct llm_table *t, const char *name, double value, const char *unit, const char *cpu)
{
    llm_table_text(t, name);
    llm_table_number(t, value > 0 ? value : (double)NAN, 4);
    llm_table_text(t, unit);
    llm_table_count(t, llm_pool_threads());
    llm_table_text(t, llm_isa_name());
    llm_table_text(t, cpu);
}

static double peak_of(const struct llm_peaks *p, const char *kind)
{
    if (strcmp(kind, "bf16") == 0 && p->bf16 > 0) return p->bf16;
    if (strcmp(kind, "int8") == 0 && p->int8 > 0) return p->int8;
    return p->f32;
}

static int products(struct llm_table *t, const struct llm_peaks *p, int64_t m, int64_t n, int64_t k, double seconds, struct llm_err *e)
{
    static const struct { const char *name; struct llm_gemm_job job; } rows[] = {
        {"f32", {.weight = LLM_F32, .compute = LLM_COMPUTE_F32}},
        {"bf16", {.weight = LLM_BF16, .compute = LLM_COMPUTE_BF16}},
        {"bf16 packed", {.weight = LLM_BF16, .compute = LLM_COMPUTE_BF16, .panels = true}},
        {"bf16 dx", {.weight = LLM_BF16, .compute = LLM_COMPUTE_BF16, .pass = LLM_GEMM_DX}},
        {"bf16 dw", {.weight = LLM_BF16, .compute = LLM_COMPUTE_BF16, .pass = LLM_GEMM_DW}},
        {"bf16 dw packed", {.weight = LLM_BF16, .compute = LLM_COMPUTE_BF16, .pass = LLM_GEMM_DW, .panels = true}},
        {"q8_0", {.weight = LLM_Q8_0, .compute = LLM_COMPUTE_BF16}},
        {"q4_0", {.weight = LLM_Q4_0, .compute = LLM_COMPUTE_BF16}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_gemm_job job = rows[i].job;
        double median, best;
        if (k % llm_dtypes[job.weight].block_size || (m == 1 && (job.pass != LLM_GEMM_FORWARD || job.panels))) continue;
        if (job.panels && llm_panels_bytes(m, k) == 0) continue;
        job.m = m, job.n = n, job.k = k;
        if (llm_gemm_speed(&job, seconds, &median, &best, e) < 0) return -1;
        const char *kind = llm_matmul_kind(job.weight, job.compute);
        llm_table_text(t, rows[i].name);
        llm_table_count(t, (double)m);
        llm_table_count(t, (double)n);
        llm_table_count(t, (double)k);
        llm_table_text(t, kind);
        llm_table_number(t, median / 1e9, 4);
        llm_table_number(t, best / 1e9, 4);
        /* products of a few tokens are bound by memory, larger ones by arithmetic */
        double limit = peak_of(p, kind), reading = p->read_bandwidth / llm_gemm_bytes(&job) * 2 * (double)m * (double)n * (double)k;
        bool memory = llm_gemm_is_cold(&job) && reading < limit;
        llm_table_text(t, memory ? "memory" : kind);
        llm_table_number(t, median / (memory ? reading : limit), 3);
    }
    return 0;
}

static int attention(struct llm_table *t, const struct llm_peaks *p, const int64_t shape[3], double seconds, struct llm_err *e)
{
    static const struct { const char *name, *kind; struct llm_attention_job job; } rows[] = {
        {"f32 forward", "f32", {.compute = LLM_COMPUTE_F32}},
        {"f32 both ways", "f32", {.compute = LLM_COMPUTE_F32, .backward = true}},
        {"bf16 forward", "bf16", {.compute = LLM_COMPUTE_BF16}},
        {"bf16 both ways", "bf16", {.compute = LLM_COMPUTE_BF16, .backward = true}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_attention_job job = rows[i].job;
        struct llm_attention_speed speed;
        job.tokens = shape[0], job.n_heads = shape[1], job.head_dim = shape[2];
        if (llm_attention_speed(&job, seconds, &speed, e) < 0) return -1;
        llm_table_text(t, rows[i].name);
        for (int k = 0; k < 3; k++) llm_table_count(t, (double)shape[k]);
        llm_table_text(t, rows[i].kind);
        llm_table_number(t, speed.median / 1e9, 4);
        llm_table_number(t, speed.best / 1e9, 4);
        llm_table_text(t, rows[i].kind);
        llm_table_number(t, speed.median / peak_of(p, rows[i].kind), 3);
        llm_table_count(t, (double)speed.bytes);
    }
    return 0;
}

/* Batches of one sequence and of eight: each token reads every key of its sequence's cache once, for all heads. */
static int latent(struct llm_table *t, const struct llm_peaks *p, const int64_t shape[3], double seconds, struct llm_err *e)
{
    static const struct { const char *name; int64_t n_seqs; } rows[] = {{"bf16 latent, 1 sequence", 1}, {"bf16 latent, 8 sequences", 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct llm_latent_job job = {.keys = shape[0], .n_heads = shape[1], .rank = shape[2], .n_seqs = rows[i].n_seqs};
        double median, best, limit = peak_of(p, "bf16"), reading = p->read_bandwidth * llm_latent_flops(&job) / llm_latent_bytes(&job);
        if (llm_latent_speed(&job, seconds, &median, &best, e) < 0) return -1;
        llm_table_text(t, rows[i].name);
        llm_table_count(t, (double)shape[0]);
        llm_table_count(t, (double)shape[1]);
        llm_table_count(t, (double)(shape[2] + LLM_LATENT_ROPE));
        llm_table_text(t, p->bf16 > 0 ? "bf16" : "f32");
        llm_table_number(t, median / 1e9, 4);
        llm_table_number(t, best / 1e9, 4);
        llm_table_text(t, reading < limit ? "memory" : p->bf16 > 0 ? "bf16" : "f32");
        llm_table_number(t, median / (reading < limit ? reading : limit), 3);
        llm_table_count(t, llm_latent_bytes(&job));
    }
    return 0;
}

static void parse_shape(const char *option, const char *what, const char *s, int64_t shape[3])
{
    char text[3][24], end;
    if (sscanf(s, "%20[0-9]x%20[0-9]x%20[0-9]%c", text[0], text[1], text[2], &end) != 3) {
        llm_usage(&bench_kernels_cli, "--%s: expected %s, found '%s'", option, what, s);
    }
    for (int i = 0; i < 3; i++) {
        if (llm_parse_int(text[i], &shape[i]) < 0 || shape[i] < 1 || shape[i] > 1 << 17) {
            llm_usage(&bench_kernels_cli, "--%s: expected numbers from 1 to 131072, found '%s'", option, s);
        }
    }
}

/* The shapes to measure: those of the options; the defaults if no option names any. */
struct wanted { const char *const *shapes, *const *attention, *const *latent; size_t n_shapes, n_attention, n_latent; };

static struct wanted wanted_of(const struct args *a)
{
    static const char *const usual[] = {"512x768x768", "512x3072x768", "512x768x3072", "1x3072x768", "1x50257x768"};
    static const char *const usual_attention[] = {"1024x12x64", "4096x12x64"}, *const usual_latent[] = {"4096x16x512"};
    int64_t shape[3];
    for (size_t i = 0; i < a->shapes.n; i++) parse_shape("shape", "MxNxK", a->shapes.v[i], shape);
    for (size_t i = 0; i < a->attention.n; i++) parse_shape("attention", "TxHxD", a->attention.v[i], shape);
    for (size_t i = 0; i < a->latent.n; i++) parse_shape("latent", "KxHxR", a->latent.v[i], shape);
    if (a->peaks_only) return (struct wanted){0};
    if (a->shapes.n + a->attention.n + a->latent.n > 0) {
        return (struct wanted){a->shapes.v, a->attention.v, a->latent.v, a->shapes.n, a->attention.n, a->latent.n};
    }
    return (struct wanted){usual, usual_attention, usual_latent, sizeof usual / sizeof *usual, sizeof usual_attention / sizeof *usual_attention, 1};
}

int bench_kernels(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.seconds = 0.2};
    int rest = llm_cli_parse(&bench_kernels_cli, &a, argc, argv), status = 0;
    struct llm_table t[3], *tables[3];
    struct llm_peaks p;
    char cpu[100];
    int64_t shape[3];
    size_t n = 0;
    if (rest < argc) llm_usage(&bench_kernels_cli, "expected no operand, found '%s'", argv[rest]);
    const struct wanted w = wanted_of(&a);
    if (bench_begin(&a.common, e) < 0 || llm_peaks_measure(&p, e) < 0) return -1;
    llm_cpu_name(cpu, sizeof cpu);
    llm_table_init(&t[0], peak_columns);
    llm_table_init(&t[1], product_columns);
    llm_table_init(&t[2], attention_columns);
    peak(&t[0], "f32", p.f32 / 1e9, "GFLOP/s", cpu);
    peak(&t[0], "bf16", p.bf16 / 1e9, "GFLOP/s", cpu);
    peak(&t[0], "int8", p.int8 / 1e9, "GOP/s", cpu);
    peak(&t[0], "f32 reading", p.f32_reading / 1e9, "GFLOP/s", cpu);
    peak(&t[0], "int8 reading", p.int8_reading / 1e9, "GOP/s", cpu);
    peak(&t[0], "cpu_share", p.cpu_share, "of the time asked for", cpu);
    if (p.cpu_share < LEAST_SHARE) {
        llm_warn("the loops were given %.0f%% of the processor time that %d thread%s asked for: other work or other guests have the rest",
                 100 * p.cpu_share, p.threads, p.threads == 1 ? "" : "s");
    }
    peak(&t[0], "read", p.read_bandwidth / 1e9, "GB/s", cpu);
    peak(&t[0], "barrier", p.barrier * 1e6, "us", cpu);
    for (size_t i = 0; i < w.n_shapes && status == 0; i++) {
        parse_shape("shape", "MxNxK", w.shapes[i], shape);
        status = products(&t[1], &p, shape[0], shape[1], shape[2], a.seconds, e);
    }
    for (size_t i = 0; i < w.n_attention && status == 0; i++) {
        parse_shape("attention", "TxHxD", w.attention[i], shape);
        status = attention(&t[2], &p, shape, a.seconds, e);
    }
    for (size_t i = 0; i < w.n_latent && status == 0; i++) {
        parse_shape("latent", "KxHxR", w.latent[i], shape);
        status = latent(&t[2], &p, shape, a.seconds, e);
    }
    llm_pool_stop();
    for (int i = 0; i < 3; i++) {
        if (status == 0 && t[i].n_cells > 0) tables[n++] = &t[i];
        else llm_table_release(&t[i]);
    }
    return status == 0 ? bench_print(&a.common, tables, n, e) : -1;
}
