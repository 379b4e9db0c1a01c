#include "measure/eval/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/signals.h"
#include "base/utf8.h"
#include "infer/sample/draw.h"
#include "infer/score.h"
#include "measure/convention.h"

enum { MAX_GROUP = 32 }; /* items whose continuations are scored together */

/* ---- beginning ---- */

/* The token that the tokenizer's own rule puts before a text, or -1. */
static int beginning_of(const struct llm_tokenizer *t, int32_t *begin, struct llm_err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    int status = llm_encode(t, "", 0, LLM_ENCODE_ADD_SPECIAL, &ids, &n, e);
    *begin = status == 0 && n > 0 && ids[0] == llm_tokenizer_bos(t) ? ids[0] : -1;
    free(ids);
    return status;
}

int llm_eval_begin(struct llm_eval *v, struct llm_err *e)
{
    const struct llm_model *m = v->engine->model;
    const struct llm_tokenizer *t = m->tokenizer;
    int64_t available = v->shots_data ? (int64_t)json_array_size(v->shots_data->records) - (v->shots_data == v->data) : 0;
    llm_continuations_init(&v->continuations, v->engine);
    v->begin = -1;
    if (llm_model_must_continue(m, e) < 0) return -1;
    if (!t) return llm_fail(e, EX_DATAERR, "the model carries no tokenizer: name one with -T");
    if (v->shots > available) {
        return llm_fail(e, LLM_EX_USAGE, "%" PRId64 " examples: expected as many records to take them from, found %" PRId64, v->shots, available);
    }
    v->fallback = llm_tokenizer_bos(t) >= 0 ? llm_tokenizer_bos(t) : llm_tokenizer_eos(t);
    if (v->fallback >= m->config.vocab_size) v->fallback = -1;
    if (!v->chat && v->bos < 0 && beginning_of(t, &v->begin, e) < 0) return -1;
    if (v->bos == 1) v->begin = llm_tokenizer_bos(t);
    if (v->bos == 1 && v->begin < 0) return llm_fail(e, LLM_EX_USAGE, "--bos always: the tokenizer has no token that begins a text");
    v->extract = llm_extract_create(v->task->o, e);
    return v->extract ? 0 : llm_in(e, "task %s", v->task->name);
}

void llm_eval_release(struct llm_eval *v)
{
    llm_continuations_release(&v->continuations);
    llm_extract_destroy(v->extract);
    v->extract = NULL;
}

const char *llm_eval_beginning(const struct llm_eval *v)
{
    return v->chat ? "chat" : v->begin >= 0 ? "bos" : "none";
}

/* ---- texts ---- */

static const json_t *record_at(const struct llm_eval_data *d, int64_t i)
{
    return json_array_get(d->records, (size_t)i);
}

/* An example with its right continuation, and what separates it from the next. */
static int put_shot(const struct llm_eval *v, const json_t *record, struct llm_buf *out, struct llm_err *e)
{
    struct llm_eval_item item = {0};
    int status = llm_eval_item_make(&item, v->task, record, e);
    for (size_t i = 0; i < item.n && status == 0; i++) {
        const struct llm_eval_choice *c = &item.v[i];
        if (!c->right) continue;
        status = llm_buf_printf(out, e, "%s%s%s%s", c->context.p, v->task->delimiter, c->text.p, v->task->separator);
        break;
    }
    llm_eval_item_release(&item);
    return status;
}

/* What stands before the context of item `number`: the examples. */
static int put_shots(const struct llm_eval *v, int64_t number, struct llm_buf *out, struct llm_err *e)
{
    int64_t picked[1000];
    if (llm_buf_reserve(out, 1, e) < 0) return -1;
    out->p[0] = 0;
    llm_eval_pick_shots(v->task, v->seed, number, v->shots_data == v->data, v->shots ? (int64_t)json_array_size(v->shots_data->records) : 0, picked,
                        v->shots);
    for (int64_t i = 0; i < v->shots; i++) {
        if (put_shot(v, record_at(v->shots_data, picked[i]), out, e) < 0) return llm_in(e, "example %" PRId64, picked[i]);
    }
    return 0;
}

/* The whole text before a continuation. */
static int put_prompt(const struct llm_eval *v, const struct llm_eval_item *item, const struct llm_buf *shots, const struct llm_buf *context,
                      struct llm_buf *out, struct llm_err *e)
{
    const char *description = item->description.p ? item->description.p : "", *before = shots->p ? shots->p : "";
    if (!v->chat) return llm_buf_printf(out, e, "%s%s%s", description, before, context->p);
    json_t *messages = item->description.n > 0 ? json_pack("[{ss,ss},{ss,ss+}]", "role", "system", "content", description, "role", "user", "content",
                                                           before, context->p)
                                               : json_pack("[{ss,ss+}]", "role", "user", "content", before, context->p);
    const struct llm_chat_options o = {.add_generation_prompt = true, .bos = v->chat->bos, .eos = v->chat->eos};
    int status = messages ? llm_chat_render(v->chat->template, messages, NULL, &o, out, NULL, e) : llm_fail(e, EX_DATAERR, "the text is not UTF-8");
    json_decref(messages);
    return status < 0 ? -1 : llm_buf_reserve(out, out->n + 1, e);
}

/* ---- tokens ---- */

/* Tokens of a prompt and its continuation, encoded as one text. */
struct joined {
    int32_t *ids;
    size_t n;
    int64_t first;   /* the first token of the continuation */
    bool cut;
};

/* Tokens of a text after the token that begins it; at least that or the fallback if `some`. */
static int encode(const struct llm_eval *v, const char *text, size_t n, int32_t begin, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    int32_t *own = NULL;
    size_t n_own = 0;
    if (llm_encode(v->engine->model->tokenizer, text, n, v->chat ? LLM_ENCODE_SPECIAL : 0, &own, &n_own, e) < 0) return -1;
    *n_ids = n_own + (begin >= 0);
    *ids = llm_alloc(*n_ids, sizeof **ids, "tokens", e);
    if (*ids && begin >= 0) (*ids)[0] = begin;
    if (*ids && n_own > 0) memcpy(*ids + (begin >= 0), own, n_own * sizeof *own);
    free(own);
    return *ids ? llm_model_check_ids(v->engine->model, *ids, (int64_t)*n_ids, e) : -1;
}

/* Joins and encodes. The continuation begins where the tokens of the whole part from those of the prompt alone, without the white space at its end:
 * a token that spans both belongs to the continuation. */
static int join(struct llm_eval *v, const struct llm_buf *prompt, const char *delimiter, const struct llm_buf *text, struct joined *j,
                struct llm_err *e)
{
    struct llm_buf whole = {0};
    int32_t *before = NULL, unknown = llm_tokenizer_unknown(v->engine->model->tokenizer), begin = v->begin;
    size_t n_before = 0, stripped = llm_utf8_trim_end(prompt->p, prompt->n);
    if (stripped == 0 && begin < 0) begin = v->fallback;
    int status = llm_buf_printf(&whole, e, "%s%s%s", prompt->p, delimiter, text->p);
    if (status == 0) status = encode(v, whole.p, whole.n, begin, &j->ids, &j->n, e);
    if (status == 0) status = encode(v, prompt->p, stripped, begin, &before, &n_before, e);
    while (status == 0 && (size_t)j->first < j->n && (size_t)j->first < n_before && j->ids[j->first] == before[j->first]) j->first++;
    free(before);
    llm_buf_release(&whole);
    if (status < 0) return -1;
    if ((size_t)j->first == j->n) return llm_fail(e, EX_DATAERR, "the tokenizer has no tokens for it");
    if (j->first == 0) return llm_fail(e, EX_DATAERR, "nothing stands before it, and the tokenizer has no token that begins a text");
    for (size_t i = (size_t)j->first; i < j->n; i++) {
        if (j->ids[i] != unknown) continue;
        return llm_fail(e, EX_DATAERR, "the tokenizer has no tokens for all of it, but the unknown token %" PRId32, unknown);
    }
    int64_t more = (int64_t)j->n - 1 - v->engine->context;
    if (more <= 0) return 0;
    if (j->first - more < 1) return llm_engine_too_long(v->engine, (int64_t)j->n - j->first, e);
    memmove(j->ids, j->ids + more, (j->n - (size_t)more) * sizeof *j->ids);
    j->n -= (size_t)more;
    j->first -= more;
    j->cut = true;
    return 0;
}

/* ---- results ---- */

static int64_t characters(const struct llm_buf *b)
{
    int64_t n = 0;
    for (size_t i = 0; i < b->n; i++) n += (b->p[i] & 0xc0) != 0x80;
    return n;
}

static json_t *ids_json(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *number_of(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *begin_result(const struct llm_eval *v, int64_t item)
{
    json_t *o = json_object(), *id = json_object_get(record_at(v->data, item), "id");
    json_object_set_new(o, "item", json_integer(item));
    if (id) json_object_set(o, "id", id);
    return o;
}

/* An item whose continuations are being scored. */
struct asked {
    int64_t number;
    struct llm_eval_item item;
    struct joined *v;        /* [item.n] */
    struct llm_continuation *scores; /* [item.n] within those of the group */
};

static void asked_release(struct asked *a)
{
    for (size_t i = 0; i < a->item.n && a->v; i++) free(a->v[i].ids);
    free(a->v);
    llm_eval_item_release(&a->item);
    *a = (struct asked){0};
}

/* The choice with the largest log_prob / length; the first of equals. */
static size_t best(const struct asked *a, double (*length)(const struct llm_buf *text))
{
    size_t best = 0;
    double max = -INFINITY;
    for (size_t i = 0; i < a->item.n; i++) {
        double score = a->scores[i].log_prob / (length ? length(&a->item.v[i].text) : 1);
        if (score <= max) continue;
        max = score;
        best = i;
    }
    return best;
}

static double in_bytes(const struct llm_buf *b) { return (double)b->n; }
static double in_characters(const struct llm_buf *b) { return (double)characters(b); }

/* Σ p of the right choices / Σ p. */
static double right_mass(const struct asked *a)
{
    double max = -INFINITY, all = 0, right = 0;
    for (size_t i = 0; i < a->item.n; i++) max = fmax(max, a->scores[i].log_prob);
    for (size_t i = 0; i < a->item.n; i++) {
        double p = exp(a->scores[i].log_prob - max);
        all += p;
        right += a->item.v[i].right ? p : 0;
    }
    return right / all;
}

static json_t *result_of(const struct llm_eval *v, const struct asked *a)
{
    json_t *o = begin_result(v, a->number), *list = json_array();
    size_t shared = (size_t)a->v[0].first;
    for (size_t i = 0; i < a->item.n; i++) {
        size_t k = 0;
        while (k < shared && k < (size_t)a->v[i].first && a->v[i].ids[k] == a->v[0].ids[k]) k++;
        shared = k;
    }
    json_object_set_new(o, "ids", ids_json(a->v[0].ids, shared));
    for (size_t i = 0; i < a->item.n; i++) {
        json_t *c = json_object();
        json_object_set_new(c, "ids", ids_json(a->v[i].ids + shared, a->v[i].n - shared));
        json_object_set_new(c, "scored", json_integer((json_int_t)a->v[i].n - a->v[i].first));
        json_object_set_new(c, "log_prob", number_of(a->scores[i].log_prob));
        json_object_set_new(c, "bytes", json_integer((json_int_t)a->item.v[i].text.n));
        json_object_set_new(c, "chars", json_integer(characters(&a->item.v[i].text)));
        if (a->v[i].cut) json_object_set_new(c, "cut", json_true());
        if (v->task->kind == LLM_EVAL_CHOICE) json_object_set_new(c, "right", json_boolean(a->item.v[i].right));
        json_array_append_new(list, c);
    }
    json_object_set_new(o, "choices", list);
    if (v->task->kind == LLM_EVAL_CLOZE) {
        json_object_set_new(o, "acc", json_integer(a->scores[0].greedy));
        json_object_set_new(o, "nats", number_of(-a->scores[0].log_prob));
    } else {
        json_object_set_new(o, "acc", json_integer(a->item.v[best(a, NULL)].right));
        json_object_set_new(o, "acc_norm_bytes", json_integer(a->item.v[best(a, in_bytes)].right));
        json_object_set_new(o, "acc_norm_chars", json_integer(a->item.v[best(a, in_characters)].right));
        json_object_set_new(o, "right_mass", number_of(right_mass(a)));
    }
    return o;
}

/* ---- continuations ---- */

struct group {
    struct asked v[MAX_GROUP];
    size_t n, n_scores;
    int64_t tokens;
};

static int ask(struct llm_eval *v, struct group *g, int64_t number, struct llm_err *e)
{
    struct asked *a = &g->v[g->n++];
    struct llm_buf shots = {0};
    a->number = number;
    int status = llm_eval_item_make(&a->item, v->task, record_at(v->data, number), e);
    if (status == 0) status = put_shots(v, number, &shots, e);
    if (status == 0 && !(a->v = llm_calloc(a->item.n, sizeof *a->v, "choices", e))) status = -1;
    for (size_t i = 0; i < a->item.n && status == 0; i++) {
        struct llm_buf prompt = {0};
        status = put_prompt(v, &a->item, &shots, &a->item.v[i].context, &prompt, e);
        if (status == 0) status = join(v, &prompt, v->chat ? "" : v->task->delimiter, &a->item.v[i].text, &a->v[i], e);
        if (status < 0 && v->task->kind == LLM_EVAL_CHOICE) llm_in(e, "choice %zu", i + 1);
        llm_buf_release(&prompt);
        if (status < 0) break;
        g->tokens += i == 0 ? (int64_t)a->v[i].n : (int64_t)a->v[i].n - a->v[i].first;
        if (i == 0) v->cut += a->v[i].cut;
    }
    g->n_scores += a->item.n;
    llm_buf_release(&shots);
    return status;
}

typedef int put_result(void *arg, json_t *result, struct llm_err *e);

static int judge(struct llm_eval *v, struct group *g, put_result *put, void *arg, struct llm_err *e)
{
    struct llm_continuation *all = llm_calloc(g->n_scores, sizeof *all, "choices", e), *next = all;
    int status = all ? 0 : -1;
    for (size_t i = 0; i < g->n && all; i++) {
        struct asked *a = &g->v[i];
        a->scores = next;
        for (size_t k = 0; k < a->item.n; k++) {
            *next++ = (struct llm_continuation){.ids = a->v[k].ids, .n = (int64_t)a->v[k].n, .first = a->v[k].first, .family = a->number};
        }
    }
    if (status == 0) status = llm_continuations_score(&v->continuations, all, g->n_scores, e);
    for (size_t i = 0; i < g->n && status == 0; i++) {
        json_t *o = result_of(v, &g->v[i]);
        status = o ? put(arg, o, e) : llm_no_memory(e, "a result");
    }
    free(all);
    return status;
}

static int run_continuations(struct llm_eval *v, int64_t from, int64_t to, put_result *put, void *arg, struct llm_err *e)
{
    struct group g = {0};
    int status = 0;
    for (int64_t i = from; i < to && status == 0; i++) {
        if ((status = ask(v, &g, i, e)) < 0) llm_in(e, "item %" PRId64, i);
        if (status < 0 || (i + 1 < to && g.n < MAX_GROUP && g.tokens < 2 * v->engine->batch)) continue;
        status = judge(v, &g, put, arg, e);
        for (size_t k = 0; k < g.n; k++) asked_release(&g.v[k]);
        g = (struct group){0};
    }
    for (size_t k = 0; k < g.n; k++) asked_release(&g.v[k]);
    return status;
}

/* ---- texts ---- */

struct sum {
    double nats;
    int64_t tokens;
};

static int add_token(void *arg, int64_t i, const struct llm_scored *scored, struct llm_err *e)
{
    struct sum *s = arg;
    (void)i, (void)e;
    s->nats -= scored->log_prob;
    s->tokens++;
    return 0;
}

static int run_text(struct llm_eval *v, int64_t number, put_result *put, void *arg, struct llm_err *e)
{
    struct llm_eval_item item = {0};
    struct sum sum = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    int status = llm_eval_item_make(&item, v->task, record_at(v->data, number), e);
    if (status == 0) status = encode(v, item.v[0].text.p, item.v[0].text.n, v->begin >= 0 ? v->begin : v->fallback, &ids, &n, e);
    if (status == 0 && n < 2) status = llm_fail(e, EX_DATAERR, "expected a text of tokens, found none");
    if (status == 0) status = llm_score(&(struct llm_scorer){.engine = v->engine, .visit = add_token, .arg = &sum}, ids, (int64_t)n, e);
    if (status == 0) {
        json_t *o = begin_result(v, number);
        const struct llm_buf *text = &item.v[0].text;
        json_object_set_new(o, "ids", ids_json(ids, n));
        json_object_set_new(o, "nats", number_of(sum.nats));
        json_object_set_new(o, "tokens", json_integer(sum.tokens));
        json_object_set_new(o, "words", json_integer(llm_count_words(text->p, text->n)));
        json_object_set_new(o, "bytes", json_integer((json_int_t)text->n));
        status = o ? put(arg, o, e) : llm_no_memory(e, "a result");
    }
    free(ids);
    llm_eval_item_release(&item);
    return status < 0 ? llm_in(e, "item %" PRId64, number) : status;
}

/* ---- generations ---- */

struct generated {
    struct generated *next;
    int64_t number;
    struct llm_eval_item item;
    int32_t *ids;
    json_t *completions, *answers;
    struct llm_buf gold;
    int64_t right, done;
};

struct generation {
    struct llm_eval *v;
    int64_t next, to;
    put_result *put;
    void *arg;
    const char **stops;
    size_t n_stops;
    struct generated *live; /* begun and not yet answered */
};

static void generated_release(struct generation *g, struct generated *x)
{
    struct generated **at = &g->live;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    llm_eval_item_release(&x->item);
    llm_buf_release(&x->gold);
    json_decref(x->completions);
    json_decref(x->answers);
    free(x->ids);
    free(x);
}

static int gold_of(const struct llm_eval *v, struct generated *x, struct llm_err *e)
{
    const struct llm_buf *text = &x->item.v[0].text;
    if (llm_extract_gold(v->extract, text->p, text->n, &x->gold, e) < 0) return -1;
    return x->gold.n > 0 ? 0 : llm_fail(e, EX_DATAERR, "expected an answer, found an empty one");
}

static int next_prompt(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct generation *g = arg;
    struct llm_eval *v = g->v;
    struct llm_buf shots = {0}, prompt = {0};
    char id[24];
    size_t n = 0;
    if (g->next == g->to) return 0;
    struct generated *x = llm_calloc(1, sizeof *x, "an item", e);
    if (!x) return -1;
    x->next = g->live;
    g->live = x;
    x->number = g->next++;
    x->completions = json_array();
    x->answers = json_array();
    int status = llm_eval_item_make(&x->item, v->task, record_at(v->data, x->number), e);
    if (status == 0) status = put_shots(v, x->number, &shots, e);
    if (status == 0) status = put_prompt(v, &x->item, &shots, &x->item.v[0].context, &prompt, e);
    if (status == 0) status = encode(v, prompt.p, prompt.n, v->begin >= 0 || prompt.n > 0 ? v->begin : v->fallback, &x->ids, &n, e);
    if (status == 0 && n == 0) status = llm_fail(e, EX_DATAERR, "expected a context, found an empty one");
    if (status == 0 && (int64_t)n >= v->engine->context) status = llm_engine_too_long(v->engine, (int64_t)n + 1, e);
    if (status == 0) status = gold_of(v, x, e);
    if (status < 0) llm_in(e, "item %" PRId64, x->number);
    llm_buf_release(&shots);
    llm_buf_release(&prompt);
    snprintf(id, sizeof id, "%" PRId64, x->number);
    *p = (struct llm_prompt){.ids = x->ids, .n = (int64_t)n, .max_tokens = v->task->max_tokens, .samples = v->samples, .stops = g->stops,
                             .n_stops = g->n_stops, .user = x};
    p->sampling = llm_sampling_defaults;
    p->sampling.temperature = v->temperature;
    p->sampling.top_k = 0;
    p->sampling.top_p = 1;
    p->sampling.min_p = 0;
    p->sampling.seed = v->seed;
    p->sampling.prompt = llm_draw_prompt(id, strlen(id));
    return status == 0 ? 1 : -1;
}

/* The expected share of right answers among k of n samples, c of them right: 1 - C(n-c, k) / C(n, k). */
static double pass_at(int64_t n, int64_t c, int64_t k)
{
    double none = 1;
    for (int64_t i = n - c + 1; i <= n; i++) none *= i - k > 0 ? 1 - (double)k / (double)i : 0;
    return 1 - none;
}

static json_t *result_of_generation(const struct llm_eval *v, struct generated *x, bool first)
{
    json_t *o = begin_result(v, x->number);
    json_object_set_new(o, "gold", llm_json_text(x->gold.p, x->gold.n));
    json_object_set(o, "completions", x->completions);
    json_object_set(o, "answers", x->answers);
    json_object_set_new(o, "exact_match", json_integer(first));
    for (int64_t k = 1; k <= v->samples && v->samples > 1; k *= 2) {
        char key[32];
        snprintf(key, sizeof key, "pass@%" PRId64, k);
        json_object_set_new(o, key, json_real(pass_at(v->samples, x->right, k)));
    }
    return o;
}

static int completed(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct generation *g = arg;
    struct generated *x = c->prompt.user;
    struct llm_buf answer = {0};
    int got = llm_extract_answer(g->v->extract, c->text.bytes.p ? c->text.bytes.p : "", c->text.bytes.n, &answer, e);
    if (got < 0) return -1;
    bool right = got == 1 && answer.n == x->gold.n && memcmp(answer.p, x->gold.p, answer.n) == 0;
    json_array_append_new(x->completions, llm_json_text(c->text.bytes.p ? c->text.bytes.p : "", c->text.bytes.n));
    json_array_append_new(x->answers, got == 1 ? llm_json_text(answer.p, answer.n) : json_null());
    llm_buf_release(&answer);
    x->right += right;
    if (++x->done < c->prompt.samples) return 0;
    /* exact_match is of the first sample */
    const json_t *first = json_array_get(x->answers, 0);
    bool matches = json_is_string(first) && json_string_length(first) == x->gold.n && memcmp(json_string_value(first), x->gold.p, x->gold.n) == 0;
    json_t *o = result_of_generation(g->v, x, matches);
    generated_release(g, x);
    return o ? g->put(g->arg, o, e) : llm_no_memory(e, "a result");
}

static int run_generations(struct llm_eval *v, int64_t from, int64_t to, put_result *put, void *arg, struct llm_err *e)
{
    struct generation g = {.v = v, .next = from, .to = to, .put = put, .arg = arg};
    const json_t *stops = json_object_get(v->task->o, "stop");
    g.stops = llm_calloc(json_array_size(stops), sizeof *g.stops, "stop strings", e);
    if (!g.stops) return -1;
    for (size_t i = 0; i < json_array_size(stops); i++) {
        const char *text = json_string_value(json_array_get(stops, i));
        if (text && *text) g.stops[g.n_stops++] = text;
    }
    const struct llm_generate how = {.engine = v->engine, .parallel = v->parallel, .next = next_prompt, .done = completed, .arg = &g};
    int status = llm_generate(&how, e);
    while (g.live) generated_release(&g, g.live);
    free(g.stops);
    return status;
}

int llm_eval_run(struct llm_eval *v, int64_t from, int64_t to, put_result *put, void *arg, struct llm_err *e)
{
    int status = 0;
    if (v->task->kind == LLM_EVAL_GENERATE) return run_generations(v, from, to, put, arg, e);
    if (v->task->kind != LLM_EVAL_TEXT) return run_continuations(v, from, to, put, arg, e);
    for (int64_t i = from; i < to && status == 0; i++) status = llm_signal_caught() ? 1 : run_text(v, i, put, arg, e);
    return status;
}

int llm_eval_check(const struct llm_eval *v, struct llm_err *e)
{
    const struct llm_continuations *c = &v->continuations;
    if (c->tokens < 2) return 0;
    if (isnan(c->least) || isnan(c->greatest)) return llm_fail(e, LLM_EX_FAILURE, "the model's probabilities are no numbers");
    if (c->greatest - c->least > 1e-6) return 0;
    return llm_fail(e, LLM_EX_FAILURE, "a constant score: the model gives each of %" PRId64 " tokens the log-probability %.6f; nothing was measured",
                    c->tokens, c->least);
}
