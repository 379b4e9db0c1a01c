/* --embed, --classify or --rerank with --jsonl: a text a line, {"id": …, "prompt": …} or {"id": …, "ids": […]}; a vector, a class or a score a
 * line. Lines are read ahead, so that an encoder has a whole pass to do. The lines of --rerank are written at the end, from the best score down. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/infer/batch.h"
#include "infer/classify.h"
#include "infer/embed.h"

enum { AHEAD = 512, PASSES = 8 }; /* lines, and passes of -b tokens, that are read before they are computed */

/* A line of --rerank, which waits for its place. */
struct ranked {
    double score;
    int64_t at;              /* its number among the lines that were scored */
    char *line;              /* owned; with its new line */
    size_t n;
};

struct run {
    struct session *s;
    struct lines in;
    struct batch batch;
    json_t *objects[AHEAD];  /* members of the line that are copied to the output; if the line was refused, its answer */
    int64_t vector_of[AHEAD]; /* the line's number among the texts; -1: the line was refused */
    int64_t numbers[AHEAD];  /* of the lines in the input */
    int64_t n;
    int64_t lengths[AHEAD];  /* number of tokens of each text */
    int64_t n_texts;
    int32_t *ids;            /* the tokens of all texts, one text after another */
    size_t n_ids, room;
    int32_t *kinds;          /* the token type of each token: 1 in the second of two texts */
    size_t kinds_room;
    float *vectors;          /* [AHEAD, llm_config_vector] */
    double *classes;         /* [num_labels] */
    struct llm_buf out;
    struct ranked *ranked;   /* of --rerank */
    size_t n_ranked, ranked_room;
};

/* Reads a second text, for models that compare two: "pair" is its text, or "second" the index in "ids" where it begins. *second: that index. */
static int take_second(struct run *r, json_t *o, int32_t **ids, size_t *n, size_t *second, struct llm_err *e)
{
    json_t *pair = json_object_get(o, "pair");
    int64_t place = (int64_t)*n;
    int32_t *more = NULL;
    size_t n_more = 0;
    if (llm_json_int(o, "second", 0, (int64_t)*n, &place, e) < 0) return -1;
    *second = (size_t)place;
    if (!pair) return 0;
    if (!json_is_string(pair)) return llm_fail(e, EX_DATAERR, "\"pair\": expected a string");
    if (prompt_encode(r->s, json_string_value(pair), json_string_length(pair), &more, &n_more, e) < 0) return llm_in(e, "\"pair\"");
    /* a second text that begins with the same special token loses it: the pair has one beginning */
    size_t skip = n_more > 0 && *n > 0 && more[0] == (*ids)[0] && llm_tokenizer_is_special(r->s->model->tokenizer, more[0]);
    int32_t *both = llm_alloc(*n + n_more, sizeof *both, "two texts", e);
    if (both) {
        memcpy(both, *ids, *n * sizeof *both);
        memcpy(both + *n, more + skip, (n_more - skip) * sizeof *both);
        free(*ids);
        *ids = both;
        *n += n_more - skip;
    }
    free(more);
    return both ? 0 : -1;
}

/* --rerank: the query becomes the first text of a pair, and the line's text the second. "text" stays in the line. */
static int take_passage(const struct run *r, json_t *o, struct llm_err *e)
{
    json_t *prompt = json_object_get(o, "prompt"), *text = prompt ? prompt : json_object_get(o, "text");
    if (json_object_get(o, "pair") || json_object_get(o, "ids")) {
        return llm_fail(e, EX_DATAERR, "--rerank pairs a text with the query: expected no \"pair\", no \"ids\"");
    }
    if (!json_is_string(text)) return llm_fail(e, EX_DATAERR, "expected \"text\" (a string)");
    bool bad = json_object_set(o, "pair", text) < 0 || json_object_set_new(o, "prompt", json_string(r->s->a->rerank)) < 0;
    return bad ? llm_no_memory(e, "a pair of texts") : 0;
}

static int take_object(struct run *r, json_t *o, struct llm_err *e)
{
    int32_t *ids = NULL;
    size_t n_ids = 0, second = 0;
    int status = json_is_object(o) ? 0 : llm_fail(e, EX_DATAERR, "expected an object {\"id\": …, \"prompt\": …}");
    if (status == 0 && r->s->a->rerank) status = take_passage(r, o, e);
    if (status == 0) status = prompt_take(r->s, o, r->in.number, &ids, &n_ids, e);
    if (status == 0 && json_object_get(o, "adapter") && !json_is_null(json_object_get(o, "adapter"))) {
        status = llm_fail(e, EX_DATAERR, "\"adapter\": --embed and --classify have the adapters of --adapter for all lines");
    }
    if (status == 0) status = prompt_check(r->s, n_ids, e);
    if (status == 0) status = take_second(r, o, &ids, &n_ids, &second, e);
    if (status == 0) status = prompt_check(r->s, n_ids, e);
    if (status == 0) status = llm_grow((void **)&r->ids, &r->room, r->n_ids + n_ids, sizeof *ids, e);
    if (status == 0) status = llm_grow((void **)&r->kinds, &r->kinds_room, r->n_ids + n_ids, sizeof *ids, e);
    if (status == 0) {
        bool kinds = r->s->model->config.type_vocab_size > 1;
        for (size_t i = 0; i < n_ids; i++) r->kinds[r->n_ids + i] = kinds && i >= second;
        memcpy(r->ids + r->n_ids, ids, n_ids * sizeof *ids);
        r->n_ids += n_ids;
        r->lengths[r->n_texts++] = (int64_t)n_ids;
        json_object_del(o, "pair");
        json_object_del(o, "second");
    }
    free(ids);
    return status;
}

static int take_line(struct run *r, const char *text, size_t n, struct llm_err *e)
{
    struct llm_err why = {0};
    json_t *o = text ? llm_json_parse(text, n, &why) : NULL;
    if (!text) lines_too_long(&r->in, &why);
    int64_t vector = r->n_texts;
    if (!o || take_object(r, o, &why) < 0) {
        json_t *answer = why.status == EX_DATAERR ? lines_refuse(&r->in, o, &why, e) : NULL;
        json_decref(o);
        if (!answer && why.status != EX_DATAERR) *e = why;
        if (!answer) return llm_in(e, "%s: line %" PRId64, llm_file_name(r->in.file), r->in.number);
        o = answer;
        vector = -1;
    }
    r->vector_of[r->n] = vector;
    r->numbers[r->n] = r->in.number;
    r->objects[r->n++] = o;
    return 0;
}

/* "label", "probabilities" of a text's vector. */
static int put_classes(struct run *r, json_t *o, const float *v, struct llm_err *e)
{
    const struct llm_model *m = r->s->model;
    int64_t best = 0;
    if (llm_classify(&r->s->engine, v, r->classes, e) < 0) return -1;
    json_t *all = json_object();
    int bad = !all;
    for (int64_t i = 0; i < m->config.num_labels; i++) {
        bad |= json_object_set_new(all, llm_labels_name(&m->labels, i), json_real(r->classes[i]));
        best = r->classes[i] > r->classes[best] ? i : best;
    }
    bad |= json_object_set_new(o, "label", json_string(llm_labels_name(&m->labels, best))) | json_object_set_new(o, "probabilities", all);
    return bad ? llm_no_memory(e, "a line of output") : 0;
}

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score) : (x->at > y->at) - (x->at < y->at);
}

/* "score" of a pair's vector; the line waits for its place. */
static int keep_ranked(struct run *r, json_t *o, const float *v, struct llm_err *e)
{
    double score;
    if (llm_score_reward(&r->s->engine, v, &score, e) < 0) return -1;
    if (!isfinite(score)) return llm_fail(e, EX_DATAERR, "the model's score is not a finite number");
    if (json_object_set_new(o, "score", json_real(score)) < 0) return llm_no_memory(e, "a line of output");
    if (llm_json_dump(o, &r->out, e) < 0 || llm_buf_put(&r->out, "\n", 1, e) < 0) return -1;
    if (llm_grow((void **)&r->ranked, &r->ranked_room, r->n_ranked + 1, sizeof *r->ranked, e) < 0) return -1;
    r->ranked[r->n_ranked] = (struct ranked){score, (int64_t)r->n_ranked, r->out.p, r->out.n};
    r->n_ranked++;
    r->out = (struct llm_buf){0};
    return 0;
}

static int write_ranked(struct run *r, struct llm_err *e)
{
    int status = 0;
    if (r->n_ranked > 0) qsort(r->ranked, r->n_ranked, sizeof *r->ranked, by_score);
    for (size_t i = 0; i < r->n_ranked && status == 0; i++) status = llm_output_write(r->s->out, r->ranked[i].line, r->ranked[i].n, e);
    return status;
}

static int write_refusal(struct run *r, const json_t *answer, struct llm_err *e)
{
    r->out.n = 0;
    if (llm_json_dump(answer, &r->out, e) < 0 || llm_buf_put(&r->out, "\n", 1, e) < 0) return -1;
    return llm_output_write(r->s->out, r->out.p, r->out.n, e);
}

static bool is_finite(const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(v[i])) return false;
    }
    return true;
}

/* A line whose vector JSON cannot hold. */
static int refuse_vector(struct run *r, int64_t i, struct llm_err *e)
{
    struct llm_err why = {0};
    const int64_t read = r->in.number;
    llm_fail(&why, LLM_EX_FAILURE, "the text's vector is not finite");
    r->in.number = r->numbers[i];
    json_t *answer = lines_refuse(&r->in, r->objects[i], &why, e);
    r->in.number = read;
    int status = answer ? write_refusal(r, answer, e) : -1;
    json_decref(answer);
    return status;
}

/* "id" first, then what the line carried, then the results. */
static int write_line(struct run *r, int64_t i, struct llm_err *e)
{
    int64_t width = llm_config_vector(&r->s->model->config), text = r->vector_of[i];
    float *v = r->vectors + text * width;
    int64_t kept = embed_dims(r->s);
    if (!is_finite(v, width)) return refuse_vector(r, i, e);
    if (r->s->a->embed) llm_embed_normalize(v, kept, r->s->normalize);
    json_t *o = json_object();
    r->out.n = 0;
    int bad = !o || json_object_set(o, "id", json_object_get(r->objects[i], "id")) < 0 || json_object_update(o, r->objects[i]) < 0
              || (r->s->model->rope_context > 0 && json_object_set_new(o, "rope_context", json_integer(r->s->model->rope_context)) < 0)
              || json_object_set_new(o, "prompt_tokens", json_integer(r->lengths[text])) < 0;
    if (!bad && r->s->a->rerank) {
        bad = keep_ranked(r, o, v, e);
        json_decref(o);
        return bad;
    }
    bad = bad ? llm_no_memory(e, "a line of output") : r->s->a->classify && put_classes(r, o, v, e) < 0 ? -1 : llm_json_dump(o, &r->out, e);
    json_decref(o);
    if (bad) return -1;
    if (r->s->a->classify) {
        return llm_buf_put(&r->out, "\n", 1, e) < 0 ? -1 : llm_output_write(r->s->out, r->out.p, r->out.n, e);
    }
    r->out.n--; /* the object goes on: its brace comes at the end */
    if (llm_buf_printf(&r->out, e, ",\"embedding\":") < 0) return -1;
    for (int64_t k = 0; k < kept; k++) {
        if (llm_buf_printf(&r->out, e, "%c%.9g", k ? ',' : '[', (double)v[k]) < 0) return -1;
    }
    return llm_buf_printf(&r->out, e, "]}\n") < 0 ? -1 : llm_output_write(r->s->out, r->out.p, r->out.n, e);
}

static void forget(struct run *r)
{
    for (int64_t i = 0; i < r->n; i++) json_decref(r->objects[i]);
    r->n = r->n_texts = 0;
    r->n_ids = 0;
}

static int flush(struct run *r, struct llm_err *e)
{
    int status = 0;
    if (r->n_texts > 0) status = llm_embed_texts(&r->s->engine, r->ids, r->kinds, r->lengths, r->n_texts, r->s->pool, r->vectors, e);
    batch_hide(&r->batch);
    for (int64_t i = 0; i < r->n && status == 0; i++) {
        status = r->vector_of[i] < 0 ? write_refusal(r, r->objects[i], e) : write_line(r, i, e);
        if (status == 0) batch_item(&r->batch, r->vector_of[i] < 0 ? 0 : r->lengths[r->vector_of[i]], 0);
    }
    forget(r);
    return status ? status : llm_output_flush(r->s->out, e);
}

/* Whether the lines read fill the passes, or the next line is not available yet. */
static bool enough(const struct run *r)
{
    bool waiting = r->in.text.n == r->in.at && !llm_file_ready(r->in.file);
    return r->n == AHEAD || (int64_t)r->n_ids >= PASSES * r->s->engine.batch || waiting;
}

static int each_line(struct run *r, struct llm_err *e)
{
    const char *text;
    size_t n;
    int got, status = 0;
    while (status == 0 && (got = lines_next(&r->in, &text, &n, e)) != 0) {
        if (got < 0) return -1;
        if (take_line(r, text, n, e) < 0) return -1;
        if (enough(r)) status = flush(r, e);
    }
    return status == 0 && r->n > 0 ? flush(r, e) : status;
}

/* sentence-transformers names prefixes of texts in this file, by the words of its own "prompts". */
static const char prompts_file[] = "config_sentence_transformers.json";
enum { MAX_PROMPTS = 1 << 20 };

int embed_prefix_open(struct session *s, struct llm_err *e)
{
    static const char *const names[2][4] = {{"query", NULL}, {"passage", "document", "corpus", NULL}};
    const struct args *a = s->a;
    char path[4096];
    if (a->embed_prefix) return llm_buf_put(&s->prefix, a->embed_prefix, strlen(a->embed_prefix), e);
    if (a->embed_as < 0) return 0;
    if (snprintf(path, sizeof path, "%s/%s", a->model, prompts_file) >= (int)sizeof path) {
        return llm_fail(e, EX_NOINPUT, "%s: name too long", a->model);
    }
    json_t *o = llm_json_load(path, MAX_PROMPTS, e);
    if (!o) return llm_in(e, "--embed-as");
    const json_t *prompt = NULL;
    for (int i = 0; !prompt && names[a->embed_as][i]; i++) prompt = json_object_get(json_object_get(o, "prompts"), names[a->embed_as][i]);
    int status = json_is_string(prompt) ? llm_buf_put(&s->prefix, json_string_value(prompt), json_string_length(prompt), e)
                                        : llm_fail(e, EX_DATAERR, "%s: expected the prefix \"%s\" in \"prompts\", found none", path,
                                                   names[a->embed_as][0]);
    json_decref(o);
    return status;
}

int64_t embed_dims(const struct session *s)
{
    return s->a->dims > 0 ? s->a->dims : llm_config_vector(&s->model->config);
}

int run_embed_lines(struct session *s, const char *operand, struct llm_err *e)
{
    struct run r = {.s = s};
    r.vectors = llm_alloc((size_t)llm_config_vector(&s->model->config), AHEAD * sizeof *r.vectors, "embeddings", e);
    r.classes = llm_alloc((size_t)s->model->config.num_labels + 1, sizeof *r.classes, "classes", e);
    const char *path = s->a->file ? s->a->file : operand ? operand : "-";
    bool begun = r.vectors && r.classes && lines_open(&r.in, path, prompt_max_bytes(s), e) == 0;
    if (begun) batch_begin(&r.batch, s, &r.in);
    int status = begun ? each_line(&r, e) : -1;
    if (status == 0) status = write_ranked(&r, e);
    if (begun) batch_end(&r.batch);
    forget(&r);
    for (size_t i = 0; i < r.n_ranked; i++) free(r.ranked[i].line);
    free(r.ranked);
    if (status == 0) lines_summarise(&r.in, &s->refused);
    lines_close(&r.in);
    llm_buf_release(&r.out);
    free(r.vectors);
    free(r.classes);
    free(r.ids);
    free(r.kinds);
    return status;
}
