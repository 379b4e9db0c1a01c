/* --score: a table of the prompt's tokens. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "bin/infer/infer.h"
#include "bin/infer/inside.h"
#include "infer/score.h"
#include "io/table.h"

struct run {
    struct session *s;
    const int32_t *ids;
    struct llm_table table;
    enum llm_table_form form;
};

enum { ROWS = 256 }; /* are written at once */

static int line(void *arg, int64_t i, const struct llm_scored *scored, struct llm_err *e)
{
    struct run *r = arg;
    token_cells(&r->table, r->s->model->tokenizer, r->ids[i]);
    llm_table_printed(&r->table, scored->log_prob, LLM_NUMBER_FIXED, 6);
    if (r->s->a->entropy) llm_table_printed(&r->table, scored->entropy, LLM_NUMBER_FIXED, 6);
    return r->table.n_cells < ROWS * r->table.n_columns ? 0 : llm_table_flush(&r->table, r->form, r->s->out, e);
}

int run_score(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct llm_kv *begin = s->begin.n > 0 ? &s->begin : NULL;
    int32_t last = begin ? begin->ids[begin->n - 1] : 0;
    size_t kept = begin != NULL;
    int status = begin ? llm_engine_rewind(&s->engine, begin, begin->n - 1, e) : 0;
    int32_t *all = status == 0 ? llm_alloc(n + 1, sizeof *all, "tokens", e) : NULL;
    if (!all) return status ? status : -1;
    all[0] = last; /* of the cache, read again: it says how likely the first new one is */
    if (n > 0) memcpy(all + kept, ids, n * sizeof *ids);
    bool longer = (int64_t)(n + kept) > s->engine.context && !begin;
    if (longer && s->model->rope_context > 0) { /* windows would have other positions than -c for the whole text */
        free(all);
        return llm_engine_too_long(&s->engine, (int64_t)(n + kept), e) < 0 ? llm_in(e, "prompt") : 0;
    }
    if (longer && inside_whole(s, (int64_t)n, e) < 0) {
        free(all);
        return -1;
    }
    if (longer) {
        llm_note("%zu tokens, more than the context of %" PRId64 ": scored in windows that overlap by half", n, s->engine.context);
    }
    if (s->model->rope_context > 0) llm_note("rotary positions are scaled for a context of %" PRId64 " tokens (-c)", s->model->rope_context);
    static const char *const columns[] = {"id", "text", "log_prob", NULL}, *const with_entropy[] = {"id", "text", "log_prob", "entropy", NULL};
    struct run r = {.s = s, .ids = all, .form = llm_table_form_for(llm_table_form(&s->a->common), s->a->common.output)};
    llm_table_init(&r.table, s->a->entropy ? with_entropy : columns);
    r.table.no_heading = r.form == LLM_TABLE_TSV;
    const struct llm_scorer scoring = {&s->engine, begin, s->a->entropy, line, &r};
    status = llm_score(&scoring, all, (int64_t)(n + kept), e);
    if (status == 0) status = llm_table_write(&r.table, r.form, s->out, e);
    llm_table_release(&r.table);
    free(all);
    return status;
}
