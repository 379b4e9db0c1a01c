/* --neurons: hidden units of a feed-forward part, with the tokens that their values favour and the places of texts at which they are largest. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bin/infer/inside.h"
#include "bin/infer/lines.h"
#include "infer/neurons.h"

enum { UNITS = 16 /* whose values are read at once */ };

struct run {
    struct session *s;
    struct llm_neuron_keys keys;
    struct llm_table table;
    enum llm_table_form form;
};
struct best { float value; int32_t id; };

/* "LAYER", "LAYER:7" or "LAYER:2-5". */
static int parse(struct run *r, struct llm_err *e)
{
    const struct args *a = r->s->a;
    const char *spec = a->neurons, *colon = strchr(spec, ':');
    char text[3][24] = {"", "0", ""};
    int64_t v[3] = {0, 0, 0};
    size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
    const char *dash = colon ? strchr(colon, '-') : NULL;
    bool bad = n >= sizeof *text;
    if (!bad) memcpy(text[0], spec, n);
    if (colon) {
        size_t wide = dash ? (size_t)(dash - colon - 1) : strlen(colon + 1);
        bad |= wide >= sizeof *text || (dash && strlen(dash + 1) >= sizeof *text);
        if (!bad) memcpy(text[1], colon + 1, wide + 1);
        if (!bad) text[1][wide] = 0;
        if (!bad) snprintf(text[2], sizeof text[2], "%s", dash ? dash + 1 : text[1]);
    }
    for (int i = 0; i < (colon ? 3 : 1); i++) bad |= llm_parse_int(text[i], &v[i]) < 0 || v[i] < 0;
    if (bad || (colon && v[2] < v[1])) {
        return llm_fail(e, LLM_EX_USAGE, "--neurons: expected LAYER, LAYER:7 or LAYER:2-5, found '%s'", spec);
    }
    if (llm_neurons_check(r->s->model, v[0], e) < 0) return llm_in(e, "--neurons");
    int64_t units = llm_neurons_count(r->s->model, v[0]);
    if (colon && v[2] >= units) return llm_fail(e, LLM_EX_USAGE, "--neurons: expected units below %" PRId64 ", found %" PRId64, units, v[2]);
    r->keys.layer = v[0];
    r->keys.first = colon ? v[1] : 0;
    r->keys.n = colon ? v[2] - v[1] + 1 : units;
    r->keys.top = a->neurons_top;
    return 0;
}

/* Reads one text; its number is in keys.text. Frees the ids. */
static int read_text(struct run *r, int32_t *ids, size_t n, struct llm_err *e)
{
    struct session *s = r->s;
    bool together = s->model->config.prefix_lm;
    struct llm_kv kv;
    llm_kv_init(&kv, &s->engine.pool);
    r->keys.ids = ids;
    int status = prompt_check(s, n, e);
    if (status == 0) status = llm_engine_prefill(&s->engine, &kv, ids, (int64_t)n, together, false, NULL, NULL, e);
    llm_kv_release(&kv);
    free(ids);
    return status;
}

static int read_lines(struct run *r, struct llm_err *e)
{
    struct session *s = r->s;
    struct lines in = {0};
    const char *text;
    size_t n, n_ids;
    int got = lines_open(&in, s->a->file ? s->a->file : "-", prompt_max_bytes(s), e) < 0 ? -1 : 1, status = 0;
    while (got > 0 && status == 0 && (got = lines_next(&in, &text, &n, e)) > 0) {
        int32_t *ids = NULL;
        n_ids = 0;
        r->keys.text = in.number;
        status = text ? prompt_encode(s, text, n, &ids, &n_ids, e) : lines_too_long(&in, e);
        if (status == 0 && n_ids > 0) status = read_text(r, ids, n_ids, e);
        else free(ids);
        if (status < 0) llm_in(e, "%s: line %" PRId64, llm_file_name(in.file), in.number);
    }
    lines_close(&in);
    return got < 0 ? -1 : status;
}

static int read_texts(struct run *r, const char *operand, struct llm_err *e)
{
    struct session *s = r->s;
    const struct llm_watcher w = llm_neuron_keys_watcher(&r->keys);
    struct llm_watcher *all = llm_alloc(s->editors.n + 1, sizeof *all, "observers", e);
    struct llm_watch before = s->watch;
    int32_t *ids = NULL;
    size_t n = 0;
    if (!all) return -1;
    if (s->editors.n > 0) memcpy(all, s->editors.v, s->editors.n * sizeof *all);
    all[s->editors.n] = w;
    s->watch = (struct llm_watch){.v = all, .n = s->editors.n + 1};
    s->engine.ctx.watch = &s->watch;
    r->keys.text = 1;
    int status = s->a->lines ? read_lines(r, e) : prompt_read(s, operand, &ids, &n, e);
    if (status == 0 && !s->a->lines) status = read_text(r, ids, n, e);
    s->watch = before;
    s->engine.ctx.watch = before.n > 0 ? &s->watch : NULL;
    free(all);
    return status;
}

static void line_begin(struct run *r, int64_t unit, const char *part, int64_t rank, double score, int32_t id)
{
    llm_table_printed(&r->table, (double)r->keys.layer, LLM_NUMBER_INTEGER, 0);
    llm_table_printed(&r->table, (double)(r->keys.first + unit), LLM_NUMBER_INTEGER, 0);
    llm_table_text(&r->table, part);
    llm_table_printed(&r->table, (double)rank, LLM_NUMBER_INTEGER, 0);
    llm_table_number(&r->table, score, 6);
    token_cells(&r->table, r->s->model->tokenizer, id);
}

static void put_value(struct run *r, int64_t unit, const float *logits, struct best *best)
{
    int64_t n = 0, vocab = r->s->model->config.vocab_size;
    for (int64_t i = 0; i < vocab; i++) {
        int64_t at = n < r->keys.top ? n : r->keys.top;
        while (at > 0 && logits[i] > best[at - 1].value) at--;
        if (at == r->keys.top) continue;
        if (n < r->keys.top) n++;
        memmove(best + at + 1, best + at, (size_t)(n - 1 - at) * sizeof *best);
        best[at] = (struct best){logits[i], (int32_t)i};
    }
    for (int64_t k = 0; k < n; k++) {
        line_begin(r, unit, "value", k + 1, best[k].value, best[k].id);
        for (int i = 0; i < 3; i++) llm_table_text(&r->table, NULL);
    }
}

static void put_key(struct run *r, int64_t unit)
{
    for (int64_t k = 0; k < r->keys.n_hits[unit]; k++) {
        const struct llm_neuron_hit *hit = &r->keys.hits[unit * r->keys.top + k];
        line_begin(r, unit, "key", k + 1, hit->value, hit->ids[hit->n_ids - 1]);
        llm_table_printed(&r->table, (double)hit->text, LLM_NUMBER_INTEGER, 0);
        llm_table_printed(&r->table, hit->position, LLM_NUMBER_INTEGER, 0);
        tokens_cell(&r->table, r->s->model->tokenizer, hit->ids, hit->n_ids);
    }
}

static int put_all(struct run *r, struct llm_err *e)
{
    struct session *s = r->s;
    struct llm_ctx *c = &s->engine.ctx;
    int64_t vocab = s->model->config.vocab_size;
    struct best *best = llm_alloc((size_t)r->keys.top, sizeof *best, "tokens", e);
    int status = best ? 0 : -1;
    for (int64_t at = 0, n; at < r->keys.n && status == 0; at += n) {
        n = r->keys.n - at < UNITS ? r->keys.n - at : UNITS;
        llm_ctx_reset(c);
        const float *logits = llm_neuron_values(c, s->model, r->keys.layer, r->keys.first + at, n, e);
        if (!logits) status = -1;
        for (int64_t i = 0; i < n && status == 0; i++) {
            put_value(r, at + i, logits + i * vocab, best);
            put_key(r, at + i);
        }
        if (status == 0) status = llm_table_flush(&r->table, r->form, s->out, e);
    }
    free(best);
    return status;
}

int run_neurons(struct session *s, const char *operand, struct llm_err *e)
{
    static const char *const columns[] = {"layer", "unit", "part", "rank", "score", "id", "text", "line", "position", "context", NULL};
    struct run r = {.s = s, .form = llm_table_form_for(llm_table_form(&s->a->common), s->a->common.output)};
    llm_table_init(&r.table, columns);
    int status = parse(&r, e);
    if (status == 0) status = llm_neuron_keys_begin(&r.keys, e);
    if (status == 0) status = read_texts(&r, operand, e);
    if (status == 0) status = put_all(&r, e);
    if (status == 0) status = llm_table_write(&r.table, r.form, s->out, e);
    llm_table_release(&r.table);
    llm_neuron_keys_release(&r.keys);
    return status;
}
