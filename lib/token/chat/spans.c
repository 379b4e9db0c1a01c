/* The assistant's text where the template does not mark it. The conversation before a turn, rendered with its generation prompt, and the
 * conversation up to the turn tell what the turn is; it is then looked for in the whole, since templates rewrite turns once others follow
 * (reasoning of earlier turns is dropped, the system's message moves). A span ends with the tokens that end the turn, as far as they name
 * themselves so ("<|im_end|>", "</s>"): what some templates always put after the last message is no part of it. */
#include <ctype.h>
#include <string.h>
#include "token/chat/render.h"

static size_t common_prefix(const struct llm_buf *a, const char *b, size_t n)
{
    size_t i = 0;
    while (i < a->n && i < n && a->p[i] == b[i]) i++;
    return i;
}

static long find(const char *p, size_t n, size_t from, const char *what, size_t n_what)
{
    const char *at = from <= n && n_what ? memmem(p + from, n - from, what, n_what) : NULL;
    return at ? (long)(at - p) : -1;
}

static bool names_an_end(const char *p, size_t n)
{
    static const char *const words[] = {"end", "eot", "eom", "eos", "</"};
    char lower[64];
    for (size_t i = 0; i < n; i++) lower[i] = (char)tolower((unsigned char)p[i]);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (memmem(lower, n, words[i], strlen(words[i]))) return true;
    return false;
}

/* From `at` over white space and tokens that end a turn; `at` itself when there is none. */
static size_t skip_ends(const char *p, size_t n, size_t at, const char *eos)
{
    size_t n_eos = eos ? strlen(eos) : 0, to = at;
    for (;;) {
        size_t next = llm_jinja_skip_space(p, n, to);
        const char *close = next < n && p[next] == '<' ? memchr(p + next, '>', n - next < 64 ? n - next : 64) : NULL;
        if (n_eos && n - next >= n_eos && memcmp(p + next, eos, n_eos) == 0) next += n_eos;
        else if (close && names_an_end(p + next, (size_t)(close - p) + 1 - next)) next = (size_t)(close - p) + 1;
        else return at;
        at = to = next;
    }
}

struct turn {
    const char *full;          /* the whole conversation */
    size_t n;
    const char *said;          /* the message's content, trimmed */
    size_t n_said;
    struct llm_buf before, after;
};

/* Where in the whole, from `from` on, the turn stands and where its text ends. -1: nowhere. */
static long locate(const struct turn *t, size_t from, size_t *end)
{
    static const char thought[] = "</think>";
    long at, said;
    if (t->after.n > t->before.n && common_prefix(&t->before, t->after.p, t->after.n) == t->before.n) {
        const char *turn = t->after.p + t->before.n;
        size_t n = t->after.n - t->before.n;
        at = find(t->full, t->n, from, turn, n);
        if (at >= 0) {
            said = find(turn, n, 0, t->said, t->n_said);
            *end = (size_t)at + (said < 0 ? llm_jinja_trim_end(turn, n) : (size_t)said + t->n_said);
            return at;
        }
    }
    at = find(t->full, t->n, from, t->said, t->n_said);
    *end = (size_t)at + t->n_said;
    if (at >= 0 || !t->n_said) return at;
    /* Reasoning before the answer may be gone. */
    size_t skip = 0;
    while ((said = find(t->said, t->n_said, skip, thought, sizeof thought - 1)) >= 0) skip = (size_t)said + sizeof thought - 1;
    skip = llm_jinja_skip_space(t->said, t->n_said, skip);
    at = find(t->full, t->n, from, t->said + skip, t->n_said - skip);
    *end = (size_t)at + t->n_said - skip;
    return at;
}

static int add_span(struct llm_chat_spans *s, size_t begin, size_t end, struct llm_err *e)
{
    void *v = s->v;
    if (llm_grow(&v, &s->room, s->n + 1, sizeof *s->v, e) < 0) return -1;
    s->v = v;
    s->v[s->n++] = (struct llm_chat_span){begin, end};
    return 0;
}

/* Where the search for a turn begins: after the conversation before it, as far as that is the beginning of the whole. */
static int search_from(const struct llm_chat_template *t, const struct llm_chat_request *part, const struct turn *turn, size_t *from,
                       struct llm_err *e)
{
    struct llm_chat_request plain = *part;
    struct llm_buf base = {0};
    *from = common_prefix(&turn->before, turn->full, turn->n);
    if (*from == turn->before.n) return 0;
    plain.add_generation_prompt = false;
    int status = llm_chat_render_once(t, &plain, &base, NULL, e);
    if (status == 0 && common_prefix(&base, turn->full, turn->n) == base.n) *from = base.n;
    llm_buf_release(&base);
    return status;
}

/* The span of message i of `r` in turn->full; `*done`: where the last one ended. */
static int find_turn(const struct llm_chat_template *t, const struct llm_chat_request *r, size_t i, struct turn *turn, size_t *done,
                     struct llm_chat_span *span, struct llm_err *e)
{
    struct llm_chat_request part = *r;
    size_t from, end = 0;
    part.n = i + 1;
    part.add_generation_prompt = false;
    if (llm_chat_render_once(t, &part, &turn->after, NULL, e) < 0) return -1;
    part.n = i;
    part.add_generation_prompt = true;
    if (llm_chat_render_once(t, &part, &turn->before, NULL, e) < 0 || search_from(t, &part, turn, &from, e) < 0) return -1;
    bool whole_prompt = from == turn->before.n;
    long at = locate(turn, from > *done ? from : *done, &end);
    if (at < 0) return llm_fail(e, EX_DATAERR, "its text is not found again");
    *span = (struct llm_chat_span){whole_prompt && from >= *done ? from : (size_t)at, skip_ends(turn->full, turn->n, end, r->options->eos)};
    *done = span->end;
    return 0;
}

int llm_chat_render_spans(const struct llm_chat_template *t, const struct llm_chat_request *r, struct llm_buf *out, struct llm_chat_spans *spans,
                          struct llm_err *e)
{
    size_t offset = out->n, done = 0;
    int status = llm_chat_render_once(t, r, out, NULL, e);
    for (size_t i = 0; i < r->n && status == 0; i++) {
        const json_t *message = json_array_get(r->messages, i), *content = json_object_get(message, "content");
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || strcmp(role, "assistant") != 0) continue;
        struct turn turn = {.full = out->p + offset, .n = out->n - offset, .said = json_is_string(content) ? json_string_value(content) : ""};
        size_t n = json_is_string(content) ? json_string_length(content) : 0, skip = llm_jinja_skip_space(turn.said, n, 0);
        struct llm_chat_span span = {0, 0};
        turn.said += skip;
        turn.n_said = llm_jinja_trim_end(turn.said, n - skip);
        status = find_turn(t, r, i, &turn, &done, &span, e);
        if (status < 0) llm_in(e, "message %zu: cannot tell what is the assistant's", i + 1);
        else status = add_span(spans, offset + span.begin, offset + span.end, e);
        llm_buf_release(&turn.before);
        llm_buf_release(&turn.after);
    }
    return status;
}
