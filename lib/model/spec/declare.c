/* Declarations of parameters (model/spec/declare.h): their names, by family or as in GGUF files, and their specs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/spec/declare.h"

void llm_declare_release(struct llm_declare *d)
{
    free(d->specs);
    d->specs = NULL;
    d->n = d->room = 0;
}

const char *const llm_unit_names[LLM_N_UNITS] = {
    [LLM_UNIT_EMBEDDINGS] = "embeddings", [LLM_UNIT_NORMS] = "norms", [LLM_UNIT_ATTENTION] = "attention", [LLM_UNIT_CROSS_ATTENTION] =
    "cross-attention", [LLM_UNIT_MLP] = "mlp", [LLM_UNIT_EXPERTS] = "experts", [LLM_UNIT_RNN] = "rnn", [LLM_UNIT_LSTM] = "lstm", [LLM_UNIT_MAMBA]
    = "mamba", [LLM_UNIT_MAMBA2] = "mamba2", [LLM_UNIT_RWKV] = "rwkv", [LLM_UNIT_HYENA] = "hyena",
    [LLM_UNIT_HEAD] = "head", [LLM_UNIT_CLASSES] = "classes", [LLM_UNIT_NEXT_TOKENS] = "next tokens",
    [LLM_UNIT_ENCODER] = "encoder"};

bool llm_param_spec_same(const struct llm_param_spec *a, const struct llm_param_spec *b)
{
    return a->stem == b->stem && a->piece == b->piece && a->stack == b->stack && a->layer == b->layer && a->expert == b->expert;
}

bool llm_param_spec_stacked(const struct llm_param_spec *a, const struct llm_param_spec *b)
{
    return a->n_parts > 0 && b->n_parts > 0 && a->stem == b->stem && a->stack == b->stack && a->layer == b->layer;
}

/* Queries, keys and latent vectors have RMSNorm, whatever the norm of hidden states is. */
static bool is_inner_norm(enum llm_stem stem)
{
    return stem == LLM_STEM_Q_NORM || stem == LLM_STEM_K_NORM || stem == LLM_STEM_Q_A_NORM || stem == LLM_STEM_KV_A_NORM;
}

/* Writes the name of a parameter outside layers, without its suffix, to out[n]. */
static void outer_name(const struct llm_declare *d, enum llm_stem stem, char *out, size_t n)
{
    const struct llm_names *names = d->names;
    bool like_bert = d->config->bidirectional && !d->config->use_bidirectional_attention;
    const bool two = d->config->class_vector == LLM_CLASSES_OF_TWO_TOKENS;
    /* A masked-token head that is not tied to the embeddings has a bias of its own in transformers, beside one that nothing reads. */
    const bool apart = d->config->head_transform && !d->config->tie_word_embeddings;
    const struct { const char *name; bool prefixed; } table[] = {
        [LLM_STEM_EMBED - LLM_N_STEMS] = {names->embed, true}, [LLM_STEM_PATCHES - LLM_N_STEMS] = {names->patches, true},
        [LLM_STEM_REGISTERS - LLM_N_STEMS] = {names->registers, true},
        [LLM_STEM_POSITIONS - LLM_N_STEMS] = {names->positions, true},
        [LLM_STEM_TOKEN_TYPES - LLM_N_STEMS] = {names->token_types, true}, [LLM_STEM_LATENTS - LLM_N_STEMS] = {names->latents, true},
        [LLM_STEM_EMBED_NORM - LLM_N_STEMS] = {names->embed_norm, true}, [LLM_STEM_DISTANCES - LLM_N_STEMS] = {names->rel_bias, true},
        [LLM_STEM_FINAL_NORM - LLM_N_STEMS] = {names->final_norm, true}, [LLM_STEM_POOLER - LLM_N_STEMS] = {names->pooler, true},
        [LLM_STEM_HEAD_DENSE - LLM_N_STEMS] = {names->head_dense, false}, [LLM_STEM_HEAD_NORM - LLM_N_STEMS] = {names->head_norm, false},
        [LLM_STEM_HEAD_BIAS - LLM_N_STEMS] = {apart ? names->head : names->head_bias, false}, [LLM_STEM_HEAD - LLM_N_STEMS] = {names->head, false},
        [LLM_STEM_CLASSES - LLM_N_STEMS] = {two ? names->two_classes[0] : like_bert ? "classifier" : "score", false}, /* as transformers */
        [LLM_STEM_CLASSES_2 - LLM_N_STEMS] = {names->two_classes[1], false},
        [LLM_STEM_LOGIT_SCALE - LLM_N_STEMS] = {"logit_scale", false}, [LLM_STEM_LOGIT_BIAS - LLM_N_STEMS] = {"logit_bias", false},
        [LLM_STEM_PROJECTION - LLM_N_STEMS] = {names->projection, false},
        [LLM_STEM_PROJECTOR_1 - LLM_N_STEMS] = {names->projector[0], false}, [LLM_STEM_PROJECTOR_2 - LLM_N_STEMS] = {names->projector[1], false},
        [LLM_STEM_NEWLINE - LLM_N_STEMS] = {names->newline, false}};
    if (stem >= LLM_STEM_PROBE) snprintf(out, n, "%s%s", names->prefix, names->probe[stem - LLM_STEM_PROBE]);
    if (stem >= LLM_STEM_PROBE) return;
    snprintf(out, n, "%s%s", table[stem - LLM_N_STEMS].prefixed ? names->prefix : "", table[stem - LLM_N_STEMS].name);
}

/* Whether a number follows the name: a head's, or that of a layer of a filter's network. */
static bool is_numbered(enum llm_stem stem, bool gguf)
{
    return stem == LLM_STEM_FILTER || stem == LLM_STEM_FILTER_FREQ || (is_inner_norm(stem) && !gguf);
}

/* Writes the name of a parameter, without the suffix of its piece (".weight"), to out[n]. */
static void name_of(const struct llm_declare *d, enum llm_stem stem, int64_t expert, char *out, size_t n)
{
    const struct llm_names *names = d->names;
    if (stem >= LLM_N_STEMS) {
        outer_name(d, stem, out, n);
    } else if (stem >= LLM_STEM_INPUTS && stem <= LLM_STEM_STATE_BIAS) {
        snprintf(out, n, "%s%s%s%d", names->prefix, names->layer, names->stem[stem], d->layer);
    } else if (expert >= 0 && names->stem[LLM_STEM_EXPERTS]) {
        snprintf(out, n, "%s%s%d.%s.%lld.%s", names->prefix, names->layer, d->layer, names->stem[LLM_STEM_EXPERTS], (long long)expert,
                 names->stem[stem]);
    } else {
        snprintf(out, n, "%s%s%d.%s", names->prefix, names->layer, d->layer, names->stem[stem]);
        if (expert >= 0 && is_numbered(stem, d->gguf)) snprintf(out + strlen(out), n - strlen(out), ".%lld", (long long)expert);
    }
}

static struct llm_param_spec *add(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, enum llm_piece piece, int64_t expert,
                                  const char *dims)
{
    static const char *const suffixes[] = {
        [LLM_PIECE_WEIGHT] = ".weight", [LLM_PIECE_BIAS] = ".bias", [LLM_PIECE_MEAN] = ".running_mean", [LLM_PIECE_VAR] = ".running_var",
        [LLM_PIECE_FREQ] = ".freq", [LLM_PIECE_WHOLE] = ""};
    static struct llm_param_spec none;
    char name[100];
    if (d->failed || llm_grow((void **)&d->specs, &d->room, d->n + 1, sizeof *d->specs, d->err) < 0) {
        d->failed = true;
        return &none;
    }
    struct llm_param_spec *s = &d->specs[d->n++];
    int before = d->layer >= 0 ? d->layers_before : 0;
    *s = (struct llm_param_spec){.dims = dims, .unit = d->unit, .stem = stem, .piece = piece, .stack = d->stack, .layer = d->layer + before,
                                 .expert = expert, .slot = slot};
    name_of(d, stem, expert, name, sizeof name);
    snprintf(s->name, sizeof s->name, "%s%s", name, suffixes[piece]);
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

void llm_declare_linear(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem, int64_t out, int64_t in, const char *dims, bool bias)
{
    bool by_head = stem == LLM_STEM_QKV && d->config->qkv_by_head && !d->gguf;
    struct llm_param_spec *s = add(d, &p->w, stem, LLM_PIECE_WEIGHT, -1, dims);
    matrix(s, out, in);
    s->transposed = d->arch->transposed && !d->gguf && stem < LLM_N_STEMS;
    s->by_head = by_head;
    if (stem == LLM_STEM_OUT || stem == LLM_STEM_DOWN || stem == LLM_STEM_SHARED_DOWN) s->init = LLM_INIT_RESIDUAL;
    if (!bias) return;
    struct llm_param_spec *b = add(d, &p->b, stem, LLM_PIECE_BIAS, -1, dims);
    vector(b, out, LLM_INIT_ZERO);
    b->by_head = by_head;
}

void llm_declare_fused(struct llm_declare *d, const int64_t *rows, size_t n)
{
    for (size_t i = d->n; i-- > 0;) {
        memcpy(d->specs[i].fused, rows, n * sizeof *rows);
        if (d->specs[i].n_dims > 1) return; /* else its bias */
    }
}

void llm_declare_parts(struct llm_declare *d, int64_t a, int64_t b, int64_t c)
{
    const int64_t rows[] = {a, b, c};
    llm_declare_fused(d, rows, sizeof rows / sizeof *rows);
    for (size_t i = d->n; i-- > 0;) {
        if (d->specs[i].n_dims < 2) continue; /* its bias */
        memcpy(d->specs[i].parts, rows, sizeof rows);
        return;
    }
}

void llm_declare_expert(struct llm_declare *d, struct llm_param **slot, int64_t expert, enum llm_stem stem, int64_t out, int64_t in,
                        const char *dims)
{
    const struct llm_config *c = d->config;
    struct llm_param_spec *s = add(d, slot, stem, LLM_PIECE_WEIGHT, expert, dims);
    matrix(s, out, in);
    if (!d->names->stem[LLM_STEM_EXPERTS] && !d->failed) {
        s->file_dims = 3;
    s->file_writes = true;
        memcpy(s->file_shape, (int64_t[]){c->num_experts, out, in}, 3 * sizeof *s->file_shape);
        s->part = expert;
        s->n_parts = c->num_experts;
    }
    s->active = (double)c->num_experts_per_tok / (double)c->num_experts;
    if (stem == LLM_STEM_EXPERT_DOWN) s->init = LLM_INIT_RESIDUAL;
}

void llm_declare_head_gain(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t head, int64_t n)
{
    int64_t width = d->config->head_dim;
    struct llm_param_spec *s = add(d, slot, stem, LLM_PIECE_WEIGHT, head, "head_dim");
    vector(s, width, LLM_INIT_ONE);
    s->gain = true;
    if (!d->gguf || d->failed) return;
    s->file_dims = 2;
    memcpy(s->file_shape, (int64_t[]){n, width}, 2 * sizeof *s->file_shape);
    s->part = head;
    s->n_parts = n;
}

void llm_declare_vector(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t n, const char *dims, bool balances)
{
    struct llm_param_spec *s = add(d, slot, stem, LLM_PIECE_WHOLE, -1, dims);
    vector(s, n, LLM_INIT_ZERO);
    s->balances = balances;
}

void llm_declare_bias(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t n, const char *dims)
{
    vector(add(d, slot, stem, LLM_PIECE_BIAS, -1, dims), n, LLM_INIT_ZERO);
}

static void running(struct llm_param_spec *s, int64_t n, enum llm_init init)
{
    vector(s, n, init);
    s->running = true;
}

void llm_declare_norm(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem, int64_t width, const char *dims)
{
    const struct llm_config *c = d->config;
    struct llm_param_spec *w = add(d, &p->w, stem, LLM_PIECE_WEIGHT, -1, dims);
    vector(w, width, c->norm_gain_offset == 1 ? LLM_INIT_ZERO : LLM_INIT_ONE);
    w->gain = true;
    if (c->norm != LLM_NORM_RMS && c->norm_bias) vector(add(d, &p->b, stem, LLM_PIECE_BIAS, -1, dims), width, LLM_INIT_ZERO);
    if (c->norm != LLM_NORM_BATCH || is_inner_norm(stem)) return;
    running(add(d, &p->mean, stem, LLM_PIECE_MEAN, -1, dims), width, LLM_INIT_ZERO);
    running(add(d, &p->var, stem, LLM_PIECE_VAR, -1, dims), width, LLM_INIT_ONE);
}

void llm_declare_plain(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t rows, int64_t cols, const char *dims,
                       enum llm_init init)
{
    struct llm_param_spec *s = add(d, slot, stem, LLM_PIECE_WHOLE, -1, dims);
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

void llm_declare_init(struct llm_declare *d, enum llm_init init)
{
    if (!d->failed) d->specs[d->n - 1].init = init;
}

void llm_declare_filter(struct llm_declare *d, struct llm_linear_params *p, int64_t number, int64_t out, int64_t in, const char *dims, bool bias)
{
    struct llm_param_spec *s = add(d, &p->w, LLM_STEM_FILTER, LLM_PIECE_WEIGHT, number, dims);
    matrix(s, out, in);
    llm_declare_exact(d, false);
    if (bias) vector(add(d, &p->b, LLM_STEM_FILTER, LLM_PIECE_BIAS, number, dims), out, LLM_INIT_ZERO);
}

void llm_declare_freq(struct llm_declare *d, struct llm_param **slot, int64_t n, int uses)
{
    struct llm_param_spec *s = add(d, slot, LLM_STEM_FILTER_FREQ, LLM_PIECE_FREQ, 1, "filter_order");
    vector(s, n, LLM_INIT_HYENA);
    s->sharers = uses;
    if (!d->failed) llm_declare_shape(d, 1, n, 0);
}

void llm_declare_constant(struct llm_declare *d)
{
    if (d->failed) return;
    struct llm_param_spec *s = &d->specs[d->n - 1];
    s->constant = s->lookup = true;
    if (s->n_dims > 1) llm_declare_shape(d, 1, s->shape[0], s->shape[1]);
    else llm_declare_shape(d, 1, s->stem == LLM_STEM_FILTER_TIME ? s->shape[0] : 1, s->stem == LLM_STEM_FILTER_TIME ? 1 : s->shape[0]);
}

/* The spec declared last if names are those of GGUF files; else NULL, because the layout concerns GGUF alone. */
static struct llm_param_spec *last_of_gguf(struct llm_declare *d)
{
    return d->failed || !d->gguf ? NULL : &d->specs[d->n - 1];
}

void llm_declare_file_shape(struct llm_declare *d, int64_t rows, int64_t cols)
{
    struct llm_param_spec *s = last_of_gguf(d);
    if (!s) return;
    s->file_dims = 2;
    s->file_shape[0] = rows;
    s->file_shape[1] = cols;
}

void llm_declare_vector_shape(struct llm_declare *d)
{
    if (d->failed || d->gguf || d->rwkv_cpp) return;
    llm_declare_shape(d, 1, 1, d->specs[d->n - 1].shape[0]);
}

void llm_declare_shape(struct llm_declare *d, int64_t a, int64_t b, int64_t c)
{
    if (d->failed) return;
    struct llm_param_spec *s = &d->specs[d->n - 1];
    s->file_dims = c > 0 ? 3 : 2;
    s->file_writes = true;
    memcpy(s->file_shape, (int64_t[]){a, b, c}, 3 * sizeof *s->file_shape);
}

void llm_declare_transposed(struct llm_declare *d)
{
    if (!d->failed && !d->gguf && !d->rwkv_cpp) d->specs[d->n - 1].transposed = true;
}

void llm_declare_row(struct llm_declare *d, int64_t i, int64_t n)
{
    if (d->failed || !d->rwkv_cpp) return;
    struct llm_param_spec *s = &d->specs[d->n - 1];
    llm_declare_shape(d, n, s->shape[0], 0);
    s->part = i;
    s->n_parts = n;
}

void llm_declare_blocks(struct llm_declare *d, int64_t n)
{
    if (d->failed || !d->rwkv_cpp) return;
    struct llm_param_spec *s = &d->specs[d->n - 1];
    llm_declare_shape(d, n, s->shape[1], s->shape[0] / n);
    s->transposed = true;
    s->blocks = n;
}

void llm_declare_exp_minus_exp(struct llm_declare *d)
{
    if (!d->failed && d->rwkv_cpp) d->specs[d->n - 1].exp_minus_exp = true;
}

void llm_declare_minus_exp(struct llm_declare *d)
{
    if (!d->failed && (d->gguf || d->rwkv_cpp)) d->specs[d->n - 1].minus_exp = true;
}

void llm_declare_table(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t rows, int64_t cols, const char *dims, bool lookup)
{
    struct llm_param_spec *s = add(d, slot, stem, LLM_PIECE_WEIGHT, -1, dims);
    matrix(s, rows, cols);
    s->lookup = lookup;
    s->role = lookup ? LLM_ROLE_TABLE : LLM_ROLE_HEAD;
}

void llm_declare_rows(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t rows, int64_t cols, const char *dims,
                      int file_dims)
{
    struct llm_param_spec *s = add(d, slot, stem, LLM_PIECE_WHOLE, -1, dims);
    matrix(s, rows, cols);
    s->lookup = true;
    s->role = LLM_ROLE_TABLE;
    s->file_dims = file_dims;
    s->file_writes = true;
    memcpy(s->file_shape, (int64_t[]){file_dims == 1 ? cols : 1, rows, cols}, 3 * sizeof *s->file_shape);
}

void llm_declare_scalar(struct llm_declare *d)
{
    if (!d->failed) d->specs[d->n - 1].scalar = true;
}

void llm_declare_patches(struct llm_declare *d, struct llm_linear_params *p, bool bias)
{
    const struct llm_config *c = d->config;
    struct llm_param_spec *s = add(d, &p->w, LLM_STEM_PATCHES, LLM_PIECE_WEIGHT, -1, "hidden_size, num_channels * patch_size * patch_size");
    matrix(s, c->hidden_size, llm_config_patch_width(c));
    s->file_dims = 4;
    s->file_writes = true;
    memcpy(s->file_shape, (int64_t[]){c->hidden_size, c->num_channels, c->patch_size, c->patch_size}, 4 * sizeof *s->file_shape);
    if (bias) vector(add(d, &p->b, LLM_STEM_PATCHES, LLM_PIECE_BIAS, -1, "hidden_size"), c->hidden_size, LLM_INIT_ZERO);
}
