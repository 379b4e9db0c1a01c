/* --attribute: what each part of the model adds to the logit of a token. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "bin/infer/inside.h"
#include "infer/attribute.h"

struct run {
    struct llm_attribution parts;
    int32_t *targets;          /* [n] ids of --attribute; -1: the most likely token */
    size_t n;
    struct llm_table table;
    enum llm_table_form form;
};

/* The token that is written `text`: with --ids its id, else the first of the vocabulary with this text. */
static int find_target(const struct session *s, const char *text, int32_t *id, struct llm_err *e)
{
    const struct llm_tokenizer *t = s->model->tokenizer;
    int64_t vocab = s->model->config.vocab_size, number;
    if (strcmp(text, "top") == 0) {
        *id = -1;
        return 0;
    }
    if (s->a->ids) {
        if (llm_parse_int(text, &number) < 0 || number < 0 || number >= vocab) {
            return llm_fail(e, LLM_EX_USAGE, "--attribute: expected top or, with --ids, an id below %" PRId64 ", found '%s'", vocab, text);
        }
        *id = (int32_t)number;
        return 0;
    }
    if (!t) return llm_fail(e, EX_DATAERR, "%s: the model carries no tokenizer: name one with -T, or give token ids with --ids", s->a->model);
    for (int32_t i = 0; i < llm_tokenizer_vocab_size(t) && i < vocab; i++) {
        size_t n;
        const char *piece = llm_tokenizer_piece(t, i, &n);
        if (!piece || n != strlen(text) || memcmp(piece, text, n) != 0) continue;
        *id = i;
        return 0;
    }
    return llm_fail(e, LLM_EX_USAGE, "--attribute: expected top or the text of one token (\" cat\"), found '%s'", text);
}

static int32_t top_of(const float *logits, int64_t n)
{
    int64_t top = 0;
    for (int64_t i = 1; i < n; i++) {
        if (logits[i] > logits[top]) top = i;
    }
    return (int32_t)top;
}

static void line(struct run *r, const struct look *l, int64_t token, int32_t target, const char *part, double value)
{
    const struct llm_tokenizer *t = l->s->model->tokenizer;
    llm_table_printed(&r->table, (double)(l->base + token), LLM_NUMBER_INTEGER, 0);
    token_cells(&r->table, t, l->ids[token]);
    token_cells(&r->table, t, target);
    llm_table_text(&r->table, part);
    llm_table_number(&r->table, value, 7);
}

/* The contributions to one logit of what follows token `row` of the block. */
static int one_target(struct run *r, struct look *l, int64_t from, int64_t row, int32_t target, const float *logits, struct llm_err *e)
{
    double sum = 0;
    if (target < 0) target = top_of(logits, l->s->model->config.vocab_size);
    if (llm_attribution_read(&r->parts, &l->s->engine.ctx, &l->taking, row, target, e) < 0) return -1;
    for (size_t i = 0; i < r->parts.n; i++) {
        line(r, l, from + row, target, r->parts.v[i].name, r->parts.v[i].value);
        sum += r->parts.v[i].value;
    }
    line(r, l, from + row, target, "remainder", logits[target] - sum);
    line(r, l, from + row, target, "logit", logits[target]);
    return llm_table_flush(&r->table, r->form, l->s->out, e);
}

static int use_block(struct look *l, int64_t from, void *arg, struct llm_err *e)
{
    struct run *r = arg;
    struct llm_ctx *c = &l->s->engine.ctx;
    int status = 0;
    for (int64_t i = 0; i < l->n_picked && status == 0; i++) {
        size_t mark = llm_arena_mark(&c->acts);
        const float *logits = llm_attribution_logits(&r->parts, c, &l->taking, l->picked[i], e);
        if (!logits) return -1;
        for (size_t k = 0; k < r->n && status == 0; k++) status = one_target(r, l, from, l->picked[i], r->targets[k], logits, e);
        llm_arena_pop(&c->acts, mark);
    }
    return status;
}

int run_attribute(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    static const char *const columns[] = {"position", "id", "text", "target_id", "target_text", "part", "contribution", NULL};
    struct look l = {.s = s, .ids = ids, .n = (int64_t)n, .base = s->begin.n, .option = "attribute"};
    struct run r = {.n = s->a->attribute.n, .form = llm_table_form_for(llm_table_form(&s->a->common), s->a->common.output)};
    llm_table_init(&r.table, columns);
    int status = llm_attribution_begin(&r.parts, s->model, e);
    if (status < 0) llm_in(e, "%s", s->a->model);
    if (status == 0 && !(r.targets = llm_alloc(r.n, sizeof *r.targets, "tokens", e))) status = -1;
    for (size_t i = 0; i < r.n && status == 0; i++) status = find_target(s, s->a->attribute.v[i], &r.targets[i], e);
    if (status == 0) status = look_begin(&l, r.parts.places, r.parts.n_places, e);
    if (status == 0) status = look_read(&l, use_block, &r, e);
    if (status == 0) status = llm_table_write(&r.table, r.form, s->out, e);
    look_end(&l);
    llm_table_release(&r.table);
    llm_attribution_release(&r.parts);
    free(r.targets);
    return status;
}
