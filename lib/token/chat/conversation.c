#include "token/chat/conversation.h"

#include <stdlib.h>
#include <string.h>

/* Where each token's text ends in the `n` bytes at `text`, when the pieces are that text (a space may stand before it). NULL otherwise. */
static size_t *token_ends(const struct llm_tokenizer *t, const int32_t *ids, size_t n_ids, const char *text, size_t n)
{
    size_t *ends = malloc((n_ids + 1) * sizeof *ends), at = 0;
    for (size_t i = 0; ends && i < n_ids; i++) {
        size_t length = 0;
        const char *piece = llm_tokenizer_piece(t, ids[i], &length);
        if (i == 0 && piece && length && piece[0] == ' ' && (n == 0 || text[0] != ' ')) piece++, length--;
        if (!piece || length > n - at || memcmp(piece, text + at, length) != 0) {
            free(ends);
            return NULL;
        }
        ends[i] = at += length;
    }
    if (ends && at != n) {
        free(ends);
        return NULL;
    }
    return ends;
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

/* The mask of tokens of span k. */
static uint8_t mark(const struct llm_conversation *c, size_t k)
{
    return c->numbered ? (uint8_t)(k < 255 ? k + 1 : 255) : 1;
}

/* Tokens of the whole text; a token that holds any byte of a span is masked. If a normaliser changes the text, its parts are encoded one by one. */
static int encode_text(struct llm_conversation *c, const struct llm_tokenizer *t, const struct llm_buf *b, const struct llm_chat_spans *s,
                       struct llm_err *e)
{
    if (encode_part(c, t, b->p, b->n, 0, e) < 0) return -1;
    size_t *ends = token_ends(t, c->ids, c->n, b->p, b->n), from = 0;
    if (ends) {
        for (size_t i = 0, k = 0; i < c->n; from = ends[i++]) {
            while (k < s->n && s->v[k].end <= from) k++;
            c->mask[i] = k < s->n && ends[i] > s->v[k].begin && ends[i] > from ? mark(c, k) : 0;
        }
        free(ends);
        return 0;
    }
    c->n = 0;
    for (size_t k = 0; k < s->n; from = s->v[k++].end)
        if (encode_part(c, t, b->p + from, s->v[k].begin - from, 0, e) < 0
            || encode_part(c, t, b->p + s->v[k].begin, s->v[k].end - s->v[k].begin, mark(c, k), e) < 0) return -1;
    return encode_part(c, t, b->p + from, b->n - from, 0, e);
}

int llm_conversation_encode(struct llm_conversation *c, const struct llm_chat *chat, const struct llm_tokenizer *t, const json_t *messages,
                            const json_t *tools, bool prompt, const struct tm *day, struct llm_err *e)
{
    const struct llm_chat_options o = {.add_generation_prompt = prompt, .bos = chat->bos, .eos = chat->eos, .now = day};
    struct llm_buf text = {0};
    struct llm_chat_spans spans = {0};
    c->n = 0;
    int status = llm_chat_render(chat->template, messages, json_is_array(tools) ? tools : NULL, &o, &text, &spans, e);
    if (status == 0) status = encode_text(c, t, &text, &spans, e);
    llm_buf_release(&text);
    llm_chat_spans_release(&spans);
    return status;
}

int llm_conversation_line(struct llm_conversation *c, const struct llm_chat *chat, const struct llm_tokenizer *t, const char *line, size_t n,
                          bool prompt, const struct tm *day, struct llm_err *e)
{
    json_t *j = llm_json_parse(line, n, e);
    if (!j) return -1;
    const json_t *messages = json_is_array(j) ? j : json_object_get(j, "messages"), *tools = json_is_object(j) ? json_object_get(j, "tools") : NULL;
    int status = json_is_array(messages) ? 0 : llm_fail(e, EX_DATAERR, "expected an object with \"messages\", an array");
    if (status == 0) status = llm_conversation_encode(c, chat, t, messages, tools, prompt, day, e);
    json_decref(j);
    return status;
}

void llm_conversation_release(struct llm_conversation *c)
{
    free(c->ids);
    free(c->mask);
    *c = (struct llm_conversation){.numbered = c->numbered};
}
