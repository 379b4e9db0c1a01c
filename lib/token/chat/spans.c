/* The assistant's text where the template does not mark it. The conversation before a turn, rendered with its generation prompt, and the
 * conversation up to the turn tell what the turn is; it is then looked for in the whole, since templates rewrite turns once others follow
 * (reasoning of earlier turns is dropped, the system's message moves). A span ends with the message's text, or with its calls of tools, and the
 * tokens that end the turn, as far as they name themselves so ("<|im_end|>", "</s>"): what some templates always put after the last message is no
 * part of it. */
#include <ctype.h>
#include <string.h>
#include "base/utf8.h"
#include "token/chat/render.h"

static long find(const char *p, size_t n, size_t from, const char *what, size_t n_what)
{
    const char *at = from <= n && n_what ? memmem(p + from, n - from, what, n_what) : NULL;
    return at ? (long)(at - p) : -1;
}

static bool names_an_end(const char *p, size_t n)
{
    static const char *const words[] = {"end", "eot", "eom", "eos", "</", "turn|>", "return|>"};
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
        size_t next = llm_utf8_skip_space(p, n, to);
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
    bool calls;                /* the message has calls of tools */
    bool anchored;             /* the conversation before the turn is the beginning of the whole */
    struct llm_chat_cut before, after, base; /* renderings compared with `full` */
                               /* base: `before` without its generation prompt, where that is not in `full` */
    struct llm_buf joined;     /* the turn, where it does not stand in one piece */
};

static size_t length(const struct llm_chat_cut *c)
{
    return c->same + c->rest.n;
}

/* What `a` has beyond `b`, n bytes. NULL: it does not begin with `b`, or memory is short, which `e` then says. */
static const char *turn_text(struct turn *t, const struct llm_chat_cut *b, const struct llm_chat_cut *a, size_t *n, struct llm_err *e)
{
    if (length(a) <= length(b) || a->same < b->same) return NULL;
    *n = length(a) - length(b);
    if (b->rest.n) return a->same == b->same && memcmp(a->rest.p, b->rest.p, b->rest.n) == 0 ? a->rest.p + b->rest.n : NULL;
    if (a->rest.n == 0) return t->full + b->same;
    if (a->same == b->same) return a->rest.p;
    t->joined.n = 0;
    if (llm_buf_put(&t->joined, t->full + b->same, a->same - b->same, e) < 0 || llm_buf_put(&t->joined, a->rest.p, a->rest.n, e) < 0) return NULL;
    return t->joined.p;
}

/* Where what is said stands in the whole, from `from` on: behind what the generation prompt and the whole share, if that is behind the conversation
 * before. Nothing stands there at once. -1: nowhere. */
static long find_said(const struct turn *t, size_t from)
{
    size_t shared = t->anchored && t->before.same > from ? t->before.same : from;
    if (t->n_said == 0 && shared > from && t->full[shared - 1] == '<') shared--; /* of two tokens: "<think>" and "<tool_call>" */
    if (t->n_said == 0) return t->anchored ? (long)shared : -1;
    return find(t->full, t->n, shared - from < t->n_said ? from : shared + 1 - t->n_said, t->said, t->n_said);
}

/* The end of the calls of tools that follow what is said, which ends at `end`, if they stand there as they do in the turn alone. */
static size_t calls_end(struct turn *t, size_t end, struct llm_err *e)
{
    size_t n;
    const char *turn = turn_text(t, t->before.rest.n ? &t->base : &t->before, &t->after, &n, e);
    for (long said = turn && t->calls ? 0 : -1; said >= 0; said++) {
        said = t->n_said ? find(turn, n, (size_t)said, t->said, t->n_said) : said;
        if (said < 0 || (size_t)said + t->n_said >= n) break;
        const char *tail = turn + said + t->n_said;
        const size_t n_tail = llm_utf8_trim_end(tail, n - (size_t)said - t->n_said);
        if (n_tail <= t->n - end && memcmp(t->full + end, tail, n_tail) == 0) return end + n_tail;
    }
    return end;
}

/* Where in the whole, from `from` on, the turn stands and where its text ends. -1: nowhere. */
static long locate(struct turn *t, size_t from, size_t *end, struct llm_err *e)
{
    static const char thought[] = "</think>";
    long said = find_said(t, from);
    size_t n;
    const char *turn = turn_text(t, &t->before, &t->after, &n, e);
    long at = turn ? find(t->full, t->n, from, turn, n) : -1;
    if (at >= 0 && !(t->anchored && said >= 0 && said < at)) { /* else a later turn that says the same */
        said = t->calls ? -1 : find(turn, n, 0, t->said, t->n_said);
        *end = (size_t)at + (said < 0 ? llm_utf8_trim_end(turn, n) : (size_t)said + t->n_said);
        return at;
    }
    if (said >= 0) {
        *end = calls_end(t, (size_t)said + t->n_said, e);
        return said;
    }
    if (!t->n_said) return -1;
    /* Reasoning before the answer may be gone. */
    size_t skip = 0;
    while ((said = find(t->said, t->n_said, skip, thought, sizeof thought - 1)) >= 0) skip = (size_t)said + sizeof thought - 1;
    skip = llm_utf8_skip_space(t->said, t->n_said, skip);
    at = find(t->full, t->n, from, t->said + skip, t->n_said - skip);
    *end = (size_t)at + t->n_said - skip;
    if (at >= 0 || !t->calls || !t->anchored) return at;
    t->n_said = 0; /* the text may be gone, too: calls of tools are left */
    at = find_said(t, from);
    *end = calls_end(t, (size_t)at, e);
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
    if (llm_chat_render_against(t, &part, turn->full, turn->n, &turn->before, e) < 0) return -1;
    const bool whole_prompt = turn->before.rest.n == 0;
    part.add_generation_prompt = false;
    if (!whole_prompt && llm_chat_render_against(t, &part, turn->full, turn->n, &turn->base, e) < 0) return -1;
    turn->anchored = whole_prompt || turn->base.rest.n == 0;
    from = whole_prompt || !turn->anchored ? turn->before.same : turn->base.same;
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
        size_t skip = llm_utf8_skip_space(turn.said, n, 0);
        struct llm_chat_span span = {0, 0};
        turn.said += skip;
        turn.n_said = llm_utf8_trim_end(turn.said, n - skip);
        turn.calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
        status = find_turn(t, r, i, &turn, &done, &span, e);
        if (status < 0) llm_in(e, "message %zu: cannot tell what is the assistant's", i + 1);
        else status = add_span(spans, offset + span.begin, offset + span.end, e);
        llm_buf_release(&turn.before.rest);
        llm_buf_release(&turn.after.rest);
        llm_buf_release(&turn.base.rest);
        llm_buf_release(&turn.joined);
    }
    return status;
}
