/* Pairs of PEFT's target_parameters: of the experts' matrices of a layer, which transformers 5 has as one tensor [experts, out, in]. Of its pair A is
 * [experts · rank, in], expert after expert, and B [out, rank · experts], for each column of a pair those of all experts. The tensor of gates and
 * ups, gates first, has one pair: the matrices of an expert get the same A. */
#include <stdlib.h>
#include <string.h>
#include "model/weights/lora_internal.h"

void llm_lora_experts_release(struct llm_lora_experts *x)
{
    for (size_t i = 0; i < x->n; i++) {
        free(x->v[i].half[0]);
        free(x->v[i].half[1]);
    }
    free(x->v);
}

/* The layer of a module "…layers.N.mlp.experts", perhaps with ".base_layer" where another tensor of the experts has a pair too. -1: it is none. */
static int layer_of(const char *module, size_t n)
{
    static const char base[] = ".base_layer", end[] = ".mlp.experts", layers[] = "layers.";
    while (n > strlen(base) && memcmp(module + n - strlen(base), base, strlen(base)) == 0) n -= strlen(base);
    const char *at = memmem(module, n, layers, strlen(layers));
    if (!at) return -1;
    const char *digits = at + strlen(layers);
    const size_t n_digits = strspn(digits, "0123456789");
    if (n_digits == 0 || n_digits > 6 || digits + n_digits + strlen(end) != module + n) return -1;
    return memcmp(digits + n_digits, end, strlen(end)) == 0 ? (int)strtol(digits, NULL, 10) : -1;
}

int llm_lora_experts_add(struct llm_lora_experts *x, const struct llm_header *h, const struct llm_entry *t, struct llm_err *e)
{
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight"};
    const size_t n = strlen(t->name);
    for (int half = 0; half < 2; half++) {
        if (n <= strlen(ends[half]) || strcmp(t->name + n - strlen(ends[half]), ends[half]) != 0) continue;
        const size_t n_module = n - strlen(ends[half]);
        const int layer = layer_of(t->name, n_module);
        size_t i = 0;
        if (layer < 0) return 0;
        if (!x->v && !(x->v = llm_calloc(h->n_entries, sizeof *x->v, "an adapter", e))) return -1;
        while (i < x->n && (x->v[i].n_module != n_module || memcmp(x->v[i].module, t->name, n_module) != 0)) i++;
        if (i == x->n) x->v[x->n++] = (struct llm_lora_stack){.module = t->name, .n_module = n_module, .layer = layer};
        x->v[i].entry[half] = t;
        return 1;
    }
    return 0;
}

/* Whether the pair is of the tensor that has the matrix p. */
static bool fits(const struct llm_lora_stack *s, const struct llm_model *m, const struct llm_param *p)
{
    const struct llm_entry *a = s->entry[0], *b = s->entry[1];
    const int64_t experts = m->config.num_experts, rows = p->spec->stem == LLM_STEM_EXPERT_DOWN ? p->weight.n : 2 * p->weight.n;
    return a && b && a->n_dims == 2 && b->n_dims == 2 && a->shape[1] == p->weight.k && b->shape[0] == rows && b->shape[1] == a->shape[0]
           && a->shape[0] >= experts && a->shape[0] % experts == 0 && a->shape[0] / experts <= LLM_LORA_MAX_RANK;
}

/* Reads both halves, and lets go of those of earlier layers. */
static int read_stack(struct llm_lora_experts *x, struct llm_lora_stack *s, struct llm_checkpoint *f, struct llm_err *e)
{
    for (size_t i = 0; i < x->n; i++) {
        for (int half = 0; half < 2 && x->v[i].layer < s->layer; half++) {
            free(x->v[i].half[half]);
            x->v[i].half[half] = NULL;
        }
    }
    for (int half = 0; half < 2; half++) {
        const struct llm_entry *t = s->entry[half];
        if (s->half[half]) continue;
        s->half[half] = llm_alloc((size_t)(t->shape[0] * t->shape[1]), sizeof *s->half[half], t->name, e);
        if (!s->half[half] || llm_lora_read(f, t, 2, (int64_t[]){t->shape[0], t->shape[1]}, s->half[half], e) < 0) return -1;
    }
    return 0;
}

int llm_lora_experts_pair(struct llm_lora_experts *x, struct llm_lora *l, struct llm_model *m, struct llm_checkpoint *f, struct llm_param *p,
                          struct llm_err *e)
{
    const enum llm_stem stem = p->spec->stem;
    const int64_t expert = p->spec->expert, n = p->weight.n, k = p->weight.k;
    const bool routed = stem == LLM_STEM_EXPERT_GATE || stem == LLM_STEM_EXPERT_UP || stem == LLM_STEM_EXPERT_DOWN;
    if (!routed || expert < 0 || p->spec->stack != LLM_STACK_MAIN) return 0;
    for (size_t i = 0; i < x->n; i++) {
        struct llm_lora_stack *s = &x->v[i];
        if (s->layer != p->spec->layer || !fits(s, m, p)) continue;
        if (l->dora) return llm_fail(e, EX_UNAVAILABLE, "tensor '%s': expected no use_dora with pairs of all experts", s->entry[0]->name);
        const int64_t all = s->entry[0]->shape[0], rank = all / m->config.num_experts, first = stem == LLM_STEM_EXPERT_UP ? n : 0;
        struct llm_lora_pair *q = llm_lora_add_pair(l, m, p, rank, e);
        if (!q || read_stack(x, s, f, e) < 0) return -1;
        float *a = (float *)(uintptr_t)q->a.weight.data, *b = (float *)(uintptr_t)q->b.weight.data;
        memcpy(a, s->half[0] + expert * rank * k, (size_t)(rank * k) * sizeof *a);
        for (int64_t o = 0; o < n; o++)
            for (int64_t c = 0; c < rank; c++) b[o * rank + c] = s->half[1][(first + o) * all + c * m->config.num_experts + expert];
        s->used = true;
        return 1;
    }
    return 0;
}

int llm_lora_experts_check(const struct llm_lora_experts *x, const struct llm_model *m, struct llm_err *e)
{
    for (size_t i = 0; i < x->n; i++) {
        if (x->v[i].used) continue;
        return llm_fail(e, EX_DATAERR, "'%.*s': expected lora_A and lora_B of the %lld experts of a layer, gates with ups or downs",
                        (int)x->v[i].n_module, x->v[i].module, (long long)m->config.num_experts);
    }
    return 0;
}
