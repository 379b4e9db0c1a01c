#include "measure/look.h"

#include <inttypes.h>
#include <math.h>
#include "cpu/matmul.h"

bool llm_look_attends(const struct llm_kv_file *f, int64_t layer)
{
    return f->layers[layer].shape.n_kv_heads > 0 && f->config.mixer != LLM_MIXER_HYENA;
}

int64_t llm_look_value_width(const struct llm_kv_file *f, int64_t layer)
{
    int64_t d_v = f->layers[layer].shape.d_v;
    return d_v > 0 ? d_v : f->config.kv_lora_rank;
}

int llm_look_check(const struct llm_kv_file *f, int64_t layer, struct llm_err *e)
{
    const struct llm_config *c = &f->config;
    const char *more = c->attention_sinks                        ? "the sinks of its heads"
                       : c->position == LLM_POSITION_BUCKETS     ? "a bias for distances"
                       : c->dual_chunk_size > 0                  ? "queries rotated for each chunk"
                       : llm_config_block(c, layer) > 0          ? "blocks of tokens"
                                                                 : NULL;
    if (!llm_look_attends(f, layer)) return llm_fail(e, EX_DATAERR, "layer %" PRId64 ": expected keys of attention, found none", layer);
    if (f->n_queries == 0) return llm_fail(e, EX_DATAERR, "expected traced queries (llm-infer --kv-out --trace-queries N), found none");
    if (!more) return 0;
    return llm_fail(e, EX_DATAERR, "layer %" PRId64 ": expected attention of queries and keys alone; the cache does not have %s, which %s adds",
                    layer, more, c->model_type);
}

int64_t llm_look_kv_head(const struct llm_kv_file *f, int64_t layer, int64_t head)
{
    return head / (f->config.num_attention_heads / f->layers[layer].shape.n_kv_heads);
}

void llm_look_decode(const struct llm_kv_file *f, char what, int64_t layer, int64_t kv_head, float *out)
{
    const struct llm_state_shape *s = &f->layers[layer].shape;
    int64_t d = what == 'v' && s->d_v > 0 ? s->d_v : s->d_k;
    for (int64_t r = 0; r < f->rows; r++) llm_kv_file_decode(f, what, layer, r, kv_head, out + r * d);
}

void llm_look_seen(const struct llm_kv_file *f, int64_t layer, int64_t kv_head, int64_t t, int64_t *from, int64_t *to)
{
    int64_t window = llm_config_window(&f->config, layer);
    *from = 0;
    *to = f->rows;
    if (f->config.bidirectional) return;
    for (*to = t < f->rows ? t + 1 : f->rows; llm_kv_file_token(f, layer, *to - 1, kv_head) > t;) --*to;
    while (window > 0 && f->positions[t] - f->positions[llm_kv_file_token(f, layer, *from, kv_head)] >= window) ++*from;
}

/* The softmax of a row of scores over the keys in sight. */
static void attend(const struct llm_kv_file *f, int64_t layer, int64_t from, int64_t to, float *row)
{
    double max = -INFINITY, sum = 0, scale = llm_config_attention_scale(&f->config, layer), cap = f->config.attn_logit_softcapping;
    for (int64_t j = 0; j < from; j++) row[j] = 0;
    for (int64_t j = to; j < f->rows; j++) row[j] = 0;
    for (int64_t j = from; j < to; j++) {
        double s = cap > 0 ? cap * tanh((double)row[j] * scale / cap) : (double)row[j] * scale;
        row[j] = (float)s;
        max = s > max ? s : max;
    }
    for (int64_t j = from; j < to; j++) {
        double x = exp((double)row[j] - max);
        row[j] = (float)x;
        sum += x;
    }
    for (int64_t j = from; j < to; j++) row[j] = (float)((double)row[j] / sum);
}

int llm_look(const struct llm_kv_file *f, int64_t layer, int64_t head, const float *keys, int64_t first, int64_t n, float *out)
{
    int64_t heads = f->config.num_attention_heads, d = f->layers[layer].shape.d_k, kv_head = llm_look_kv_head(f, layer, head);
    const float *queries = (const float *)f->layers[layer].q + (first * heads + head) * d;
    struct llm_weight w = {.data = keys, .dtype = LLM_F32, .n = f->rows, .k = d};
    struct llm_err e = {0};
    struct llm_matmul product = {.m = n, .x = queries, .ldx = heads * d, .y = out, .ldy = f->rows, .compute = LLM_COMPUTE_F32};
    int status = llm_matmul(&product, &w, &e);
    llm_weight_release(&w);
    for (int64_t i = 0; i < n && status == 0; i++) {
        int64_t from, to;
        llm_look_seen(f, layer, kv_head, f->n - f->n_queries + first + i, &from, &to);
        attend(f, layer, from, to, out + i * f->rows);
    }
    return status;
}
