/* The first place of a pass whose elements are not all finite. */
#include <math.h>
#include "model/forward/block.h"

struct search { char *name; size_t n; bool bad; };

static int look(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    struct search *f = arg;
    (void)e;
    for (int64_t r = 0; r < s->rows && !f->bad; r++) {
        for (int64_t i = 0; i < s->cols && !f->bad; i++) f->bad = !isfinite(s->x[r * s->stride + i]);
        if (f->bad) llm_place_print(s->place, f->name, f->n);
    }
    return 0;
}

bool llm_model_first_bad(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b, char *name, size_t n)
{
    struct search s = {name, n, false};
    struct llm_watcher all[LLM_MAX_STACKS * LLM_N_PLACES];
    struct llm_watch watch = {.v = all};
    for (int i = 0; i < LLM_MAX_STACKS * LLM_N_PLACES; i++) {
        enum llm_place_kind kind = (enum llm_place_kind)(i % LLM_N_PLACES);
        struct llm_place_range at = {kind, i / LLM_N_PLACES, llm_places[kind].in_layer ? 0 : -1, llm_places[kind].in_layer ? INT64_MAX : -1};
        all[watch.n++] = (struct llm_watcher){.at = at, .observe = look, .arg = &s};
    }
    struct llm_watch *before = c->watch;
    c->watch = &watch;
    struct llm_tensor *x = llm_model_forward(c, model, b);
    if (!s.bad && llm_config_has_head(&model->config) && !llm_ctx_failed(c)) llm_model_logits(c, model, x);
    c->watch = before;
    return s.bad && !llm_ctx_failed(c);
}
