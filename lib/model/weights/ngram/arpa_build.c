/* Makes tables from the records of an ARPA file, and a tokenizer from its words. Files may list an n-gram without its suffixes, and a context whose
 * backoff no n-gram uses. So the contexts of a level are those of its n-grams, of backoffs, and all suffixes of longer contexts. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "model/weights/model.h"
#include "model/weights/ngram/arpa.h"

void llm_arpa_release(struct llm_arpa *a)
{
    llm_buf_release(&a->words);
    free(a->word);
    free(a->slots);
    free(a->unigram);
    free(a->backoff);
    for (int k = 0; k < LLM_NGRAM_MAX_ORDER; k++) free(a->records[k]);
}

int llm_arpa_fix_words(struct llm_arpa *a, struct llm_err *e)
{
    a->bits = 1;
    while ((uint64_t)1 << a->bits < a->n_words + 1) a->bits++;
    if (a->bits * a->order <= 128) return 0;
    return llm_fail(e, EX_DATAERR, "order %d: expected at most %d with %zu words", a->order, 128 / a->bits, a->n_words);
}

static uint32_t float_bits(float v)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static float bits_float(uint64_t bits)
{
    uint32_t u = (uint32_t)bits;
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

int llm_arpa_add_ngram(struct llm_arpa *a, int k, const uint32_t *ids, float log_prob, float backoff, struct llm_err *e)
{
    struct llm_ngram_record r = {{0, 0}, (uint64_t)float_bits(log_prob) << 32 | float_bits(backoff)};
    for (int i = 0; i < k; i++) r.key = llm_key_put(r.key, i, a->bits, ids[k - 1 - i]);
    r.key = llm_key_put(r.key, k, a->bits, ids[k]);
    if (llm_grow((void **)&a->records[k], &a->records_room[k], a->n_records[k] + 1, sizeof r, e) < 0) return -1;
    a->records[k][a->n_records[k]++] = r;
    return 0;
}

/* ---- tables ---- */

struct contexts { struct llm_ngram_record *r; size_t n; }; /* sorted; keys newest first; the backoff */

static int sort(struct llm_ngram_record *r, size_t n, int bits, struct llm_err *e)
{
    struct llm_ngram_record *scratch = llm_alloc(n, sizeof *scratch, "n-grams", e);
    int got = scratch ? llm_records_sort(r, scratch, n, bits, e) : -1;
    free(scratch);
    return got;
}

/* Collects the contexts of k words: those of n-grams of k + 1 words, suffixes of longer contexts, and n-grams of k words with a backoff. 0 or -1. */
static int gather(const struct llm_arpa *a, int k, const struct contexts *longer, struct contexts *c, struct llm_err *e)
{
    size_t n_own = k > 1 ? a->n_records[k - 1] : 0, n = 0;
    c->r = llm_alloc(a->n_records[k] + longer->n + n_own, sizeof *c->r, "contexts", e);
    if (!c->r) return -1;
    for (size_t i = 0; i < a->n_records[k]; i++) {
        struct llm_ngram_key key = llm_key_first(a->records[k][i].key, k * a->bits);
        if (n == 0 || !llm_key_equal(c->r[n - 1].key, key)) c->r[n++] = (struct llm_ngram_record){key, 0};
    }
    for (size_t i = 0; i < longer->n; i++) {
        struct llm_ngram_key key = llm_key_first(longer->r[i].key, k * a->bits);
        if (n == 0 || !llm_key_equal(c->r[n - 1].key, key)) c->r[n++] = (struct llm_ngram_record){key, 0};
    }
    for (size_t i = 0; i < n_own; i++) {
        const struct llm_ngram_record *r = &a->records[k - 1][i];
        uint32_t last = llm_key_token(r->key, k - 1, a->bits);
        struct llm_ngram_key key = llm_key_right(llm_key_first(r->key, (k - 1) * a->bits), a->bits);
        if ((uint32_t)r->n << 1 != 0) c->r[n++] = (struct llm_ngram_record){llm_key_put(key, 0, a->bits, last), (uint32_t)r->n}; /* not ±0 */
    }
    if (sort(c->r, n, k * a->bits, e) < 0) return -1;
    c->n = llm_records_merge(c->r, n); /* one of the equal ones has a backoff, the others 0 */
    return 0;
}

static int heap_array(struct llm_ngram_array *x, enum llm_dtype dtype, size_t n, struct llm_err *e)
{
    void *p = llm_calloc(n, (size_t)llm_dtypes[dtype].block_bytes, "n-grams", e);
    *x = (struct llm_ngram_array){p, n, dtype, LLM_NGRAM_HEAP};
    return p ? 0 : -1;
}

static void put_token(struct llm_ngram_array *x, size_t i, uint32_t token)
{
    if (x->dtype == LLM_U16) ((uint16_t *)x->data)[i] = (uint16_t)token;
    else ((uint32_t *)x->data)[i] = token;
}

/* Writes, for each context, the index of the first of the sorted keys that begin with its k words, and at last the number of keys. */
static void put_offsets(const struct llm_ngram_array *x, const struct contexts *c, const struct llm_ngram_record *r, size_t n, int bits)
{
    uint32_t *out = (uint32_t *)x->data;
    size_t at = 0;
    for (size_t i = 0; i < c->n; i++) {
        while (at < n && llm_key_less(llm_key_first(r[at].key, bits), c->r[i].key)) at++;
        out[i] = (uint32_t)at;
    }
    out[c->n] = (uint32_t)n;
}

static int fill_level(const struct llm_arpa *a, struct llm_ngram *g, int k, const struct contexts *c, const struct contexts *longer,
                      struct llm_err *e)
{
    struct llm_ngram_level *l = &g->level[k];
    enum llm_dtype token = g->vocab_size < 65536 ? LLM_U16 : LLM_U32;
    size_t n = a->n_records[k];
    if (n > UINT32_MAX || c->n > UINT32_MAX) return llm_fail(e, EX_UNAVAILABLE, "n-grams of one order: expected at most 4294967295, found %zu", n);
    if ((k > 1 && heap_array(&l->oldest, token, c->n, e) < 0) || heap_array(&l->backoff, LLM_F32, c->n, e) < 0
        || (k < g->order - 1 && heap_array(&l->deeper, LLM_U32, c->n + 1, e) < 0) || heap_array(&l->first, LLM_U32, c->n + 1, e) < 0
        || heap_array(&l->word, token, n, e) < 0 || heap_array(&l->log_prob, LLM_F32, n, e) < 0) return -1;
    for (size_t i = 0; i < c->n; i++) {
        if (k > 1) put_token(&l->oldest, i, llm_key_token(c->r[i].key, k - 1, a->bits));
        ((float *)l->backoff.data)[i] = bits_float(c->r[i].n);
    }
    for (size_t i = 0; i < n; i++) {
        put_token(&l->word, i, llm_key_token(a->records[k][i].key, k, a->bits));
        ((float *)l->log_prob.data)[i] = bits_float(a->records[k][i].n >> 32);
        if (i > 0 && llm_key_equal(a->records[k][i].key, a->records[k][i - 1].key)) {
            return llm_fail(e, EX_DATAERR, "an n-gram of order %d that ends with '%.60s' is listed twice", k + 1,
                            a->words.p + a->word[llm_key_token(a->records[k][i].key, k, a->bits)]);
        }
    }
    put_offsets(&l->first, c, a->records[k], n, k * a->bits);
    if (k < g->order - 1) put_offsets(&l->deeper, c, longer->r, longer->n, k * a->bits);
    return 0;
}

/* Makes a context of one word for every word, and one more for unknown words. 0 or -1. */
static int all_words(const struct llm_arpa *a, struct contexts *c, struct llm_err *e)
{
    free(c->r);
    c->n = a->n_words + 1;
    c->r = llm_alloc(c->n, sizeof *c->r, "contexts", e);
    if (!c->r) return -1;
    for (size_t i = 0; i < c->n; i++) {
        float backoff = i < a->n_words ? a->backoff[i] : 0;
        c->r[i] = (struct llm_ngram_record){llm_key_put((struct llm_ngram_key){0, 0}, 0, a->bits, (uint32_t)i), float_bits(backoff)};
    }
    return 0;
}

static int build(struct llm_arpa *a, struct llm_ngram *g, struct llm_err *e)
{
    struct contexts c = {NULL, 0}, longer = {NULL, 0};
    int got = heap_array(&g->unigram, LLM_F32, a->n_words + 1, e);
    if (got == 0) {
        memcpy((float *)g->unigram.data, a->unigram, a->n_words * sizeof(float));
        ((float *)g->unigram.data)[a->n_words] = a->unigram[llm_arpa_word(a, "<unk>")];
    }
    for (int k = 1; got == 0 && k < a->order; k++) got = sort(a->records[k], a->n_records[k], (k + 1) * a->bits, e);
    for (int k = a->order - 1; got == 0 && k > 0; k--) {
        got = gather(a, k, &longer, &c, e);
        if (got == 0 && k == 1) got = all_words(a, &c, e);
        if (got == 0) got = fill_level(a, g, k, &c, &longer, e);
        free(longer.r);
        longer = c;
        c = (struct contexts){NULL, 0};
    }
    free(c.r);
    free(longer.r);
    return got;
}

/* ---- a tokenizer of words between white space ---- */

static json_t *special(const struct llm_arpa *a, const char *word)
{
    return json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)llm_arpa_word(a, word), "content", word, "single_word", 0, "lstrip", 0,
                     "rstrip", 0, "normalized", 0, "special", 1);
}

/* tokenizer.json of a WordPiece model without continuations, so that a word between white space is either in the vocabulary or unknown. */
static json_t *tokenizer_json(const struct llm_arpa *a, struct llm_err *e)
{
    static const char *const names[] = {"<unk>", "<s>", "</s>"};
    json_t *vocab = json_object(), *added = json_array();
    for (size_t i = 0; vocab && i < a->n_words; i++) {
        json_t *id = json_integer((json_int_t)i);
        if (json_object_set_new(vocab, a->words.p + a->word[i], id) == 0) continue;
        llm_fail(e, EX_DATAERR, "word %zu: expected UTF-8", i);
        json_decref(vocab);
        json_decref(added);
        return NULL;
    }
    for (size_t i = 0; added && i < 3; i++) {
        if (llm_arpa_word(a, names[i]) >= 0) json_array_append_new(added, special(a, names[i]));
    }
    json_t *begin = llm_arpa_word(a, "<s>") < 0 ? json_null()
        : json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:{s:{s:s, s:[I], s:[s]}}}", "type",
                    "TemplateProcessing", "single", "SpecialToken", "id", "<s>", "type_id", 0, "Sequence", "id", "A", "type_id", 0, "pair",
                    "Sequence", "id", "A", "type_id", 0, "Sequence", "id", "B", "type_id", 1, "special_tokens", "<s>", "id", "<s>", "ids",
                    (json_int_t)llm_arpa_word(a, "<s>"), "tokens", "<s>");
    json_t *j = json_pack("{s:s, s:n, s:n, s:o, s:n, s:{s:s}, s:o, s:{s:s, s:s, s:b}, s:{s:s, s:s, s:s, s:i, s:o}}", "version", "1.0", "truncation",
                          "padding", "added_tokens", added, "normalizer", "pre_tokenizer", "type", "WhitespaceSplit", "post_processor", begin,
                          "decoder", "type", "WordPiece", "prefix", "\001##", "cleanup", 0, "model", "type", "WordPiece", "unk_token", "<unk>",
                          "continuing_subword_prefix", "\001##", "max_input_chars_per_word", 1 << 20, "vocab", vocab);
    if (!j) llm_no_memory(e, "words");
    return j;
}

static int give_tokenizer(const struct llm_arpa *a, struct llm_model *m, struct llm_err *e)
{
    struct llm_buf text = {0};
    json_t *j = tokenizer_json(a, e);
    int got = j ? llm_json_dump(j, &text, e) : -1;
    json_decref(j);
    if (got == 0) m->tokenizer = llm_tokenizer_from_json(text.p, text.n, "words", e);
    llm_buf_release(&text);
    return m->tokenizer ? 0 : -1;
}

struct llm_model *llm_arpa_model(struct llm_arpa *a, struct llm_err *e)
{
    int64_t begin = llm_arpa_word(a, "<s>"), end = llm_arpa_word(a, "</s>");
    struct llm_ngram *g = llm_calloc(1, sizeof *g, "n-grams", e);
    if (!g) return NULL;
    g->order = a->order;
    g->vocab_size = (int64_t)a->n_words;
    g->begin = begin >= 0 ? begin : g->vocab_size;
    if (build(a, g, e) < 0) {
        llm_ngram_destroy(g);
        return NULL;
    }
    struct llm_model *m = llm_ngram_model(g, begin, end, e);
    if (!m || give_tokenizer(a, m, e) == 0) return m;
    llm_model_destroy(m);
    return NULL;
}
