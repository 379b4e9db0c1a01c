/* Where the time of a run goes (--profile). A span is a stretch of work of the thread that called llm_profile_start, named by what is done. Spans
 * nest, and the seconds of one leave out those of spans within it, so all of them together are at most the time since the start. Parts are a second
 * set of spans over the same time: what an op spends on packing operands, on products, on waiting for the other threads. Work done in pieces
 * (cpu/pool.h) belongs to the span that the pieces were cut in. While it is off a span costs the test of a flag. */
#ifndef LLM_CPU_PROFILE_H
#define LLM_CPU_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What arithmetic is done in. */
enum llm_profile_unit { LLM_PROFILE_F32, LLM_PROFILE_BF16, LLM_PROFILE_INT8, LLM_PROFILE_UNITS };

struct llm_profile_row {
    const char *name;
    bool part;
    uint64_t calls;
    double seconds;
    double bytes;                     /* that have to come and go at least: operands and results, each once */
    double flops[LLM_PROFILE_UNITS];  /* of products, as the cost model counts them (measure/cost.h): element-wise work is left out */
};

extern bool llm_profiling;
void llm_profile_start(void); /* discards earlier rows */
void llm_profile_stop(void);
double llm_profile_seconds(void); /* from start to stop, or to now */
/* Rows in the order of their first ends; valid until the next start. Returns how many. */
size_t llm_profile_rows(const struct llm_profile_row **rows);

struct llm_profile_span {
    const char *name; /* a literal; NULL: does not count */
    bool part;
    double started, inner, bytes, flops[LLM_PROFILE_UNITS];
    struct llm_profile_span *outer;
};
void llm_profile_enter(struct llm_profile_span *s, const char *name, bool part, double bytes);
void llm_profile_leave(struct llm_profile_span *s);
static inline void llm_profile_end(struct llm_profile_span *s)
{
    if (s->name) llm_profile_leave(s);
}
/* Adds to the innermost span and part. */
void llm_profile_work(enum llm_profile_unit unit, double flops, double bytes);

/* From here to the end of the enclosing block. `bytes` is computed only while profiling. */
#define LLM_PROFILE(name, bytes) LLM_PROFILE_SPAN(name, false, bytes)
#define LLM_PROFILE_PART(name) LLM_PROFILE_SPAN(name, true, 0)
#define LLM_PROFILE_WORK(unit, flops, bytes) \
    do { if (llm_profiling) llm_profile_work(unit, flops, (double)(bytes)); } while (0)
#define LLM_PROFILE_SPAN(what, is_part, n_bytes) LLM_PROFILE_SPAN_ON(what, is_part, n_bytes, __LINE__)
#define LLM_PROFILE_SPAN_ON(what, is_part, n_bytes, line) LLM_PROFILE_SPAN_HERE(what, is_part, n_bytes, line)
#define LLM_PROFILE_SPAN_HERE(what, is_part, n_bytes, line) \
    struct llm_profile_span span_##line __attribute__((cleanup(llm_profile_end))); \
    span_##line.name = NULL; \
    if (llm_profiling) llm_profile_enter(&span_##line, what, is_part, (double)(n_bytes))

#endif
