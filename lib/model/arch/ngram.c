/* n-grams (Shannon 1948; Chen & Goodman 1998): a table of how often what followed what, no network. A hidden state is what the table is asked with:
 * the last order - 1 tokens, the newest first, -1 where the text had not begun; a vector of the cache there is none. */
#include <string.h>
#include "base/buf.h"
#include "model/arch/keys.h"
#include "model/ngram.h"

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 1, 1 << 24, NULL, false},
    {"ngram_order", LLM_KEY_INT, LLM_AT(ngram_order), 1, LLM_NGRAM_MAX_ORDER, NULL, false},
    {"ngram_begin", LLM_KEY_INT, LLM_AT(ngram_begin), 0, 1 << 24, NULL, false},
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, false},
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, false},
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, false},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->ngram_order = 5;
    c->max_position_embeddings = 1 << 24; /* as long as a sequence's positions can be counted: what lies far back is not looked at */
    c->num_attention_heads = c->num_key_value_heads = c->head_dim = 1;
    c->position = LLM_POSITION_NONE;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    (void)o;
    c->hidden_size = c->ngram_order > 1 ? c->ngram_order - 1 : 1;
    if (c->ngram_begin <= c->vocab_size) return 0;
    return llm_fail(e, EX_DATAERR, "ngram_begin: expected at most vocab_size (%lld), found %lld", (long long)c->vocab_size,
                    (long long)c->ngram_begin);
}

static int declare(struct llm_declare *d, struct llm_decoder *m)
{
    (void)d;
    (void)m;
    return 0;
}

static int load(struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e)
{
    m->ngram = llm_ngram_load(f, &m->config, e);
    return m->ngram ? 0 : -1;
}

/* The token at place `at` of a sequence, of which `now` [n] follows the `pos` tokens in `before`. */
static int32_t token_at(const struct llm_ngram *g, const int32_t *before, int64_t pos, const int32_t *now, int64_t at)
{
    if (at >= pos) return now[at - pos];
    if (at >= 0) return before[at];
    int32_t first = pos > 0 ? before[0] : now[0];
    return at == -1 && first != g->begin ? (int32_t)g->begin : -1;
}

static struct llm_tensor *forward(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b)
{
    const struct llm_ngram *g = m->ngram;
    int64_t width = m->config.hidden_size;
    if (!b->seqs) {
        llm_fail(&c->err, LLM_EX_USAGE, "an n-gram model is counted, not trained: llm-train --objective ngram");
        return &c->nothing;
    }
    struct llm_tensor *x = llm_tensor_create(c, b->n_tokens, width);
    for (int64_t s = 0; s < b->n_seqs && !llm_ctx_failed(c); s++) {
        const struct llm_kv_seq *q = &b->seqs[s];
        for (int64_t i = 0; i < q->n; i++) {
            float *row = x->data + (q->first + i) * x->stride;
            for (int64_t k = 0; k < width; k++) row[k] = (float)token_at(g, b->before[s], q->pos, b->ids + q->first, q->pos + i - k);
        }
    }
    return x;
}

static void state_of(const struct llm_model *m, const float *hidden, struct llm_ngram_state *s)
{
    int32_t newest[LLM_NGRAM_MAX_ORDER];
    int n = 0;
    while (n < m->ngram->order - 1 && hidden[n] >= 0) {
        newest[n] = (int32_t)hidden[n];
        n++;
    }
    llm_ngram_find(m->ngram, newest, n, s);
}

static struct llm_tensor *logits(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden)
{
    struct llm_tensor *out = llm_tensor_create(c, hidden->rows, m->config.vocab_size);
    for (int64_t i = 0; i < hidden->rows && !llm_ctx_failed(c); i++) {
        struct llm_ngram_state s;
        state_of(m, hidden->data + i * hidden->stride, &s);
        llm_ngram_log_probs(m->ngram, &s, out->data + i * out->stride);
    }
    return out;
}

static double log_prob(const struct llm_model *m, const float *hidden, int32_t id)
{
    struct llm_ngram_state s;
    state_of(m, hidden, &s);
    return (double)llm_ngram_log_prob(m->ngram, &s, id);
}

const struct llm_arch llm_arch_ngram = {
    .model_type = "ngram",
    .architecture = "NgramForCausalLM",
    .keys = keys,
    .defaults = defaults,
    .finish = finish,
    .names = {.prefix = "", .embed = "", .positions = "", .layer = "", .final_norm = "", .head = ""},
    .declare = declare,
    .forward = forward,
    .load = load,
    .logits = logits,
    .log_prob = log_prob,
};
