/* Tokenizers beyond plain byte-level ones: a text as a whole through normalisers, pre-tokenizers and model. Long texts come in parts, cut
 * where the parts give the ids of the whole. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

/* Valid UTF-8: each byte that is of no character becomes U+FFFD. NULL: it is valid as it is. */
static int make_valid(const unsigned char *p, size_t n, struct llm_buf *out, bool *changed, struct llm_err *e)
{
    size_t at = llm_utf8_invalid(p, n);
    *changed = at < n;
    out->n = 0;
    while (*changed && n) {
        if (llm_buf_put(out, p, at, e) < 0)
            return -1;
        p += at;
        n -= at;
        if (n && llm_buf_put(out, "\xEF\xBF\xBD", 3, e) < 0)
            return -1;
        p += n > 0;
        n -= n > 0;
        at = llm_utf8_invalid(p, n);
    }
    return 0;
}

int llm_pipeline_normalise(struct llm_encoder *en, const unsigned char *p, size_t n, bool first, bool last, struct llm_buf *out, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    if (t->n_norms == 0)
        return llm_buf_put(out, p, n, e);
    bool bytes = true, changed = false;
    for (int i = 0; i < t->n_norms; i++)
        bytes = bytes && llm_norm_takes_bytes(&t->norms[i]);
    if (t->byte_level && !bytes && make_valid(p, n, &en->raw_valid, &changed, e) < 0)
        return -1;
    if (changed) {
        p = (const unsigned char *)en->raw_valid.p;
        n = en->raw_valid.n;
    }
    size_t limit = llm_norm_limit(n);
    bool beheaded = false;
    for (int i = 0; i < t->n_norms; i++) {
        struct llm_norm_place at = {first, last, first && en->at_start, t->kept.n ? &t->kept : NULL, &en->norm_regex[i], limit, &beheaded};
        struct llm_buf *to = i + 1 == t->n_norms ? out : &en->forms[i & 1];
        if (to != out)
            to->n = 0;
        if (to == out && out->n > 0)
            at.limit = limit < SIZE_MAX - out->n ? limit + out->n : SIZE_MAX;
        if (t->norms[i].row->run(&t->norms[i], &at, p, n, to, e) < 0 || llm_norm_check(&t->norms[i], &at, to, e) < 0)
            return -1;
        p = (const unsigned char *)to->p;
        n = to->n;
    }
    en->at_start = en->at_start && !beheaded;
    return 0;
}

static int take_piece(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, struct llm_err *e)
{
    bool first = en->at_start;
    (void)last;
    if (n == 0)
        return 0;
    en->at_start = false;
    en->unknown_end = SIZE_MAX;
    return llm_pre_run(en, 0, p, n, first, e);
}

int llm_pipeline_run(struct llm_encoder *en, const unsigned char *p, size_t n, bool first, bool last, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    struct llm_buf *normal = &en->normal;
    bool changed = false;
    if (n == 0)
        return 0;
    bool own = t->n_norms && t->norms[0].row == &llm_norm_sentencepiece; /* it has its own way with what is not UTF-8 */
    if (!t->byte_level && !own && make_valid(p, n, &en->raw_valid, &changed, e) < 0)
        return -1;
    if (changed) {
        p = (const unsigned char *)en->raw_valid.p;
        n = en->raw_valid.n;
    }
    normal->n = 0;
    if (llm_pipeline_normalise(en, p, n, first, last, normal, e) < 0 || llm_buf_reserve(normal, normal->n + 16, e) < 0)
        return -1;
    if (last && n >= LLM_LARGE_TEXT)
        llm_buf_release(&en->unnormal); /* the text as it was is needed no more: of a long one that is memory */
    p = (const unsigned char *)normal->p;
    return en->normal_set.n ? llm_cut_whole(en, &en->normal_set, p, normal->n, take_piece, e) : take_piece(en, p, normal->n, true, e);
}

/* ---- added tokens that reach for what stands around them ---- */

static size_t space_before(const unsigned char *p, size_t from, size_t at)
{
    while (at > from) {
        size_t start = at - 1;
        uint32_t cp;
        while (start > from && (p[start] & 0xC0) == 0x80)
            start--;
        if (llm_utf8_next(p + start, at - start, &cp) != (int)(at - start) || !(llm_char_class(cp) & LLM_CH_SPACE))
            break;
        at = start;
    }
    return at;
}

static size_t space_behind(const unsigned char *p, size_t at, size_t n)
{
    uint32_t cp;
    int len;
    while (at < n && (len = llm_utf8_next(p + at, n - at, &cp)) > 0 && llm_char_class(cp) & LLM_CH_SPACE)
        at += (size_t)len;
    return at;
}

/* Does a letter of a word stand before, or at, this place? */
static bool touches(const unsigned char *p, size_t n, size_t from, size_t to)
{
    uint32_t cp;
    size_t start = from > 0 ? from - 1 : 0;
    while (start > 0 && from - start < 4 && (p[start] & 0xC0) == 0x80)
        start--;
    if (from > 0 && llm_utf8_next(p + start, from - start, &cp) > 0 && llm_pre_class(cp) & LLM_PRE_WORD)
        return true;
    return to < n && llm_utf8_next(p + to, n - to, &cp) > 0 && llm_pre_class(cp) & LLM_PRE_WORD;
}

int llm_cut_whole(struct llm_encoder *en, const struct llm_added *set, const unsigned char *p, size_t n, llm_text_sink *next, struct llm_err *e)
{
    size_t done = 0, at = 0;
    while (at < n) {
        size_t len;
        int32_t id;
        size_t from = at + llm_added_find(set, p + at, n - at, true, &len, &id), to = from + len;
        if (!len)
            break;
        unsigned f = en->t->flags[id];
        at = to;
        if (f & LLM_TOKEN_SINGLE_WORD && touches(p, n, from, to))
            continue;
        if (f & LLM_TOKEN_STRIP_LEFT)
            from = from > done ? space_before(p, done, from) : done;
        if (f & LLM_TOKEN_STRIP_RIGHT)
            to = space_behind(p, to, n); /* a token in the white space is one all the same */
        if (from >= to) /* the token before has taken its white space */
            continue;
        if ((from > done && next(en, p + done, from - done, true, e) < 0) || llm_encoder_room(en, 1, e) < 0)
            return -1;
        en->ids[en->n_ids++] = id;
        en->at_start = false;
        done = to;
    }
    return next(en, p + done, n - done, true, e);
}

/* ---- cutting ---- */

/* Characters that normalisation does not change and that never join with a space after them. */
static bool is_plain(uint32_t cp)
{
    if (cp < 0x80)
        return cp > ' ' && cp < 0x7F;
    return llm_char_class(cp) & LLM_CH_LETTER
           && (cp < 0x590 || (cp >= 0x3041 && cp <= 0x30FF) || (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0xAC00 && cp <= 0xD7A3));
}

size_t llm_pipeline_cut(const struct llm_tokenizer *t, const unsigned char *p, size_t n)
{
    for (size_t at = t->may_cut ? n : 0; at-- > 1;) {
        uint32_t cp;
        size_t start = at - 1;
        if (p[at] != ' ' || t->added_end[p[start]])
            continue;
        while (start > 0 && at - start < 4 && (p[start] & 0xC0) == 0x80)
            start--;
        if (llm_utf8_next(p + start, at - start, &cp) == (int)(at - start) && is_plain(cp))
            return at;
    }
    return 0;
}

void llm_pipeline_plan(struct llm_tokenizer *t)
{
    bool spaces = true, dropped = false, cuts = true;
    for (int i = 0; i < t->n_norms; i++) {
        cuts = cuts && llm_norm_cuts(&t->norms[i]);
        spaces = spaces && !llm_norm_no_spaces(&t->norms[i]);
    }
    for (int i = 0; i < t->n_pres; i++) {
        cuts = cuts && (dropped || llm_pre_cuts(&t->pres[i], spaces));
        dropped = dropped || llm_pre_drops_space(&t->pres[i]);
        if (t->pres[i].row == &llm_pre_metaspace)
            spaces = false;
    }
    /* what reaches the model ends where a word begins, or the model does not look across such places */
    bool split = dropped || t->byte_level;
    for (int i = 0; i < t->n_pres; i++)
        split = split || (t->pres[i].row == &llm_pre_metaspace && t->pres[i].cut);
    t->may_cut = cuts && (split || (t->model == &llm_model_bpe_chars && t->words && !spaces));
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        const unsigned char *text = llm_model_piece(t, id, &n);
        bool added = t->flags[id] & LLM_TOKEN_ADDED, user = t->flags[id] & LLM_TOKEN_USER;
        if (!added && !user)
            continue;
        for (size_t i = 1; i < n; i++)
            t->may_cut = t->may_cut && text[i] != ' ';
        if (added && t->flags[id] & (LLM_TOKEN_STRIP_LEFT | LLM_TOKEN_STRIP_RIGHT | LLM_TOKEN_SINGLE_WORD))
            t->may_cut = false;
        if (n && added)
            t->added_end[text[n - 1]] = 1;
    }
}
