/* Text to ids as a stream. Stages: added tokens in the text as written; normaliser; added tokens in normal text; splits; model. Each
 * keeps only what later text could still change. */
#include <stdlib.h>
#include <string.h>
#include "cpu/detect.h"
#include "cpu/kernels.h"
#include "token/internal.h"
#include "token/train/counts.h"
#include "token/unicode.h"

#define SPARE 16 /* bytes after a buffer's end that model/word.c may read */
#define WINDOW 64
#define LONG_TEXT ((size_t)1 << 16) /* texts that go through the pipeline are cut when they are longer */

#define REACHES (LLM_TOKEN_STRIP_LEFT | LLM_TOKEN_STRIP_RIGHT | LLM_TOKEN_SINGLE_WORD)

/* A token that is looked for in normal text, by its own normal form. Offsets into added_texts stand for pointers until all are there. */
static int add_normal(struct llm_encoder *en, const unsigned char *text, size_t n, int32_t id, struct llm_err *e)
{
    size_t at = en->added_texts.n;
    if (en->t->generic ? llm_pipeline_normalise(en, text, n, true, true, &en->added_texts, e) < 0 : llm_buf_put(&en->added_texts, text, n, e) < 0)
        return -1;
    size_t len = en->added_texts.n - at;
    if (len == 0)
        return 0;
    if (llm_added_put(&en->normal_set, (const unsigned char *)en->added_texts.p + at, len, id, en->t->flags[id] & LLM_TOKEN_SPECIAL, e) < 0)
        return -1;
    en->normal_set.entries[en->normal_set.n - 1].text = (const unsigned char *)(uintptr_t)at;
    return 0;
}

/* Is this token looked for? */
static bool is_looked_for(const struct llm_encoder *en, int32_t id)
{
    unsigned f = en->t->flags[id];
    size_t n;
    (void)llm_model_piece(en->t, id, &n);
    return f & LLM_TOKEN_ADDED && (!(f & LLM_TOKEN_SPECIAL) || en->flags & LLM_ENCODE_SPECIAL) && n > 0;
}

static int add_tokens(struct llm_encoder *en, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    /* Without a normaliser both texts are the same, but tokens of the text as written are still found before the others. */
    bool normal = t->normaliser || t->n_norms;
    for (int32_t id = 0; id < t->vocab_size && !normal; id++)
        normal = is_looked_for(en, id) && !(t->flags[id] & LLM_TOKEN_NORMALIZED);
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        if (!is_looked_for(en, id))
            continue;
        unsigned f = t->flags[id];
        const unsigned char *text = llm_model_piece(t, id, &n);
        if ((normal && f & LLM_TOKEN_NORMALIZED ? add_normal(en, text, n, id, e)
                                                : llm_added_put(&en->raw_set, text, n, id, f & LLM_TOKEN_SPECIAL, e)) < 0)
            return -1;
        en->whole = en->whole || f & REACHES;
    }
    for (size_t i = 0; i < en->normal_set.n; i++)
        en->normal_set.entries[i].text = (const unsigned char *)en->added_texts.p + (uintptr_t)en->normal_set.entries[i].text;
    llm_added_sort(&en->raw_set);
    llm_added_sort(&en->normal_set);
    return 0;
}

struct llm_encoder *llm_encoder_create(const struct llm_tokenizer *t, int flags, struct llm_err *e)
{
    struct llm_encoder *en = llm_calloc(1, sizeof *en, "an encoder", e);
    if (!en)
        return NULL;
    en->t = t;
    en->flags = flags;
    if (llm_kernels_init(e) < 0 || add_tokens(en, e) < 0)
        goto fail;
    for (int i = 0; i < t->n_splits; i++)
        if (t->splits[i].regex && !(en->regex[i] = llm_regex_state_create(t->splits[i].regex, e)))
            goto fail;
    if (t->model->encode_new && !(en->cache = llm_word_cache_create(e)))
        goto fail;
    if (t->model->counts && !(en->counts = llm_calloc(1, sizeof *en->counts, "word counts", e)))
        goto fail;
    return en;
fail:
    llm_encoder_destroy(en);
    return NULL;
}

void llm_encoder_destroy(struct llm_encoder *en)
{
    if (!en)
        return;
    llm_added_release(&en->raw_set);
    llm_added_release(&en->normal_set);
    llm_buf_release(&en->raw);
    llm_buf_release(&en->unnormal);
    llm_buf_release(&en->normal);
    llm_buf_release(&en->text);
    for (int i = 0; i < LLM_MAX_SPLITS; i++) {
        llm_regex_state_destroy(en->regex[i]);
        llm_regex_state_destroy(en->norm_regex[i]);
        llm_buf_release(&en->stages[i]);
    }
    llm_buf_release(&en->forms[0]);
    llm_buf_release(&en->forms[1]);
    llm_buf_release(&en->raw_valid);
    llm_buf_release(&en->added_texts);
    free(en->paths);
    llm_bpe_work_release(&en->work);
    llm_word_cache_destroy(en->cache);
    if (en->counts)
        llm_counts_release(en->counts);
    free(en->counts);
    free(en);
}

/* Forgets the first `n` bytes. */
static void drop(struct llm_buf *b, size_t n)
{
    if (n == 0)
        return;
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

/* ---- splits and model ---- */

/* A whole piece of split `stage` - 1: through the splits that remain, to the model. */
static int split_piece(struct llm_encoder *en, int stage, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    if (stage >= t->n_splits)
        return t->model->encode(en, p, n, e);
    for (size_t at = 0; at < n;) {
        const struct llm_split *s = &t->splits[stage];
        long len = s->row ? (long)s->row->next(p + at, p + n, true) : llm_regex_next(en->regex[stage], p, at, n, true, e);
        if (len < 0 || split_piece(en, stage + 1, p + at, (size_t)len, e) < 0)
            return -1;
        at += (size_t)len;
    }
    return 0;
}

static int encode_pieces(struct llm_encoder *en, const unsigned char *p, const size_t *ends, size_t n, struct llm_err *e)
{
    const struct llm_model_row *model = en->t->model;
    if (model->encode_pieces)
        return model->encode_pieces(en, p, ends, n, e);
    for (size_t i = 0, from = 0; i < n; from = ends[i++])
        if (model->encode(en, p + from, ends[i] - from, e) < 0)
            return -1;
    return 0;
}

/* The usual case, one hand-written splitter, is the hot loop of the program: 64 bytes at a time while there are as many, and pieces by the hundred,
 * so that what the model looks up for one is on its way while others are encoded. */
static int split_once(struct llm_encoder *en, const unsigned char *p, const unsigned char *end, bool last, struct llm_err *e)
{
    const struct llm_split_row *row = en->t->splits[0].row;
    size_t ends[LLM_PIECES], n;
    do {
        const unsigned char *q = p;
        for (n = 0; q < end && n + WINDOW <= LLM_PIECES;) {
            struct llm_byte_masks m;
            uint64_t in_window = 0;
            if (row->window && end - q >= WINDOW) {
                llm_k.bytes.classify(&m, q);
                in_window = row->window(&m, q, WINDOW);
            }
            if (!in_window) {
                size_t len = row->next(q, end, last);
                if (len == 0)
                    break;
                q += len;
                ends[n++] = (size_t)(q - p);
                continue;
            }
            for (size_t at = (size_t)(q - p); in_window; in_window &= in_window - 1)
                ends[n++] = at + (size_t)__builtin_ctzll(in_window);
            q = p + ends[n - 1];
        }
        if (encode_pieces(en, p, ends, n, e) < 0)
            return -1;
        en->text_at += (size_t)(q - p);
        p = q;
    } while (n + WINDOW > LLM_PIECES);
    return 0;
}

/* Encodes what is certain of text[text_at..]. */
static int split_text(struct llm_encoder *en, bool last, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    const unsigned char *p = (const unsigned char *)en->text.p, *end = p + en->text.n;
    size_t n = en->text.n, at = en->text_at;
    if (t->n_splits == 0 && t->model->encode_front) {
        size_t used = 0;
        int bad = t->model->encode_front(en, p + at, n - at, last, &used, e);
        en->text_at = at + used;
        return bad;
    }
    if (t->n_splits == 0) {
        size_t upto = last ? n : t->model->any_cut ? llm_utf8_complete(en->text.p, n) : at;
        if (upto > at && t->model->encode(en, p + at, upto - at, e) < 0)
            return -1;
        en->text_at = upto;
        return 0;
    }
    if (t->splits[0].row && t->n_splits == 1)
        return split_once(en, p + at, end, last, e);
    llm_split_next *next = t->splits[0].row ? t->splits[0].row->next : NULL;
    while (at < n) {
        long len = next ? (long)next(p + at, end, last) : llm_regex_next(en->regex[0], p, at, n, last, e);
        if (len < 0)
            return -1;
        if (len == 0)
            break;
        if (split_piece(en, 1, p + at, (size_t)len, e) < 0)
            return -1;
        at += (size_t)len;
        en->text_at = at;
    }
    return 0;
}

static int take_text(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, struct llm_err *e)
{
    struct llm_buf *b = &en->text;
    const struct llm_tokenizer *t = en->t;
    if (n && !en->in_segment && t->add_prefix_space && *p != ' ' && llm_buf_put(b, " ", 1, e) < 0)
        return -1;
    en->in_segment = !last && (en->in_segment || n);
    if (llm_buf_reserve(b, b->n + n + SPARE, e) < 0 || llm_buf_put(b, p, n, e) < 0)
        return -1;
    size_t waiting = b->n - en->text_at;
    if (en->cache)
        llm_word_cache_expect(en->cache, waiting);
    if (!last && waiting < en->text_want)
        return 0;
    if (llm_encoder_room(en, waiting + SPARE, e) < 0 || split_text(en, last, e) < 0)
        return -1;
    size_t left = b->n - en->text_at;
    /* a piece that does not end yet is looked at again only when its text has doubled: linear in all */
    en->text_want = left > 4096 ? 2 * left : 0;
    if (last) {
        b->n = en->text_at = 0;
        return 0;
    }
    size_t keep = t->n_splits && t->splits[0].regex ? llm_regex_lookbehind(t->splits[0].regex) : 0;
    if (en->text_at > keep && en->text_at - keep >= b->n / 2) {
        drop(b, en->text_at - keep);
        en->text_at = keep;
    }
    return 0;
}

/* ---- added tokens ---- */

/* Looks for the tokens of `set`, gives the text between them to `next`. */
static int cut_tokens(struct llm_encoder *en, const struct llm_added *set, struct llm_buf *b, const unsigned char *p, size_t n, bool last,
                      llm_text_sink *next, struct llm_err *e)
{
    if (set->n == 0)
        return next(en, p, n, last, e);
    if (b->n) { /* only ever a cut token's beginning: short */
        if (llm_buf_put(b, p, n, e) < 0)
            return -1;
        p = (const unsigned char *)b->p;
        n = b->n;
    }
    size_t at = 0;
    if (en->whole && !last)
        return b->n ? 0 : llm_buf_put(b, p, n, e);
    if (en->whole) {
        int bad = llm_cut_whole(en, set, p, n, next, e);
        b->n = 0;
        return bad;
    }
    while (at < n) {
        size_t len;
        int32_t id;
        size_t found = llm_added_find(set, p + at, n - at, last, &len, &id);
        if (next(en, p + at, found, len > 0, e) < 0)
            return -1;
        at += found;
        if (!len)
            break;
        if (llm_encoder_room(en, 1, e) < 0)
            return -1;
        en->ids[en->n_ids++] = id;
        en->at_start = false;
        at += len;
    }
    if (last) {
        b->n = 0;
        return next(en, p, 0, true, e);
    }
    if (b->n) {
        drop(b, at);
        return 0;
    }
    return llm_buf_put(b, p + at, n - at, e);
}

static int take_normal(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, struct llm_err *e)
{
    return cut_tokens(en, &en->normal_set, &en->normal, p, n, last, take_text, e);
}

/* Text for the pipeline: segments, cut where that changes nothing when they are long. */
static int take_generic(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, struct llm_err *e)
{
    struct llm_buf *b = &en->unnormal;
    if (!last || b->n) {
        if (llm_buf_put(b, p, n, e) < 0)
            return -1;
        p = (const unsigned char *)b->p;
        n = b->n;
    }
    size_t cut = last ? n : n >= LONG_TEXT && n >= en->unnormal_want && !en->whole ? llm_pipeline_cut(en->t, p, n) : 0;
    if (!cut && !last) {
        en->unnormal_want = n >= LONG_TEXT ? n + n / 2 : 0; /* looked at again only when there is much more: linear in all */
        return 0;
    }
    if (llm_pipeline_run(en, p, cut, !en->in_segment, last, e) < 0)
        return -1;
    en->unnormal_want = 0;
    en->in_segment = !last && (en->in_segment || n);
    if (b->n)
        drop(b, cut);
    return 0;
}

static int take_segment(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, struct llm_err *e)
{
    const struct llm_normaliser_row *row = en->t->normaliser;
    if (en->t->generic)
        return take_generic(en, p, n, last, e);
    if (!row)
        return take_normal(en, p, n, last, e);
    struct llm_buf *b = &en->unnormal;
    if (llm_buf_put(b, p, n, e) < 0)
        return -1;
    if (!last && b->n < en->unnormal_want)
        return 0;
    struct llm_buf out = {0};
    long used = row->run((const unsigned char *)b->p, b->n, last, &out, e);
    int bad = used < 0 ? -1 : take_normal(en, (const unsigned char *)out.p, out.n, last, e);
    llm_buf_release(&out);
    if (bad < 0)
        return -1;
    drop(b, (size_t)used);
    en->unnormal_want = b->n > 4096 ? 2 * b->n : 0;
    return 0;
}

/* ---- the whole ---- */

static int check_utf8(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, struct llm_err *e)
{
    uint64_t base = en->document_bytes; /* offset of p */
    uint32_t cp;
    while (en->n_cut && n) { /* finish the character that the last feed cut */
        en->cut[en->n_cut++] = *p++;
        n--;
        base++;
        int len = llm_utf8_next(en->cut, en->n_cut, &cp);
        if (len == 0)
            return llm_fail(e, EX_DATAERR, "byte %llu: expected UTF-8, found 0x%02X", (unsigned long long)(base - en->n_cut), en->cut[0]);
        if (len > 0)
            en->n_cut = 0;
    }
    size_t bad = llm_utf8_invalid(p, n);
    if (bad < n && llm_utf8_next(p + bad, n - bad, &cp) < 0) {
        en->n_cut = n - bad;
        memcpy(en->cut, p + bad, en->n_cut);
        bad = n;
    }
    if (bad < n)
        return llm_fail(e, EX_DATAERR, "byte %llu: expected UTF-8, found 0x%02X", (unsigned long long)(base + bad), p[bad]);
    if (last && en->n_cut)
        return llm_fail(e, EX_DATAERR, "byte %llu: the text ends within a UTF-8 character", (unsigned long long)(base + n - en->n_cut));
    return 0;
}

static int put_ids(struct llm_encoder *en, const int32_t *ids, int n, struct llm_err *e)
{
    if (!(en->flags & LLM_ENCODE_ADD_SPECIAL) || n == 0)
        return 0;
    if (llm_encoder_room(en, (size_t)n, e) < 0)
        return -1;
    memcpy(en->ids + en->n_ids, ids, (size_t)n * sizeof *ids);
    en->n_ids += (size_t)n;
    return 0;
}

static int feed(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, struct llm_err *e)
{
    if (!en->in_document) {
        en->at_start = !(en->flags & LLM_ENCODE_INSIDE);
        en->in_segment = !en->at_start;
        if (en->at_start && put_ids(en, en->t->before, en->t->n_before, e) < 0)
            return -1;
    }
    en->in_document = true;
    if (en->flags & LLM_ENCODE_STRICT && check_utf8(en, p, n, last, e) < 0)
        return -1;
    en->document_bytes += n;
    if (cut_tokens(en, &en->raw_set, &en->raw, p, n, last, take_segment, e) < 0)
        return -1;
    if (!last)
        return 0;
    en->in_document = false;
    en->document_bytes = 0;
    return put_ids(en, en->t->after, en->t->n_after, e);
}

/* A failed encoder begins anew. */
static void reset(struct llm_encoder *en)
{
    en->raw.n = en->unnormal.n = en->normal.n = en->text.n = 0;
    en->text_at = en->text_want = en->unnormal_want = en->n_cut = 0;
    en->in_document = en->in_segment = false;
    en->document_bytes = 0;
}

int llm_encoder_feed(struct llm_encoder *en, const char *text, size_t n, bool last, int32_t **ids, size_t *n_ids, size_t *room,
                     struct llm_err *e)
{
    en->ids = *ids;
    en->n_ids = *n_ids;
    en->room = *room;
    int bad = feed(en, (const unsigned char *)text, n, last, e);
    *ids = en->ids;
    *n_ids = en->n_ids;
    *room = en->room;
    en->ids = NULL;
    if (bad < 0)
        reset(en);
    return bad;
}

int llm_encoder_chunk(struct llm_encoder *en, const unsigned char *p, size_t n, bool first, bool last, uint64_t offset, struct llm_err *e)
{
    en->n_ids = 0;
    en->in_document = en->in_segment = !first;
    en->at_start = first;
    en->document_bytes = offset;
    int bad = !first || put_ids(en, en->t->before, en->t->n_before, e) == 0 ? 0 : -1;
    if (bad == 0 && en->flags & LLM_ENCODE_STRICT)
        bad = check_utf8(en, p, n, true, e);
    if (bad == 0)
        bad = cut_tokens(en, &en->raw_set, &en->raw, p, n, true, take_segment, e);
    if (bad == 0 && last)
        bad = put_ids(en, en->t->after, en->t->n_after, e);
    reset(en);
    return bad;
}

/* The encoder that an earlier text of `t` left, if its flags are the same, else NULL. To make one takes longer than to encode a short text. */
static struct llm_encoder *take_idle(const struct llm_tokenizer *t, int flags)
{
    struct llm_tokenizer *own = (struct llm_tokenizer *)t;
    pthread_mutex_lock(&own->lock);
    struct llm_encoder *en = own->idle;
    if (en && en->flags == flags)
        own->idle = NULL;
    else
        en = NULL;
    pthread_mutex_unlock(&own->lock);
    return en;
}

static void leave_idle(struct llm_encoder *en)
{
    struct llm_tokenizer *own = (struct llm_tokenizer *)en->t;
    pthread_mutex_lock(&own->lock);
    struct llm_encoder *before = own->idle;
    own->idle = en;
    pthread_mutex_unlock(&own->lock);
    llm_encoder_destroy(before);
}

int llm_encode(const struct llm_tokenizer *t, const char *text, size_t n, int flags, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    size_t room = 0;
    *ids = NULL;
    *n_ids = 0;
    struct llm_encoder *en = take_idle(t, flags);
    if (!en)
        en = llm_encoder_create(t, flags, e);
    int bad = en ? llm_encoder_feed(en, text, n, true, ids, n_ids, &room, e) : -1;
    if (bad == 0 && n <= LONG_TEXT) {
        leave_idle(en);
        return 0;
    }
    llm_encoder_destroy(en);
    if (bad < 0) {
        free(*ids);
        *ids = NULL;
    }
    return bad;
}
