/* Declarations of parameters (model/block.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/arch.h"

void llm_declare_release(struct llm_declare *d)
{
    free(d->specs);
    d->specs = NULL;
    d->n = d->room = 0;
}

static struct llm_param_spec *add(struct llm_declare *d, struct llm_param **slot, const char *name, const char *suffix, const char *dims)
{
    static struct llm_param_spec none;
    if (d->failed || llm_grow((void **)&d->specs, &d->room, d->n + 1, sizeof *d->specs, d->err) < 0) {
        d->failed = true;
        return &none;
    }
    struct llm_param_spec *s = &d->specs[d->n++];
    *s = (struct llm_param_spec){.dims = dims, .row = d->row, .layer = d->layer, .slot = slot};
    snprintf(s->name, sizeof s->name, "%s%s", name, suffix);
    return s;
}

static void matrix(struct llm_param_spec *s, int64_t rows, int64_t cols)
{
    s->n_dims = 2;
    s->role = LLM_ROLE_HIDDEN;
    s->shape[0] = rows;
    s->shape[1] = cols;
}

static void vector(struct llm_param_spec *s, int64_t n, enum llm_init init)
{
    s->n_dims = 1;
    s->shape[0] = n;
    s->shape[1] = 1;
    s->init = init;
}

void llm_declare_name(const struct llm_declare *d, enum llm_stem stem, char *out, size_t n)
{
    snprintf(out, n, "%s%s%d.%s", d->names->prefix, d->names->layer, d->layer, d->names->stem[stem]);
}

void llm_declare_linear(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem, int64_t out, int64_t in, const char *dims, bool bias)
{
    char name[100];
    llm_declare_name(d, stem, name, sizeof name);
    struct llm_param_spec *s = add(d, &p->w, name, ".weight", dims);
    matrix(s, out, in);
    s->transposed = d->transposed;
    s->by_head = stem == LLM_STEM_QKV && d->config->qkv_by_head && d->names == &d->arch->names;
    if (stem == LLM_STEM_OUT || stem == LLM_STEM_DOWN || stem == LLM_STEM_SHARED_DOWN) s->init = LLM_INIT_RESIDUAL;
    if (!bias) return;
    struct llm_param_spec *b = add(d, &p->b, name, ".bias", dims);
    vector(b, out, LLM_INIT_ZERO);
    b->by_head = stem == LLM_STEM_QKV && d->config->qkv_by_head && d->names == &d->arch->names;
}

void llm_declare_parts(struct llm_declare *d, int64_t a, int64_t b, int64_t c)
{
    for (size_t i = d->n; i-- > 0;) {
        if (d->specs[i].n_dims < 2) continue; /* its bias */
        memcpy(d->specs[i].parts, (int64_t[]){a, b, c}, sizeof d->specs[i].parts);
        return;
    }
}

void llm_declare_expert(struct llm_declare *d, struct llm_param **slot, int64_t expert, enum llm_stem stem, int64_t out, int64_t in,
                        const char *dims)
{
    const struct llm_config *c = d->config;
    char name[100];
    size_t used;
    bool stacked = !d->names->stem[LLM_STEM_EXPERTS];
    llm_declare_name(d, stacked ? stem : LLM_STEM_EXPERTS, name, sizeof name);
    used = strlen(name);
    if (!stacked) snprintf(name + used, sizeof name - used, ".%lld.%s", (long long)expert, d->names->stem[stem]);
    struct llm_param_spec *s = add(d, slot, name, ".weight", dims);
    matrix(s, out, in);
    if (stacked && !d->failed) {
        s->file_dims = 3;
        memcpy(s->file_shape, (int64_t[]){c->num_experts, out, in}, sizeof s->file_shape);
        s->part = expert;
        s->n_parts = c->num_experts;
    }
    s->active = (double)c->num_experts_per_tok / (double)c->num_experts;
    if (stem == LLM_STEM_EXPERT_DOWN) s->init = LLM_INIT_RESIDUAL;
}

void llm_declare_vector(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t n, const char *dims, bool balances)
{
    char name[100];
    llm_declare_name(d, stem, name, sizeof name);
    struct llm_param_spec *s = add(d, slot, name, "", dims);
    vector(s, n, LLM_INIT_ZERO);
    s->balances = balances;
}

void llm_declare_dense(struct llm_declare *d, struct llm_linear_params *p, const char *name, int64_t out, int64_t in, const char *dims)
{
    matrix(add(d, &p->w, name, ".weight", dims), out, in);
    vector(add(d, &p->b, name, ".bias", dims), out, LLM_INIT_ZERO);
}

void llm_declare_bias(struct llm_declare *d, struct llm_param **slot, const char *name, int64_t n, const char *dims)
{
    vector(add(d, slot, name, ".bias", dims), n, LLM_INIT_ZERO);
}

static void running(struct llm_param_spec *s, int64_t n, enum llm_init init)
{
    vector(s, n, init);
    s->running = true;
}

void llm_declare_norm(struct llm_declare *d, struct llm_linear_params *p, const char *name, int64_t width, const char *dims)
{
    const struct llm_config *c = d->config;
    vector(add(d, &p->w, name, ".weight", dims), width, c->norm_gain_offset == 1 ? LLM_INIT_ZERO : LLM_INIT_ONE);
    if (c->norm != LLM_NORM_RMS && c->norm_bias) vector(add(d, &p->b, name, ".bias", dims), width, LLM_INIT_ZERO);
    if (c->norm != LLM_NORM_BATCH || strcmp(dims, "hidden_size") != 0) return; /* queries and keys have RMSNorm */
    running(add(d, &p->mean, name, ".running_mean", dims), width, LLM_INIT_ZERO);
    running(add(d, &p->var, name, ".running_var", dims), width, LLM_INIT_ONE);
}

void llm_declare_plain(struct llm_declare *d, struct llm_param **slot, const char *name, int64_t rows, int64_t cols, const char *dims,
                       enum llm_init init)
{
    struct llm_param_spec *s = add(d, slot, name, "", dims);
    if (cols > 0) matrix(s, rows, cols);
    else vector(s, rows, init);
    s->init = init;
}

void llm_declare_exact(struct llm_declare *d, bool middle)
{
    if (d->failed) return;
    struct llm_param_spec *s = &d->specs[d->n - 1];
    s->exact = true;
    s->middle = middle;
    s->role = LLM_ROLE_VECTOR;
}

/* Of the parameter declared last, when names are those of GGUF files. */
static struct llm_param_spec *last_of_gguf(struct llm_declare *d)
{
    return d->failed || d->names == &d->arch->names ? NULL : &d->specs[d->n - 1];
}

void llm_declare_file_shape(struct llm_declare *d, int64_t rows, int64_t cols)
{
    struct llm_param_spec *s = last_of_gguf(d);
    if (!s) return;
    s->file_dims = 2;
    s->file_shape[0] = rows;
    s->file_shape[1] = cols;
}

void llm_declare_minus_exp(struct llm_declare *d)
{
    struct llm_param_spec *s = last_of_gguf(d);
    if (s) s->minus_exp = true;
}

void llm_declare_table(struct llm_declare *d, struct llm_param **slot, const char *name, int64_t rows, int64_t cols, const char *dims, bool lookup)
{
    struct llm_param_spec *s = add(d, slot, name, ".weight", dims);
    matrix(s, rows, cols);
    s->lookup = lookup;
    s->role = lookup ? LLM_ROLE_TABLE : LLM_ROLE_HEAD;
}
