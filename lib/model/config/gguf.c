/* Configurations from the metadata of GGUF files, and back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/config/gguf.h"

static const struct llm_arch *find_arch(const struct llm_gguf *g, struct llm_err *e)
{
    const struct llm_arch *found = NULL;
    const char *name = NULL;
    char list[256] = "";
    size_t n = 0;
    if (llm_gguf_str(g, "general.architecture", &name, &n, e) < 0) return NULL;
    for (size_t i = 0; llm_archs[i]; i++) {
        const struct llm_arch *a = llm_archs[i];
        if (!a->gguf) continue;
        bool same = name && strlen(a->gguf) == n && memcmp(a->gguf, name, n) == 0;
        if (same && (a->is_gguf ? a->is_gguf(g) : !found)) found = a;
        if (a->is_gguf) continue; /* it shares its name with another family, whose row is listed */
        strncat(list, list[0] ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, a->gguf, sizeof list - strlen(list) - 1);
    }
    if (found) return found;
    llm_fail(e, EX_DATAERR, "general.architecture: expected one of %s; found %s%.*s%s", list, name ? "'" : "none", (int)(n < 64 ? n : 64),
             name ? name : "", name ? "'" : "");
    return NULL;
}

#define AT(field) offsetof(struct llm_config, field)

/* Integer keys of all families, without the architecture's name that precedes them in files. */
static const struct { const char *key; size_t offset; int64_t min, max; } wholes[] = {
    {"context_length", AT(max_position_embeddings), 1, 1 << 24},
    {"embedding_length", AT(hidden_size), 1, 1 << 20},
    {"feed_forward_length", AT(intermediate_size), 1, 1 << 22},
    {"block_count", AT(num_hidden_layers), 1, LLM_MAX_LAYERS},
    {"attention.head_count", AT(num_attention_heads), 1, 1 << 14},
    {"attention.head_count_kv", AT(num_key_value_heads), 1, 1 << 14},
    {"attention.key_length", AT(head_dim), 1, 1 << 14},
    {"attention.sliding_window", AT(sliding_window), 0, 1 << 24},
    {"rope.dimension_count", AT(rotary_dim), 0, 1 << 14},
    {"rope.scaling.original_context_length", AT(rope_scaling.original_context), 1, 1 << 24},
};
static const struct { const char *key; size_t offset; double min, max; } reals[] = {
    {"attention.layer_norm_rms_epsilon", AT(norm_eps), 0, 1},
    {"attention.layer_norm_epsilon", AT(norm_eps), 0, 1},
    {"rope.freq_base", AT(rope_theta), 1, 1e12},
    {"rope.freq_base_swa", AT(rope_local_theta), 1, 1e12},
    {"rope.scaling.factor", AT(rope_scaling.factor), 1e-6, 1e6},
    {"rope.scaling.attn_factor", AT(rope_scaling.attention_factor), 0, 1e6},
    {"rope.scaling.yarn_beta_fast", AT(rope_scaling.beta_fast), 1e-6, 1e6},
    {"rope.scaling.yarn_beta_slow", AT(rope_scaling.beta_slow), 1e-6, 1e6},
    {"attn_logit_softcapping", AT(attn_logit_softcapping), 0, 1e6},
    {"final_logit_softcapping", AT(final_logit_softcapping), 0, 1e6},
};

/* The shortest decimal fraction that single precision rounds to `v`: GGUF files have floats, configurations the decimals that they were made from. */
static double as_decimal(double v)
{
    char text[40];
    if ((double)(float)v != v) return v;
    snprintf(text, sizeof text, "%.7g", v);
    double decimal = strtod(text, NULL);
    return (float)decimal == (float)v ? decimal : v;
}

/* Whether the family has its own row for a key. */
static bool is_own(const struct llm_arch *arch, const char *key)
{
    for (const struct llm_gguf_key *k = arch->gguf_keys; k && k->key; k++) {
        if (strcmp(k->key, key) == 0) return true;
    }
    return false;
}

static int read_own(struct llm_config *c, const struct llm_gguf *g, const struct llm_arch *arch, const struct llm_gguf_key *k, struct llm_err *e)
{
    void *at = (char *)c + k->offset;
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch->gguf, k->key);
    bool here = llm_gguf_find(g, key) != NULL;
    switch (k->type) {
    case LLM_GGUF_KEY_WHOLE:
        if (!here) *(int64_t *)at = (int64_t)k->absent;
        return llm_gguf_int(g, key, (int64_t)k->min, (int64_t)k->max, at, e);
    case LLM_GGUF_KEY_REAL: {
        double v = k->absent;
        if (llm_gguf_real(g, key, &v, e) < 0) return -1;
        if (here && !(v >= k->min && v <= k->max)) return llm_fail(e, EX_DATAERR, "%s: expected %g to %g, found %g", key, k->min, k->max, v);
        *(double *)at = here ? as_decimal(v) : v;
        return 0;
    }
    case LLM_GGUF_KEY_BOOL:
        if (!here) *(bool *)at = k->absent != 0;
        return llm_gguf_bool(g, key, at, e);
    case LLM_GGUF_KEY_OWN: break;
    }
    return 0;
}

static int read_numbers(struct llm_config *c, const struct llm_gguf *g, const struct llm_arch *of, struct llm_err *e)
{
    const char *arch = of->gguf;
    char key[128];
    for (const struct llm_gguf_key *k = of->gguf_keys; k && k->key; k++) {
        if (read_own(c, g, of, k, e) < 0) return -1;
    }
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        if (is_own(of, wholes[i].key)) continue;
        snprintf(key, sizeof key, "%s.%s", arch, wholes[i].key);
        if (llm_gguf_int(g, key, wholes[i].min, wholes[i].max, (int64_t *)(void *)((char *)c + wholes[i].offset), e) < 0) return -1;
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double *out = (double *)(void *)((char *)c + reals[i].offset), v = *out;
        snprintf(key, sizeof key, "%s.%s", arch, reals[i].key);
        if (llm_gguf_real(g, key, &v, e) < 0) return -1;
        if (llm_gguf_find(g, key) && !(v >= reals[i].min && v <= reals[i].max)) {
            return llm_fail(e, EX_DATAERR, "%s: expected %g to %g, found %g", key, reals[i].min, reals[i].max, v);
        }
        *out = llm_gguf_find(g, key) ? as_decimal(v) : v;
    }
    snprintf(key, sizeof key, "%s.use_parallel_residual", arch);
    return llm_gguf_bool(g, key, &c->parallel_residual, e);
}

static int read_scaling(struct llm_config *c, const struct llm_gguf *g, const char *arch, struct llm_err *e)
{
    struct llm_rope_scaling *s = &c->rope_scaling;
    char key[128];
    const char *type = NULL;
    size_t n = 0;
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    if (llm_gguf_str(g, key, &type, &n, e) < 0) return -1;
    if (!type || (n == 4 && memcmp(type, "none", 4) == 0)) return 0;
    if (n == 6 && memcmp(type, "linear", 6) == 0) s->kind = LLM_ROPE_LINEAR;
    else if (n == 4 && memcmp(type, "yarn", 4) == 0) s->kind = LLM_ROPE_YARN;
    else if (n != 8 || memcmp(type, "longrope", 8) != 0) { /* llm_gguf_rope_factors reads longrope from its tensors */
        return llm_fail(e, EX_DATAERR, "%s: expected none, linear, yarn or longrope; found '%.*s'", key, (int)(n < 64 ? n : 64), type);
    }
    if (s->beta_fast == 0) s->beta_fast = 32;
    if (s->beta_slow == 0) s->beta_slow = 1;
    s->truncate = true;
    if (s->kind != LLM_ROPE_PLAIN && s->factor == 0) return llm_fail(e, EX_DATAERR, "%s: expected a rope.scaling.factor beside it", key);
    if (s->kind == LLM_ROPE_YARN) s->attention_factor *= llm_gguf_yarn_magnitude(s->factor);
    return 0;
}

/* Reads pooling_type, how the model embeds texts: 0 unset, 1 mean, 2 cls, 3 last, 4 rank. */
static int read_pooling(struct llm_config *c, const struct llm_gguf *g, const char *arch, struct llm_err *e)
{
    static const enum llm_pool_kind kinds[] = {LLM_POOL_UNSET, LLM_POOL_MEAN, LLM_POOL_CLS, LLM_POOL_LAST, LLM_POOL_OTHER};
    char key[128];
    int64_t kind = 0;
    snprintf(key, sizeof key, "%s.pooling_type", arch);
    if (llm_gguf_int(g, key, 0, 4, &kind, e) < 0) return -1;
    c->pooling = kinds[kind];
    return 0;
}

/* What llama.cpp multiplies a YaRN model's attn_factor with. */
double llm_gguf_yarn_magnitude(double factor)
{
    return factor > 1 ? .1 * log(factor) + 1 : 1;
}

int llm_gguf_config(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e)
{
    const struct llm_arch *arch = find_arch(g, e);
    if (!arch) return -1;
    *c = llm_config_blank(arch);
    c->num_key_value_heads = c->head_dim = 0; /* 0: llm_config_finish computes them if the file has no key */
    c->bos_token_id = c->eos_token_id = -1;
    if (read_numbers(c, g, arch, e) < 0 || read_scaling(c, g, arch->gguf, e) < 0 || read_pooling(c, g, arch->gguf, e) < 0
        || llm_gguf_int(g, "tokenizer.ggml.bos_token_id", 0, INT32_MAX, &c->bos_token_id, e) < 0
        || llm_gguf_int(g, "tokenizer.ggml.eos_token_id", 0, INT32_MAX, &c->eos_token_id, e) < 0) return -1;
    static const char *const ends[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int64_t id = -1;
        if (llm_gguf_int(g, ends[i], 0, INT32_MAX, &id, e) < 0) return -1;
        llm_config_add_eos(c, id);
    }
    if (arch->gguf_get && arch->gguf_get(c, g, e) < 0) return -1;
    if (arch->in_gguf) arch->in_gguf(c);
    return 0;
}

/* Sets which linears have biases: those whose biases are among the files' tensors. */
void llm_gguf_biases(struct llm_config *c, const struct llm_model_files *files)
{
    struct llm_checkpoint *f;
    bool optional = c->norm == LLM_NORM_LAYER; /* families with RMSNorm: the defaults stay, so that a Qwen 2 without its biases is refused */
    bool attention = llm_model_files_find(files, "blk.0.attn_q.bias", &f) || llm_model_files_find(files, "blk.0.attn_qkv.bias", &f);
    bool mlp = llm_model_files_find(files, "blk.0.ffn_up.bias", &f);
    c->attention_bias = attention || (c->attention_bias && !optional);
    c->mlp_bias = mlp || (c->mlp_bias && !optional);
    bool norm = llm_model_files_find(files, "output_norm.bias", &f) || llm_model_files_find(files, "blk.0.attn_output_norm.bias", &f);
    if (optional) c->norm_bias = norm;
}

static void put_own(struct llm_gguf_out *o, const struct llm_config *c, const struct llm_arch *arch, const struct llm_gguf_key *k)
{
    const void *at = (const char *)c + k->offset;
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch->gguf, k->key);
    if (k->type == LLM_GGUF_KEY_WHOLE && (double)*(const int64_t *)at >= k->min) llm_gguf_put_u32(o, key, (uint32_t)*(const int64_t *)at);
    if (k->type == LLM_GGUF_KEY_REAL) llm_gguf_put_f32(o, key, (float)*(const double *)at);
    if (k->type == LLM_GGUF_KEY_BOOL) llm_gguf_put_bool(o, key, *(const bool *)at);
}

static void put_reals(struct llm_gguf_out *o, const struct llm_config *c, const struct llm_arch *arch)
{
    const struct llm_rope_scaling *s = &c->rope_scaling;
    char key[128];
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double v = *(const double *)(const void *)((const char *)c + reals[i].offset);
        bool other_norm = reals[i].offset == AT(norm_eps) && (strstr(reals[i].key, "rms") != NULL) != (c->norm == LLM_NORM_RMS);
        if (v == 0 || other_norm || (strncmp(reals[i].key, "rope.", 5) == 0 && c->position != LLM_POSITION_ROPE)) continue;
        if ((s->kind != LLM_ROPE_YARN && strstr(reals[i].key, "yarn")) || is_own(arch, reals[i].key)) continue;
        if (reals[i].offset == AT(rope_scaling.attention_factor) && s->kind == LLM_ROPE_YARN) v /= llm_gguf_yarn_magnitude(s->factor);
        snprintf(key, sizeof key, "%s.%s", arch->gguf, reals[i].key);
        llm_gguf_put_f32(o, key, (float)v);
    }
}

void llm_gguf_put_config(struct llm_gguf_out *o, const struct llm_config *c, const struct llm_arch *arch, bool kv_b_whole)
{
    const struct llm_rope_scaling *s = &c->rope_scaling;
    static const char *const types[LLM_N_ROPE_SCALINGS] = {[LLM_ROPE_LINEAR] = "linear", [LLM_ROPE_YARN] = "yarn", [LLM_ROPE_LONGROPE] = "longrope"};
    static const char value_length[] = "attention.value_length";
    char key[128];
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        int64_t v = *(const int64_t *)(const void *)((const char *)c + wholes[i].offset);
        if (v == 0 || (strncmp(wholes[i].key, "rope.", 5) == 0 && c->position != LLM_POSITION_ROPE) || is_own(arch, wholes[i].key)) continue;
        snprintf(key, sizeof key, "%s.%s", arch->gguf, wholes[i].key);
        llm_gguf_put_u32(o, key, (uint32_t)v);
    }
    put_reals(o, c, arch);
    for (const struct llm_gguf_key *k = arch->gguf_keys; k && k->key; k++) put_own(o, c, arch, k);
    if (arch->gguf_put) arch->gguf_put(o, c, kv_b_whole);
    snprintf(key, sizeof key, "%s.%s", arch->gguf, value_length);
    if (!is_own(arch, value_length)) llm_gguf_put_u32(o, key, (uint32_t)c->head_dim);
    snprintf(key, sizeof key, "%s.vocab_size", arch->gguf);
    llm_gguf_put_u32(o, key, (uint32_t)c->vocab_size);
    snprintf(key, sizeof key, "%s.use_parallel_residual", arch->gguf);
    if (c->norm == LLM_NORM_LAYER && c->position == LLM_POSITION_ROPE) llm_gguf_put_bool(o, key, c->parallel_residual);
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch->gguf);
    if (types[s->kind] && !llm_gguf_one_list(s)) llm_gguf_put_str(o, key, types[s->kind], strlen(types[s->kind]));
}

bool llm_gguf_one_list(const struct llm_rope_scaling *s)
{
    return s->kind == LLM_ROPE_LONGROPE && s->attention_factor == 1
           && memcmp(s->short_factors, s->long_factors, (size_t)s->n_factors * sizeof *s->short_factors) == 0;
}

/* Reads the tensors of rotary factors that converters write: one list for llama3, two for longrope. */
int llm_gguf_rope_factors(struct llm_config *c, const struct llm_model_files *files, struct llm_err *e)
{
    static const struct { const char *name; bool is_short, is_long; } rows[] = {
        {"rope_freqs.weight", true, true}, {"rope_factors_short.weight", true, false}, {"rope_factors_long.weight", false, true}};
    struct llm_rope_scaling *s = &c->rope_scaling;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float v[LLM_MAX_ROTARY_PAIRS];
        struct llm_checkpoint *f;
        const struct llm_entry *t = llm_model_files_find(files, rows[i].name, &f);
        if (!t) continue;
        if (t->dtype != LLM_F32 || t->n_dims != 1 || t->shape[0] < 1 || t->shape[0] > LLM_MAX_ROTARY_PAIRS
            || (s->n_factors && t->shape[0] != s->n_factors)) {
            return llm_fail(e, EX_DATAERR, "tensor '%s': expected f32 [half of rope.dimension_count]", t->name);
        }
        if (llm_checkpoint_read(f, t, v, e) < 0) return -1;
        s->n_factors = (int)t->shape[0];
        for (int j = 0; j < s->n_factors; j++) {
            if (!(v[j] > 0 && v[j] < 1e6f)) return llm_fail(e, EX_DATAERR, "tensor '%s': expected numbers above 0", t->name);
            if (rows[i].is_short) s->short_factors[j] = v[j];
            if (rows[i].is_long) s->long_factors[j] = v[j];
        }
        s->kind = LLM_ROPE_LONGROPE;
        if (i == 0) s->attention_factor = 1;
    }
    for (int j = 0; j < s->n_factors; j++) {
        if (s->short_factors[j] == 0 || s->long_factors[j] == 0) return llm_fail(e, EX_DATAERR, "rotary factors: expected both lists, found one");
    }
    return 0;
}
