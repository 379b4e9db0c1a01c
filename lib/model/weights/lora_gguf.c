/* llama.cpp's GGUF files of adapters: general.type adapter, adapter.type lora, adapter.lora.alpha, and for each matrix NAME of the model NAME.lora_a
 * [rank, k] and NAME.lora_b [n, rank] (formats/adapter.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/config/arch.h"
#include "model/weights/gguf_names.h"
#include "model/weights/lora_internal.h"

static const struct llm_entry *find(const struct llm_checkpoint *f, const char *name, const char *end)
{
    char text[LLM_LORA_NAME];
    snprintf(text, sizeof text, "%.150s%s", name, end);
    return llm_header_find(llm_checkpoint_header(f), text);
}

/* The part of a stacked tensor [parts, rows, cols], as a tensor of its own. */
static int read_part(struct llm_checkpoint *f, const struct llm_entry *t, int64_t part, int64_t parts, int64_t rows, int64_t cols, float *out,
                     struct llm_err *e)
{
    float *all = llm_alloc((size_t)(parts * rows * cols), sizeof *all, t->name, e);
    int r = all ? llm_lora_read(f, t, 3, (int64_t[]){parts, rows, cols}, all, e) : -1;
    if (r == 0) memcpy(out, all + part * rows * cols, (size_t)(rows * cols) * sizeof *out);
    free(all);
    return r;
}

static int read_pair(struct llm_lora *l, struct llm_model *m, struct llm_checkpoint *f, const struct llm_param_spec *s, struct llm_param *p,
                     const struct llm_entry *a, struct llm_err *e)
{
    const struct llm_entry *b = find(f, s->name, ".lora_b");
    int rank_at = s->n_parts ? 1 : 0;
    if (!b) return llm_fail(e, EX_DATAERR, "tensor '%s': expected its lora_b too, found none", a->name);
    if (!p || !llm_lora_can_adapt(p->spec))
        return llm_fail(e, EX_UNAVAILABLE, "tensor '%s': expected an adapter of a matrix that is multiplied", a->name);
    if (a->n_dims != 2 + rank_at || a->shape[rank_at] < 1 || a->shape[rank_at] > LLM_LORA_MAX_RANK) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected [%srank, %lld]", a->name, s->n_parts ? "experts, " : "", (long long)p->weight.k);
    }
    struct llm_lora_pair *q = llm_lora_add_pair(l, m, p, a->shape[rank_at], e);
    if (!q) return -1;
    float *down = (float *)(uintptr_t)q->a.weight.data, *up = (float *)(uintptr_t)q->b.weight.data;
    int64_t rank = q->a.weight.n;
    if (s->n_parts) {
        if (read_part(f, a, s->part, s->n_parts, rank, p->weight.k, down, e) < 0) return -1;
        if (read_part(f, b, s->part, s->n_parts, p->weight.n, rank, up, e) < 0) return -1;
    } else if (llm_lora_read(f, a, 2, q->a.shape, down, e) < 0 || llm_lora_read(f, b, 2, q->b.shape, up, e) < 0) {
        return -1;
    }
    return llm_lora_reorder(m, p, LLM_LORA_GGUF, false, up, rank, e);
}

static int check_text(const struct llm_gguf *g, const char *key, const char *want, struct llm_err *e)
{
    const char *found = NULL;
    size_t n = 0;
    if (llm_gguf_str(g, key, &found, &n, e) < 0) return -1;
    if (found && n == strlen(want) && memcmp(found, want, n) == 0) return 0;
    return llm_fail(e, EX_DATAERR, "%s: expected %s, found %.*s", key, want, found ? (int)n : 4, found ? found : "none");
}

int llm_lora_read_gguf(struct llm_lora *l, struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e)
{
    const struct llm_gguf *g = llm_checkpoint_gguf(f);
    const struct llm_header *h = llm_checkpoint_header(f);
    const struct llm_arch *family = llm_gguf_family(m->arch);
    struct llm_gguf_names names = {.params = NULL};
    size_t found = 0;
    if (check_text(g, "general.type", "adapter", e) < 0 || check_text(g, "adapter.type", "lora", e) < 0) return -1;
    if (family && check_text(g, "general.architecture", family->gguf, e) < 0) return -1;
    if (llm_gguf_real(g, "adapter.lora.alpha", &l->alpha, e) < 0) return -1;
    if (!(l->alpha > 0 && l->alpha < 1e9)) return llm_fail(e, EX_DATAERR, "adapter.lora.alpha: expected a number above 0, found %g", l->alpha);
    int r = llm_gguf_names_of(&names, m, e);
    for (size_t i = 0; r == 0 && i < names.declared.n; i++) {
        const struct llm_param_spec *s = &names.declared.specs[i];
        const struct llm_entry *a = find(f, s->name, ".lora_a");
        if (!a) continue;
        r = read_pair(l, m, f, s, names.params[i], a, e);
        if (s->part == 0) found += 2;
    }
    for (size_t i = 0; r == 0 && found != h->n_entries && i < h->n_entries; i++) {
        bool known = false;
        for (size_t k = 0; k < names.declared.n && !known; k++) {
            const char *name = names.declared.specs[k].name;
            known = find(f, name, ".lora_a") == &h->entries[i] || find(f, name, ".lora_b") == &h->entries[i];
        }
        if (!known)
            r = llm_fail(e, EX_DATAERR, "tensor '%s': expected lora_a and lora_b of matrices of a %s", h->entries[i].name, m->config.model_type);
    }
    llm_gguf_names_release(&names);
    return r;
}
