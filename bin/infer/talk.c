#include "bin/infer/talk.h"
#include "bin/infer/sources.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/utf8.h"

static int next(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct talk *t = arg;
    const struct session *s = t->s;
    const struct args *a = s->a;
    int64_t kept = t->kv.n;
    (void)e;
    if (t->taken) return 0;
    t->taken = true;
    *p = (struct llm_prompt){.ids = t->ids + kept, .n = (int64_t)t->n_ids - kept, .begin = kept > 0 ? &t->kv : NULL, .max_tokens = t->max_tokens,
                             .samples = 1, .sampling = s->sampling, .stops = a->stop.v, .n_stops = a->stop.n, .ignore_eos = a->ignore_eos,
                             .ends = s->chat.ends, .n_ends = s->chat.n_ends, .constraint = s->constraint, .keep_cache = true};
    return 1;
}

/* Whether what was said until now ends in a tag. */
static bool ends_in(const struct llm_buf *said, const char *tag)
{
    size_t n = strlen(tag);
    return said->n >= n && memcmp(said->p + said->n - n, tag, n) == 0;
}

static int set_dimmed(struct talk *t, bool dimmed, struct llm_err *e)
{
    if (!t->dims || t->dimmed == dimmed) return 0;
    t->dimmed = dimmed;
    return llm_output_write(t->s->out, dimmed ? "\033[2m" : "\033[0m", 4, e);
}

/* Whether the prompt ends in <think>, as some templates have it: the answer begins with a thought. 1, 0 or -1. */
static int begins_with_thought(const struct talk *t, struct llm_err *e)
{
    enum { LAST = 16 }; /* tokens: as many as <think> and white space after it may be written with */
    const struct llm_tokenizer *tokens = t->s->model->tokenizer;
    struct llm_buf end = {0};
    int status = 0;
    for (size_t i = t->n_ids > LAST ? t->n_ids - LAST : 0; i < t->n_ids && status == 0; i++) {
        size_t n = 0;
        const char *piece = t->ids[i] < llm_tokenizer_vocab_size(tokens) ? llm_tokenizer_piece(tokens, t->ids[i], &n) : NULL;
        if (piece) status = llm_buf_put(&end, piece, n, e);
    }
    if (status == 0 && end.n > 0) end.n = llm_utf8_trim_end(end.p, end.n);
    if (status == 0) status = ends_in(&end, "<think>");
    llm_buf_release(&end);
    return status;
}

/* Writes bytes of the answer; those between <think> and </think> are dimmed. */
static int say(struct talk *t, const char *bytes, size_t n, struct llm_err *e)
{
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (llm_buf_put(&t->reply, bytes + i, 1, e) < 0) return -1;
        bool begins = t->dims && ends_in(&t->reply, "<think>"), ends = t->dims && ends_in(&t->reply, "</think>");
        if (!begins && !ends) continue;
        if (llm_output_text(t->s->out, bytes + from, i + 1 - from, e) < 0 || set_dimmed(t, begins, e) < 0) return -1;
        from = i + 1;
    }
    return llm_output_text(t->s->out, bytes + from, n - from, e);
}

static int text(void *arg, const struct llm_completion *c, const char *bytes, size_t n, struct llm_err *e)
{
    struct talk *t = arg;
    (void)c;
    return say(t, bytes, n, e) < 0 ? -1 : llm_output_flush(t->s->out, e);
}

static int end_line(struct talk *t, struct llm_err *e)
{
    return llm_output_write(t->s->out, "\n", 1, e) < 0 ? -1 : llm_output_flush(t->s->out, e);
}

static void exchange(struct llm_kv *a, struct llm_kv *b)
{
    struct llm_kv old = *a;
    *a = *b;
    *b = old;
}

static int done(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct talk *t = arg;
    t->finish = c->finish;
    t->kept = c->prompt_tokens - c->prompt.n;
    t->read = c->prompt.n;
    t->made = c->n;
    t->read_seconds = c->prompt_seconds;
    t->made_seconds = c->decode_seconds;
    if (end_line(t, e) < 0) return -1;
    if (c->finish == LLM_FINISH_CONTEXT) note_full(t->s);
    llm_verbose("%" PRId64 " tokens kept, %" PRId64 " read in %.2f s, %" PRId64 " made in %.2f s, %s", t->kept, t->read, t->read_seconds, t->made,
                t->made_seconds, llm_finish_names[c->finish]);
    exchange(&t->kv, &c->kv);
    return 0;
}

/* An interrupted answer: what was read and said of it need not be computed again by the next turn. */
static void dropped(void *arg, const struct llm_completion *c, struct llm_kv *kv)
{
    struct talk *t = arg;
    int64_t kept = t->kv.n;
    bool longer = kv->n > kept;
    t->kept = kept;
    t->read = c ? c->prompt.n : longer ? kv->n - kept : 0;
    t->made = c ? c->n : 0;
    t->read_seconds = c ? c->prompt_seconds : 0;
    t->made_seconds = c ? c->decode_seconds : 0;
    if (longer) exchange(&t->kv, kv);
}

/* Cuts the cache to what the conversation still begins with: a template may write earlier turns anew. One token at least is left to read.
 * A state that cannot be cut is reset. */
static void keep_common(struct talk *t)
{
    int64_t n = 0, max = (int64_t)t->n_ids - 1 < t->kv.n ? (int64_t)t->n_ids - 1 : t->kv.n;
    while (n < max && t->kv.ids[n] == t->ids[n]) n++;
    llm_kv_truncate(&t->kv, llm_kv_can_truncate(&t->kv, n) ? n : 0);
}

/* The content of the user's first message: the pictures of --image, then its text, whose reference is taken. NULL: out of memory. */
static json_t *with_pictures(const struct talk *t, json_t *text)
{
    const struct llm_strs *images = &t->s->a->images;
    json_t *parts = json_array();
    int bad = !parts;
    for (size_t i = 0; i < images->n; i++) bad |= json_array_append_new(parts, json_pack("{s:s,s:s}", "type", "image", "path", images->v[i]));
    bad |= json_array_append_new(parts, json_pack("{s:s,s:o}", "type", "text", "text", text));
    if (!bad) return parts;
    json_decref(parts);
    return NULL;
}

/* Whether no one but the system has spoken. */
static bool begins(const struct talk *t)
{
    return json_array_size(t->messages) == 0 || strcmp(talk_last_role(t), "system") == 0;
}

int talk_add(struct talk *t, const char *role, const char *content, size_t n, struct llm_err *e)
{
    json_t *text_of = json_stringn(content ? content : "", n);
    if (!text_of) return llm_fail(e, EX_DATAERR, "expected UTF-8");
    if (t->s->a->images.n > 0 && strcmp(role, "user") == 0 && begins(t)) text_of = with_pictures(t, text_of);
    if (json_array_append_new(t->messages, json_pack("{s:s,s:o}", "role", role, "content", text_of)) < 0) return llm_no_memory(e, "messages");
    return 0;
}

int talk_add_reply(struct talk *t, struct llm_err *e)
{
    json_t *said = llm_json_text(t->reply.p ? t->reply.p : "", t->reply.n);
    int status = said ? talk_add(t, "assistant", json_string_value(said), json_string_length(said), e) : llm_no_memory(e, "an answer");
    json_decref(said);
    return status;
}

/* Removes the oldest turn: messages after the system's, up to the second of the user. False: there is only one turn. */
static bool forget_turn(struct talk *t)
{
    const char *role = json_string_value(json_object_get(json_array_get(t->messages, 0), "role"));
    size_t first = role && strcmp(role, "system") == 0, next = first + 1;
    for (; next < json_array_size(t->messages); next++) {
        role = json_string_value(json_object_get(json_array_get(t->messages, next), "role"));
        if (role && strcmp(role, "user") == 0) break;
    }
    if (next >= json_array_size(t->messages)) return false;
    for (; next > first; next--) json_array_remove(t->messages, first);
    return true;
}

/* The tokens of the messages, with those of pictures. 0 or -1. */
static int encode_all(struct talk *t, struct llm_err *e)
{
    struct llm_picture_paths p = {0};
    struct sight before = t->pictures; /* released after the same pictures are held again */
    t->pictures = (struct sight){0};
    int status = chat_encode(t->s, t->messages, NULL, NULL, NULL, &t->ids, &t->n_ids, e);
    if (status == 0 && sight_is(t->s)) status = llm_picture_paths_messages(t->messages, &(struct llm_picture_paths){0}, &p, e);
    if (status == 0) status = sight_put(t->s, &(struct llm_strs){p.v, p.n}, &t->pictures, &t->ids, &t->n_ids, e);
    sight_release(&before);
    free(p.v);
    return status;
}

/* The conversation's tokens. With --shift its oldest turns are forgotten until a quarter of the context, or what the answer may need, is left. */
static int encode(struct talk *t, struct llm_err *e)
{
    const int64_t context = t->s->engine.context, quarter = context / 4;
    const int64_t room = t->max_tokens >= 0 && t->max_tokens < quarter ? t->max_tokens : quarter;
    int64_t forgotten = 0;
    int status = encode_all(t, e);
    while (status == 0 && t->s->a->shift && (int64_t)t->n_ids > context - room && forget_turn(t)) {
        forgotten++;
        free(t->ids);
        status = encode_all(t, e);
    }
    if (forgotten > 0) llm_note("the context is full: %" PRId64 " of the oldest turns %s forgotten", forgotten, forgotten == 1 ? "is" : "are");
    return status;
}

/* Tells which sources the answer cites. */
static int check_citations(struct talk *t, struct llm_err *e)
{
    struct cited c;
    if (!t->s->sources.ids) return 0;
    if (sources_check(t->s, t->reply.p ? t->reply.p : "", t->reply.n, &c, e) < 0) return -1;
    for (size_t i = 0; i < json_array_size(c.known); i++) llm_verbose("cites %s", json_string_value(json_array_get(c.known, i)));
    for (size_t i = 0; i < json_array_size(c.unknown); i++) {
        llm_warn("the answer cites '%s', which is none of the sources", json_string_value(json_array_get(c.unknown, i)));
    }
    cited_release(&c);
    return 0;
}

int talk_answer(struct talk *t, struct llm_err *e)
{
    struct llm_generate g = {.engine = &t->s->engine, .parallel = 1, .next = next, .text = text, .done = done, .dropped = dropped,
                             .arg = t};
    drafts_set(t->s, &g);
    t->taken = false;
    t->reply.n = 0;
    int status = encode(t, e);
    if (status == 0) status = prompt_check(t->s, t->n_ids, e);
    if (status == 0) {
        keep_common(t);
        int thought = t->dims ? begins_with_thought(t, e) : 0;
        if (thought < 0 || (thought > 0 && set_dimmed(t, true, e) < 0)) status = -1;
    }
    if (status == 0) {
        status = llm_generate(&g, e);
    }
    free(t->ids);
    t->ids = NULL;
    struct llm_err ignored;
    if (set_dimmed(t, false, &ignored) == 0 && llm_output_flush(t->s->out, &ignored) < 0 && status == 0) status = -1;
    if (status == 0) status = check_citations(t, e);
    return status == 0 ? talk_add_reply(t, e) : status;
}

int talk_log(const struct talk *t, struct llm_err *e)
{
    struct llm_map before;
    struct llm_buf b = {0};
    bool answered = false;
    for (size_t i = 0; i < json_array_size(t->messages); i++) {
        const char *role = json_string_value(json_object_get(json_array_get(t->messages, i), "role"));
        answered |= role && strcmp(role, "assistant") == 0;
    }
    if (!t->s->a->chat_log || !answered) return 0;
    json_t *o = json_pack("{s:O}", "messages", t->messages);
    int status = !o ? llm_no_memory(e, "messages") : llm_json_dump(o, &b, e) < 0 || llm_buf_put(&b, "\n", 1, e) < 0 ? -1 : 0;
    struct llm_output *out = status == 0 ? llm_output_append(t->s->a->chat_log, &before, e) : NULL;
    if (out) llm_map_close(&before);
    if (!out || llm_output_write(out, b.p, b.n, e) < 0) {
        llm_output_abandon(out);
        status = -1;
    } else {
        status = llm_output_commit(out, e);
    }
    json_decref(o);
    llm_buf_release(&b);
    return status;
}

const char *talk_last_role(const struct talk *t)
{
    size_t n = json_array_size(t->messages);
    const char *role = n > 0 ? json_string_value(json_object_get(json_array_get(t->messages, n - 1), "role")) : NULL;
    return role ? role : "";
}

void talk_drop(struct talk *t)
{
    size_t n = json_array_size(t->messages);
    if (n > 0) json_array_remove(t->messages, n - 1);
}

int talk_init(struct talk *t, struct session *s, struct llm_err *e)
{
    t->s = s;
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    t->dims = (!s->a->common.output || strcmp(s->a->common.output, "-") == 0) && isatty(STDOUT_FILENO) && !(no_color && *no_color) && terminal
              && strcmp(terminal, "dumb") != 0;
    t->max_tokens = s->a->n;
    t->messages = json_array();
    llm_kv_init(&t->kv, &s->engine.pool);
    if (!t->messages) return llm_no_memory(e, "messages");
    return s->a->system ? talk_add(t, "system", s->a->system, strlen(s->a->system), e) : 0;
}

void talk_release(struct talk *t)
{
    if (t->kv.pool) llm_kv_release(&t->kv);
    sight_release(&t->pictures);
    llm_buf_release(&t->reply);
    json_decref(t->messages);
    json_decref(t->replaced);
}
