/* tokenizer.json to a tokenizer. Each component type is a row of its table; one that has no row is refused by name. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/json_texts.h"
#include "token/unicode.h"

/* What is read before the tokenizer can be put together. */
struct reader {
    struct llm_tokenizer *t;
    const json_t *root;
    struct llm_vocab vocab;
    struct llm_buf decoded; /* bytes of the vocabulary, kept in place by reserving all of it first */
    const struct llm_json_cut *cut; /* what `root` stands without; NULL: it is whole */
    bool merges_read;               /* … and what was cut out is read */
    struct llm_json_texts texts;    /* the model's vocabulary */
    unsigned char *never;  /* [vocab.limit] 1: an id under "never"; NULL: there are none */
};

struct component {
    const char *type;
    int (*read)(struct reader *r, const json_t *o, struct llm_err *e);
};

static int read_component(struct reader *r, const struct component *rows, const char *what, const json_t *o, struct llm_err *e)
{
    const char *type = NULL;
    if (!json_is_object(o))
        return llm_fail(e, EX_DATAERR, "%s: expected an object", what);
    if (llm_json_str(o, "type", &type, e) < 0)
        return llm_in(e, "%s", what);
    if (!type)
        return llm_fail(e, EX_DATAERR, "%s: expected a type", what);
    for (; rows->type; rows++)
        if (strcmp(rows->type, type) == 0)
            return rows->read(r, o, e) < 0 ? llm_in(e, "%s %s", what, type) : 0;
    return llm_fail(e, EX_UNAVAILABLE, "%s '%s' is not supported", what, type);
}

/* The value of `key` when it is there and not null. */
static const json_t *get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

static int read_sequence(struct reader *r, const struct component *rows, const char *what, const json_t *o, const char *key, struct llm_err *e)
{
    const json_t *list = get(o, key);
    if (!json_is_array(list))
        return llm_fail(e, EX_DATAERR, "%s: expected an array", key);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (read_component(r, rows, what, json_array_get(list, i), e) < 0)
            return -1;
    return 0;
}

/* A switch that must be off, or say what is not supported. */
static int must_be_off(const json_t *o, const char *key, struct llm_err *e)
{
    const json_t *v = get(o, key);
    if (!v || json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0))
        return 0;
    return llm_fail(e, EX_UNAVAILABLE, "'%s' is not supported", key);
}

static int nothing(struct reader *r, const json_t *o, struct llm_err *e)
{
    (void)r, (void)o, (void)e;
    return 0;
}

/* ---- post-processors: what --add-special puts around a document ---- */

static int post_sequence(struct reader *r, const json_t *o, struct llm_err *e);

static int put_template(struct reader *r, bool after, int64_t id, struct llm_err *e)
{
    int32_t *list = after ? r->t->after : r->t->before;
    int *n = after ? &r->t->n_after : &r->t->n_before;
    if (*n == LLM_MAX_TEMPLATE)
        return llm_fail(e, EX_UNAVAILABLE, "more than %d special tokens on one side", LLM_MAX_TEMPLATE);
    if (id < 0 || id >= LLM_MAX_VOCAB)
        return llm_fail(e, EX_DATAERR, "id %lld out of range", (long long)id);
    list[(*n)++] = (int32_t)id;
    return 0;
}

static int template_token(struct reader *r, const json_t *tokens, const json_t *item, bool after, struct llm_err *e)
{
    const char *name = NULL;
    if (llm_json_str(item, "id", &name, e) < 0)
        return -1;
    const json_t *ids = name ? json_object_get(json_object_get(tokens, name), "ids") : NULL;
    if (!json_is_array(ids))
        return llm_fail(e, EX_DATAERR, "special token '%s' has no ids", name ? name : "");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id))
            return llm_fail(e, EX_DATAERR, "special token '%s': expected integer ids", name);
        if (put_template(r, after, json_integer_value(id), e) < 0)
            return -1;
    }
    return 0;
}

static int post_template(struct reader *r, const json_t *o, struct llm_err *e)
{
    const json_t *single = get(o, "single"), *tokens = get(o, "special_tokens");
    bool after = false;
    if (!json_is_array(single))
        return llm_fail(e, EX_DATAERR, "single: expected an array");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
        if (special) {
            if (template_token(r, tokens, special, after, e) < 0)
                return -1;
        } else if (json_object_get(item, "Sequence") && !after) {
            after = true;
        } else {
            return llm_fail(e, EX_DATAERR, "single: expected special tokens around one sequence");
        }
    }
    return 0;
}

/* "cls" and "sep": [text, id] */
static int post_pair(struct reader *r, const json_t *o, struct llm_err *e)
{
    static const char *const keys[] = {"cls", "sep"};
    for (int i = 0; i < 2; i++) {
        const json_t *id = json_array_get(json_object_get(o, keys[i]), 1);
        if (!json_is_integer(id))
            return llm_fail(e, EX_DATAERR, "%s: expected [text, id]", keys[i]);
        if (put_template(r, i == 1, json_integer_value(id), e) < 0)
            return -1;
    }
    return 0;
}

static const struct component post_processors[] = {{"ByteLevel", nothing},      {"TemplateProcessing", post_template},
                                                   {"BertProcessing", post_pair}, {"RobertaProcessing", post_pair},
                                                   {"Sequence", post_sequence}, {NULL, NULL}};

static int post_sequence(struct reader *r, const json_t *o, struct llm_err *e)
{
    return read_sequence(r, post_processors, "post_processor", o, "processors", e);
}

/* ---- added tokens ---- */

static int read_added(struct reader *r, struct llm_err *e)
{
    const json_t *list = get(r->root, "added_tokens");
    if (list && !json_is_array(list))
        return llm_fail(e, EX_DATAERR, "added_tokens: expected an array");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        const char *text;
        size_t n;
        unsigned char flags;
        int64_t id = -1;
        if (llm_added_token(o, &text, &n, &flags, e) < 0 || llm_json_int(o, "id", 0, LLM_MAX_VOCAB - 1, &id, e) < 0
            || llm_vocab_put(&r->vocab, id, (const unsigned char *)text, n, flags, e) < 0)
            return llm_in(e, "added_tokens[%zu]", i);
    }
    return 0;
}

/* ---- the model ---- */

/* The vocabulary of the model `o`, where it is an object. */
static int read_texts(struct reader *r, const json_t *o, struct llm_err *e)
{
    const json_t *vocab = json_object_get(o, "vocab");
    if (!json_is_object(vocab))
        return llm_fail(e, EX_DATAERR, "expected 'vocab', an object");
    return r->cut && r->cut->vocab ? 0 : llm_json_texts_from_value(&r->texts, vocab, e);
}

/* An added token that is listed in the vocabulary too. */
static int read_added_again(struct llm_vocab_entry *added, const struct llm_json_text *x, const unsigned char *p, size_t n, unsigned char flags,
                            struct llm_err *e)
{
    if (added->n == n && memcmp(added->text, p, n) == 0)
        added->flags |= flags;
    else if (added->n != x->n || memcmp(added->text, x->p, x->n) != 0)
        return llm_fail(e, EX_DATAERR, "token id %lld is '%.*s' in the vocabulary and '%.*s' among added tokens", (long long)x->id,
                        (int)(x->n < 100 ? x->n : 100), x->p, (int)(added->n < 100 ? added->n : 100), (const char *)added->text);
    return 0;
}

static int read_vocab(struct reader *r, struct llm_err *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < r->texts.n; i++)
        bytes += r->texts.v[i].n + 1;
    if (llm_buf_reserve(&r->decoded, bytes, e) < 0)
        return -1;
    for (size_t i = 0; i < r->texts.n; i++) {
        const struct llm_json_text *x = &r->texts.v[i];
        const unsigned char *p = (const unsigned char *)x->p;
        size_t n = x->n;
        unsigned char flags = LLM_TOKEN_MODEL;
        if (r->never && x->id >= 0 && x->id < r->vocab.limit && r->never[x->id]) {
            flags = 0; /* its text stays as it is */
        } else if (r->t->byte_level) {
            size_t at = r->decoded.n;
            int done = llm_byte_text_decode(x->p, n, &r->decoded, e);
            if (done < 0)
                return -1;
            if (done) {
                p = (const unsigned char *)r->decoded.p + at;
                n = r->decoded.n - at;
            } else {
                flags = 0; /* no text of the alphabet: shown as it is, never made */
            }
        }
        bool again = x->id >= 0 && (size_t)x->id < r->vocab.n && r->vocab.v[x->id].flags & LLM_TOKEN_ADDED;
        if (again ? read_added_again(&r->vocab.v[x->id], x, p, n, flags, e) < 0 : llm_vocab_put(&r->vocab, x->id, p, n, flags, e) < 0)
            return again ? -1 : llm_in(e, "vocab");
    }
    return 0;
}

/* "left right" or ["left", "right"] into two NUL-terminated texts in `both`; *right points at the second. */
static int merge_texts(const json_t *m, struct llm_buf *both, const char **right, struct llm_err *e)
{
    both->n = 0;
    if (json_is_string(m)) {
        const char *text = json_string_value(m), *space = strchr(text, ' ');
        if (!space || space == text || !space[1])
            return llm_fail(e, EX_DATAERR, "expected two texts and a space between them");
        if (llm_buf_put(both, text, json_string_length(m) + 1, e) < 0)
            return -1;
        both->p[space - text] = '\0';
        *right = both->p + (space - text) + 1;
        return 0;
    }
    const json_t *a = json_array_get(m, 0), *b = json_array_get(m, 1);
    if (json_array_size(m) != 2 || !json_is_string(a) || !json_is_string(b))
        return llm_fail(e, EX_DATAERR, "expected two texts");
    if (llm_buf_put(both, json_string_value(a), json_string_length(a) + 1, e) < 0
        || llm_buf_put(both, json_string_value(b), json_string_length(b) + 1, e) < 0)
        return -1;
    *right = both->p + json_string_length(a) + 1;
    return 0;
}

/* "ranks": of each merge in our own files where some are equal. */
static int read_ranks(const json_t *list, struct llm_bpe_merge *merges, size_t n, struct llm_err *e)
{
    for (size_t i = 0; list && i < n; i++) {
        json_int_t rank = json_integer_value(json_array_get(list, i));
        if (json_array_size(list) != n || rank < 0 || (size_t)rank >= n || (i && (uint64_t)rank < merges[i - 1].rank))
            return llm_fail(e, EX_DATAERR, "ranks: expected %zu numbers that do not fall", n);
        merges[i].rank = (uint32_t)rank;
    }
    return 0;
}

/* Merges in the making. */
struct merging {
    struct reader *r;
    struct llm_bpe_merge *v;
    size_t n, room;
    size_t last;           /* the entry of the vocabulary that the last one made: the next is often the next */
    struct llm_buf joined;
};

static bool is_joined(const struct llm_json_text *x, const char *left, size_t n_left, const char *right, size_t n_right)
{
    return x->n == n_left + n_right && memcmp(x->p, left, n_left) == 0 && memcmp(x->p + n_left, right, n_right) == 0;
}

/* The id that two texts make, or -1; -2: memory is short. */
static int64_t made_by(struct merging *m, const char *left, size_t n_left, const char *right, size_t n_right, struct llm_err *e)
{
    const struct llm_json_texts *t = &m->r->texts;
    for (size_t i = m->last; i < m->last + 2 && i < t->n; i++)
        if (is_joined(&t->v[i], left, n_left, right, n_right)) {
            m->last = i;
            return t->v[i].id;
        }
    m->joined.n = 0;
    if (llm_buf_put(&m->joined, left, n_left, e) < 0 || llm_buf_put(&m->joined, right, n_right, e) < 0)
        return -2;
    return llm_json_texts_find(t, m->joined.p, m->joined.n, &m->last);
}

static int put_merge(void *arg, size_t i, const char *left, size_t n_left, const char *right, size_t n_right, struct llm_err *e)
{
    struct merging *m = arg;
    const struct llm_json_texts *t = &m->r->texts;
    int64_t a = llm_json_texts_find(t, left, n_left, NULL), b = llm_json_texts_find(t, right, n_right, NULL);
    int64_t c = made_by(m, left, n_left, right, n_right, e);
    if (c == -2 || llm_grow((void **)&m->v, &m->room, m->n + 1, sizeof *m->v, e) < 0)
        return -1;
    if (a < 0 || b < 0 || c < 0) {
        const char *p = a < 0 ? left : b < 0 ? right : m->joined.p;
        size_t n = a < 0 ? n_left : b < 0 ? n_right : m->joined.n;
        return llm_fail(e, EX_DATAERR, "merges[%zu]: '%.*s' is not in the vocabulary", i, (int)(n < 100 ? n : 100), p);
    }
    m->v[m->n++] = (struct llm_bpe_merge){(uint32_t)a, (uint32_t)b, (uint32_t)i, (uint32_t)c};
    return 0;
}

static int put_merges(struct merging *m, const json_t *list, struct llm_err *e)
{
    struct llm_buf both = {0};
    int bad = 0;
    for (size_t i = 0; i < json_array_size(list) && bad == 0; i++) {
        const char *right = NULL;
        if (merge_texts(json_array_get(list, i), &both, &right, e) < 0)
            bad = llm_in(e, "merges[%zu]", i);
        else
            bad = put_merge(m, i, both.p, strlen(both.p), right, strlen(right), e);
    }
    llm_buf_release(&both);
    return bad;
}

static int read_merges(struct reader *r, const json_t *o, struct llm_bpe_merge **merges, size_t *n, struct llm_err *e)
{
    struct merging m = {.r = r};
    int bad;
    r->merges_read = true;
    if (r->cut && r->cut->merges)
        bad = llm_json_merges_from_text(r->cut->merges, r->cut->n_merges, put_merge, &m, e) > 0 ? 0 : llm_fail(e, EX_DATAERR, "merges");
    else
        bad = put_merges(&m, get(o, "merges"), e);
    if (bad == 0)
        bad = read_ranks(get(o, "ranks"), m.v, m.n, e);
    llm_buf_release(&m.joined);
    *merges = m.v;
    *n = m.n;
    return bad;
}

static int read_unknown(struct reader *r, const json_t *model, struct llm_err *e)
{
    const char *text = NULL;
    if (llm_json_str(model, "unk_token", &text, e) < 0)
        return -1;
    if (text) {
        int64_t id = llm_json_texts_find(&r->texts, text, strlen(text), NULL);
        if (id < 0 || (size_t)id >= r->vocab.n)
            return llm_fail(e, EX_DATAERR, "unk_token '%s' is not in the vocabulary", text);
        r->t->unknown = (int32_t)id;
    }
    return 0;
}

/* Ids in an array under `key` that are of the vocabulary get `flag`, or lose it. SentencePiece's tokenizers have such lists. */
static int flag_ids(struct reader *r, const json_t *o, const char *key, unsigned char set, unsigned char clear, struct llm_err *e)
{
    const json_t *list = get(o, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)) || id < 0 || (size_t)id >= r->vocab.n || !r->vocab.v[id].flags)
            return llm_fail(e, EX_DATAERR, "%s[%zu]: expected an id of the vocabulary", key, i);
        r->vocab.v[id].flags = (unsigned char)((r->vocab.v[id].flags | set) & ~clear);
    }
    return 0;
}

static int read_user_defined(struct reader *r, const json_t *o, struct llm_err *e)
{
    return flag_ids(r, o, "user_defined", LLM_TOKEN_USER, 0, e);
}

/* "never": what the model itself does not make. Before the vocabulary is read, whose texts these stand for as they are … */
static int note_never(struct reader *r, const json_t *o, struct llm_err *e)
{
    const json_t *list = get(o, "never");
    if (json_array_size(list) && !(r->never = llm_calloc((size_t)r->vocab.limit, 1, "a vocabulary", e)))
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));
        if (id >= 0 && id < r->vocab.limit)
            r->never[id] = 1;
    }
    return 0;
}

/* … and behind it. */
static int read_model_ids(struct reader *r, const json_t *o, struct llm_err *e)
{
    return flag_ids(r, o, "never", 0, LLM_TOKEN_MODEL, e);
}

/* Tokens that are single characters, and an unknown one: nothing to merge. */
static bool is_alphabet(const struct reader *r)
{
    for (int32_t id = 0; id < (int32_t)r->vocab.n; id++) {
        uint32_t cp;
        if (r->vocab.v[id].flags == (LLM_TOKEN_PRESENT | LLM_TOKEN_MODEL) && id != r->t->unknown
            && llm_utf8_next(r->vocab.v[id].text, r->vocab.v[id].n, &cp) != (int)r->vocab.v[id].n)
            return false;
    }
    return true;
}

static int read_suffix(struct llm_tokenizer *t, const json_t *o, struct llm_err *e)
{
    const char *suffix = NULL;
    if (llm_json_str(o, "end_of_word_suffix", &suffix, e) < 0)
        return -1;
    return suffix && *suffix ? llm_tokenizer_set_suffix(t, suffix, e) : 0;
}

static int model_bpe(struct reader *r, const json_t *o, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    const json_t *list = get(o, "merges");
    if (!json_is_object(json_object_get(o, "vocab")) || !json_is_array(list))
        return llm_fail(e, EX_DATAERR, "expected 'vocab' and 'merges'");
    if (must_be_off(o, "dropout", e) < 0 || must_be_off(o, "continuing_subword_prefix", e) < 0
        || llm_json_bool(o, "byte_fallback", &t->byte_fallback, e) < 0 || llm_json_bool(o, "fuse_unk", &t->fuse_unknown, e) < 0
        || llm_json_bool(o, "ignore_merges", &t->ignore_merges, e) < 0)
        return -1;
    if (t->byte_level && (t->byte_fallback || t->fuse_unknown)) { /* every byte has a token there; neither can happen */
        t->byte_fallback = t->fuse_unknown = false;
    }
    if (read_suffix(t, o, e) < 0 || read_texts(r, o, e) < 0 || note_never(r, o, e) < 0 || read_vocab(r, e) < 0 || read_unknown(r, o, e) < 0
        || read_model_ids(r, o, e) < 0 || read_user_defined(r, o, e) < 0)
        return -1;
    size_t n = json_array_size(list);
    bool any = n || (r->cut && r->cut->merges); /* at least the brackets of some */
    const struct llm_model_row *bytes = any || t->n_splits || t->generic || t->suffix ? &llm_model_bpe : &llm_model_byte;
    bool chars = !t->byte_level && (t->generic || any || t->suffix || t->byte_fallback || t->fuse_unknown || !is_alphabet(r));
    t->generic = t->generic || chars;
    if (!t->generic && llm_tokenizer_stream_parts(t, e) < 0)
        return -1;
    t->model = t->byte_level ? bytes : chars ? &llm_model_bpe_chars : &llm_model_char;
    struct llm_bpe_merge *merges = NULL;
    if (llm_tokenizer_set_vocab(t, &r->vocab, e) < 0 || read_merges(r, o, &merges, &n, e) < 0) {
        free(merges);
        return -1;
    }
    return llm_tokenizer_finish(t, merges, n, e);
}

static int no_byte_level(const struct reader *r, struct llm_err *e)
{
    return r->t->byte_level ? llm_fail(e, EX_UNAVAILABLE, "pre_tokenizer 'ByteLevel' is not supported with it") : 0;
}

/* [text, score] in the order of ids. */
static int read_scored(struct reader *r, const json_t *list, struct llm_err *e)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i), *text = json_array_get(entry, 0), *score = json_array_get(entry, 1);
        if (!json_is_string(text) || !json_is_number(score))
            return llm_fail(e, EX_DATAERR, "vocab[%zu]: expected [text, score]", i);
        const unsigned char *p = (const unsigned char *)json_string_value(text);
        size_t n = json_string_length(text);
        struct llm_vocab_entry *added = i < r->vocab.n && r->vocab.v[i].flags & LLM_TOKEN_ADDED ? &r->vocab.v[i] : NULL;
        if (!added && llm_vocab_put(&r->vocab, (int64_t)i, p, n, LLM_TOKEN_MODEL, e) < 0)
            return llm_in(e, "vocab");
        if (added && added->n == n && memcmp(added->text, p, n) == 0)
            added->flags |= LLM_TOKEN_MODEL;
        r->vocab.v[i].score = json_number_value(score);
    }
    return 0;
}

static int model_unigram(struct reader *r, const json_t *o, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    const json_t *list = get(o, "vocab");
    int64_t unknown = -1;
    if (!json_is_array(list))
        return llm_fail(e, EX_DATAERR, "expected 'vocab', an array");
    if (no_byte_level(r, e) < 0 || llm_json_int(o, "unk_id", 0, (int64_t)json_array_size(list) - 1, &unknown, e) < 0
        || llm_json_bool(o, "byte_fallback", &t->byte_fallback, e) < 0 || llm_json_bool(o, "sentencepiece", &t->sentencepiece, e) < 0
        || read_scored(r, list, e) < 0 || read_model_ids(r, o, e) < 0 || read_user_defined(r, o, e) < 0)
        return -1;
    t->unknown = (int32_t)unknown;
    t->generic = t->fuse_unknown = true;
    t->model = &llm_model_unigram;
    return llm_tokenizer_set_vocab(t, &r->vocab, e) < 0 ? -1 : llm_tokenizer_finish(t, NULL, 0, e);
}

static int model_wordpiece(struct reader *r, const json_t *o, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    const char *prefix = "##";
    if (read_texts(r, o, e) < 0 || no_byte_level(r, e) < 0 || llm_json_str(o, "continuing_subword_prefix", &prefix, e) < 0
        || llm_json_int(o, "max_input_chars_per_word", 0, INT32_MAX, &t->max_word, e) < 0
        || llm_json_bool(o, "fuse_unk", &t->fuse_unknown, e) < 0 || llm_json_bool(o, "byte_fallback", &t->byte_fallback, e) < 0
        || read_vocab(r, e) < 0 || read_unknown(r, o, e) < 0
        || read_model_ids(r, o, e) < 0 || read_user_defined(r, o, e) < 0)
        return -1;
    t->prefix = strdup(prefix);
    t->generic = true;
    t->model = &llm_model_wordpiece;
    if (!t->prefix)
        return llm_no_memory(e, "a tokenizer");
    return llm_tokenizer_set_vocab(t, &r->vocab, e) < 0 ? -1 : llm_tokenizer_finish(t, NULL, 0, e);
}

/* Our own: Hugging Face's library has no such type. */
static int model_greedy(struct reader *r, const json_t *o, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    if (read_texts(r, o, e) < 0)
        return -1;
    if (!t->byte_level || t->generic || t->n_norms || t->n_pres != 1 || t->pres[0].cut || t->pres[0].prepend != LLM_PREPEND_NEVER)
        return llm_fail(e, EX_UNAVAILABLE, "only a ByteLevel pre-tokenizer that neither cuts nor puts a space in front is supported with it");
    t->model = &llm_model_greedy;
    if (llm_tokenizer_stream_parts(t, e) < 0 || note_never(r, o, e) < 0 || read_vocab(r, e) < 0 || read_model_ids(r, o, e) < 0
        || llm_tokenizer_set_vocab(t, &r->vocab, e) < 0)
        return -1;
    return llm_tokenizer_finish(t, NULL, 0, e);
}

static const struct component models[] = {
    {"BPE", model_bpe}, {"Unigram", model_unigram}, {"WordPiece", model_wordpiece}, {"Greedy", model_greedy}, {NULL, NULL}};

/* Old files leave the type out. */
static const char *guess_type(const json_t *model)
{
    if (get(model, "merges"))
        return "BPE";
    return json_is_array(get(model, "vocab")) ? "Unigram" : get(model, "max_input_chars_per_word") ? "WordPiece" : "BPE";
}

static int read_all(struct reader *r, struct llm_err *e)
{
    const json_t *model = get(r->root, "model"), *post = get(r->root, "post_processor");
    if (llm_tokenizer_set_parts(r->t, json_object_get(r->root, "normalizer"), json_object_get(r->root, "pre_tokenizer"),
                                json_object_get(r->root, "decoder"), e) < 0
        || (post && read_component(r, post_processors, "post_processor", post, e) < 0))
        return -1;
    if (!json_is_object(model))
        return llm_fail(e, EX_DATAERR, "expected a tokenizer.json (an object with a 'model')");
    const json_t *vocab = json_object_get(model, "vocab");
    size_t listed = r->texts.n + json_object_size(vocab) + json_array_size(vocab) + json_array_size(get(r->root, "added_tokens"));
    r->vocab.limit = 1024 + 8 * (int64_t)listed;
    json_t *typed = NULL;
    if (!get(model, "type")) {
        typed = json_copy((json_t *)(uintptr_t)model);
        if (!typed || json_object_set_new(typed, "type", json_string(guess_type(model))) < 0)
            return llm_no_memory(e, "a tokenizer");
        model = typed;
    }
    int bad = read_added(r, e) < 0 || read_component(r, models, "model", model, e) < 0 ? -1 : 0;
    json_decref(typed);
    return bad;
}

/* Takes what `r` has. */
static struct llm_tokenizer *read_with(struct reader *r, struct llm_err *e)
{
    r->t = llm_tokenizer_create(e);
    int bad = r->t ? read_all(r, e) : -1;
    llm_vocab_release(&r->vocab);
    llm_buf_release(&r->decoded);
    llm_json_texts_release(&r->texts);
    free(r->never);
    if (bad < 0) {
        llm_tokenizer_destroy(r->t);
        return NULL;
    }
    return r->t;
}

struct llm_tokenizer *llm_tokenizer_from_value(const json_t *root, struct llm_err *e)
{
    struct reader r = {.root = root};
    return read_with(&r, e);
}

/* Without a tree of the vocabulary and the merges. NULL: it is to be read as a whole, which also says what is wrong with it. */
static struct llm_tokenizer *read_cut(const char *json, size_t n)
{
    struct llm_json_cut cut;
    struct llm_err e = {0};
    struct llm_tokenizer *t = NULL;
    if (llm_json_cut(json, n, &cut, &e) > 0) {
        json_t *root = llm_json_parse(cut.rest.p, cut.rest.n, &e);
        struct reader r = {.root = root, .cut = &cut};
        if (root && (!cut.vocab || llm_json_texts_from_text(&r.texts, cut.vocab, cut.n_vocab, &e) > 0))
            t = read_with(&r, &e);
        else
            llm_json_texts_release(&r.texts);
        if (t && cut.merges && !r.merges_read) { /* a model without merges that has some: nobody has looked at them */
            llm_tokenizer_destroy(t);
            t = NULL;
        }
        json_decref(root);
    }
    llm_buf_release(&cut.rest);
    return t;
}

struct llm_tokenizer *llm_tokenizer_from_json(const char *json, size_t n, const char *where, struct llm_err *e)
{
    struct llm_tokenizer *t = read_cut(json, n);
    json_t *root = t ? NULL : llm_json_parse(json, n, e);
    if (root)
        t = llm_tokenizer_from_value(root, e);
    json_decref(root);
    if (t && llm_buf_put(&t->json, json, n, e) < 0) {
        llm_tokenizer_destroy(t);
        t = NULL;
    }
    if (!t)
        llm_in(e, "%s", where);
    return t;
}
