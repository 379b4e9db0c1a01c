/* The layers of each stage of a pipeline, in chunks (train/share.h). */
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "model/spec/cost.h"
#include "train/share.h"

/* What of a model does not pass from one stage to the next; NULL: nothing. */
static const char *obstacle(const struct llm_config *c, const struct llm_declare *d)
{
    struct llm_config sees;
    if (c->num_encoder_layers > 0) return "an encoder";
    if (c->num_nextn_predict_layers > 0) return "layers that predict further";
    if (llm_config_sees(c, &sees)) return "pictures";
    if (llm_config_learns_latents(c)) return "learned latents";
    for (size_t i = 0; i < d->n; i++) {
        if (d->specs[i].running) return "statistics of batches";
        if (d->specs[i].sharers > 0) return "weights that layers share";
    }
    return NULL;
}

/* Adds the FLOPs of each layer to cost [layers], and those of what follows the layers to *head. 0 or -1. */
static int add_costs(const struct llm_config *c, int64_t context, double *cost, double *head, struct llm_err *e)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    if (llm_model_declare(c, &d, &layout, e) < 0) return -1;
    const char *with = obstacle(c, &d);
    const struct llm_stack *s = &layout->stacks[LLM_STACK_MAIN];
    for (size_t i = 0; i < d.n; i++) {
        const struct llm_param_spec *p = &d.specs[i];
        if (p->stack == LLM_STACK_MAIN && p->layer >= 0 && p->layer < s->n_layers) cost[p->layer] += llm_param_spec_flops(p);
        else *head += llm_param_spec_flops(p);
    }
    for (int64_t l = 0; l < s->n_layers; l++) {
        const struct llm_module *modules[] = {&s->layers[l].mixer, &s->layers[l].ffn};
        for (int i = 0; i < 2; i++) {
            if (modules[i]->kind && modules[i]->kind->extra_flops) cost[l] += modules[i]->kind->extra_flops(c, l, context);
        }
    }
    if (c->tie_word_embeddings) *head += 2 * (double)c->vocab_size * (double)c->hidden_size;
    llm_decoder_destroy(layout, 0);
    llm_declare_release(&d);
    return with ? llm_fail(e, LLM_EX_USAGE, "--shard: pp: expected a model of one stack of layers, found one with %s (%s)", with, c->model_type) : 0;
}

/* The division of n blocks whose most expensive chunk is the cheapest; of equal ones, that whose last chunks have the fewest blocks. before [n + 1]:
 * the cost of the blocks before each; worst, from [chunks, n + 1]: of the first i blocks in k + 1 chunks, the cost of the most expensive, and the
 * first block of the last. */
static void divide(const double *before, double head, int64_t n, int64_t chunks, double *worst, int64_t *from)
{
    for (int64_t k = 0; k < chunks; k++) {
        for (int64_t i = k + 1; i <= n; i++) {
            double *best = &worst[k * (n + 1) + i];
            *best = INFINITY;
            for (int64_t j = k; j < (k == 0 ? 1 : i); j++) {
                const double last = before[i] - before[j] + (k == chunks - 1 ? head : 0), others = k > 0 ? worst[(k - 1) * (n + 1) + j] : 0;
                const double most = last > others ? last : others;
                if (most > *best) continue;
                *best = most;
                from[k * (n + 1) + i] = j;
            }
        }
    }
}

int llm_stages_most(const struct llm_config *c, int64_t context, int64_t pp, int64_t vp, const int64_t *first, double *share, struct llm_err *e)
{
    double head = 0, most = 0, all = 0, *cost = llm_calloc((size_t)c->num_hidden_layers, sizeof *cost, "stages", e);
    const int got = cost ? add_costs(c, context / 2, cost, &head, e) : -1;
    for (int64_t k = 0; k < pp && got == 0; k++) {
        double stage = k == pp - 1 ? head : 0;
        for (int64_t j = k; j < pp * vp; j += pp) {
            for (int64_t l = first[j]; l < first[j + 1]; l++) stage += cost[l];
        }
        most = stage > most ? stage : most;
        all += stage;
    }
    *share = all > 0 ? most / all : 1;
    free(cost);
    return got;
}

int llm_stages_cut(const struct llm_config *c, int64_t context, int64_t pp, int64_t vp, int64_t *first, struct llm_err *e)
{
    const int64_t layers = c->num_hidden_layers, together = llm_config_together(c), n = (layers + together - 1) / together, chunks = pp * vp;
    if (chunks > n) {
        const char *what = vp > 1 ? "pp × vp" : "pp";
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected at most %s=%lld, since the model (%s) has %lld layers%s, found %s=%lld", what,
                        (long long)n, c->model_type, (long long)layers, together > 1 ? ", some of which need one another" : "", what,
                        (long long)chunks);
    }
    double head = 0, *cost = llm_calloc((size_t)layers, sizeof *cost, "stages", e), *before = llm_calloc((size_t)n + 1, sizeof *before, "stages", e);
    double *worst = llm_calloc((size_t)(chunks * (n + 1)), sizeof *worst, "stages", e);
    int64_t *from = llm_calloc((size_t)(chunks * (n + 1)), sizeof *from, "stages", e);
    int got = cost && before && worst && from ? add_costs(c, context / 2, cost, &head, e) : -1; /* a causal token sees half on average */
    for (int64_t i = 0; i < n && got == 0; i++) {
        before[i + 1] = before[i];
        for (int64_t l = i * together; l < (i + 1) * together && l < layers; l++) before[i + 1] += cost[l];
    }
    if (got == 0) divide(before, head, n, chunks, worst, from);
    first[chunks] = layers;
    for (int64_t k = chunks - 1, end = n; k >= 0 && got == 0; k--) {
        end = from[k * (n + 1) + end];
        first[k] = end * together;
    }
    free(cost);
    free(before);
    free(worst);
    free(from);
    return got;
}
