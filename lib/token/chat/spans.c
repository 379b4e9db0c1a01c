/* The assistant's text where the template does not mark it. The conversation before a turn, rendered with its generation prompt, and the
 * conversation up to the turn tell what the turn is; it is then looked for in the whole, since templates rewrite turns once others follow
 * (reasoning of earlier turns is dropped, the system's message moves). A span ends with the tokens that end the turn, as far as they name
 * themselves so ("<|im_end|>", "</s>"): what some templates always put after the last message is no part of it. */
#include <ctype.h>
#include <string.h>
#include "token/chat/render.h"

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
    struct llm_chat_cut before, after; /* renderings compared with `full` */
    struct llm_buf joined;     /* the turn, where it does not stand in one piece */
};

static size_t length(const struct llm_chat_cut *c)
{
    return c->same + c->rest.n;
}

/* What `after` has beyond `before`, n bytes. NULL: it does not begin with `before`, or memory is short, which `e` then says. */
static const char *turn_text(struct turn *t, size_t *n, struct llm_err *e)
{
    const struct llm_chat_cut *b = &t->before, *a = &t->after;
    if (length(a) <= length(b) || a->same < b->same) return NULL;
    *n = length(a) - length(b);
    if (b->rest.n) return a->same == b->same && memcmp(a->rest.p, b->rest.p, b->rest.n) == 0 ? a->rest.p + b->rest.n : NULL;
    if (a->rest.n == 0) return t->full + b->same;
    if (a->same == b->same) return a->rest.p;
    if (llm_buf_put(&t->joined, t->full + b->same, a->same - b->same, e) < 0 || llm_buf_put(&t->joined, a->rest.p, a->rest.n, e) < 0) return NULL;
    return t->joined.p;
}

/* Where in the whole, from `from` on, the turn stands and where its text ends. -1: nowhere. */
static long locate(struct turn *t, size_t from, size_t *end, struct llm_err *e)
{
    static const char thought[] = "</think>";
    long at, said;
    size_t n;
    const char *turn = turn_text(t, &n, e);
    if (turn) {
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
    struct llm_chat_cut base = {0};
    *from = turn->before.same;
    if (turn->before.rest.n == 0) return 0;
    plain.add_generation_prompt = false;
    int status = llm_chat_render_against(t, &plain, turn->full, turn->n, &base, e);
    if (status == 0 && base.rest.n == 0) *from = base.same;
    llm_buf_release(&base.rest);
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
    if (llm_chat_render_against(t, &part, turn->full, turn->n, &turn->after, e) < 0) return -1;
    part.n = i;
    part.add_generation_prompt = true;
    if (llm_chat_render_against(t, &part, turn->full, turn->n, &turn->before, e) < 0 || search_from(t, &part, turn, &from, e) < 0) return -1;
    bool whole_prompt = from == length(&turn->before);
    long at = locate(turn, from > *done ? from : *done, &end, e);
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
        size_t n = 0;
        const char *said = llm_json_long_string(r->options->strings, content, &n);
        struct turn turn = {.full = out->p + offset, .n = out->n - offset, .said = said ? said : ""};
        size_t skip = llm_jinja_skip_space(turn.said, n, 0);
        struct llm_chat_span span = {0, 0};
        turn.said += skip;
        turn.n_said = llm_jinja_trim_end(turn.said, n - skip);
        status = find_turn(t, r, i, &turn, &done, &span, e);
        if (status < 0) llm_in(e, "message %zu: cannot tell what is the assistant's", i + 1);
        else status = add_span(spans, offset + span.begin, offset + span.end, e);
        llm_buf_release(&turn.before.rest);
        llm_buf_release(&turn.after.rest);
        llm_buf_release(&turn.joined);
    }
    return status;
}
