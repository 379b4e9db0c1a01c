/* --jsonl: a prompt a line, a completion a line. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/infer/batch.h"
#include "bin/infer/openai.h"
#include "bin/infer/prefix_cache.h"
#include "bin/infer/resume.h"
#include "bin/infer/sight.h"
#include "bin/infer/sources.h"
#include "bin/infer/tools.h"
#include "infer/rollout.h"
#include "infer/sample/draw.h"

#define SHARED_BYTES ((size_t)256 << 20) /* of the caches of beginnings that are kept for prompts to come */
enum { MAX_REFUSED = 4096 }; /* answers to refused lines that may wait for a prompt before them */

/* One line of input. */
struct line {
    struct line *next;
    json_t *object;          /* members of the line that are copied to the output; if the line was refused, its answer */
    bool refused;
    int32_t *ids;
    const char **stops;
    struct llm_logit_bias *biases;
    int32_t *negative;       /* tokens of its "negative_prompt" */
    float *adapters;         /* factors of the model's adapters; NULL: all act */
    struct sight pictures;   /* of its text */
    float *strengths;        /* of --steer's directions; NULL: as it says */
    json_t *stop_list;       /* keeps the stops alive */
    struct llm_dry_breakers dry_breakers; /* of its "dry_sequence_breaker" */
    struct llm_constraint *constraint; /* of the line, or the command line's; NULL: none */
    int64_t group;           /* prompts before it in the input */
    int64_t generated;       /* tokens of its samples so far */
    bool chat;               /* it asks for a message */
    struct tools tools;      /* of such a line */
    struct openai openai;    /* of a line of OpenAI's batches */
    struct llm_err failed;   /* of such a line: why a completion failed */
    char key[17];            /* with --resume */
    int64_t have;            /* with --resume: samples that the output has already */
    int64_t attempts;        /* with --resume: how often the line failed */
};

struct run {
    struct session *s;
    struct lines in;
    struct batch batch;
    struct llm_rollouts rollout; /* with --rollout */
    struct line *first, **last; /* not yet answered, in order */
    int64_t n_refused;       /* how many lines of the list were refused */
    struct prefix_cache *beginnings; /* of --prefix-cache; NULL without */
    int64_t n_failed;        /* lines that failed while they were worked on */
    struct llm_err failed;   /* why the first of them did */
};

static void line_destroy(struct line *l)
{
    json_decref(l->object);
    json_decref(l->stop_list);
    openai_release(&l->openai);
    tools_release(&l->tools);
    sight_release(&l->pictures);
    free(l->ids);
    free(l->stops);
    llm_dry_breakers_release(&l->dry_breakers);
    free(l->biases);
    free(l->negative);
    free(l->adapters);
    free(l->strengths);
    free(l);
}

/* Removes a line from the list and releases it. In order it is the first. */
static void drop_line(struct run *r, struct line *l)
{
    struct line **at = &r->first;
    while (*at != l) at = &(*at)->next;
    *at = l->next;
    if (!*at) r->last = at;
    constraints_drop(r->s, l->constraint);
    line_destroy(l);
}

/* Writes the answers to refused lines at the front of the list: no earlier prompt is waiting. */
static int put_refusals(struct run *r, struct llm_err *e)
{
    while (r->first && r->first->refused) {
        if (batch_put(&r->batch, r->first->object, e) < 0) return -1;
        batch_item(&r->batch, 0, 0);
        r->n_refused--;
        drop_line(r, r->first);
    }
    return 0;
}

/* Options of one line, in place of those of the command line; members that were taken leave the object. */
static int take_options(const struct args *a, json_t *o, struct llm_prompt *p, struct llm_err *e)
{
    struct args line = *a;
    if (lines_take_search(a, o, e) < 0 || llm_cli_take_json(&infer_cli, LINE_OPTIONS, &line, o, e) < 0) return -1;
    line.sampling.bias = p->sampling.bias;
    line.sampling.n_bias = p->sampling.n_bias;
    line.sampling.dry_breakers = p->sampling.dry_breakers;
    line.sampling.seed = (uint64_t)line.common.seed;
    p->sampling = line.sampling;
    p->max_tokens = line.n;
    p->samples = line.samples;
    p->ignore_eos = line.ignore_eos;
    p->cfg_scale = line.cfg_scale;
    p->log_probs = line.logprobs >= 0;
    p->top = line.logprobs > 0 ? line.logprobs : 0;
    return 0;
}

/* "logit_bias": texts as on the command line, or an object of ids and numbers; in place of the command line's. */
static int take_biases(struct line *l, struct llm_prompt *p, struct llm_err *e)
{
    const char *key = json_object_get(l->object, "logit_bias") ? "logit_bias" : "logit-bias", *id;
    json_t *given = json_object_get(l->object, key), *v;
    size_t i, n = 0;
    if (!given || json_is_null(given)) {
        json_object_del(l->object, key);
        return 0;
    }
    l->biases = llm_calloc((json_is_object(given) ? json_object_size(given) : json_array_size(given)) + 1, sizeof *l->biases, "logit biases", e);
    if (!l->biases) return -1;
    int bad = json_is_object(given) || json_is_array(given) ? 0 : -1;
    if (json_is_string(given)) {
        bad = llm_logit_bias_parse(json_string_value(given), l->biases);
        n = 1;
    } else if (json_is_array(given)) {
        json_array_foreach(given, i, v) {
            if (!json_is_string(v) || llm_logit_bias_parse(json_string_value(v), &l->biases[n++]) < 0) bad = -1;
        }
    } else if (json_is_object(given)) {
        json_object_foreach(given, id, v) {
            int64_t number;
            if (!json_is_number(v) || llm_parse_int(id, &number) < 0 || number < 0 || number > INT32_MAX) bad = -1;
            else l->biases[n++] = (struct llm_logit_bias){(int32_t)number, (float)json_number_value(v)};
        }
    }
    if (bad) return llm_fail(e, EX_DATAERR, "\"%s\": expected texts like \"42+1.5\" and \"42-inf\", or an object of ids and numbers", key);
    p->sampling.bias = l->biases;
    p->sampling.n_bias = n;
    json_object_del(l->object, key);
    return 0;
}

/* "negative_prompt": a text, in place of the command line's. 0 or -1. */
static int take_negative(const struct run *r, struct line *l, struct llm_prompt *p, struct llm_err *e)
{
    json_t *given = json_object_get(l->object, "negative_prompt");
    size_t n = 0;
    p->negative = r->s->negative;
    p->n_negative = (int64_t)r->s->n_negative;
    if (given && !json_is_null(given)) {
        if (!json_is_string(given)) return llm_fail(e, EX_DATAERR, "\"negative_prompt\": expected a text");
        if (prompt_encode(r->s, json_string_value(given), json_string_length(given), &l->negative, &n, e) < 0) return -1;
        p->negative = l->negative;
        p->n_negative = (int64_t)n;
    }
    json_object_del(l->object, "negative_prompt");
    if (negative_check(r->s, p, e) == 0) return 0;
    if (p->cfg_scale != r->s->a->cfg_scale) e->status = EX_DATAERR; /* other lines may not be guided */
    return -1;
}

/* The id, which is the line's number if it has none, is part of the key of the prompt's random numbers. */
static int take_id(const struct run *r, struct line *l, struct llm_prompt *p, struct llm_err *e)
{
    struct llm_buf text = {0};
    json_t *id = json_object_get(l->object, "id");
    if (!id) {
        id = json_integer(r->in.number);
        if (json_object_set_new(l->object, "id", id) < 0) return llm_no_memory(e, "an id");
    }
    int status = llm_json_dump(id, &text, e);
    if (status == 0) p->sampling.prompt = llm_draw_prompt(text.p, text.n);
    llm_buf_release(&text);
    return status;
}

/* Takes a member that is a string or a list of strings. *list: it as a list, which keeps the texts alive; *texts: malloced. 1; 0: it is absent;
 * -1. */
static int take_texts(struct line *l, const char *name, json_t **list, const char ***texts, struct llm_err *e)
{
    json_t *given = json_object_get(l->object, name);
    if (!given || json_is_null(given)) {
        json_object_del(l->object, name);
        return 0;
    }
    *list = json_is_string(given) ? json_pack("[O]", given) : json_incref(given);
    if (!json_is_array(*list)) return llm_fail(e, EX_DATAERR, "\"%s\": expected a string or a list of strings", name);
    size_t n = json_array_size(*list);
    *texts = llm_calloc(n + 1, sizeof **texts, "texts of a line", e);
    if (!*texts) return -1;
    for (size_t i = 0; i < n; i++) {
        json_t *s = json_array_get(*list, i);
        if (!json_is_string(s) || json_string_length(s) == 0 || strlen(json_string_value(s)) != json_string_length(s)) {
            return llm_fail(e, EX_DATAERR, "\"%s\": expected strings that are not empty, without NUL", name);
        }
        (*texts)[i] = json_string_value(s);
    }
    json_object_del(l->object, name);
    return 1;
}

static int take_stops(struct line *l, struct llm_prompt *p, struct llm_err *e)
{
    int got = take_texts(l, "stop", &l->stop_list, &l->stops, e);
    if (got <= 0) return got;
    p->stops = l->stops;
    p->n_stops = json_array_size(l->stop_list);
    return 0;
}

/* What ends a repetition of DRY, in place of the command line's. */
static int take_breakers(const struct run *r, struct line *l, struct llm_prompt *p, struct llm_err *e)
{
    static const char *const names[] = {"dry_sequence_breaker", "dry_sequence_breakers", "dry-sequence-breaker"};
    const char *before = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *list = NULL;
        const char **texts = NULL;
        int got = take_texts(l, names[i], &list, &texts, e);
        if (got > 0 && before) got = llm_fail(e, EX_DATAERR, "expected one of \"%s\" and \"%s\"", before, names[i]);
        if (got > 0) {
            before = names[i];
            const struct llm_model *m = r->s->model;
            got = llm_dry_breakers_init(&l->dry_breakers, m->tokenizer, m->config.vocab_size, texts, json_array_size(list), e);
            p->sampling.dry_breakers = &l->dry_breakers;
        }
        free(texts);
        json_decref(list);
        if (got < 0) return -1;
    }
    return 0;
}

/* Puts the pictures that the line names, or the messages if there are any, into the places of its text that stand for them. 0 or -1. */
static int take_pictures(struct run *r, struct line *l, const json_t *messages, size_t *n, struct llm_err *e)
{
    struct llm_picture_paths line = {0}, all = {0};
    if (!sight_is(r->s)) return 0;
    int status = llm_picture_paths_line(l->object, &line, e);
    if (status == 0 && messages) status = llm_picture_paths_messages(messages, &line, &all, e);
    const struct llm_picture_paths *p = messages ? &all : &line;
    if (status == 0) status = sight_put(r->s, &(struct llm_strs){p->v, p->n}, &l->pictures, &l->ids, n, e);
    if (status < 0 && e->status == EX_NOINPUT) e->status = EX_DATAERR; /* of this line */
    free(line.v);
    free(all.v);
    json_object_del(l->object, "image");
    json_object_del(l->object, "images");
    return status;
}

static int take_messages(struct run *r, struct line *l, size_t *n, struct llm_err *e)
{
    json_t *messages = json_object_get(l->object, "messages");
    const char *system = r->s->a->system;
    if (!json_is_array(messages)) return llm_fail(e, EX_DATAERR, "expected an object with \"messages\", an array");
    if (tools_take(&l->tools, r->s, l->object, e) < 0) {
        if (e->status == EX_UNAVAILABLE) e->status = EX_DATAERR; /* other lines may not need it */
        return -1;
    }
    const char *first = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    if (system && (!first || strcmp(first, "system") != 0)
        && json_array_insert_new(messages, 0, json_pack("{s:s,s:s}", "role", "system", "content", system)) < 0) {
        return llm_no_memory(e, "messages");
    }
    const json_t *variables = json_object_get(l->object, "chat_template_kwargs");
    if (json_is_null(variables)) variables = NULL;
    if (variables && !json_is_object(variables)) return llm_fail(e, EX_DATAERR, "\"chat_template_kwargs\": expected an object");
    const char *begun = l->tools.form ? l->tools.mark : NULL;
    if (chat_encode(r->s, messages, l->tools.list, variables, begun, &l->ids, n, e) < 0 || take_pictures(r, l, messages, n, e) < 0) return -1;
    json_object_del(l->object, "messages");
    json_object_del(l->object, "chat_template_kwargs");
    return 0;
}

/* Takes a prompt of fill-in-the-middle: "input_prefix" and "input_suffix". 0 or -1. */
static int take_parts(struct run *r, struct line *l, struct llm_prompt *p, size_t *n, struct llm_err *e)
{
    json_t *prefix = json_object_get(l->object, "input_prefix"), *suffix = json_object_get(l->object, "input_suffix");
    if ((prefix && !json_is_string(prefix)) || (suffix && !json_is_string(suffix))) {
        return llm_fail(e, EX_DATAERR, "\"input_prefix\", \"input_suffix\": expected strings");
    }
    if (fim_encode(r->s, prefix ? json_string_value(prefix) : "", json_string_length(prefix), suffix ? json_string_value(suffix) : "",
                   json_string_length(suffix), &l->ids, n, e) < 0) return -1;
    p->ends = r->s->fim_ends;
    p->n_ends = LLM_FIM_MARKS;
    json_object_del(l->object, "input_prefix");
    json_object_del(l->object, "input_suffix");
    return 0;
}

static int constrain(struct run *r, struct line *l, struct llm_prompt *p, struct llm_err *e)
{
    if (constraints_take(r->s, l->object, &l->constraint, e) < 0) return -1;
    p->constraint = l->constraint;
    if (tools_constrain(&l->tools, r->s, p, e) < 0) return -1;
    l->constraint = p->constraint;
    return 0;
}

/* `text` is NULL if the line is too long. Without l->object `e` says already why the line is no JSON. */
static int take_line(struct run *r, const char *text, struct line *l, struct llm_prompt *p, struct llm_err *e)
{
    const struct args *a = r->s->a;
    size_t n_ids = 0;
    *p = (struct llm_prompt){.max_tokens = a->n, .samples = a->samples, .sampling = r->s->sampling, .stops = a->stop.v, .n_stops = a->stop.n,
                             .ignore_eos = a->ignore_eos, .begin = r->s->begin.n > 0 ? &r->s->begin : NULL, .user = l};
    if (!text) return lines_too_long(&r->in, e);
    if (!l->object) return -1;
    if (!json_is_object(l->object)) return llm_fail(e, EX_DATAERR, "expected an object with \"%s\"", a->chat ? "messages" : "prompt");
    if (openai_take(&l->openai, &l->object, e) < 0) return -1;
    l->chat = l->openai.is ? l->openai.chat : a->chat;
    bool whole = json_object_get(l->object, "prompt") || json_object_get(l->object, "ids");
    if (l->chat) {
        if (chat_open(r->s, e) < 0) {
            e->status = EX_DATAERR; /* of this line; others may need no template */
            return -1;
        }
        p->ends = r->s->chat.ends;
        p->n_ends = r->s->chat.n_ends;
        if (take_messages(r, l, &n_ids, e) < 0) return -1;
    } else if (!whole && (json_object_get(l->object, "input_prefix") || json_object_get(l->object, "input_suffix"))) {
        if (take_parts(r, l, p, &n_ids, e) < 0) return -1;
    } else if (prompt_of_line(r->s, l->object, &l->ids, &n_ids, e) < 0 || take_pictures(r, l, NULL, &n_ids, e) < 0) {
        return -1;
    }
    if (prompt_begin(r->s, &l->ids, &n_ids, e) < 0 || adapters_take(r->s, l->object, &l->adapters, e) < 0) return -1;
    p->adapters = l->adapters;
    if (steer_take(r->s, l->object, &l->strengths, e) < 0) return -1;
    p->strengths = l->strengths;
    if (constrain(r, l, p, e) < 0) {
        if (e->status == EX_UNAVAILABLE) e->status = EX_DATAERR; /* other lines may ask for less */
        return -1;
    }
    json_object_del(l->object, "prompt");
    json_object_del(l->object, "ids");
    p->ids = l->ids;
    p->n = (int64_t)n_ids;
    if (take_options(a, l->object, p, e) < 0 || take_biases(l, p, e) < 0 || take_negative(r, l, p, e) < 0
        || take_stops(l, p, e) < 0 || take_breakers(r, l, p, e) < 0 || prompt_check(r->s, n_ids, e) < 0) return -1;
    if (llm_sampling_check(&p->sampling, r->s->model->config.vocab_size, e) < 0) {
        e->status = EX_DATAERR;
        return -1;
    }
    if (a->beams > 1 || a->penalty_alpha > 0) {
        if (p->samples > a->beams) return llm_fail(e, EX_DATAERR, "\"samples\": expected at most %" PRId64 " (--beams)", a->beams);
        if (a->penalty_alpha > 0 && p->sampling.top_k == 0) return llm_fail(e, EX_DATAERR, "\"top_k\": expected one above 0 (--penalty-alpha)");
        if (p->cfg_scale != 1) return llm_fail(e, EX_DATAERR, "a search with --beams or --penalty-alpha is not guided: expected no \"cfg_scale\"");
        if (p->constraint || p->log_probs) {
            return llm_fail(e, EX_DATAERR, "a search with beams or --penalty-alpha has no grammar and no \"logprobs\"");
        }
    }
    if (memory_check(r->s, p, e) < 0) {
        e->status = EX_DATAERR; /* other lines may fit */
        return -1;
    }
    p->rollout = a->rollout;
    p->sampling.policy_step = (uint64_t)r->rollout.step;
    l->group = r->in.used - 1;
    return take_id(r, l, p, e);
}

/* With --resume: what tells a later run which line this is the answer to. */
static int put_key(const struct run *r, const struct line *l, json_t *answer)
{
    if (!r->s->resume) return 0;
    if (l->attempts > 0 && json_object_get(answer, "error") && json_object_set_new(answer, "attempts", json_integer(l->attempts + 1)) < 0) return -1;
    return json_object_set_new(answer, "key", json_string(l->key));
}

/* Refuses a line: its answer is an error, which is written in the order of the lines. Frees the line's prompt. */
static int refuse(struct run *r, struct line *l, const struct llm_err *why, struct llm_err *e)
{
    json_t *answer = lines_refuse(&r->in, l->object, why, e), *custom = json_object_get(l->object, "custom_id");
    if (answer && (l->openai.is || custom)) {
        json_decref(answer);
        answer = openai_error(custom ? custom : json_object_get(l->object, "id"), why->text, e);
    }
    if (!answer || put_key(r, l, answer) < 0) return -1;
    json_decref(l->object);
    free(l->ids);
    l->object = answer;
    l->ids = NULL;
    l->refused = true;
    r->n_refused++;
    if (r->s->a->unordered) {
        int status = batch_put(&r->batch, l->object, e);
        batch_item(&r->batch, 0, 0);
        r->n_refused--;
        drop_line(r, l);
        return status < 0 ? -1 : LLM_NEXT_AGAIN;
    }
    return put_refusals(r, e) < 0 ? -1 : LLM_NEXT_LATER;
}

/* With --resume: looks for the line's answer in the output. 1: it is there; 0: it is to be worked on; -1. */
static int find_answer(struct run *r, const char *text, size_t n, struct line *l, struct llm_err *e)
{
    struct resume *resume = r->s->resume;
    struct llm_buf id = {0};
    json_t *custom = json_object_get(l->object, "custom_id"), *given = custom ? custom : json_object_get(l->object, "id");
    if (!resume) return 0;
    int status = resume_key(resume, l->object, text, n, l->key, e);
    if (status == 0) status = given ? llm_json_dump(given, &id, e) : llm_buf_printf(&id, e, "%" PRId64, r->in.number);
    if (status == 0) {
        switch (resume_take(resume, id.p, id.n, l->key, &l->have, &l->attempts)) {
        case RESUME_NEW: break;
        case RESUME_FAILED: lines_failed_before(&r->in); /* fall through */
        case RESUME_ANSWERED: status = 1; break;
        case RESUME_CHANGED:
            status = llm_fail(e, EX_DATAERR, "id %s: %s has an answer to another prompt, of other options or of another instruction set", id.p,
                              r->s->a->common.output);
            break;
        }
    }
    llm_buf_release(&id);
    return status;
}

static int next(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct run *r = arg;
    const char *text;
    size_t n;
    int got = lines_next(&r->in, &text, &n, e);
    if (got <= 0) return got;
    struct line *l = llm_calloc(1, sizeof *l, "a line", e);
    if (!l) return -1;
    struct llm_err why = {0};
    l->object = text ? llm_json_parse(text, n, &why) : NULL;
    int found = find_answer(r, text, n, l, e);
    if (found != 0) {
        line_destroy(l);
        return found > 0 ? LLM_NEXT_AGAIN : llm_in(e, "%s: line %" PRId64, llm_file_name(r->in.file), r->in.number);
    }
    *r->last = l;
    r->last = &l->next;
    if (take_line(r, text, l, p, &why) == 0) {
        bool plain = !p->adapters && !p->strengths;
        return r->beginnings && plain && prefix_cache_find(r->beginnings, p->ids, p->n, e) < 0 ? -1 : 1;
    }
    if (why.status == EX_DATAERR) return refuse(r, l, &why, e);
    *e = why;
    return llm_in(e, "%s: line %" PRId64, llm_file_name(r->in.file), r->in.number);
}

/* Whether to read the next line now. A line of which a part has arrived is waited for. The number of answers that wait for a slow prompt is
 * bounded. */
static bool ready(void *arg)
{
    const struct run *r = arg;
    if (r->n_refused >= MAX_REFUSED) return false;
    return r->in.text.n > r->in.at || llm_file_ready(r->in.file);
}

static json_t *timings(const struct args *a, const struct llm_completion *c)
{
    json_t *o = json_pack("{s:I,s:f,s:f,s:f}", "shared_tokens", (json_int_t)c->shared_tokens, "prompt_ms", c->prompt_seconds * 1e3, "decode_ms",
                     c->decode_seconds * 1e3, "tokens_per_second",
                     c->decode_seconds > 0 ? (double)c->n / c->decode_seconds : 0.);
    if (a->memory > 0) json_object_set_new(o, "recomputed_tokens", json_integer(c->recomputed_tokens));
    if (a->latency_target > 0) json_object_set_new(o, "slowest_ms", json_real(c->slowest_seconds * 1e3));
    if (a->draft <= 0 && !a->draft_ngram && !a->draft_model && c->drafted == 0) return o;
    json_t *drafts = json_pack("{s:I,s:I}", "draft_n", (json_int_t)c->drafted, "draft_n_accepted", (json_int_t)c->accepted);
    json_object_update(o, drafts);
    json_decref(drafts);
    return o;
}

/* A token with its log-probability, as OpenAI's interface has it, and its id. */
static json_t *token_of(const struct run *r, int32_t id, float log_prob)
{
    const struct llm_tokenizer *t = r->s->model->tokenizer;
    size_t n = 0;
    const char *piece = t && id < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, id, &n) : NULL;
    json_t *o = json_pack("{s:i,s:o,s:o}", "id", (int)id, "token", llm_json_text(piece ? piece : "", n), "logprob",
                          isfinite(log_prob) ? json_real((double)log_prob) : json_null()), *bytes = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(bytes, json_integer((unsigned char)piece[i]));
    if (json_object_set_new(o, "bytes", bytes) == 0) return o;
    json_decref(o);
    return NULL;
}

/* {"content": [a token, with "top_logprobs", …]}. NULL: no memory. */
static json_t *log_probs(const struct run *r, const struct llm_completion *c)
{
    json_t *list = json_array();
    int64_t k = c->prompt.top < r->s->model->config.vocab_size ? c->prompt.top : r->s->model->config.vocab_size;
    int bad = 0;
    for (int64_t i = 0; i < c->n; i++) {
        json_t *o = token_of(r, c->ids[i], c->log_probs[i]), *top = json_array();
        for (int64_t j = 0; j < k; j++) {
            const struct llm_top_choice *choice = &c->top[i * c->prompt.top + j];
            bad |= json_array_append_new(top, token_of(r, choice->id, choice->log_prob));
        }
        bad |= json_object_set_new(o, "top_logprobs", top) | json_array_append_new(list, o);
    }
    json_t *all = bad ? NULL : json_pack("{s:O}", "content", list);
    json_decref(list);
    return all;
}

/* Adds which sources the answer cites, and which ids that are none. 0 or -1. */
static int put_citations(struct run *r, const struct llm_completion *c, json_t *o, struct llm_err *e)
{
    const struct llm_buf *text = &c->text.bytes;
    struct cited found;
    if (sources_check(r->s, text->p ? text->p : "", text->n, &found, e) < 0) return -1;
    int bad = json_object_set(o, "citations", found.known);
    if (json_array_size(found.unknown) > 0) bad |= json_object_set(o, "unknown_citations", found.unknown);
    cited_release(&found);
    return bad;
}

/* "id" first, then what the line carried, then the results. NULL: no memory. */
static json_t *result(struct run *r, const struct llm_completion *c, struct llm_err *e)
{
    const struct args *a = r->s->a;
    const struct line *l = c->prompt.user;
    json_t *o = json_object(), *ids = json_array();
    bool called = false;
    int bad = !o || !ids ? -1 : 0;
    bad |= json_object_set(o, "id", json_object_get(l->object, "id"));
    bad |= json_object_update(o, l->object);
    if (a->rollout) {
        if (!bad && llm_rollouts_put(&r->rollout, c, l->group, o, e) == 0) {
            json_decref(ids);
            return o;
        }
        bad = -1;
    }
    if (c->prompt.samples > 1) bad |= json_object_set_new(o, "sample", json_integer(c->sample));
    for (int64_t i = 0; i < c->n && a->ids; i++) bad |= json_array_append_new(ids, json_integer(c->ids[i]));
    if (a->ids) {
        bad |= json_object_set(o, "ids", ids);
    } else {
        const struct llm_buf *text = &c->text.bytes;
        json_t *said = l->chat ? tools_message(&l->tools, r->s, c, &called, e) : llm_json_text(text->p ? text->p : "", text->n);
        bad |= json_object_set_new(o, l->chat ? "message" : "text", said);
    }
    if (r->s->sources.ids && l->chat && !a->ids) bad |= put_citations(r, c, o, e);
    if (a->beams > 1) bad |= json_object_set_new(o, "score", json_real(c->score));
    if (c->prompt.log_probs) bad |= json_object_set_new(o, "logprobs", log_probs(r, c));
    bad |= json_object_set_new(o, "finish_reason", json_string(called ? TOOLS_FINISH : llm_finish_names[c->finish]));
    if (r->s->model->rope_context > 0) bad |= json_object_set_new(o, "rope_context", json_integer(r->s->model->rope_context));
    bad |= json_object_set_new(o, "prompt_tokens", json_integer(c->prompt_tokens));
    bad |= json_object_set_new(o, "completion_tokens", json_integer(c->n));
    if (!a->no_timings) bad |= json_object_set_new(o, "timings", timings(a, c));
    if (r->s->resume && c->prompt.samples > 1) bad |= json_object_set_new(o, "samples", json_integer(c->prompt.samples));
    bad |= put_key(r, l, o);
    json_decref(ids);
    if (!bad) return o;
    json_decref(o);
    llm_no_memory(e, "a line of output");
    return NULL;
}

/* The answer to a line whose completion failed. */
static json_t *failure(struct run *r, const struct llm_completion *c, struct llm_err *e)
{
    const struct line *l = c->prompt.user;
    json_t *o = json_object();
    if (r->n_failed++ == 0) {
        const json_t *id = json_object_get(l->object, "id");
        char *text = json_is_string(id) ? NULL : json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT);
        r->failed = c->err;
        llm_in(&r->failed, "id %s", json_is_string(id) ? json_string_value(id) : text ? text : "?");
        free(text);
    }
    int bad = !o || json_object_set(o, "id", json_object_get(l->object, "id")) < 0;
    if (!bad && c->prompt.samples > 1) {
        bad = json_object_set_new(o, "sample", json_integer(c->sample)) < 0
              || (r->s->resume && json_object_set_new(o, "samples", json_integer(c->prompt.samples)) < 0);
    }
    if (!bad) bad = json_object_set_new(o, "error", llm_json_text(c->err.text, strlen(c->err.text))) < 0 || put_key(r, l, o) < 0;
    if (!bad) return o;
    json_decref(o);
    llm_no_memory(e, "a line of output");
    return NULL;
}

/* A completion for a line of OpenAI's batches, whose answer has all of them. 0 or -1. */
static int done_openai(struct run *r, struct llm_completion *c, struct llm_err *e)
{
    struct line *l = c->prompt.user;
    const json_t *id = json_object_get(l->object, "id");
    if (c->err.status) l->failed = c->err;
    else if (openai_choice(&l->openai, r->s, &l->tools, c, c->prompt.log_probs ? log_probs(r, c) : NULL, e) < 0) return -1;
    if (c->sample + 1 < c->prompt.samples) return 0;
    if (l->failed.status && r->n_failed++ == 0) r->failed = l->failed;
    json_t *o = l->failed.status ? openai_error(id, l->failed.text, e)
                                 : openai_answer(&l->openai, r->s, id, c->prompt.sampling.prompt, c->prompt_tokens, e);
    int status = o && put_key(r, l, o) == 0 ? batch_put(&r->batch, o, e) : -1;
    json_decref(o);
    return status;
}

static int done(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct run *r = arg;
    struct line *l = c->prompt.user;
    int status = l->openai.is ? done_openai(r, c, e) : 0;
    json_t *o = l->openai.is ? NULL : c->err.status ? failure(r, c, e) : result(r, c, e);
    if (!l->openai.is) status = !o ? -1 : c->sample < l->have ? 0 : batch_put(&r->batch, o, e);
    json_decref(o);
    l->generated += c->n;
    bool nothing = c->finish == LLM_FINISH_STOP && c->text.bytes.n == 0 && c->prompt.n_stops == 0 && c->prompt.n_ends == 0;
    if (nothing && !l->chat) chat_hint(r->s);
    if (status < 0 || c->sample + 1 < c->prompt.samples) return status;
    batch_item(&r->batch, c->prompt_tokens, l->generated);
    drop_line(r, l);
    return put_refusals(r, e);
}

static int open_rollouts(struct run *r, int64_t groups, struct llm_err *e)
{
    const json_t *training = r->s->model->training;
    int64_t step = 0;
    if (training && llm_json_int(training, "step", 0, INT64_MAX / 2, &step, e) < 0) return -1;
    return llm_rollouts_open(&r->rollout, &r->s->engine, step, groups, e) < 0 ? llm_in(e, "--rollout") : 0;
}

/* An index of beginnings, where caches can be cut, unless --no-sharing was given. */
static int open_sharing(struct session *s, struct llm_prefix *x, struct llm_err *e)
{
    struct llm_kv_pool *pool = &s->engine.pool;
    if (s->a->no_sharing || !llm_prefix_possible(pool)) return 0;
    size_t bytes = s->cache_memory > 0 && (size_t)s->cache_memory < SHARED_BYTES ? (size_t)s->cache_memory : SHARED_BYTES;
    return llm_prefix_init(x, pool, (int64_t)(bytes / pool->page_bytes), e);
}

int run_jsonl(struct session *s, const char *operand, struct llm_err *e)
{
    const struct args *a = s->a;
    struct run r = {.s = s, .last = &r.first};
    struct llm_generate g = {.engine = &s->engine, .parallel = a->parallel, .next = next, .ready = ready, .done = done, .arg = &r,
                             .fail_alone = true, .unordered = a->unordered};
    struct llm_prefix prefix = {0};
    drafts_set(s, &g);
    bool begun = lines_open(&r.in, s->a->file ? s->a->file : operand ? operand : "-", prompt_max_bytes(s), e) == 0;
    lines_choose(&r.in, a);
    if (begun) batch_begin(&r.batch, s, &r.in);
    int64_t groups = 0;
    int status = begun && a->rollout ? lines_read_all(&r.in, &groups, e) : begun ? 0 : -1;
    if (status == 0 && a->rollout) status = open_rollouts(&r, groups, e);
    if (status == 0) status = open_sharing(s, &prefix, e);
    if (prefix.root) g.share = &prefix;
    if (status == 0 && prefix.root && a->prefix_cache) {
        r.beginnings = prefix_cache_open(s, &prefix, e);
        if (!r.beginnings) status = -1;
    }
    if (status == 0) status = generate(s, &g, e);
    if (status == 0 && r.beginnings) status = prefix_cache_save(r.beginnings, e);
    prefix_cache_close(r.beginnings);
    llm_prefix_release(&prefix);
    llm_rollouts_release(&r.rollout);
    while (r.first) drop_line(&r, r.first);
    if (begun) batch_end(&r.batch);
    if (status == 0) lines_summarise(&r.in, &s->refused);
    if (status == 0 && r.n_failed > 0) {
        s->refused = r.failed;
        if (r.n_failed > 1) llm_in(&s->refused, "%" PRId64 " completions failed, the first", r.n_failed);
    }
    lines_close(&r.in);
    return status;
}
