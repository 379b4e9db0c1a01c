/* What the forward pass, the backward pass and attention over a cache prepare alike: checked arguments, tables of biases, counts of work, and a job:
 * the queries of one key head in a run of a document. */
#include "tensor/op/attention_internal.h"

#include "cpu/profile.h"

bool attn_check(struct llm_ctx *c, const struct llm_tensor *q, const struct llm_tensor *k, const struct llm_tensor *v, const struct llm_attn *a)
{
    const char *wrong = NULL;
    if (a->n_heads < 1 || a->n_kv_heads < 1 || a->n_heads % a->n_kv_heads) wrong = "n_heads: expected a multiple of n_kv_heads";
    else if (a->d_k < 1 || a->d_v < 1) wrong = "head widths: expected 1 or more";
    else if (q->cols != a->n_heads * a->d_k) wrong = "q: expected n_heads·d_k columns";
    else if (k && k->cols != a->n_kv_heads * a->d_k) wrong = "k: expected n_kv_heads·d_k columns";
    else if (k && v->cols != a->n_kv_heads * a->d_v) wrong = "v: expected n_kv_heads·d_v columns";
    else if (k && k->rows != v->rows) wrong = "k and v: expected as many rows";
    else if (a->chunk < 0) wrong = "chunk: expected 0 or more";
    else if (a->window < 0 || a->prefix < 0 || a->kv_row_len < 0) wrong = "window, prefix, kv_row_len: expected 0 or more";
    else if (a->rel_bias && (a->rel_max < 1 || (a->rel_map && a->rel_buckets < 1))) wrong = "rel_max: expected 1 or more";
    else if (!(a->dropout >= 0 && a->dropout < 1)) wrong = "dropout: expected a probability below 1";
    if (wrong) llm_op_fail(c, LLM_EX_FAILURE, "attention: %s", wrong);
    return !wrong;
}

const float *attn_values(struct llm_ctx *c, const struct llm_param *p, int64_t n, const char *what)
{
    if (!p || llm_ctx_failed(c)) return NULL;
    if (llm_param_count(p) != n) {
        llm_op_fail(c, LLM_EX_FAILURE, "attention: %s: expected %lld values", what, (long long)n);
        return NULL;
    }
    if (llm_weight_is_f32(&p->weight)) return p->weight.data;
    float *values = llm_op_alloc(c, n, sizeof *values);
    if (values) llm_weight_decode(&p->weight, 0, n, values);
    return values;
}

const float *attn_bias_table(struct llm_ctx *c, const struct llm_attn *a)
{
    int64_t width = 2 * a->rel_max - 1;
    if (!a->rel_bias || !a->rel_map) return attn_values(c, a->rel_bias, a->n_heads * width, "rel_bias");
    const float *buckets = attn_values(c, a->rel_bias, a->n_heads * a->rel_buckets, "rel_bias");
    float *table = llm_op_alloc(c, a->n_heads * width, sizeof *table);
    if (llm_ctx_failed(c)) return NULL;
    for (int64_t h = 0; h < a->n_heads; h++) {
        for (int64_t x = 0; x < width; x++) table[h * width + x] = buckets[a->rel_map[x] * a->n_heads + h];
    }
    return table;
}

void attn_count(const struct llm_ctx *c, const struct llm_attn *a, double pairs, int passes, double bytes)
{
    const double flops = 2 * (double)(a->n_heads * (a->d_k + a->d_v)) * pairs * passes / (a->members ? a->members->n : 1);
    llm_profile_work(c->compute == LLM_COMPUTE_BF16 ? LLM_PROFILE_BF16 : LLM_PROFILE_F32, flops, bytes);
}

double attn_pairs(const struct llm_attn *a, int64_t from, int64_t n, int64_t n_keys)
{
    double pairs = 0;
    for (int64_t i = from; i < from + n; i++) {
        struct attn_range r = attn_seen(a, i, n_keys);
        int64_t prefix = attn_min(a->prefix, n_keys), outside = attn_min(prefix, r.first) + attn_max(0, prefix - attn_max(r.first, r.last));
        pairs += (double)(attn_max(0, r.last - r.first) + outside);
    }
    return pairs;
}

double attn_op_pairs(const struct attn_op *op)
{
    double pairs = 0;
    for (int64_t i = 0; i < op->n_documents; i++) pairs += attn_pairs(&op->a, 0, op->documents[i].n_queries, op->documents[i].n_keys);
    return pairs;
}

struct llm_tensor *attn_output(struct llm_ctx *c, const struct attn_op *op)
{
    int64_t rows = op->q->rows, cols = op->a.n_heads * op->a.d_v;
    struct llm_tensor *y = llm_tensor_create(c, rows, cols);
    bool stays = !c->tape || c->stored == LLM_STORED_F32; /* else the backward pass reads rounded floats */
    if (c->to_panels && stays && op->a.d_v % llm_panels_unit() == 0 && !llm_ctx_failed(c))
        y->packed = llm_op_alloc(c, 1, llm_panels_bytes(rows, cols));
    return y;
}

int64_t attn_piece_queries(const struct llm_attn *a, int64_t queries)
{
    int64_t rows = ATTN_ROWS;
    while (rows > ATTN_TILE && queries * a->n_heads < ATTN_PIECES * rows) rows /= 2;
    return attn_max(1, rows * a->n_kv_heads / a->n_heads);
}

/* Of tokens [first, first + most), the run from `first` on that one member owns: its length. */
static int64_t run_of_member(const struct llm_attn *a, int64_t first, int64_t most)
{
    int64_t n = 1;
    if (!a->members) return most;
    while (n < most && a->members->owner[first + n] == a->members->owner[first]) n++;
    return n;
}

/* The pieces go to `out`, unless it is NULL; returns their number. */
static int64_t list_pieces(const struct attn_op *op, int64_t size, bool keys, struct attn_piece *out)
{
    int64_t count = 0;
    for (int64_t i = 0; i < op->n_documents; i++) {
        const struct attn_document *d = &op->documents[i];
        const int64_t all = keys ? d->n_keys : d->n_queries;
        for (int64_t from = 0, n; from < all; from += n) {
            n = run_of_member(&op->a, d->query + from, attn_min(size, all - from));
            if (!attn_owns(&op->a, d->query + from)) continue;
            if (out) out[count] = (struct attn_piece){d, from, from + n};
            count++;
        }
    }
    return count;
}

struct attn_piece *attn_cut(struct llm_ctx *c, const struct attn_op *op, int64_t size, bool keys, int64_t *n)
{
    *n = list_pieces(op, size, keys, NULL);
    struct attn_piece *out = llm_op_alloc(c, *n, sizeof *out);
    if (out) list_pieces(op, size, keys, out);
    return out;
}

struct attn_job attn_job_of(const struct attn_op *op, const struct attn_document *d, int64_t kv_head, int64_t from, int64_t n)
{
    const struct llm_attn *a = &op->a;
    int64_t n_rep = a->n_heads / a->n_kv_heads, head = kv_head * n_rep, token = d->query + from;
    struct attn_job j = {.a = a, .math = op->math, .pos = from, .n_queries = n, .head = head, .n_rep = n_rep, .prefix = d->prefix,
                         .bias = op->bias, .sinks = op->sinks,
                         .dropout = op->dropout};
    j.keys = (struct attn_keys){.n = d->n_keys, .k = op->k->data + d->key * op->k->stride + kv_head * a->d_k, .ldk = op->k->stride,
                                .v = op->v->data + d->key * op->v->stride + kv_head * a->d_v, .ldv = op->v->stride};
    j.q = op->q->data + token * op->q->stride + head * a->d_k;
    j.ldq = op->q->stride;
    j.out = op->out->data + token * op->out->stride + head * a->d_v;
    j.ldo = op->out->stride;
    j.packed = op->out->packed;
    j.token = token;
    j.stats = op->stats ? op->stats + 2 * token * a->n_heads : NULL;
    j.lse = op->lse ? op->lse + token * a->n_heads : NULL;
    j.dropout.row += (uint32_t)d->row;
    j.dropout.query_origin = d->origin;
    j.dropout.key_origin = a->doc_start ? d->origin : 0;
    return j;
}
