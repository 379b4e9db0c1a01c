/* A tokenizer as tokenizer.json: the text it came from, or one that Hugging Face's library reads to the same ids. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

static int quote_piece(const struct llm_tokenizer *t, int32_t id, struct llm_buf *piece, struct llm_buf *out, struct llm_err *e)
{
    size_t n;
    const char *text = llm_tokenizer_piece(t, id, &n);
    bool plain = t->model == &llm_model_char || !(t->flags[id] & LLM_TOKEN_MODEL);
    piece->n = 0;
    if (plain ? llm_buf_put(piece, text, n, e) < 0 : llm_byte_text_encode((const unsigned char *)text, n, piece, e) < 0)
        return -1;
    return llm_json_quote(out, piece->p ? piece->p : "", piece->n, e);
}

static int write_added(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    const char *comma = "";
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        unsigned f = t->flags[id];
        const char *text = llm_tokenizer_piece(t, id, &n);
        if (!(f & LLM_TOKEN_ADDED))
            continue;
        if (llm_buf_printf(out, e, "%s\n    {\"id\": %d, \"content\": ", comma, id) < 0 || llm_json_quote(out, text, n, e) < 0
            || llm_buf_printf(out, e, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": %s, \"special\": %s}",
                              f & LLM_TOKEN_NORMALIZED ? "true" : "false", f & LLM_TOKEN_SPECIAL ? "true" : "false") < 0)
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
    size_t n = t->offsets[id + 1] - t->offsets[id];
    const unsigned char *text = t->pieces + t->offsets[id];
    if (t->flags[id] & LLM_TOKEN_MODEL || !(t->flags[id] & LLM_TOKEN_ADDED))
        return 1;
    bytes->n = 0;
    int byte_text = t->model == &llm_model_char ? 0 : llm_byte_text_decode((const char *)text, n, bytes, e);
    if (byte_text < 0)
        return -1;
    if (n == 0 || bytes->n == 1 || llm_utf8_next(text, n, &cp) == (int)n)
        return 0;
    for (int32_t k = 0; byte_text && k < t->vocab_size; k++)
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

static int by_rank(const void *a, const void *b)
{
    const struct llm_bpe_merge *x = a, *y = b;
    if (x->rank != y->rank)
        return (x->rank > y->rank) - (x->rank < y->rank);
    return x->left != y->left ? (x->left > y->left) - (x->left < y->left) : (x->right > y->right) - (x->right < y->right);
}

static int write_merges(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    size_t n = t->bpe.n_merges;
    struct llm_buf piece = {0};
    struct llm_bpe_merge *m = llm_alloc(n, sizeof *m, "merges", e);
    int bad = m ? 0 : -1;
    if (m && n) {
        memcpy(m, t->bpe.merges, n * sizeof *m);
        qsort(m, n, sizeof *m, by_rank);
    }
    for (size_t i = 0; i < n && bad == 0; i++) {
        size_t len;
        piece.n = 0;
        const char *text = llm_tokenizer_piece(t, (int32_t)m[i].left, &len);
        if (llm_byte_text_encode((const unsigned char *)text, len, &piece, e) < 0 || llm_buf_put(&piece, " ", 1, e) < 0)
            bad = -1;
        text = llm_tokenizer_piece(t, (int32_t)m[i].right, &len);
        if (bad < 0 || llm_byte_text_encode((const unsigned char *)text, len, &piece, e) < 0
            || llm_buf_printf(out, e, "%s\n      ", i ? "," : "") < 0 || llm_json_quote(out, piece.p, piece.n, e) < 0)
            bad = -1;
    }
    free(m);
    llm_buf_release(&piece);
    return bad;
}

static int write_model(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    if (llm_buf_printf(out, e, "{\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": ") < 0)
        return -1;
    size_t n;
    const char *unknown = llm_tokenizer_piece(t, t->unknown, &n);
    if (unknown ? llm_json_quote(out, unknown, n, e) < 0 : llm_buf_printf(out, e, "null") < 0)
        return -1;
    if (llm_buf_printf(out, e,
                       ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, "
                       "\"ignore_merges\": %s,\n    \"vocab\": {",
                       t->ignore_merges ? "true" : "false") < 0
        || write_vocab(t, out, e) < 0 || llm_buf_printf(out, e, "\n    },\n    \"merges\": [") < 0 || write_merges(t, out, e) < 0)
        return -1;
    return llm_buf_printf(out, e, "%s]\n  }", t->bpe.n_merges ? "\n    " : "");
}

static int write_template_side(const struct llm_tokenizer *t, const int32_t *ids, int n, bool comma, struct llm_buf *out, struct llm_err *e)
{
    for (int i = 0; i < n; i++) {
        size_t len;
        const char *text = llm_tokenizer_piece(t, ids[i], &len);
        if (llm_buf_printf(out, e, "%s{\"SpecialToken\": {\"id\": ", i || comma ? ", " : "") < 0 || llm_json_quote(out, text, len, e) < 0
            || llm_buf_printf(out, e, ", \"type_id\": 0}}") < 0)
            return -1;
    }
    return 0;
}

static bool earlier(const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        if (ids[i] == ids[n])
            return true;
    return false;
}

/* What --add-special puts around a document. */
static int write_post(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    int32_t ids[2 * LLM_MAX_TEMPLATE];
    int n = t->n_before + t->n_after;
    if (n == 0)
        return llm_buf_printf(out, e, "null");
    if (llm_buf_printf(out, e, "{\"type\": \"TemplateProcessing\", \"single\": [") < 0
        || write_template_side(t, t->before, t->n_before, false, out, e) < 0
        || llm_buf_printf(out, e, "%s{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}", t->n_before ? ", " : "") < 0
        || write_template_side(t, t->after, t->n_after, true, out, e) < 0
        || llm_buf_printf(out, e,
                          "],\n    \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],\n"
                          "    \"special_tokens\": {") < 0)
        return -1;
    memcpy(ids, t->before, sizeof t->before);
    memcpy(ids + t->n_before, t->after, (size_t)t->n_after * sizeof *ids);
    for (int i = 0; i < n; i++) {
        size_t len;
        const char *text = llm_tokenizer_piece(t, ids[i], &len);
        if (earlier(ids, i))
            continue;
        if (llm_buf_printf(out, e, "%s", i ? ", " : "") < 0 || llm_json_quote(out, text, len, e) < 0
            || llm_buf_printf(out, e, ": {\"id\": ") < 0 || llm_json_quote(out, text, len, e) < 0
            || llm_buf_printf(out, e, ", \"ids\": [%d], \"tokens\": [", ids[i]) < 0 || llm_json_quote(out, text, len, e) < 0
            || llm_buf_printf(out, e, "]}") < 0)
            return -1;
    }
    return llm_buf_printf(out, e, "}}");
}

int llm_tokenizer_to_json(const struct llm_tokenizer *t, struct llm_buf *out, struct llm_err *e)
{
    if (t->json.n)
        return llm_buf_put(out, t->json.p, t->json.n, e);
    if (llm_buf_printf(out, e, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [") < 0
        || write_added(t, out, e) < 0 || llm_buf_printf(out, e, "],\n  \"normalizer\": ") < 0)
        return -1;
    if (t->normaliser ? llm_buf_printf(out, e, "{\"type\": \"%s\"}", t->normaliser->name) < 0 : llm_buf_printf(out, e, "null") < 0)
        return -1;
    if (llm_buf_printf(out, e, ",\n  \"pre_tokenizer\": ") < 0 || write_splits(t, out, e) < 0
        || llm_buf_printf(out, e, ",\n  \"post_processor\": ") < 0 || write_post(t, out, e) < 0
        || llm_buf_printf(out, e, ",\n  \"decoder\": ") < 0)
        return -1;
    const char *decoder = t->model == &llm_model_char
                              ? "{\"type\": \"Fuse\"}"
                              : "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}";
    if (llm_buf_printf(out, e, "%s,\n  \"model\": ", decoder) < 0 || write_model(t, out, e) < 0)
        return -1;
    return llm_buf_printf(out, e, "\n}\n");
}
