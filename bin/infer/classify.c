/* --classify: a prompt's classes, the most likely first. */
#include <stdlib.h>
#include "bin/infer/infer.h"
#include "infer/classify.h"
#include "infer/embed.h"
#include "io/table.h"

struct ranked { double p; int64_t i; };

static int by_probability(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p) - (x->p > y->p) : (x->i > y->i) - (x->i < y->i);
}

const struct llm_labels *classes_names(const struct session *s) { return s->a->labels.n > 0 ? &s->zero_shot.labels : &s->model->labels; }

int classes_put(struct session *s, struct llm_table *t, int64_t picture, const double *p, struct llm_err *e)
{
    const struct llm_labels *names = classes_names(s);
    int64_t n = llm_labels_count(names);
    struct ranked *all = llm_alloc((size_t)n, sizeof *all, "classes", e);
    if (!all) return -1;
    for (int64_t i = 0; i < n; i++) all[i] = (struct ranked){p[i], i};
    qsort(all, (size_t)n, sizeof *all, by_probability);
    for (int64_t i = 0; i < n; i++) {
        if (picture > 0) llm_table_count(t, (double)picture);
        llm_table_text(t, llm_labels_name(names, all[i].i));
        llm_table_printed(t, all[i].p, LLM_NUMBER_FIXED, 6);
    }
    free(all);
    return 0;
}

enum llm_table_form classes_begin(const struct session *s, struct llm_table *t, bool pictures)
{
    static const char *const columns[] = {"picture", "label", "probability", NULL};
    enum llm_table_form form = llm_table_form_for(llm_table_form(&s->a->common), s->a->common.output);
    llm_table_init(t, columns + (pictures ? 0 : 1));
    t->no_heading = form == LLM_TABLE_TSV;
    return form;
}


int run_classify(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct llm_kv kv;
    if (n == 0) return llm_fail(e, EX_DATAERR, "the prompt is empty: there is nothing to tell the class of");
    float *v = llm_alloc((size_t)s->model->config.hidden_size, sizeof *v, "a text", e);
    double *p = v ? llm_alloc((size_t)s->model->config.num_labels, sizeof *p, "classes", e) : NULL;
    llm_kv_init(&kv, &s->engine.pool);
    int status = p ? llm_embed(&s->engine, &kv, ids, (int64_t)n, s->pool, v, e) : -1;
    struct llm_table t;
    enum llm_table_form form = classes_begin(s, &t, false);
    if (status == 0) status = llm_classify(&s->engine, v, p, e);
    if (status == 0) status = classes_put(s, &t, 0, p, e);
    if (status == 0) status = llm_table_write(&t, form, s->out, e);
    llm_table_release(&t);
    llm_kv_release(&kv);
    free(v);
    free(p);
    return status;
}
