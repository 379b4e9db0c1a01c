#include "token/detokenizer.h"
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

struct state {
    size_t index;        /* tokens so far; within a fused text always 0 */
    struct llm_buf held;
    bool done;           /* Strip: nothing more to strip; SentencePiece: the text has begun */
    int64_t count;       /* Strip: how many went */
};
struct llm_detokenizer {
    const struct llm_tokenizer *t;
    bool skip_special;
    struct llm_buf *out; /* the caller's, while putting */
    int fused;           /* steps after this one see one text */
    struct state states[];
};

int llm_byte_piece(const unsigned char *p, size_t n)
{
    static const char digits[] = "0123456789ABCDEF0123456789abcdef";
    const char *high, *low;
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>' || !(high = memchr(digits, p[3], 32)) || !(low = memchr(digits, p[4], 32)))
        return -1;
    return (int)((high - digits) % 16 * 16 + (low - digits) % 16);
}

/* Whether step i comes after a Fuse, so that it gets parts of one text. */
static bool is_fused(const struct llm_detokenizer *d, int i)
{
    return i > d->fused;
}

static int give(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e)
{
    if (i < d->t->n_decoders)
        return d->t->decoders[i].row->put(d, i, id, p, n, e);
    return llm_buf_put(d->out, p, n, e);
}

/* ---- the rows ---- */

static int read_text(struct llm_decode_step *s, const json_t *o, const char *key, const char *normally, struct llm_err *e)
{
    const char *text = normally;
    if (llm_json_str(o, key, &text, e) < 0)
        return -1;
    if (!text || !*text)
        return llm_fail(e, EX_DATAERR, "%s: expected a string", key);
    return llm_buf_put(&s->text, text, strlen(text), e);
}

static int put_as_is(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e)
{
    return give(d, i + 1, id, p, n, e);
}

/* Replaces every `what` in `text`. */
static int replace_all(const char *text, size_t n, const struct llm_buf *what, const struct llm_buf *with, struct llm_buf *out, struct llm_err *e)
{
    const char *end = text + n, *found;
    while ((found = memmem(text, (size_t)(end - text), what->p, what->n)) != NULL) {
        if (llm_buf_put(out, text, (size_t)(found - text), e) < 0 || llm_buf_put(out, with->p, with->n, e) < 0)
            return -1;
        text = found + what->n;
    }
    return llm_buf_put(out, text, (size_t)(end - text), e);
}

static int read_replace(struct llm_decode_step *s, const json_t *o, struct llm_err *e)
{
    const json_t *pattern = json_object_get(o, "pattern");
    const char *content = NULL;
    if (!json_object_get(pattern, "String"))
        return llm_fail(e, EX_UNAVAILABLE, "a pattern other than 'String' is not supported");
    if (llm_json_str(o, "content", &content, e) < 0 || read_text(s, pattern, "String", NULL, e) < 0)
        return -1;
    if (!content)
        return llm_fail(e, EX_DATAERR, "content: expected a string");
    return llm_buf_put(&s->content, content, strlen(content), e);
}

static int put_replace(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e)
{
    const struct llm_decode_step *s = &d->t->decoders[i];
    struct llm_buf *b = &d->states[i].held;
    (void)id;
    if (is_fused(d, i)) /* what is looked for may begin in one part and end in another */
        return llm_buf_put(b, p, n, e);
    b->n = 0;
    return replace_all(p, n, &s->text, &s->content, b, e) < 0 ? -1 : give(d, i + 1, -1, b->p, b->n, e);
}

static int end_replace(struct llm_detokenizer *d, int i, struct llm_err *e)
{
    const struct llm_decode_step *s = &d->t->decoders[i];
    struct llm_buf *b = &d->states[i].held, out = {0};
    if (!is_fused(d, i))
        return 0;
    int bad = replace_all(b->p ? b->p : "", b->n, &s->text, &s->content, &out, e) < 0 ? -1 : give(d, i + 1, -1, out.p, out.n, e);
    llm_buf_release(&out);
    return bad;
}

static int read_metaspace(struct llm_decode_step *s, const json_t *o, struct llm_err *e)
{
    const char *scheme = NULL;
    bool old = true;
    if (llm_json_str(o, "prepend_scheme", &scheme, e) < 0 || llm_json_bool(o, "add_prefix_space", &old, e) < 0
        || read_text(s, o, "replacement", "\xE2\x96\x81", e) < 0)
        return -1;
    s->first = scheme ? strcmp(scheme, "never") != 0 : old;
    return 0;
}

static int put_metaspace(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e)
{
    static const struct llm_buf space = {" ", 1, 0}, nothing = {"", 0, 0};
    const struct llm_decode_step *s = &d->t->decoders[i];
    struct state *state = &d->states[i];
    (void)id;
    state->held.n = 0;
    if (replace_all(p, n, &s->text, s->first && state->index == 0 ? &nothing : &space, &state->held, e) < 0)
        return -1;
    state->index += !is_fused(d, i);
    return give(d, i + 1, -1, state->held.p, state->held.n, e);
}

static int read_wordpiece(struct llm_decode_step *s, const json_t *o, struct llm_err *e)
{
    s->cleanup = true;
    return llm_json_bool(o, "cleanup", &s->cleanup, e) < 0 ? -1 : read_text(s, o, "prefix", "##", e);
}

/* The spaces before punctuation and contractions go. */
static int clean_up(struct llm_buf *b, struct llm_err *e)
{
    static const char *const pairs[][2] = {{" .", "."},     {" ?", "?"},   {" !", "!"},     {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
                                           {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        struct llm_buf out = {0}, what = {(char *)(uintptr_t)pairs[k][0], strlen(pairs[k][0]), 0},
                       with = {(char *)(uintptr_t)pairs[k][1], strlen(pairs[k][1]), 0};
        if (!memmem(b->p, b->n, what.p, what.n))
            continue;
        if (replace_all(b->p, b->n, &what, &with, &out, e) < 0)
            return -1;
        llm_buf_release(b);
        *b = out;
    }
    return 0;
}

static int put_wordpiece(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e)
{
    const struct llm_decode_step *s = &d->t->decoders[i];
    struct state *state = &d->states[i];
    bool goes_on = n >= s->text.n && memcmp(p, s->text.p, s->text.n) == 0;
    (void)id;
    state->held.n = 0;
    if (state->index > 0 && goes_on) {
        p += s->text.n;
        n -= s->text.n;
    } else if (state->index > 0 && llm_buf_put(&state->held, " ", 1, e) < 0) {
        return -1;
    }
    if (llm_buf_put(&state->held, p, n, e) < 0 || (s->cleanup && clean_up(&state->held, e) < 0))
        return -1;
    state->index += !is_fused(d, i);
    return give(d, i + 1, -1, state->held.p, state->held.n, e);
}

/* Bytes that together are UTF-8 are text; otherwise each is U+FFFD. */
static int end_bytes(struct llm_detokenizer *d, int i, struct llm_err *e)
{
    struct llm_buf *b = &d->states[i].held;
    const unsigned char *p = (const unsigned char *)b->p;
    size_t n = b->n;
    b->n = 0;
    if (n == 0)
        return 0;
    if (llm_utf8_invalid(p, n) == n)
        return give(d, i + 1, -1, b->p, n, e);
    for (size_t k = 0; k < n; k++)
        if (give(d, i + 1, -1, "\xEF\xBF\xBD", 3, e) < 0)
            return -1;
    return 0;
}

static int put_byte_fallback(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e)
{
    int byte = llm_byte_piece((const unsigned char *)p, n);
    if (byte >= 0)
        return llm_buf_put(&d->states[i].held, &(char){(char)byte}, 1, e);
    return end_bytes(d, i, e) < 0 ? -1 : give(d, i + 1, id, p, n, e);
}

static int read_strip(struct llm_decode_step *s, const json_t *o, struct llm_err *e)
{
    return llm_json_int(o, "start", 0, INT32_MAX, &s->start, e) < 0 || llm_json_int(o, "stop", 0, INT32_MAX, &s->stop, e) < 0 ? -1
           : read_text(s, o, "content", " ", e);
}

static bool ends_with(const char *p, size_t n, const struct llm_buf *text)
{
    return n >= text->n && memcmp(p + n - text->n, text->p, text->n) == 0;
}

static int put_strip(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e)
{
    const struct llm_decode_step *s = &d->t->decoders[i];
    struct state *state = &d->states[i];
    (void)id;
    if (!is_fused(d, i)) {
        state->done = false;
        state->count = 0;
    }
    while (n && !state->done) {
        if (state->count == s->start || n < s->text.n || memcmp(p, s->text.p, s->text.n) != 0) {
            state->done = true;
            break;
        }
        p += s->text.n;
        n -= s->text.n;
        state->count++;
    }
    if (is_fused(d, i) && s->stop)
        return llm_buf_put(&state->held, p, n, e);
    for (int64_t k = 0; k < s->stop && ends_with(p, n, &s->text); k++)
        n -= s->text.n;
    return give(d, i + 1, -1, p, n, e);
}

static int end_strip(struct llm_detokenizer *d, int i, struct llm_err *e)
{
    const struct llm_decode_step *s = &d->t->decoders[i];
    struct llm_buf *b = &d->states[i].held;
    for (int64_t k = 0; k < s->stop && ends_with(b->p, b->n, &s->text); k++)
        b->n -= s->text.n;
    return b->n ? give(d, i + 1, -1, b->p, b->n, e) : 0;
}

/* ---- BPEDecoder: a blank for the suffix that ends words, nothing at the text's end ---- */

static int read_bpe(struct llm_decode_step *s, const json_t *o, struct llm_err *e)
{
    return read_text(s, o, "suffix", "</w>", e);
}

/* Gives on what is held of a token, from its first suffix on; `done`: what is shown stands in the middle of a text. */
static int give_suffixed(struct llm_detokenizer *d, int i, bool last, struct llm_err *e)
{
    static const struct llm_buf space = {" ", 1, 0}, nothing = {"", 0, 0};
    struct llm_buf *b = &d->states[i].held, out = {0};
    if (b->n == 0)
        return 0;
    int bad = replace_all(b->p, b->n, &d->t->decoders[i].text, last && !d->states[i].done ? &nothing : &space, &out, e);
    b->n = 0;
    bad = bad < 0 ? -1 : give(d, i + 1, -1, out.p ? out.p : "", out.n, e);
    llm_buf_release(&out);
    return bad;
}

static int put_bpe(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e)
{
    const struct llm_decode_step *s = &d->t->decoders[i];
    (void)id;
    if (is_fused(d, i)) /* one token, whose suffixes are all at the text's end */
        return llm_buf_put(&d->states[i].held, p, n, e);
    if (give_suffixed(d, i, false, e) < 0)
        return -1;
    const char *found = n ? memmem(p, n, s->text.p, s->text.n) : NULL;
    size_t before = found ? (size_t)(found - p) : n;
    return llm_buf_put(&d->states[i].held, p + before, n - before, e) < 0 ? -1 : give(d, i + 1, -1, p, before, e);
}

static int end_bpe(struct llm_detokenizer *d, int i, struct llm_err *e)
{
    return give_suffixed(d, i, true, e);
}

/* ---- SentencePiece: as its own processor decodes ---- */

static int read_sentencepiece(struct llm_decode_step *s, const json_t *o, struct llm_err *e)
{
    return llm_json_bool(o, "add_dummy_prefix", &s->first, e) < 0 || llm_json_bool(o, "remove_extra_whitespaces", &s->every, e) < 0 ? -1
           : read_text(s, o, "unk_surface", " \xE2\x81\x87 ", e);
}

/* Gives on what of the bytes is certain: whole characters, U+FFFD for each byte that is of none. */
static int give_bytes(struct llm_detokenizer *d, int i, bool last, struct llm_err *e)
{
    struct state *state = &d->states[i];
    const unsigned char *p = (const unsigned char *)state->held.p;
    size_t n = state->held.n, at = 0;
    while (at < n) {
        uint32_t cp;
        int len = llm_utf8_next(p + at, n - at, &cp);
        if (len < 0 && !last)
            break;
        if ((len > 0 ? give(d, i + 1, -1, (const char *)p + at, (size_t)len, e) : give(d, i + 1, -1, "\xEF\xBF\xBD", 3, e)) < 0)
            return -1;
        state->index = 1;
        at += len > 0 ? (size_t)len : 1;
    }
    if (at)
        memmove(state->held.p, state->held.p + at, n - at);
    state->held.n = n - at;
    return 0;
}

static int end_sentencepiece(struct llm_detokenizer *d, int i, struct llm_err *e)
{
    return give_bytes(d, i, true, e);
}

/* index: 1 once there is text; done: the space that was put before the text is gone. */
static int put_sentencepiece(struct llm_detokenizer *d, int i, int32_t id, const char *p, size_t n, struct llm_err *e)
{
    static const struct llm_buf mark = {"\xE2\x96\x81", 3, 0}, space = {" ", 1, 0};
    const struct llm_decode_step *s = &d->t->decoders[i];
    struct state *state = &d->states[i];
    struct llm_buf text = {0};
    int byte = llm_byte_piece((const unsigned char *)p, n);
    if (byte >= 0 && d->t->byte_token[byte] == id)
        return llm_buf_put(&state->held, &(char){(char)byte}, 1, e) < 0 ? -1 : give_bytes(d, i, false, e);
    if (give_bytes(d, i, true, e) < 0)
        return -1;
    if (id == d->t->unknown) {
        state->index = 1;
        return give(d, i + 1, -1, s->text.p, s->text.n, e);
    }
    bool begins = state->index == 0 && !state->done;
    state->done = false;
    if (begins && (s->first || s->every) && n >= 3 && memcmp(p, mark.p, 3) == 0) {
        p += 3;
        n -= 3;
        state->done = !s->every;
    }
    state->index = state->index || n || state->done;
    int bad = replace_all(p, n, &mark, &space, &text, e) < 0 ? -1 : give(d, i + 1, -1, text.p, text.n, e);
    llm_buf_release(&text);
    return bad;
}

static const struct llm_decode_row rows[] = {
    {"ByteLevel", NULL, put_as_is, NULL},
    {"Fuse", NULL, put_as_is, NULL},
    {"Replace", read_replace, put_replace, end_replace},
    {"Metaspace", read_metaspace, put_metaspace, NULL},
    {"WordPiece", read_wordpiece, put_wordpiece, NULL},
    {"ByteFallback", NULL, put_byte_fallback, end_bytes},
    {"Strip", read_strip, put_strip, end_strip},
    {"BPEDecoder", read_bpe, put_bpe, end_bpe},
    {"SentencePiece", read_sentencepiece, put_sentencepiece, end_sentencepiece},
};

int llm_decode_step_init(struct llm_decode_step *s, const json_t *o, struct llm_err *e)
{
    const char *type = NULL;
    *s = (struct llm_decode_step){0};
    if (!json_is_object(o))
        return llm_fail(e, EX_DATAERR, "decoder: expected an object");
    if (llm_json_str(o, "type", &type, e) < 0)
        return llm_in(e, "decoder");
    if (!type)
        return llm_fail(e, EX_DATAERR, "decoder: expected a type");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, type) == 0)
            s->row = &rows[i];
    if (!s->row)
        return llm_fail(e, EX_UNAVAILABLE, "decoder '%s' is not supported", type);
    if (s->row->read && s->row->read(s, o, e) < 0) {
        llm_decode_step_release(s);
        return llm_in(e, "decoder %s", type);
    }
    return 0;
}

void llm_decode_step_release(struct llm_decode_step *s)
{
    llm_buf_release(&s->text);
    llm_buf_release(&s->content);
    *s = (struct llm_decode_step){0};
}

int llm_tokenizer_hide_suffix(struct llm_tokenizer *t, struct llm_err *e)
{
    json_t *step = json_pack("{s:s, s:s}", "type", "BPEDecoder", "suffix", t->suffix);
    struct llm_decode_step *list = step ? llm_calloc(1, sizeof *list, "decoders", e) : NULL;
    int bad = list ? llm_decode_step_init(list, step, e) : step ? -1 : llm_no_memory(e, "decoders");
    free(t->decoders);
    t->decoders = list;
    t->n_decoders = bad == 0;
    json_decref(step);
    return bad;
}

bool llm_decode_step_is(const struct llm_decode_step *s, const char *name)
{
    return strcmp(s->row->name, name) == 0;
}

/* ---- the whole ---- */

struct llm_detokenizer *llm_detokenizer_create(const struct llm_tokenizer *t, bool skip_special, struct llm_err *e)
{
    struct llm_detokenizer *d = llm_calloc(1, sizeof *d + (size_t)(t->n_decoders + 1) * sizeof *d->states, "a decoder", e);
    if (!d)
        return NULL;
    d->t = t;
    d->skip_special = skip_special;
    d->fused = t->n_decoders;
    for (int i = t->n_decoders; i-- > 0;)
        if (llm_decode_step_is(&t->decoders[i], "Fuse"))
            d->fused = i;
    return d;
}

void llm_detokenizer_destroy(struct llm_detokenizer *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->t->n_decoders; i++)
        llm_buf_release(&d->states[i].held);
    free(d);
}

static int put_one(struct llm_detokenizer *d, int32_t id, struct llm_err *e)
{
    const struct llm_tokenizer *t = d->t;
    size_t n;
    const char *p = (const char *)llm_model_piece(t, id, &n);
    struct state *join = &d->states[t->n_decoders]; /* without a decoder a tokenizer.json's tokens have spaces between them */
    if (t->generic && t->n_decoders == 0 && join->index++ > 0 && !t->byte_level && llm_buf_put(d->out, " ", 1, e) < 0)
        return -1;
    return give(d, 0, id, p, n, e);
}

int llm_detokenizer_put(struct llm_detokenizer *d, const int32_t *ids, size_t n, struct llm_buf *out, struct llm_err *e)
{
    const struct llm_tokenizer *t = d->t;
    d->out = out;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->vocab_size || !(t->flags[ids[i]] & LLM_TOKEN_PRESENT))
            return llm_fail(e, EX_DATAERR, "token %zu: expected an id below %d, found %d%s", i, t->vocab_size, ids[i],
                            ids[i] >= 0 && ids[i] < t->vocab_size ? ", which has no text" : "");
        if ((!d->skip_special || !(t->flags[ids[i]] & LLM_TOKEN_SPECIAL)) && put_one(d, ids[i], e) < 0)
            return -1;
    }
    return 0;
}

int llm_detokenizer_end(struct llm_detokenizer *d, struct llm_buf *out, struct llm_err *e)
{
    d->out = out;
    for (int i = 0; i <= d->t->n_decoders; i++) {
        struct state *s = &d->states[i];
        if (i < d->t->n_decoders && d->t->decoders[i].row->end && d->t->decoders[i].row->end(d, i, e) < 0)
            return -1;
        s->index = 0;
        s->held.n = 0;
        s->done = false;
        s->count = 0;
    }
    return 0;
}

int llm_decode(const struct llm_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, struct llm_buf *out, struct llm_err *e)
{
    struct llm_detokenizer *d = llm_detokenizer_create(t, skip_special, e);
    int bad = !d || llm_detokenizer_put(d, ids, n, out, e) < 0 || llm_detokenizer_end(d, out, e) < 0 ? -1 : 0;
    llm_detokenizer_destroy(d);
    return bad;
}

/* An id as it stands behind another: nothing is stripped, a byte is that byte. Called with t's lock. */
static int show(struct llm_tokenizer *t, int32_t id, struct llm_buf *out, struct llm_err *e)
{
    size_t n;
    const unsigned char *p = llm_model_piece(t, id, &n);
    int byte = llm_byte_piece(p, n);
    bool bytes = false;
    if (!t->shower && !(t->shower = llm_detokenizer_create(t, false, e)))
        return -1;
    for (int i = 0; i < t->n_decoders; i++)
        bytes = bytes || llm_decode_step_is(&t->decoders[i], "ByteFallback") || llm_decode_step_is(&t->decoders[i], "SentencePiece");
    for (int i = 0; i <= t->n_decoders; i++) {
        t->shower->states[i].index = 1;
        t->shower->states[i].done = true;
    }
    if (bytes && byte >= 0 && t->byte_token[byte] == id)
        return llm_buf_put(out, &(char){(char)byte}, 1, e);
    return llm_detokenizer_put(t->shower, &id, 1, out, e) < 0 || llm_detokenizer_end(t->shower, out, e) < 0 ? -1 : 0;
}

/* The same, kept for the next time: most vocabularies are never shown as a whole. */
static const struct llm_shown *shown(struct llm_tokenizer *t, int32_t id)
{
    struct llm_err e;
    struct llm_buf text = {0};
    size_t n;
    if (t->shown_at[id])
        return &t->shown[t->shown_at[id] - 1];
    const char *p = (const char *)llm_model_piece(t, id, &n);
    if (show(t, id, &text, &e) < 0 || llm_grow((void **)&t->shown, &t->room_shown, t->n_shown + 1, sizeof *t->shown, &e) < 0) {
        llm_buf_release(&text);
        return NULL;
    }
    bool same = text.n == n && (n == 0 || memcmp(text.p, p, n) == 0);
    if (same)
        llm_buf_release(&text);
    t->shown[t->n_shown] = (struct llm_shown){same ? p : text.p ? text.p : "", same ? n : text.n, text.p};
    t->shown_at[id] = (uint32_t)++t->n_shown;
    return &t->shown[t->n_shown - 1];
}

const char *llm_detokenizer_show(const struct llm_tokenizer *t, int32_t id, size_t *n)
{
    struct llm_tokenizer *own = (struct llm_tokenizer *)(uintptr_t)t; /* a cache behind a lock: the object stays the same */
    pthread_mutex_lock(&own->lock);
    const struct llm_shown *s = shown(own, id);
    const char *p = s ? s->p : NULL;
    *n = s ? s->n : 0;
    pthread_mutex_unlock(&own->lock);
    return p;
}
