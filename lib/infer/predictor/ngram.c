/* n-grams: the distribution after a token is looked up by the last order - 1 tokens. The history is the ids that a sequence's cache holds; there are
 * no keys and values. */
#include "base/buf.h"
#include "infer/engine.h"
#include "model/weights/ngram.h"

static bool is_of(const struct llm_model *m) { return m->ngram != NULL; }

/* The maximum number of tokens that a lookup reads. */
static int64_t width_of(const struct llm_ngram *g) { return g->order - 1; }

/* The token at position `at` of a sequence: its cache holds the first kv->n tokens, its feed those that follow. Position -1 is the token that texts
 * begin with, unless the text itself begins with it. */
static int32_t token_at(const struct llm_ngram *g, const struct llm_feed *feed, int64_t at)
{
    int64_t held = feed->kv->n;
    if (at >= held) return feed->ids[at - held];
    if (at >= 0) return feed->kv->ids[at];
    int32_t first = held > 0 ? feed->kv->ids[0] : feed->ids[0];
    return at == -1 && first != g->begin ? (int32_t)g->begin : -1;
}

static int advance(struct llm_engine *e, const struct llm_feed *feeds, int64_t n, int64_t total, struct llm_reading *r, struct llm_err *err)
{
    const struct llm_ngram *g = e->model->ngram;
    int64_t width = width_of(g);
    if (llm_model_check_ids(e->model, e->ids, total, err) < 0) return -1;
    int32_t *newest = llm_arena_alloc(&e->ctx.acts, (size_t)(total * width + 1) * sizeof *newest), *row = newest;
    if (!newest) return llm_no_memory(err, "a pass's tokens");
    for (int64_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < feeds[s].n; i++, row += width) {
            for (int64_t k = 0; k < width; k++) row[k] = token_at(g, &feeds[s], feeds[s].kv->n + i - k);
        }
    }
    r->newest = newest;
    return 0;
}

static void find(const struct llm_ngram *g, const struct llm_reading *r, int64_t row, struct llm_ngram_state *s)
{
    const int32_t *newest = r->newest + row * width_of(g);
    int n = 0;
    while (n < width_of(g) && newest[n] >= 0) n++;
    llm_ngram_find(g, newest, n, s);
}

static float *logits(struct llm_engine *g, const struct llm_reading *r, const int64_t *rows, int64_t n_rows, struct llm_err *e)
{
    const struct llm_ngram *tables = g->model->ngram;
    struct llm_tensor *out = llm_tensor_create(&g->ctx, n_rows, tables->vocab_size);
    if (llm_ctx_failed(&g->ctx)) {
        llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
        return NULL;
    }
    for (int64_t i = 0; i < n_rows; i++) {
        struct llm_ngram_state s;
        find(tables, r, rows[i], &s);
        llm_ngram_log_probs(tables, &s, out->data + i * out->stride);
    }
    return out->data;
}

static double log_prob(const struct llm_model *m, const struct llm_reading *r, int64_t row, int32_t id)
{
    struct llm_ngram_state s;
    find(m->ngram, r, row, &s);
    return (double)llm_ngram_log_prob(m->ngram, &s, id);
}

static void describe(const struct llm_model *m, struct llm_predictor_facts *f)
{
    for (int k = 0; k < m->ngram->order; k++) f->parameters += (double)llm_ngram_count(m->ngram, k);
    f->weight_bytes = llm_ngram_bytes(m->ngram);
    f->read_bytes = (double)m->config.vocab_size * sizeof(float); /* the logits of a context that is in no table */
}

static const char *arithmetic(const struct llm_model *m, enum llm_compute compute)
{
    (void)m;
    (void)compute;
    return "f32";
}

const struct llm_predictor llm_predictor_ngram = {
    .name = "an n-gram model", .is_of = is_of, .advance = advance, .logits = logits, .log_prob = log_prob, .describe = describe,
    .arithmetic = arithmetic,
    .not_trained = "an n-gram model is counted anew (--objective ngram), not trained by steps"};
