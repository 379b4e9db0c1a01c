#include "token/chat/conversation.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "token/stream.h"

/* The mark of tokens of span k. */
static uint8_t span_mark(bool numbered, size_t k)
{
    return numbered ? (uint8_t)(k < 255 ? k + 1 : 255) : 1;
}

/* A walk over tokens beside the text that they stand for. */
struct walk {
    const struct llm_tokenizer *t;
    const char *text;
    size_t n, at;                      /* bytes of the text; the end of the last token's */
    const struct llm_chat_spans *spans;
    size_t span;                       /* the first that does not end before `at` */
    bool begun, numbered;
};

/* Writes the marks of the next n tokens to `mask` (NULL: they are only compared): a token that holds any byte of a span is masked. False if the
 * pieces are not the text that follows (a space may stand before the first). */
static bool walk_over(struct walk *w, const int32_t *ids, size_t n, uint8_t *mask)
{
    const struct llm_chat_spans *s = w->spans;
    for (size_t i = 0; i < n; i++) {
        size_t length = 0, from = w->at;
        const char *piece = llm_tokenizer_piece(w->t, ids[i], &length);
        if (!w->begun && piece && length && piece[0] == ' ' && (w->n == 0 || w->text[0] != ' ')) piece++, length--;
        w->begun = true;
        if (!piece || length > w->n - from || memcmp(piece, w->text + from, length) != 0) return false;
        w->at += length;
        if (!mask) continue;
        while (w->span < s->n && s->v[w->span].end <= from) w->span++;
        mask[i] = w->span < s->n && w->at > s->v[w->span].begin && length ? span_mark(w->numbered, w->span) : 0;
    }
    return true;
}

static int grow(struct llm_conversation *c, size_t more, struct llm_err *e)
{
    void *ids = c->ids, *mask = c->mask;
    int status = llm_grow(&ids, &c->room, c->n + more, sizeof *c->ids, e);
    c->ids = ids;
    if (status == 0) status = llm_grow(&mask, &c->mask_room, c->n + more, 1, e);
    c->mask = mask;
    return status;
}

int llm_conversation_add(struct llm_conversation *c, const int32_t *ids, size_t n, uint8_t masked, struct llm_err *e)
{
    if (grow(c, n, e) < 0) return -1;
    if (n) memcpy(c->ids + c->n, ids, n * sizeof *ids);
    if (n) memset(c->mask + c->n, masked, n);
    c->n += n;
    return 0;
}

int llm_conversation_plain(struct llm_conversation *c, const struct llm_tokenizer *t, const json_t *prompt, const json_t *reply, size_t *first,
                           struct llm_err *e)
{
    struct llm_buf text = {0};
    int32_t *before = NULL, *ids = NULL, eos = llm_tokenizer_eos(t);
    size_t n_before = 0, n = 0, length = json_string_length(prompt);
    int status = llm_buf_put(&text, json_string_value(prompt), length, e);
    if (status == 0) status = llm_buf_put(&text, json_string_value(reply), json_string_length(reply), e);
    if (status == 0) status = llm_encode(t, text.p, length, LLM_ENCODE_SPECIAL | LLM_ENCODE_ADD_SPECIAL, &before, &n_before, e);
    if (status == 0) status = llm_encode(t, text.p, text.n, LLM_ENCODE_SPECIAL | LLM_ENCODE_ADD_SPECIAL, &ids, &n, e);
    *first = 0;
    while (status == 0 && *first < n && *first < n_before && ids[*first] == before[*first]) ++*first;
    if (status == 0) status = llm_conversation_add(c, ids, n, 0, e);
    if (status == 0 && eos >= 0 && (n == *first || ids[n - 1] != eos)) status = llm_conversation_add(c, &eos, 1, 0, e);
    llm_buf_release(&text);
    free(before);
    free(ids);
    return status;
}

/* Encodes one part of the text, which is the assistant's as a whole or not at all. */
static int encode_part(struct llm_conversation *c, const struct llm_tokenizer *t, const char *text, size_t n, uint8_t masked, struct llm_err *e)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (n == 0) return 0;
    int status = llm_encode(t, text, n, LLM_ENCODE_SPECIAL, &ids, &n_ids, e);
    if (status == 0) status = llm_conversation_add(c, ids, n_ids, masked, e);
    free(ids);
    return status;
}

typedef int encode_range(struct llm_conversation *c, const struct llm_tokenizer *t, const char *text, size_t n, uint8_t masked, struct llm_err *e);

/* The text part by part, each of which is the assistant's as a whole or not at all. */
static int encode_parts(struct llm_conversation *c, const struct llm_tokenizer *t, const struct llm_buf *b, const struct llm_chat_spans *s,
                        encode_range *encode, struct llm_err *e)
{
    size_t from = 0;
    for (size_t k = 0; k < s->n; from = s->v[k++].end)
        if (encode(c, t, b->p + from, s->v[k].begin - from, 0, e) < 0
            || encode(c, t, b->p + s->v[k].begin, s->v[k].end - s->v[k].begin, span_mark(c->numbered, k), e) < 0) return -1;
    return encode(c, t, b->p + from, b->n - from, 0, e);
}

/* Tokens of the whole text. If a normaliser changes the text, its parts are encoded one by one. */
static int encode_text(struct llm_conversation *c, const struct llm_tokenizer *t, const struct llm_buf *b, const struct llm_chat_spans *s,
                       struct llm_err *e)
{
    struct walk w = {.t = t, .text = b->p, .n = b->n, .spans = s, .numbered = c->numbered};
    if (encode_part(c, t, b->p, b->n, 0, e) < 0) return -1;
    if (walk_over(&w, c->ids, c->n, c->mask) && w.at == w.n) return 0;
    c->n = 0;
    return encode_parts(c, t, b, s, encode_part, e);
}

/* ---- A long text: its tokens are handed over as they are made, since all of them take more memory than the text. */
enum { LONG_TEXT = 1 << 20, STEP = 1 << 16 }; /* bytes */

struct long_text {
    struct llm_conversation *c;
    struct walk *walk;  /* NULL: all tokens have the mark `masked` */
    uint8_t masked;
    bool compare;       /* only compare, hand nothing over */
    bool differs;       /* the tokens' pieces are not the text */
};

static int take_tokens(void *arg, const int32_t *ids, size_t n, bool document_ends, struct llm_err *e)
{
    struct long_text *l = arg;
    struct llm_conversation *c = l->c;
    (void)document_ends;
    if (l->compare) return (l->differs = !walk_over(l->walk, ids, n, NULL)) ? -1 : 0;
    c->n = 0;
    if (grow(c, n, e) < 0) return -1;
    if (l->walk) walk_over(l->walk, ids, n, c->mask);
    else if (n) memset(c->mask, l->masked, n);
    return c->sink(c->sink_arg, ids, c->mask, n, e);
}

static int stream_text(struct long_text *l, const struct llm_tokenizer *t, const char *text, size_t n, struct llm_err *e)
{
    struct llm_encode_stream *s = llm_encode_stream_create(t, LLM_ENCODE_SPECIAL, take_tokens, l, e);
    int status = s ? 0 : -1;
    for (size_t at = 0; at < n && status == 0; at += STEP) status = llm_encode_stream_put(s, text + at, n - at < STEP ? n - at : STEP, e);
    if (status == 0) status = llm_encode_stream_finish(s, e);
    llm_encode_stream_destroy(s);
    return status;
}

static int stream_part(struct llm_conversation *c, const struct llm_tokenizer *t, const char *text, size_t n, uint8_t masked, struct llm_err *e)
{
    struct long_text l = {.c = c, .masked = masked};
    return n ? stream_text(&l, t, text, n, e) : 0;
}

/* As encode_text. Whether the pieces are the text is known only at its end, so it is encoded once to see that, and again. */
static int stream_conversation(struct llm_conversation *c, const struct llm_tokenizer *t, const struct llm_buf *b, const struct llm_chat_spans *s,
                               struct llm_err *e)
{
    struct walk see = {.t = t, .text = b->p, .n = b->n, .spans = s}, w = see;
    struct long_text compared = {.c = c, .walk = &see, .compare = true}, l = {.c = c, .walk = &w};
    w.numbered = c->numbered;
    if (stream_text(&compared, t, b->p, b->n, e) < 0 && !compared.differs) return -1;
    int status = compared.differs || see.at != see.n ? encode_parts(c, t, b, s, stream_part, e) : stream_text(&l, t, b->p, b->n, e);
    c->n = 0;
    return status;
}

/* What the template makes of messages, before it is encoded. Release text and spans. */
struct rendered { struct llm_buf text; struct llm_chat_spans spans; };

static int render(struct rendered *r, const struct llm_chat *chat, const json_t *messages, const json_t *tools, bool prompt, const struct tm *day,
                  const struct llm_json_long *strings, struct llm_err *e)
{
    const struct llm_chat_options o = {.add_generation_prompt = prompt, .functions = true, .image = chat->image, .bos = chat->bos,
                                       .eos = chat->eos, .now = day, .strings = strings};
    return llm_chat_render(chat->template, messages, json_is_array(tools) ? tools : NULL, &o, &r->text, &r->spans, e);
}

/* Encodes what was rendered with this status, and releases it. */
static int encode_rendered(struct llm_conversation *c, const struct llm_tokenizer *t, struct rendered *r, int status, struct llm_err *e)
{
    c->n = 0;
    if (status == 0) status = (c->sink && r->text.n >= LONG_TEXT ? stream_conversation : encode_text)(c, t, &r->text, &r->spans, e);
    llm_buf_release(&r->text);
    llm_chat_spans_release(&r->spans);
    return status;
}

int llm_conversation_encode(struct llm_conversation *c, const struct llm_chat *chat, const struct llm_tokenizer *t, const json_t *messages,
                            const json_t *tools, bool prompt, const struct tm *day, struct llm_err *e)
{
    struct rendered r = {0};
    return encode_rendered(c, t, &r, render(&r, chat, messages, tools, prompt, day, NULL, e), e);
}

int llm_conversation_line(struct llm_conversation *c, const struct llm_chat *chat, const struct llm_tokenizer *t, struct llm_buf *line, bool prompt,
                          const struct tm *day, struct llm_err *e)
{
    struct rendered r = {0};
    json_t *j = llm_json_long_parse(&c->json, line->p, line->n, e);
    if (!j) return -1;
    const json_t *messages = json_is_array(j) ? j : json_object_get(j, "messages"), *tools = json_is_object(j) ? json_object_get(j, "tools") : NULL;
    int status = json_is_array(messages) ? 0 : llm_fail(e, EX_DATAERR, "expected an object with \"messages\", an array");
    if (status == 0) status = render(&r, chat, messages, tools, prompt, day, &c->json, e);
    json_decref(j);
    if (line->n >= LONG_TEXT) llm_buf_release(line);
    return encode_rendered(c, t, &r, status, e);
}

void llm_conversation_release(struct llm_conversation *c)
{
    free(c->ids);
    free(c->mask);
    llm_json_long_release(&c->json);
    c->ids = NULL;
    c->mask = NULL;
    c->n = c->room = c->mask_room = 0;
}
