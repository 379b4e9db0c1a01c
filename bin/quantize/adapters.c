#include "bin/quantize/adapters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "infer/generate.h"

/* ---- other formats ---- */

/* Where an adapter goes that has no suffix of a file: a folder. */
static bool names_folder(const char *out)
{
    return strcmp(out, "-") != 0 && !llm_ends_with(out, ".llm") && !llm_ends_with(out, ".gguf");
}

int adapter_write(struct llm_model *m, const char *out, bool gguf, enum llm_dtype type, struct llm_err *e)
{
    struct llm_lora *l = m->lora;
    if (!gguf && names_folder(out)) return llm_lora_save_folder(l, m, out, type, e);
    struct llm_output *o = llm_output_open(out, true, e);
    if (!o) return -1;
    if ((gguf ? llm_lora_save_gguf(l, m, o, type, e) : llm_lora_save(l, m, o, e)) < 0) {
        if (e->status == EX_UNAVAILABLE) llm_in(e, "%s", llm_output_name(o)); /* what the format cannot hold */
        llm_output_abandon(o);
        return -1;
    }
    return llm_output_commit(o, e);
}

int adapter_convert(const char *in, const char *base, const char *out, bool gguf, enum llm_dtype type, struct llm_err *e)
{
    if (type == LLM_NO_DTYPE) type = LLM_F32;
    if (!llm_dtypes[type].is_float || type == LLM_F64) {
        return llm_fail(e, LLM_EX_USAGE, "%s: an adapter: expected -t f32, f16, bf16 or keep, found %s", in, llm_dtypes[type].name);
    }
    if (!gguf && !names_folder(out) && type != LLM_F32) return llm_fail(e, LLM_EX_USAGE, "-t: expected f32 or keep for an adapter as .llm");
    char *named = base ? strdup(base) : llm_lora_base_of(in, e);
    if (!named) return base ? llm_no_memory(e, "an adapter") : -1;
    struct llm_model *m = llm_model_load(named, e);
    int r = m ? llm_lora_load(m, in, 1, e) : llm_in(e, "%s: its base", in);
    if (r == 0 && !m->lora->base_fingerprint[0]) r = llm_lora_renew(m, named, -1, -1, e);
    if (r == 0) r = adapter_write(m, out, gguf, type, e);
    if (r == 0) llm_note("an adapter of %zu matrices, rank %lld: %.1f MiB", m->lora->n_pairs, (long long)m->lora->rank,
                         llm_lora_elements(m->lora) * (double)llm_dtype_bytes(type, 1) / 1048576);
    free(named);
    llm_model_destroy(m);
    return r;
}

/* ---- merging ---- */

int adapters_load(struct llm_model *m, const struct llm_strs *adapters, struct llm_err *e)
{
    for (size_t i = 0; i < adapters->n; i++) {
        char *path;
        float scale;
        int r = llm_lora_parse(adapters->v[i], &path, &scale, e);
        if (r == 0) r = llm_lora_load(m, path, scale, e);
        free(path);
        if (r < 0) return -1;
    }
    return 0;
}

enum { TEXTS = 8, TOKENS = 33 }; /* that the model writes; each begins with a token that is given */

/* What the model with its adapters has written. */
struct texts { int32_t ids[TEXTS][TOKENS]; int64_t n[TEXTS]; int64_t begun; int32_t first[TEXTS]; };

static int next_text(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct texts *t = arg;
    (void)e;
    if (t->begun == TEXTS) return 0;
    *p = (struct llm_prompt){.ids = &t->first[t->begun], .n = 1, .max_tokens = TOKENS - 1, .samples = 1, .sampling = llm_sampling_defaults,
                             .ignore_eos = true, .user = &t->n[t->begun]};
    p->sampling.temperature = 1;
    p->sampling.top_k = 0;
    p->sampling.top_p = 1;
    p->sampling.min_p = 0;
    p->sampling.seed = (uint64_t)t->begun++;
    return 1;
}

static int take_text(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct texts *t = arg;
    int64_t *n = c->prompt.user;
    int32_t *ids = t->ids[n - t->n];
    (void)e;
    ids[0] = t->first[n - t->n];
    *n = 1 + c->n;
    memcpy(ids + 1, c->ids, (size_t)c->n * sizeof *ids);
    return 0;
}

/* The first tokens: the one that begins a text, else spread over the vocabulary. */
static int write_texts(struct llm_engine *g, struct texts *t, struct llm_err *e)
{
    const struct llm_config *c = &g->model->config;
    for (int i = 0; i < TEXTS; i++) t->first[i] = (int32_t)(c->bos_token_id >= 0 ? c->bos_token_id : c->vocab_size * (2 * i + 1) / (2 * TEXTS));
    const struct llm_generate work = {.engine = g, .parallel = TEXTS, .next = next_text, .done = take_text, .arg = t};
    return llm_generate(&work, e);
}

struct logits { float *v; int64_t vocab; };

static int keep_logits(void *arg, const struct llm_span *s, struct llm_err *e)
{
    const struct logits *l = arg;
    (void)e;
    memcpy(l->v + s->first * l->vocab, s->logits, (size_t)(s->n * l->vocab) * sizeof *l->v);
    return 0;
}

/* KL(softmax(p), softmax(q)) of n logits. */
static double divergence(const float *p, const float *q, int64_t n)
{
    double p_max = -INFINITY, q_max = -INFINITY, p_sum = 0, q_sum = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        p_max = fmax(p_max, (double)p[i]);
        q_max = fmax(q_max, (double)q[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        p_sum += exp((double)p[i] - p_max);
        q_sum += exp((double)q[i] - q_max);
    }
    double shift = (q_max + log(q_sum)) - (p_max + log(p_sum));
    for (int64_t i = 0; i < n; i++) {
        double share = exp((double)p[i] - p_max) / p_sum;
        if (share > 0) sum += share * ((double)p[i] - (double)q[i] + shift);
    }
    return sum > 0 ? sum : 0; /* rounding may leave less than 0 */
}

struct cost { double sum, max; int64_t tokens; };

static int compare(struct llm_engine *g[2], const struct texts *t, struct cost *cost, struct llm_err *e)
{
    int64_t vocab = g[0]->model->config.vocab_size;
    struct logits l[2] = {{llm_alloc((size_t)(TOKENS * vocab), sizeof(float), "logits", e), vocab}, {NULL, vocab}};
    l[1].v = l[0].v ? llm_alloc((size_t)(TOKENS * vocab), sizeof(float), "logits", e) : NULL;
    int r = l[1].v ? 0 : -1;
    for (int i = 0; r == 0 && i < TEXTS; i++) {
        for (int k = 0; r == 0 && k < 2; k++) {
            struct llm_kv kv;
            llm_kv_init(&kv, &g[k]->pool);
            r = llm_engine_prefill(g[k], &kv, t->ids[i], t->n[i], false, true, keep_logits, &l[k], e);
            llm_kv_release(&kv);
        }
        for (int64_t at = 0; r == 0 && at < t->n[i]; at++) {
            double kl = divergence(l[0].v + at * vocab, l[1].v + at * vocab, vocab);
            cost->sum += kl;
            cost->max = fmax(cost->max, kl);
            cost->tokens++;
        }
    }
    free(l[0].v);
    free(l[1].v);
    return r;
}

int adapters_report(const char *in, const struct llm_strs *adapters, struct llm_model *m, struct llm_err *e)
{
    struct llm_err no_text;
    struct texts texts = {.begun = 0};
    struct llm_engine of[2] = {{0}}, *engines[] = {&of[0], &of[1]};
    struct cost cost = {0};
    const struct llm_engine_options o = {.compute = LLM_COMPUTE_F32, .batch = 512};
    if (llm_model_must_continue(m, &no_text) < 0) {
        llm_note("merged; no KL: a model of type '%s' writes no texts", m->config.model_type);
        return 0;
    }
    struct llm_model *adapted = llm_model_load(in, e);
    int r = adapted ? adapters_load(adapted, adapters, e) : -1;
    if (r == 0) r = llm_engine_init(&of[0], adapted, &o, e);
    if (r == 0) r = llm_engine_init(&of[1], m, &o, e);
    if (r == 0) r = write_texts(&of[0], &texts, e);
    if (r == 0) r = compare(engines, &texts, &cost, e);
    if (r == 0) {
        llm_note("merged: KL to the model with its adapter: mean %.3g, maximum %.3g nats, over %lld tokens that it wrote itself",
                 cost.sum / (double)cost.tokens, cost.max, (long long)cost.tokens);
    }
    llm_engine_release(&of[0]);
    llm_engine_release(&of[1]);
    llm_model_destroy(adapted);
    return r;
}
