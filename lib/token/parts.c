/* Normalizer, pre-tokenizer and decoder of a tokenizer.json: flattened into lists of steps; into the streaming form where that serves. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"

#define MAX_STEPS LLM_MAX_SPLITS

/* The components of `o` in order, Sequences opened up; *n counts them. */
static int flatten(const json_t *o, const char *what, const char *list_key, const json_t *steps[MAX_STEPS], int *n, int depth, struct llm_err *e)
{
    if (!o || json_is_null(o))
        return 0;
    const char *type = json_string_value(json_object_get(o, "type"));
    if (!type || strcmp(type, "Sequence") != 0) {
        if (*n == MAX_STEPS)
            return llm_fail(e, EX_UNAVAILABLE, "%s: more than %d steps are not supported", what, MAX_STEPS);
        steps[(*n)++] = o;
        return 0;
    }
    const json_t *list = json_object_get(o, list_key);
    if (!json_is_array(list))
        return llm_fail(e, EX_DATAERR, "%s Sequence: %s: expected an array", what, list_key);
    if (depth == 8)
        return llm_fail(e, EX_DATAERR, "%s: Sequences within Sequences too deep", what);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (flatten(json_array_get(list, i), what, list_key, steps, n, depth + 1, e) < 0)
            return -1;
    return 0;
}

static int read_norms(struct llm_tokenizer *t, const json_t *o, struct llm_err *e)
{
    const json_t *steps[MAX_STEPS];
    int n = 0;
    if (flatten(o, "normalizer", "normalizers", steps, &n, 0, e) < 0 || !(t->norms = llm_calloc((size_t)n, sizeof *t->norms, "normalizers", e)))
        return -1;
    for (; t->n_norms < n; t->n_norms++)
        if (llm_norm_init(&t->norms[t->n_norms], steps[t->n_norms], e) < 0)
            return -1;
    return 0;
}

/* Does a split at spaces come after all of them are gone? */
static bool does_nothing(const struct llm_tokenizer *t, const struct llm_pre *s)
{
    return t->n_norms && llm_norm_no_spaces(&t->norms[t->n_norms - 1]) && s->row == &llm_pre_split && s->text.n == 1 && *s->text.p == ' '
           && !s->invert;
}

static int read_pres(struct llm_tokenizer *t, const json_t *o, struct llm_err *e)
{
    const json_t *steps[MAX_STEPS];
    int n = 0;
    if (flatten(o, "pre_tokenizer", "pretokenizers", steps, &n, 0, e) < 0
        || !(t->pres = llm_calloc((size_t)n, sizeof *t->pres, "pre-tokenizers", e)))
        return -1;
    for (int i = 0; i < n; i++) {
        struct llm_pre *s = &t->pres[t->n_pres];
        if (llm_pre_init(s, steps[i], e) < 0)
            return -1;
        if (t->byte_level) {
            bool twice = s->row == &llm_pre_byte_level;
            llm_pre_release(s);
            return twice ? llm_fail(e, EX_DATAERR, "pre_tokenizer ByteLevel: it stands twice")
                         : llm_fail(e, EX_UNAVAILABLE, "pre_tokenizer '%s' after ByteLevel is not supported",
                                    json_string_value(json_object_get(steps[i], "type")));
        }
        t->byte_level = s->row == &llm_pre_byte_level;
        if (does_nothing(t, s))
            llm_pre_release(s);
        else
            t->n_pres++;
    }
    return 0;
}

static int read_decoders(struct llm_tokenizer *t, const json_t *o, struct llm_err *e)
{
    const json_t *steps[MAX_STEPS];
    int n = 0;
    if (flatten(o, "decoder", "decoders", steps, &n, 0, e) < 0
        || !(t->decoders = llm_calloc((size_t)n, sizeof *t->decoders, "decoders", e)))
        return -1;
    for (int i = 0; i < n; i++) {
        struct llm_decode_step *s = &t->decoders[t->n_decoders];
        if (llm_decode_step_init(s, steps[i], e) < 0)
            return -1;
        bool joins = llm_decode_step_is(s, "ByteLevel") || llm_decode_step_is(s, "Fuse");
        bool fits = t->byte_level ? joins : !llm_decode_step_is(s, "ByteLevel");
        t->n_decoders++;
        if (!fits)
            return llm_fail(e, EX_UNAVAILABLE, "decoder '%s' %s ByteLevel pre-tokenizer is not supported",
                            json_string_value(json_object_get(steps[i], "type")), t->byte_level ? "with a" : "without a");
    }
    for (; t->byte_level && t->n_decoders; t->n_decoders--) /* pieces are bytes already: they are joined */
        llm_decode_step_release(&t->decoders[t->n_decoders - 1]);
    return 0;
}

/* ---- the streaming form: NFC or nothing, splits that keep everything, bytes ---- */

/* A plain string as a pattern. */
static int quote_pattern(const char *text, struct llm_buf *out, struct llm_err *e)
{
    for (; *text; text++)
        if (((unsigned char)*text < 0x80 && strchr("\\^$.|?*+()[]{}#", *text) && llm_buf_put(out, "\\", 1, e) < 0)
            || llm_buf_put(out, text, 1, e) < 0)
            return -1;
    return 0;
}

static bool is_simple(const struct llm_tokenizer *t)
{
    if (t->n_norms > 1 || (t->n_norms == 1 && t->norms[0].row != &llm_norm_nfc))
        return false;
    for (int i = 0; i < t->n_pres; i++) {
        const struct llm_pre *s = &t->pres[i];
        /* the known patterns match everything, so that what is removed outside of matches is nothing */
        bool isolated = s->behaviour == LLM_ISOLATED || (s->behaviour == LLM_REMOVED && s->invert && s->split.row);
        if (s->row == &llm_pre_byte_level ? s->prepend == LLM_PREPEND_ALWAYS && i > 0 : s->row != &llm_pre_split || !isolated)
            return false;
    }
    return t->byte_level || t->n_pres == 0;
}

int llm_tokenizer_stream_parts(struct llm_tokenizer *t, struct llm_err *e)
{
    if (t->n_norms)
        t->normaliser = llm_normaliser_find("NFC");
    for (int i = 0; i < t->n_pres; i++) {
        const struct llm_pre *s = &t->pres[i];
        struct llm_buf quoted = {0};
        int bad = 0;
        if (s->row == &llm_pre_byte_level) {
            t->add_prefix_space = s->prepend == LLM_PREPEND_ALWAYS;
            bad = s->cut ? llm_tokenizer_add_split(t, "gpt2", e) : 0;
        } else if (s->split.pattern) {
            bad = llm_tokenizer_add_split(t, s->split.pattern, e);
        } else {
            bad = quote_pattern(s->text.p, &quoted, e) < 0 ? -1 : llm_tokenizer_add_split(t, quoted.p, e);
        }
        llm_buf_release(&quoted);
        if (bad < 0)
            return -1;
    }
    for (; t->n_norms; t->n_norms--)
        llm_norm_release(&t->norms[t->n_norms - 1]);
    for (; t->n_pres; t->n_pres--)
        llm_pre_release(&t->pres[t->n_pres - 1]);
    return 0;
}

int llm_tokenizer_set_parts(struct llm_tokenizer *t, const json_t *normalizer, const json_t *pre_tokenizer, const json_t *decoder, struct llm_err *e)
{
    if (read_norms(t, normalizer, e) < 0 || read_pres(t, pre_tokenizer, e) < 0 || read_decoders(t, decoder, e) < 0)
        return -1;
    t->parts = json_pack("{s:O?, s:O?, s:O?}", "normalizer", normalizer, "pre_tokenizer", pre_tokenizer, "decoder", decoder);
    if (!t->parts)
        return llm_no_memory(e, "a tokenizer");
    t->generic = !is_simple(t);
    return 0;
}
