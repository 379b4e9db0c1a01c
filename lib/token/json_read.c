/* tokenizer.json to a tokenizer. Each component type is a row of its table; one that has no row is refused by name. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

/* What is read before the tokenizer can be put together. */
struct reader {
    struct llm_tokenizer *t;
    const json_t *root;
    struct llm_vocab vocab;
    struct llm_buf decoded; /* bytes of the vocabulary, kept in place by reserving all of it first */
    json_t *ids;           /* text → id: the model's vocabulary object, borrowed */
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
        const json_t *o = json_array_get(list, i), *content = json_object_get(o, "content");
        int64_t id = -1;
        bool special = false, normalized = false, single = false, left = false, right = false;
        if (!json_is_string(content) || json_string_length(content) == 0)
            return llm_fail(e, EX_DATAERR, "added_tokens[%zu]: expected a content", i);
        if (llm_json_int(o, "id", 0, LLM_MAX_VOCAB - 1, &id, e) < 0 || llm_json_bool(o, "special", &special, e) < 0
            || llm_json_bool(o, "normalized", &normalized, e) < 0 || llm_json_bool(o, "single_word", &single, e) < 0
            || llm_json_bool(o, "lstrip", &left, e) < 0 || llm_json_bool(o, "rstrip", &right, e) < 0)
            return llm_in(e, "added_tokens[%zu]", i);
        unsigned char flags = (unsigned char)(LLM_TOKEN_ADDED | (special ? LLM_TOKEN_SPECIAL : 0) | (normalized ? LLM_TOKEN_NORMALIZED : 0)
                                              | (single ? LLM_TOKEN_SINGLE_WORD : 0) | (left ? LLM_TOKEN_STRIP_LEFT : 0)
                                              | (right ? LLM_TOKEN_STRIP_RIGHT : 0));
        if (llm_vocab_put(&r->vocab, id, (const unsigned char *)json_string_value(content), json_string_length(content), flags, e) < 0)
            return llm_in(e, "added_tokens[%zu]", i);
    }
    return 0;
}

/* ---- the model ---- */

static int64_t id_of(const struct reader *r, const char *text)
{
    const json_t *v = json_object_get(r->ids, text);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static int read_vocab(struct reader *r, struct llm_err *e)
{
    const char *text;
    json_t *value;
    size_t bytes = 0;
    json_object_foreach(r->ids, text, value)
        bytes += strlen(text) + 1;
    if (llm_buf_reserve(&r->decoded, bytes, e) < 0)
        return -1;
    json_object_foreach(r->ids, text, value) {
        size_t n = strlen(text);
        if (!json_is_integer(value))
            return llm_fail(e, EX_DATAERR, "vocab: '%s': expected an integer", text);
        int64_t id = json_integer_value(value);
        const unsigned char *p = (const unsigned char *)text;
        unsigned char flags = LLM_TOKEN_MODEL;
        if (r->never && id >= 0 && id < r->vocab.limit && r->never[id])
            flags = 0; /* … its text stays as it is */
        else if (r->t->byte_level) {
            size_t at = r->decoded.n;
            int done = llm_byte_text_decode(text, n, &r->decoded, e);
            if (done < 0)
                return -1;
            if (done) {
                p = (const unsigned char *)r->decoded.p + at;
                n = r->decoded.n - at;
            } else {
                flags = 0; /* no text of the alphabet: shown as it is, never made */
            }
        }
        if (id >= 0 && (size_t)id < r->vocab.n && r->vocab.v[id].flags & LLM_TOKEN_ADDED) { /* an added token that is listed here too */
            struct llm_vocab_entry *added = &r->vocab.v[id];
            size_t raw = strlen(text);
            if (added->n == n && memcmp(added->text, p, n) == 0)
                added->flags |= flags;
            else if (added->n != raw || memcmp(added->text, text, raw) != 0)
                return llm_fail(e, EX_DATAERR, "token id %lld is '%s' in the vocabulary and '%.*s' among added tokens", (long long)id, text,
                                (int)(added->n < 100 ? added->n : 100), (const char *)added->text);
            continue;
        }
        if (llm_vocab_put(&r->vocab, id, p, n, flags, e) < 0)
            return llm_in(e, "vocab");
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

static int read_merges(struct reader *r, const json_t *list, struct llm_bpe_merge *merges, struct llm_err *e)
{
    struct llm_buf both = {0}, joined = {0};
    int bad = -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *right = NULL;
        if (merge_texts(json_array_get(list, i), &both, &right, e) < 0) {
            llm_in(e, "merges[%zu]", i);
            goto done;
        }
        joined.n = 0;
        if (llm_buf_put(&joined, both.p, strlen(both.p), e) < 0 || llm_buf_put(&joined, right, strlen(right) + 1, e) < 0)
            goto done;
        int64_t a = id_of(r, both.p), b = id_of(r, right), c = id_of(r, joined.p);
        if (a < 0 || b < 0 || c < 0) {
            llm_fail(e, EX_DATAERR, "merges[%zu]: '%s' is not in the vocabulary", i, a < 0 ? both.p : b < 0 ? right : joined.p);
            goto done;
        }
        merges[i] = (struct llm_bpe_merge){(uint32_t)a, (uint32_t)b, (uint32_t)i, (uint32_t)c};
    }
    bad = 0;
done:
    llm_buf_release(&both);
    llm_buf_release(&joined);
    return bad;
}

static int read_unknown(struct reader *r, const json_t *model, struct llm_err *e)
{
    const char *text = NULL;
    if (llm_json_str(model, "unk_token", &text, e) < 0)
        return -1;
    if (text) {
        int64_t id = id_of(r, text);
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

static int model_bpe(struct reader *r, const json_t *o, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    const json_t *list = get(o, "merges");
    r->ids = json_object_get(o, "vocab");
    if (!json_is_object(r->ids) || !json_is_array(list))
        return llm_fail(e, EX_DATAERR, "expected 'vocab' and 'merges'");
    if (must_be_off(o, "dropout", e) < 0 || must_be_off(o, "continuing_subword_prefix", e) < 0 || must_be_off(o, "end_of_word_suffix", e) < 0
        || llm_json_bool(o, "byte_fallback", &t->byte_fallback, e) < 0 || llm_json_bool(o, "fuse_unk", &t->fuse_unknown, e) < 0
        || llm_json_bool(o, "ignore_merges", &t->ignore_merges, e) < 0)
        return -1;
    if (t->byte_level && (t->byte_fallback || t->fuse_unknown)) { /* every byte has a token there; neither can happen */
        t->byte_fallback = t->fuse_unknown = false;
    }
    size_t n = json_array_size(list);
    if (note_never(r, o, e) < 0 || read_vocab(r, e) < 0 || read_unknown(r, o, e) < 0 || read_model_ids(r, o, e) < 0
        || read_user_defined(r, o, e) < 0)
        return -1;
    bool chars = !t->byte_level && (t->generic || n || t->byte_fallback || t->fuse_unknown || !is_alphabet(r));
    t->generic = t->generic || chars;
    if (!t->generic && llm_tokenizer_stream_parts(t, e) < 0)
        return -1;
    t->model = t->byte_level ? n || t->n_splits || t->generic ? &llm_model_bpe : &llm_model_byte : chars ? &llm_model_bpe_chars : &llm_model_char;
    if (llm_tokenizer_set_vocab(t, &r->vocab, e) < 0)
        return -1;
    struct llm_bpe_merge *merges = llm_alloc(n, sizeof *merges, "merges", e);
    if (!merges)
        return -1;
    if (read_merges(r, list, merges, e) < 0 || read_ranks(get(o, "ranks"), merges, n, e) < 0) {
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
    r->ids = json_object_get(o, "vocab");
    if (!json_is_object(r->ids))
        return llm_fail(e, EX_DATAERR, "expected 'vocab', an object");
    if (no_byte_level(r, e) < 0 || llm_json_str(o, "continuing_subword_prefix", &prefix, e) < 0
        || llm_json_int(o, "max_input_chars_per_word", 0, INT32_MAX, &t->max_word, e) < 0
        || llm_json_bool(o, "fuse_unk", &t->fuse_unknown, e) < 0 || read_vocab(r, e) < 0 || read_unknown(r, o, e) < 0
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
    r->ids = json_object_get(o, "vocab");
    if (!json_is_object(r->ids))
        return llm_fail(e, EX_DATAERR, "expected 'vocab', an object");
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
    r->vocab.limit = 1024 + 8 * (int64_t)(json_object_size(vocab) + json_array_size(vocab) + json_array_size(get(r->root, "added_tokens")));
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

struct llm_tokenizer *llm_tokenizer_from_value(const json_t *root, struct llm_err *e)
{
    struct reader r = {.root = root, .t = llm_tokenizer_create(e)};
    int bad = r.t ? read_all(&r, e) : -1;
    llm_vocab_release(&r.vocab);
    llm_buf_release(&r.decoded);
    free(r.never);
    if (bad < 0) {
        llm_tokenizer_destroy(r.t);
        return NULL;
    }
    return r.t;
}

struct llm_tokenizer *llm_tokenizer_from_json(const char *json, size_t n, const char *where, struct llm_err *e)
{
    json_t *root = llm_json_parse(json, n, e);
    struct llm_tokenizer *t = root ? llm_tokenizer_from_value(root, e) : NULL;
    json_decref(root);
    if (t && llm_buf_put(&t->json, json, n, e) < 0) {
        llm_tokenizer_destroy(t);
        t = NULL;
    }
    if (!t)
        llm_in(e, "%s", where);
    return t;
}
