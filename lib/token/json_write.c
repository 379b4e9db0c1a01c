/* A tokenizer as tokenizer.json: the text it came from, or one that Hugging Face's library reads to the same ids. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

/* Are pieces text as they stand, not bytes in GPT-2's alphabet? */
static bool is_text(const struct llm_tokenizer *t)
{
    return t->model == &llm_model_char || (t->model->encode_new && t->model != &llm_model_bpe);
}

static int quote_piece(const struct llm_tokenizer *t, int32_t id, struct llm_buf *piece, struct llm_buf *out, struct llm_err *e)
{
    size_t n;
    const unsigned char *text = llm_model_piece(t, id, &n);
    bool plain = is_text(t) || !(t->flags[id] & LLM_TOKEN_MODEL);
    piece->n = 0;
    if (plain ? llm_buf_put(piece, text, n, e) < 0 : llm_byte_text_encode(text, n, piece, e) < 0)
        return -1;
    return llm_json_quote(out, piece->p ? piece->p : "", piece->n, e);
}

static const char *truth(bool b)
{
    return b ? "true" : "false";
}

static int write_added(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    const char *comma = "";
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        unsigned f = t->flags[id];
        const char *text = (const char *)llm_model_piece(t, id, &n);
        if (!(f & LLM_TOKEN_ADDED))
            continue;
        if (llm_buf_printf(out, e, "%s\n    {\"id\": %d, \"content\": ", comma, id) < 0 || llm_json_quote(out, text, n, e) < 0
            || llm_buf_printf(out, e, ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": %s, \"special\": %s}",
                              truth(f & LLM_TOKEN_SINGLE_WORD), truth(f & LLM_TOKEN_STRIP_LEFT), truth(f & LLM_TOKEN_STRIP_RIGHT),
                              truth(f & LLM_TOKEN_NORMALIZED), truth(f & LLM_TOKEN_SPECIAL)) < 0)
            return -1;
        comma = ",";
    }
    return llm_buf_printf(out, e, "%s", *comma ? "\n  " : "");
}

static int write_splits(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    const char *prefix = t->add_prefix_space ? "true" : "false";
    if (t->model == &llm_model_char)
        return llm_buf_printf(out, e, "null");
    bool own = t->n_splits == 1 && t->splits[0].row == &llm_split_gpt2; /* ByteLevel brings this one */
    if (t->n_splits && !own && llm_buf_printf(out, e, "{\"type\": \"Sequence\", \"pretokenizers\": [") < 0)
        return -1;
    for (int i = 0; i < t->n_splits && !own; i++) {
        const struct llm_split *s = &t->splits[i];
        const char *pattern = s->row ? s->row->patterns[0] : s->pattern;
        if (llm_buf_printf(out, e, "\n    {\"type\": \"Split\", \"pattern\": {\"Regex\": ") < 0
            || llm_json_quote(out, pattern, strlen(pattern), e) < 0
            || llm_buf_printf(out, e, "}, \"behavior\": \"Isolated\", \"invert\": false},") < 0)
            return -1;
    }
    return llm_buf_printf(out, e, "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": true, \"use_regex\": %s}%s", prefix,
                          own ? "true" : "false", t->n_splits && !own ? "]}" : "");
}

/* Hugging Face's library takes an added token's id from the vocabulary and numbers those that are not there anew, so they are listed there too.
 * Not where the model would then make them: the text is one of its own tokens, or a single character. 1, 0, or -1. */
static int listed(const struct llm_tokenizer *t, int32_t id, struct llm_buf *bytes, struct llm_err *e)
{
    uint32_t cp;
    size_t n;
    const unsigned char *text = llm_model_piece(t, id, &n);
    if (t->flags[id] & LLM_TOKEN_MODEL || !(t->flags[id] & LLM_TOKEN_ADDED) || id == t->unknown)
        return 1;
    if (t->model == &llm_model_greedy)
        return 0;
    bytes->n = 0;
    int as_model = is_text(t) ? llm_buf_put(bytes, text, n, e) == 0 ? 1 : -1 : llm_byte_text_decode((const char *)text, n, bytes, e);
    if (as_model < 0)
        return -1;
    if (n == 0 || (!is_text(t) && bytes->n == 1) || llm_utf8_next(text, n, &cp) == (int)n)
        return 0;
    for (int32_t k = 0; as_model && k < t->vocab_size; k++)
        if (t->flags[k] & LLM_TOKEN_MODEL && t->offsets[k + 1] - t->offsets[k] == bytes->n
            && memcmp(t->pieces + t->offsets[k], bytes->p, bytes->n) == 0)
            return 0;
    return 1;
}

static int write_vocab(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    struct llm_buf piece = {0};
    const char *comma = "";
    int bad = 0;
    for (int32_t id = 0; id < t->vocab_size && bad == 0; id++) {
        int in = t->flags[id] & LLM_TOKEN_PRESENT ? listed(t, id, &piece, e) : 0;
        if (in < 0)
            bad = -1;
        if (in <= 0)
            continue;
        if (llm_buf_printf(out, e, "%s\n      ", comma) < 0 || quote_piece(t, id, &piece, out, e) < 0 || llm_buf_printf(out, e, ": %d", id) < 0)
            bad = -1;
        comma = ",";
    }
    llm_buf_release(&piece);
    return bad;
}

struct long_merge { struct llm_bpe_merge m; uint32_t left, right; }; /* characters of both */

static int by_rank(const void *a, const void *b)
{
    const struct llm_bpe_merge *x = a, *y = b;
    if (x->rank != y->rank)
        return (x->rank > y->rank) - (x->rank < y->rank);
    return x->left != y->left ? (x->left > y->left) - (x->left < y->left) : (x->right > y->right) - (x->right < y->right);
}

/* Of merges that are made at once, those with longer texts first: Hugging Face's converter of SentencePiece's models has this order. */
static int by_rank_and_length(const void *a, const void *b)
{
    const struct long_merge *x = a, *y = b;
    if (x->m.rank != y->m.rank)
        return (x->m.rank > y->m.rank) - (x->m.rank < y->m.rank);
    if (x->left != y->left)
        return (x->left < y->left) - (x->left > y->left);
    return x->right != y->right ? (x->right < y->right) - (x->right > y->right) : by_rank(&x->m, &y->m);
}

static uint32_t characters(const struct llm_tokenizer *t, uint32_t id)
{
    size_t n;
    const unsigned char *p = llm_model_piece(t, (int32_t)id, &n);
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += (p[i] & 0xC0) != 0x80;
    return count;
}

static int put_piece(const struct llm_tokenizer *t, uint32_t id, struct llm_buf *out, struct llm_err *e)
{
    size_t n;
    const unsigned char *text = llm_model_piece(t, (int32_t)id, &n);
    return is_text(t) ? llm_buf_put(out, text, n, e) : llm_byte_text_encode(text, n, out, e);
}

/* Ends the list; where merges into different tokens are made from left to right, their ranks follow: a list alone would not say so. */
static int write_ranks(const struct llm_tokenizer *t, const struct long_merge *m, size_t n, struct llm_buf *out, struct llm_err *e)
{
    bool equal = false;
    for (size_t i = 1; is_text(t) && i < n; i++)
        equal = equal || (m[i].m.rank == m[i - 1].m.rank && m[i].m.id != m[i - 1].m.id);
    if (llm_buf_printf(out, e, "%s]%s", n ? "\n    " : "", equal ? ",\n    \"ranks\": [" : "") < 0)
        return -1;
    uint32_t rank = 0;
    for (size_t i = 0; equal && i < n; i++) {
        rank += i && m[i].m.rank != m[i - 1].m.rank;
        if (llm_buf_printf(out, e, "%s%u", i ? ", " : "", rank) < 0)
            return -1;
    }
    return equal ? llm_buf_printf(out, e, "]") : 0;
}

static int write_merges(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    size_t n;
    const struct llm_bpe_merge *merges = llm_tokenizer_merges(t, &n, e);
    struct llm_buf piece = {0};
    struct long_merge *m = merges || n == 0 ? llm_alloc(n, sizeof *m, "merges", e) : NULL;
    int bad = m ? 0 : -1;
    for (size_t i = 0; m && i < n; i++) {
        m[i] = (struct long_merge){merges[i], 0, 0};
        if (is_text(t)) {
            m[i].left = characters(t, m[i].m.left);
            m[i].right = characters(t, m[i].m.right);
        }
    }
    if (m && n)
        qsort(m, n, sizeof *m, by_rank_and_length);
    for (size_t i = 0; i < n && bad == 0; i++) {
        piece.n = 0;
        if (put_piece(t, m[i].m.left, &piece, e) < 0 || llm_buf_put(&piece, " ", 1, e) < 0 || put_piece(t, m[i].m.right, &piece, e) < 0
            || llm_buf_printf(out, e, "%s\n      ", i ? "," : "") < 0 || llm_json_quote(out, piece.p, piece.n, e) < 0)
            bad = -1;
    }
    if (bad == 0)
        bad = write_ranks(t, m, n, out, e);
    free(m);
    llm_buf_release(&piece);
    return bad;
}

/* Ids with a flag, or without it, as a list under `key`; nothing when there are none. */
static int write_ids(const struct llm_tokenizer *t, const char *key, unsigned flag, bool set, struct llm_buf *out, struct llm_err *e)
{
    bool any = false;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        unsigned f = t->flags[id];
        if (!f || (flag == LLM_TOKEN_USER && f & LLM_TOKEN_ADDED) || (bool)(f & flag) != set)
            continue;
        if ((any ? llm_buf_printf(out, e, ", %d", id) : llm_buf_printf(out, e, ", \"%s\": [%d", key, id)) < 0)
            return -1;
        any = true;
    }
    return any ? llm_buf_printf(out, e, "]") : 0;
}

static int write_unknown(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    size_t n;
    if (t->unknown < 0)
        return llm_buf_printf(out, e, "null");
    const unsigned char *text = llm_model_piece(t, t->unknown, &n);
    return llm_json_quote(out, (const char *)text, n, e);
}

/* Would a token that is listed in the vocabulary be taken for one of the model's, and change something? Either as a single character, or as a
 * whole piece, or because its text would be read as one in GPT-2's alphabet. */
static bool is_mistaken(const struct llm_tokenizer *t, int32_t id)
{
    uint32_t cp;
    size_t n;
    const unsigned char *text = llm_model_piece(t, id, &n);
    if (t->flags[id] & LLM_TOKEN_MODEL || !(t->flags[id] & LLM_TOKEN_PRESENT) || (t->flags[id] & LLM_TOKEN_ADDED && id != t->unknown))
        return false;
    bool ascii = true;
    for (size_t i = 0; i < n; i++)
        ascii = ascii && text[i] < 0x80;
    return t->ignore_merges || (n && llm_utf8_next(text, n, &cp) == (int)n) || (!is_text(t) && !ascii);
}

static int write_never(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    bool any = false;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        if (!is_mistaken(t, id))
            continue;
        if ((any ? llm_buf_printf(out, e, ", %d", id) : llm_buf_printf(out, e, ", \"never\": [%d", id)) < 0)
            return -1;
        any = true;
    }
    return any ? llm_buf_printf(out, e, "]") : 0;
}

static int write_bpe(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    if (llm_buf_printf(out, e, "{\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": ") < 0 || write_unknown(t, out, e) < 0
        || llm_buf_printf(out, e, ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": ") < 0
        || (t->suffix ? llm_json_quote(out, t->suffix, strlen(t->suffix), e) : llm_buf_printf(out, e, "null")) < 0
        || llm_buf_printf(out, e, ", \"fuse_unk\": %s, \"byte_fallback\": %s, \"ignore_merges\": %s",
                          truth(t->fuse_unknown), truth(t->byte_fallback), truth(t->ignore_merges)) < 0
        || write_never(t, out, e) < 0 || write_ids(t, "user_defined", LLM_TOKEN_USER, true, out, e) < 0
        || llm_buf_printf(out, e, ",\n    \"vocab\": {") < 0 || write_vocab(t, out, e) < 0
        || llm_buf_printf(out, e, "\n    },\n    \"merges\": [") < 0 || write_merges(t, out, e) < 0)
        return -1;
    return llm_buf_printf(out, e, "\n  }");
}

static int write_unigram(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    if (llm_buf_printf(out, e, "{\n    \"type\": \"Unigram\", \"unk_id\": ") < 0
        || (t->unknown < 0 ? llm_buf_printf(out, e, "null") : llm_buf_printf(out, e, "%d", t->unknown)) < 0
        || llm_buf_printf(out, e, ", \"byte_fallback\": %s, \"sentencepiece\": %s", truth(t->byte_fallback), truth(t->sentencepiece)) < 0
        || write_ids(t, "never", LLM_TOKEN_MODEL, false, out, e) < 0 || write_ids(t, "user_defined", LLM_TOKEN_USER, true, out, e) < 0
        || llm_buf_printf(out, e, ",\n    \"vocab\": [") < 0)
        return -1;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        const unsigned char *text = llm_model_piece(t, id, &n);
        if (llm_buf_printf(out, e, "%s\n      [", id ? "," : "") < 0 || llm_json_quote(out, (const char *)text, n, e) < 0
            || llm_buf_printf(out, e, ", ") < 0 || llm_json_number(out, t->scores[id], e) < 0 || llm_buf_printf(out, e, "]") < 0)
            return -1;
    }
    return llm_buf_printf(out, e, "\n    ]\n  }");
}

static int write_wordpiece(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    if (llm_buf_printf(out, e, "{\n    \"type\": \"WordPiece\", \"unk_token\": ") < 0 || write_unknown(t, out, e) < 0
        || llm_buf_printf(out, e, ", \"continuing_subword_prefix\": ") < 0 || llm_json_quote(out, t->prefix, strlen(t->prefix), e) < 0
        || llm_buf_printf(out, e, ", \"max_input_chars_per_word\": %lld%s%s", (long long)t->max_word, t->fuse_unknown ? ", \"fuse_unk\": true" : "",
                          t->byte_fallback ? ", \"byte_fallback\": true" : "") < 0
        || write_ids(t, "never", LLM_TOKEN_MODEL, false, out, e) < 0 || write_ids(t, "user_defined", LLM_TOKEN_USER, true, out, e) < 0
        || llm_buf_printf(out, e, ",\n    \"vocab\": {") < 0 || write_vocab(t, out, e) < 0)
        return -1;
    return llm_buf_printf(out, e, "\n    }\n  }");
}

/* A type of our own: no other library reads it. */
static int write_greedy(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    if (llm_buf_printf(out, e, "{\n    \"type\": \"Greedy\"") < 0 || write_ids(t, "never", LLM_TOKEN_MODEL, false, out, e) < 0
        || llm_buf_printf(out, e, ",\n    \"vocab\": {") < 0 || write_vocab(t, out, e) < 0)
        return -1;
    return llm_buf_printf(out, e, "\n    }\n  }");
}

static int write_model(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    return t->model == &llm_model_unigram     ? write_unigram(t, out, e)
           : t->model == &llm_model_wordpiece ? write_wordpiece(t, out, e)
           : t->model == &llm_model_greedy    ? write_greedy(t, out, e)
                                              : write_bpe(t, out, e);
}

/* ---- what stands around the model ---- */

static int write_side(const struct llm_tokenizer *t, const int32_t *ids, int n, const char *before, struct llm_buf *out, struct llm_err *e)
{
    for (int i = 0; i < n; i++) {
        size_t len;
        const unsigned char *text = llm_model_piece(t, ids[i], &len);
        if (llm_buf_printf(out, e, "%s{\"SpecialToken\": {\"id\": ", before) < 0 || llm_json_quote(out, (const char *)text, len, e) < 0
            || llm_buf_printf(out, e, ", \"type_id\": 0}}") < 0)
            return -1;
        before = ", ";
    }
    return 0;
}

/* The ids of a template, each once. */
static int write_template_tokens(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    int n = t->n_before + t->n_after;
    const char *comma = "";
    for (int i = 0; i < n; i++) {
        int32_t id = i < t->n_before ? t->before[i] : t->after[i - t->n_before];
        bool again = false;
        for (int k = 0; k < i; k++)
            again = again || (k < t->n_before ? t->before[k] : t->after[k - t->n_before]) == id;
        size_t len;
        const char *text = (const char *)llm_model_piece(t, id, &len);
        if (again)
            continue;
        if (llm_buf_printf(out, e, "%s", comma) < 0 || llm_json_quote(out, text, len, e) < 0 || llm_buf_printf(out, e, ": {\"id\": ") < 0
            || llm_json_quote(out, text, len, e) < 0 || llm_buf_printf(out, e, ", \"ids\": [%d], \"tokens\": [", id) < 0
            || llm_json_quote(out, text, len, e) < 0 || llm_buf_printf(out, e, "]}") < 0)
            return -1;
        comma = ", ";
    }
    return 0;
}

static int write_post(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    if (t->n_before + t->n_after == 0)
        return llm_buf_printf(out, e, "null");
    if (llm_buf_printf(out, e, "{\"type\": \"TemplateProcessing\", \"single\": [") < 0 || write_side(t, t->before, t->n_before, "", out, e) < 0
        || llm_buf_printf(out, e, "%s{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}", t->n_before ? ", " : "") < 0
        || write_side(t, t->after, t->n_after, ", ", out, e) < 0
        || llm_buf_printf(out, e, "], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], "
                                  "\"special_tokens\": {") < 0
        || write_template_tokens(t, out, e) < 0)
        return -1;
    return llm_buf_printf(out, e, "}}");
}

/* Normalizer, pre-tokenizer or decoder as it was given. */
static int write_part(const struct llm_tokenizer *t, const char *key, struct llm_buf *out, struct llm_err *e)
{
    const json_t *part = json_object_get(t->parts, key);
    struct llm_buf text = {0};
    int bad = 0;
    if (!part || json_is_null(part))
        return llm_buf_printf(out, e, "null");
    bad = llm_json_dump(part, &text, e) < 0 || llm_buf_put(out, text.p, text.n, e) < 0 ? -1 : 0;
    llm_buf_release(&text);
    return bad;
}

static int write_parts(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    static const char byte_level[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}";
    const char *decoder = t->model == &llm_model_char ? "{\"type\": \"Fuse\"}" : byte_level;
    if (llm_buf_printf(out, e, "],\n  \"normalizer\": ") < 0)
        return -1;
    if (t->generic ? write_part(t, "normalizer", out, e) < 0
                   : t->normaliser ? llm_buf_printf(out, e, "{\"type\": \"%s\"}", t->normaliser->name) < 0 : llm_buf_printf(out, e, "null") < 0)
        return -1;
    if (llm_buf_printf(out, e, ",\n  \"pre_tokenizer\": ") < 0
        || (t->generic ? write_part(t, "pre_tokenizer", out, e) : write_splits(t, out, e)) < 0
        || llm_buf_printf(out, e, ",\n  \"post_processor\": ") < 0 || write_post(t, out, e) < 0
        || llm_buf_printf(out, e, ",\n  \"decoder\": ") < 0)
        return -1;
    return t->generic ? write_part(t, "decoder", out, e) : llm_buf_printf(out, e, "%s", decoder);
}

int llm_tokenizer_to_json(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    if (t->json.n)
        return llm_buf_put(out, t->json.p, t->json.n, e);
    if (llm_buf_printf(out, e, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [") < 0
        || write_added(t, out, e) < 0 || write_parts(t, out, e) < 0 || llm_buf_printf(out, e, ",\n  \"model\": ") < 0
        || write_model(t, out, e) < 0)
        return -1;
    return llm_buf_printf(out, e, "\n}\n");
}
