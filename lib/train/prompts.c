#include "train/prompts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "infer/sample/draw.h"
#include "infer/sample/options.h"
#include "train/lines.h"

void llm_prompts_release(struct llm_prompts *p)
{
    for (size_t i = 0; i < p->n; i++) {
        json_decref(p->v[i].object);
        free(p->v[i].ids);
    }
    free(p->v);
    llm_chat_release(&p->chat);
    *p = (struct llm_prompts){0};
}

/* Members by which a line of llm-infer --jsonl asks for a way of sampling of its own. */
static int refuse_options(const json_t *o, struct llm_err *e)
{
    static const char names[] = LLM_SAMPLING_NAMES "tokens|samples|seed|stop|ignore-eos|logit-bias|adapter|temperature|max_tokens|n_predict|";
    char name[64];
    for (const char *at = names, *end; (end = strchr(at, '|')); at = end + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
        for (int underscored = 0; underscored < 2; underscored++) {
            if (json_object_get(o, name)) return llm_fail(e, EX_DATAERR, "\"%s\": expected no option: all prompts are sampled alike", name);
            for (char *c = name; *c; c++) *c = *c == '-' ? '_' : *c;
        }
    }
    return 0;
}

static int take_ids(struct llm_asked *a, const json_t *list, int64_t vocab, struct llm_err *e)
{
    a->n = (int64_t)json_array_size(list);
    a->ids = llm_alloc((size_t)a->n + 1, sizeof *a->ids, "a prompt", e);
    for (int64_t i = 0; a->ids && i < a->n; i++) {
        const json_t *id = json_array_get(list, (size_t)i);
        json_int_t x = json_integer_value(id);
        if (!json_is_integer(id) || x < 0 || x >= vocab) {
            return llm_fail(e, EX_DATAERR, "\"ids\": element %" PRId64 ": expected a token id below %" PRId64, i, vocab);
        }
        a->ids[i] = (int32_t)x;
    }
    return a->ids ? 0 : -1;
}

static int encode(struct llm_asked *a, const struct llm_model *m, const char *text, size_t n, int flags, struct llm_err *e)
{
    size_t n_ids = 0;
    if (!m->tokenizer) return llm_fail(e, EX_DATAERR, "expected \"ids\": the model carries no tokenizer");
    if (llm_encode(m->tokenizer, text, n, flags, &a->ids, &n_ids, e) < 0) return -1;
    a->n = (int64_t)n_ids;
    return llm_model_check_ids(m, a->ids, a->n, e);
}

static int take_messages(const struct llm_prompts *p, struct llm_asked *a, const struct llm_model *m, const struct tm *now, struct llm_err *e)
{
    const json_t *messages = json_object_get(a->object, "messages"), *tools = json_object_get(a->object, "tools");
    struct llm_buf text = {0};
    if (!p->chat.template) {
        *e = p->no_chat;
        return -1;
    }
    const struct llm_chat_options o = {.add_generation_prompt = true, .functions = true, .bos = p->chat.bos, .eos = p->chat.eos, .now = now};
    int status = llm_chat_render(p->chat.template, messages, json_is_array(tools) ? tools : NULL, &o, &text, NULL, e);
    if (status == 0) status = encode(a, m, text.p, text.n, LLM_ENCODE_SPECIAL, e);
    llm_buf_release(&text);
    a->chat = true;
    return status;
}

static int take_tokens(const struct llm_prompts *p, struct llm_asked *a, const struct llm_model *m, const struct tm *now, struct llm_err *e)
{
    const json_t *o = a->object, *text = json_object_get(o, "prompt"), *ids = json_object_get(o, "ids");
    if (json_is_array(json_object_get(o, "messages")) && !text && !ids) return take_messages(p, a, m, now, e);
    if (json_is_array(ids) && !text) return take_ids(a, ids, m->config.vocab_size, e);
    if (!json_is_string(text) || ids) return llm_fail(e, EX_DATAERR, "expected \"prompt\" (a string), \"ids\" (a list) or \"messages\" (a list)");
    return encode(a, m, json_string_value(text), json_string_length(text), LLM_ENCODE_ADD_SPECIAL, e) < 0 ? llm_in(e, "\"prompt\"") : 0;
}

/* "id" first; the line's number, if it has none. What was the prompt goes: the completion's line has its tokens. */
static int arrange(struct llm_asked *a, int64_t number, struct llm_err *e)
{
    static const char *const taken[] = {"prompt", "ids", "messages", "tools"};
    struct llm_buf text = {0};
    json_t *o = json_object(), *id = json_object_get(a->object, "id");
    int bad = !o || (id ? json_object_set(o, "id", id) : json_object_set_new(o, "id", json_integer(number))) < 0;
    bad = bad || json_object_update(o, a->object) < 0;
    for (size_t i = 0; !bad && i < sizeof taken / sizeof *taken; i++) json_object_del(o, taken[i]);
    int status = bad ? llm_no_memory(e, "a prompt") : llm_json_dump(json_object_get(o, "id"), &text, e);
    if (status == 0) a->key = llm_draw_prompt(text.p, text.n);
    llm_buf_release(&text);
    json_decref(a->object);
    a->object = o;
    return status;
}

struct reading {
    struct llm_prompts *p;
    const struct llm_model *m;
    int64_t context;
    struct tm now; /* what templates take for the date: the same for all lines */
};

static int take_line(void *arg, json_t *line, int64_t number, struct llm_err *e)
{
    const struct reading *r = arg;
    struct llm_prompts *p = r->p;
    if (llm_grow((void **)&p->v, &p->room, p->n + 1, sizeof *p->v, e) < 0) return -1;
    struct llm_asked *a = &p->v[p->n++];
    *a = (struct llm_asked){.object = json_incref(line)};
    if (!json_is_object(line)) return llm_fail(e, EX_DATAERR, "expected an object with \"prompt\"");
    if (refuse_options(line, e) < 0 || take_tokens(p, a, r->m, &r->now, e) < 0) return -1;
    if (a->n < 1) return llm_fail(e, EX_DATAERR, "expected tokens, found an empty prompt");
    if (a->n >= r->context) {
        return llm_fail(e, EX_DATAERR, "expected a prompt of fewer tokens than --context %" PRId64 ", found %" PRId64, r->context, a->n);
    }
    return arrange(a, number, e);
}

int llm_prompts_read(struct llm_prompts *p, const char *path, const struct llm_model *m, const char *from, int64_t context, struct llm_err *e)
{
    struct reading r = {.p = p, .m = m, .context = context};
    time_t seconds = time(NULL);
    localtime_r(&seconds, &r.now);
    if (m->tokenizer && llm_chat_find(&p->chat, NULL, from, m->tokenizer, &p->no_chat) == 0) {
        p->n_ends = llm_chat_turn_ends(&p->chat, m->tokenizer, p->ends);
    }
    if (llm_lines_each(path, take_line, &r, e) < 0) return -1;
    return p->n > 0 ? 0 : llm_fail(e, EX_DATAERR, "%s: expected prompts, found none", path);
}
