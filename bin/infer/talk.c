#include "bin/infer/talk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"

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

static int text(void *arg, const struct llm_completion *c, const char *bytes, size_t n, struct llm_err *e)
{
    struct talk *t = arg;
    (void)c;
    if (llm_buf_put(&t->reply, bytes, n, e) < 0) return -1;
    return llm_output_text(t->s->out, bytes, n, e) < 0 ? -1 : llm_output_flush(t->s->out, e);
}

static int end_line(struct talk *t, struct llm_err *e)
{
    return llm_output_write(t->s->out, "\n", 1, e) < 0 ? -1 : llm_output_flush(t->s->out, e);
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
    struct llm_kv old = t->kv;
    t->kv = c->kv;
    c->kv = old;
    return 0;
}

/* Cuts the cache to what the conversation still begins with: a template may write earlier turns anew. One token at least is left to read.
 * A state that cannot be cut is reset. */
static void keep_common(struct talk *t)
{
    int64_t n = 0, max = (int64_t)t->n_ids - 1 < t->kv.n ? (int64_t)t->n_ids - 1 : t->kv.n;
    while (n < max && t->kv.ids[n] == t->ids[n]) n++;
    llm_kv_truncate(&t->kv, llm_kv_can_truncate(&t->kv, n) ? n : 0);
}

int talk_add(struct talk *t, const char *role, const char *content, size_t n, struct llm_err *e)
{
    json_t *text_of = json_stringn(content ? content : "", n);
    if (!text_of) return llm_fail(e, EX_DATAERR, "expected UTF-8");
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

int talk_answer(struct talk *t, struct llm_err *e)
{
    struct llm_generate g = {.engine = &t->s->engine, .parallel = 1, .next = next, .text = text, .done = done, .arg = t};
    drafts_set(t->s, &g);
    t->taken = false;
    t->reply.n = 0;
    int status = chat_encode(t->s, t->messages, NULL, &t->ids, &t->n_ids, e);
    if (status == 0) status = prompt_check(t->s, t->n_ids, e);
    if (status == 0) {
        keep_common(t);
        status = llm_generate(&g, e);
    }
    free(t->ids);
    t->ids = NULL;
    return status == 0 ? talk_add_reply(t, e) : status;
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
    t->max_tokens = s->a->n;
    t->messages = json_array();
    llm_kv_init(&t->kv, &s->engine.pool);
    if (!t->messages) return llm_no_memory(e, "messages");
    return s->a->system ? talk_add(t, "system", s->a->system, strlen(s->a->system), e) : 0;
}

void talk_release(struct talk *t)
{
    if (t->kv.pool) llm_kv_release(&t->kv);
    llm_buf_release(&t->reply);
    json_decref(t->messages);
}
