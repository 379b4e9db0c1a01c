/* llm-bench kernels: this machine's peaks, and matrix products against them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "bin/bench/bench.h"
#include "cpu/detect.h"
#include "cpu/pool.h"
#include "measure/gemm.h"

struct args {
    struct llm_common common;
    struct llm_strs shapes;
    double seconds;
    int peaks_only;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {0, "shape", "MxNxK", "tokens × outputs × inputs; may be given several times [those of GPT-2 124M, and one token of them]", LLM_LIST,
     AT(shapes), 0, 0, NULL},
    {0, "seconds", "S", "time for each product [0.2]", LLM_REAL, AT(seconds), 0, 60, NULL},
    {0, "peaks", NULL, "only the peaks", LLM_FLAG, AT(peaks_only), 0, 0, NULL},
    {0}};

const struct llm_cli bench_kernels_cli = {
    .name = "llm-bench kernels",
    .summary = "This machine's arithmetic and memory peaks, and matrix products against them.",
    .usage = "[OPTION]...",
    .examples = "llm-bench kernels --peaks\n"
                "llm-bench kernels --shape 512x4096x4096",
    .options = options,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_JSON,
};

static const char *const peak_columns[] = {"peak", "value", "unit", "threads", "isa", "cpu", NULL};
static const char *const product_columns[] = {"product", "m", "n", "k", "arithmetic", "gflops", "best_gflops", "limit", "share_of_limit", NULL};

static void peak(struct llm_table *t, const char *name, double value, const char *unit, const char *cpu)
{
    llm_table_text(t, name);
    llm_table_number(t, value > 0 ? value / 1e9 : (double)NAN, 4);
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
        {"bf16 dx", {.weight = LLM_BF16, .compute = LLM_COMPUTE_BF16, .pass = LLM_GEMM_DX}},
        {"bf16 dw", {.weight = LLM_BF16, .compute = LLM_COMPUTE_BF16, .pass = LLM_GEMM_DW}},
        {"q8_0", {.weight = LLM_Q8_0, .compute = LLM_COMPUTE_BF16}},
        {"q4_0", {.weight = LLM_Q4_0, .compute = LLM_COMPUTE_BF16}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_gemm_job job = rows[i].job;
        double median, best;
        if (k % llm_dtypes[job.weight].block_size || (m == 1 && job.pass != LLM_GEMM_FORWARD)) continue;
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
        /* a few tokens wait for the weight, more for arithmetic */
        double limit = peak_of(p, kind), reading = p->read_bandwidth / llm_gemm_bytes(&job) * 2 * (double)m * (double)n * (double)k;
        bool memory = llm_gemm_is_cold(&job) && reading < limit;
        llm_table_text(t, memory ? "memory" : kind);
        llm_table_number(t, median / (memory ? reading : limit), 3);
    }
    return 0;
}

static void parse_shape(const char *s, int64_t shape[3])
{
    char text[3][24], end;
    if (sscanf(s, "%20[0-9]x%20[0-9]x%20[0-9]%c", text[0], text[1], text[2], &end) != 3) {
        llm_usage(&bench_kernels_cli, "--shape: expected MxNxK, found '%s'", s);
    }
    for (int i = 0; i < 3; i++) {
        if (llm_parse_int(text[i], &shape[i]) < 0 || shape[i] < 1 || shape[i] > 1 << 17) {
            llm_usage(&bench_kernels_cli, "--shape: expected numbers from 1 to 131072, found '%s'", s);
        }
    }
}

int bench_kernels(int argc, char **argv, struct llm_err *e)
{
    static const char *const usual[] = {"512x768x768", "512x3072x768", "512x768x3072", "1x3072x768", "1x50257x768"};
    struct args a = {.seconds = 0.2};
    int rest = llm_cli_parse(&bench_kernels_cli, &a, argc, argv), status = 0;
    struct llm_table peaks, t, *tables[] = {&peaks, &t};
    struct llm_peaks p;
    char cpu[100];
    int64_t shape[3];
    if (rest < argc) llm_usage(&bench_kernels_cli, "expected no operand, found '%s'", argv[rest]);
    for (size_t i = 0; i < a.shapes.n; i++) parse_shape(a.shapes.v[i], shape);
    if (llm_pool_start(a.common.threads, e) < 0 || llm_peaks_measure(&p, e) < 0) return -1;
    llm_cpu_name(cpu, sizeof cpu);
    llm_table_init(&peaks, peak_columns);
    llm_table_init(&t, product_columns);
    peak(&peaks, "f32", p.f32, "GFLOP/s", cpu);
    peak(&peaks, "bf16", p.bf16, "GFLOP/s", cpu);
    peak(&peaks, "int8", p.int8, "GOP/s", cpu);
    peak(&peaks, "read", p.read_bandwidth, "GB/s", cpu);
    size_t n = a.peaks_only ? 0 : a.shapes.n ? a.shapes.n : sizeof usual / sizeof *usual;
    for (size_t i = 0; i < n && status == 0; i++) {
        parse_shape(a.shapes.n ? a.shapes.v[i] : usual[i], shape);
        status = products(&t, &p, shape[0], shape[1], shape[2], a.seconds, e);
    }
    llm_pool_stop();
    if (status == 0 && n > 0) return bench_print(&a.common, tables, 2, e);
    llm_table_release(&t);
    if (status == 0) return bench_print(&a.common, tables, 1, e);
    llm_table_release(&peaks);
    return -1;
}
