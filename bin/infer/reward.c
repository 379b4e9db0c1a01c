/* --score-reward: the score that a reward model gives a text, or, with --jsonl, each line, which is written again with "reward" added. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/infer/batch.h"
#include "infer/classify.h"
#include "infer/embed.h"
#include "token/chat/conversation.h"

/* Lines wait for others that have been read too, so that they share passes. */
enum { MAX_WAITING = 64 };
struct run {
    struct session *s;
    json_t *waiting[MAX_WAITING];
    int64_t lengths[MAX_WAITING], n_waiting;
    int32_t *ids;               /* of the waiting lines, one after another */
    size_t n_ids, ids_room;
    struct lines in;
    struct batch batch;
    struct llm_chat chat;       /* found when the first line has messages */
    struct llm_conversation conversation;
    float *vector;              /* [MAX_WAITING, hidden_size], of one text [hidden_size] */
};

static int score(struct run *r, const int32_t *ids, size_t n, double *reward, struct llm_err *e)
{
    struct llm_kv kv;
    llm_kv_init(&kv, &r->s->engine.pool);
    int status = prompt_check(r->s, n, e) < 0 ? -1 : llm_embed(&r->s->engine, &kv, ids, (int64_t)n, r->s->pool, r->vector, e);
    if (status == 0) status = llm_score_reward(&r->s->engine, r->vector, reward, e);
    llm_kv_release(&kv);
    return status;
}

int run_reward(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct run r = {.s = s};
    double reward = 0;
    if (n == 0) return llm_fail(e, EX_DATAERR, "the prompt is empty: there is nothing to score");
    r.vector = llm_alloc((size_t)s->model->config.hidden_size, sizeof *r.vector, "a text", e);
    int status = r.vector ? score(&r, ids, n, &reward, e) : -1;
    free(r.vector);
    return status < 0 ? -1 : llm_output_printf(s->out, e, "%.9g\n", reward);
}

/* Appends token ids of a JSON list, or of a text. */
static int append(struct run *r, const json_t *v, struct llm_err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    int status = json_is_string(v) ? prompt_encode(r->s, json_string_value(v), json_string_length(v), &ids, &n, e)
                                   : prompt_take_ids(r->s, v, &ids, &n, e);
    if (status == 0) status = llm_conversation_add(&r->conversation, ids, n, 0, e);
    free(ids);
    return status;
}

static int take_messages(struct run *r, const json_t *o, const json_t *messages, struct llm_err *e)
{
    const struct args *a = r->s->a;
    const struct llm_tokenizer *t = r->s->model->tokenizer;
    if (!json_is_array(messages)) return llm_fail(e, EX_DATAERR, "\"messages\": expected a list");
    if (!r->chat.template && llm_chat_find(&r->chat, a->chat_template, a->model, t, e) < 0) return -1;
    return llm_conversation_encode(&r->conversation, &r->chat, t, messages, json_object_get(o, "tools"), false, NULL, e);
}

/* The tokens of a line: a conversation ("messages"), a rollout ("prompt_ids" and "ids"), a prompt and its plain completion, which an end token
 * follows as in training, or one text. */
static int take_line(struct run *r, const json_t *o, struct llm_err *e)
{
    const json_t *messages = json_object_get(o, "messages"), *before = json_object_get(o, "prompt_ids"), *ids = json_object_get(o, "ids");
    const json_t *prompt = json_object_get(o, "prompt"), *completion = json_object_get(o, "completion");
    const struct llm_tokenizer *t = r->s->model->tokenizer;
    size_t first;
    r->conversation.n = 0;
    if (messages) return take_messages(r, o, messages, e);
    if (!ids && !json_is_string(prompt)) return llm_fail(e, EX_DATAERR, "expected \"messages\", \"ids\", or \"prompt\", a text");
    if (ids) return (before && append(r, before, e) < 0) || append(r, ids, e) < 0 ? -1 : 0;
    if (!completion || !t) return append(r, prompt, e); /* which says that there is no tokenizer */
    if (!json_is_string(completion)) return llm_fail(e, EX_DATAERR, "\"completion\": expected a text");
    if (llm_conversation_plain(&r->conversation, t, prompt, completion, &first, e) < 0) return -1;
    return prompt_check_vocab(r->s, r->conversation.ids, r->conversation.n, e);
}

/* Scores and writes the lines that wait. 0, 1 when a signal was caught, -1. */
static int flush(struct run *r, struct llm_err *e)
{
    int64_t width = r->s->model->config.hidden_size;
    int status = r->n_waiting > 0 ? llm_embed_texts(&r->s->engine, r->ids, NULL, r->lengths, r->n_waiting, r->s->pool, r->vector, e) : 0;
    for (int64_t i = 0; i < r->n_waiting; i++) {
        double reward = 0;
        if (status == 0) status = llm_score_reward(&r->s->engine, r->vector + i * width, &reward, e);
        if (status == 0 && json_object_set_new(r->waiting[i], "reward", json_real(reward)) < 0) status = llm_no_memory(e, "a line of output");
        if (status == 0) status = batch_put(&r->batch, r->waiting[i], e);
        if (status == 0) batch_item(&r->batch, r->lengths[i], 0);
        json_decref(r->waiting[i]);
    }
    r->n_waiting = 0;
    r->n_ids = 0;
    return status;
}

/* The line waits with its tokens; `o` is taken. */
static int wait_for_others(struct run *r, json_t *o, struct llm_err *e)
{
    size_t n = r->conversation.n;
    r->waiting[r->n_waiting] = o;
    r->lengths[r->n_waiting++] = (int64_t)n;
    if (llm_grow((void **)&r->ids, &r->ids_room, r->n_ids + n, sizeof *r->ids, e) < 0) return -1;
    memcpy(r->ids + r->n_ids, r->conversation.ids, n * sizeof *r->ids);
    r->n_ids += n;
    return 0;
}

static int one_line(void *arg, const char *text, size_t n, struct llm_err *e)
{
    struct run *r = arg;
    struct llm_err why = {0};
    json_t *o = text ? llm_json_parse(text, n, &why) : NULL;
    int status = o ? 0 : text ? -1 : lines_too_long(&r->in, &why);
    if (o && !json_is_object(o)) status = llm_fail(&why, EX_DATAERR, "expected an object");
    if (o && status == 0) status = take_line(r, o, &why);
    if (status == 0 && r->conversation.n == 0) status = llm_fail(&why, EX_DATAERR, "expected tokens to score, found none");
    if (status == 0) status = prompt_check(r->s, r->conversation.n, &why);
    if (status == 0) {
        status = wait_for_others(r, o, e);
        bool full = r->n_waiting == MAX_WAITING || (int64_t)r->n_ids >= r->s->engine.batch;
        return status == 0 && (full || !lines_waiting(&r->in)) ? flush(r, e) : status;
    }
    if (why.status == EX_DATAERR) {
        status = flush(r, e); /* in the order of the lines */
        if (status == 0) status = batch_refuse(&r->batch, &r->in, o, &why, e);
        if (status == 0) batch_item(&r->batch, (int64_t)r->conversation.n, 0);
    } else {
        *e = why;
        llm_in(e, "%s: line %" PRId64, llm_file_name(r->in.file), r->in.number);
    }
    json_decref(o);
    return status;
}

int run_reward_lines(struct session *s, const char *operand, struct llm_err *e)
{
    struct run r = {.s = s};
    r.vector = llm_alloc(MAX_WAITING * (size_t)s->model->config.hidden_size, sizeof *r.vector, "a text", e);
    int status = r.vector ? batch_lines(&r.batch, s, &r.in, operand, one_line, NULL, &r, e) : -1;
    for (int64_t i = 0; i < r.n_waiting; i++) json_decref(r.waiting[i]);
    free(r.ids);
    llm_chat_release(&r.chat);
    llm_conversation_release(&r.conversation);
    free(r.vector);
    return status;
}
