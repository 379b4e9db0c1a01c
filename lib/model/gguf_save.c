/* Models to GGUF files. Converters leave much unsaid that follows from the family's name; so the configuration that a reader makes of the metadata
 * is made here too and compared with the model's: what GGUF cannot say is refused, by its key. */
#include "model/gguf_save.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct save {
    struct llm_model *m;
    struct llm_config config;      /* as it is in the file */
    const struct llm_arch *arch;   /* the family that the file names */
    struct llm_declare names;      /* the parameters under GGUF's names, in the model's order */
    struct llm_gguf_out values;
    struct llm_tensor_out *tensors;
    size_t n;
    void *made;                    /* the tensor at hand, where it is not the model's own */
};

static const struct llm_arch *family_of(const struct llm_arch *arch, struct llm_err *e)
{
    if (arch->gguf && arch->gguf_names == NULL) return arch; /* encoders have names of their own, and are only read */
    if (arch->gguf_as) return llm_arch_find(arch->gguf_as);
    llm_fail(e, EX_UNAVAILABLE, "a model of type '%s' cannot be written as GGUF", arch->model_type);
    return NULL;
}

/* ---- the configuration ---- */

/* Rotary scaling in the one form that files have for it. */
static void plain_scaling(struct llm_config *c)
{
    struct llm_rope_scaling *s = &c->rope_scaling, plain = {.kind = LLM_ROPE_PLAIN};
    float with[LLM_MAX_ROTARY_PAIRS], without[LLM_MAX_ROTARY_PAIRS], magnitude;
    if (c->position != LLM_POSITION_ROPE || s->kind == LLM_ROPE_PLAIN || s->kind == LLM_ROPE_LINEAR || s->kind == LLM_ROPE_DYNAMIC
        || c->rotary_dim / 2 > LLM_MAX_ROTARY_PAIRS) return;
    llm_rope_frequencies(s, c->rope_theta, c->rotary_dim, c->max_position_embeddings, c->max_position_embeddings, with, &magnitude);
    s->attention_factor = (double)magnitude;
    s->mscale = s->mscale_all_dim = 0;
    if (s->kind == LLM_ROPE_LLAMA3) {
        llm_rope_frequencies(&plain, c->rope_theta, c->rotary_dim, 0, c->max_position_embeddings, without, &magnitude);
        s->kind = LLM_ROPE_LONGROPE;
        s->n_factors = (int)c->rotary_dim / 2;
        for (int i = 0; i < s->n_factors; i++) s->short_factors[i] = s->long_factors[i] = without[i] / with[i];
    }
    if (llm_gguf_one_list(s)) { /* the rest says nothing then */
        s->factor = 0;
        s->original_context = 0;
    }
    if (s->kind == LLM_ROPE_LONGROPE) s->beta_fast = s->beta_slow = s->low_freq_factor = s->high_freq_factor = 0;
}

static struct llm_config config_in_file(const struct llm_config *c, const struct llm_arch *arch)
{
    struct llm_config in = *c, usual = llm_config_blank(arch);
    if (arch->in_gguf) arch->in_gguf(&usual);
    memset(in.model_type, 0, sizeof in.model_type);
    strncpy(in.model_type, arch->model_type, sizeof in.model_type - 1);
    if (c->position == LLM_POSITION_ROPE) in.rope_pairing = usual.rope_pairing;
    in.norm_gain_offset = 0;
    in.qkv_by_head = false;
    plain_scaling(&in);
    return in;
}

static bool same_windows(const struct llm_config *a, const struct llm_config *b)
{
    for (int64_t l = 0; l < a->num_hidden_layers; l++) {
        if (llm_config_window(a, l) != llm_config_window(b, l)) return false;
        if (llm_layer_in(a->no_rope_layers, l) != llm_layer_in(b->no_rope_layers, l)) return false;
    }
    return a->num_hidden_layers == b->num_hidden_layers;
}

static bool same_number(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

static bool same_value(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *v;
    if (json_is_number(a) && json_is_number(b)) return same_number(json_number_value(a), json_number_value(b));
    if (json_is_array(a) && json_is_array(b)) {
        bool same = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; same && i < json_array_size(a); i++) same = same_value(json_array_get(a, i), json_array_get(b, i));
        return same;
    }
    if (!json_is_object(a) || !json_is_object(b)) return json_equal(a, b);
    bool same = json_object_size(a) == json_object_size(b);
    json_object_foreach((json_t *)(uintptr_t)a, key, v) same = same && same_value(v, json_object_get(b, key));
    return same;
}

/* What does not change what the model computes, made equal. */
static void forget(struct llm_config *c, const struct llm_config *as)
{
    c->embd_pdrop = as->embd_pdrop;
    c->attn_pdrop = as->attn_pdrop;
    c->resid_pdrop = as->resid_pdrop;
    c->initializer_range = as->initializer_range;
    c->bos_token_id = as->bos_token_id;
    c->eos_token_id = as->eos_token_id;
    c->n_more_eos = as->n_more_eos;
    memcpy(c->more_eos_token_ids, as->more_eos_token_ids, sizeof c->more_eos_token_ids);
    if (same_number(llm_config_attention_scale(c), llm_config_attention_scale(as))) c->query_pre_attn_scalar = as->query_pre_attn_scalar;
    if (!same_windows(c, as)) return;
    c->sliding_window_pattern = as->sliding_window_pattern;
    c->use_sliding_window = as->use_sliding_window;
    c->max_window_layers = as->max_window_layers;
    c->no_rope_layer_interval = as->no_rope_layer_interval;
}

static int compare(const struct llm_config *want, const struct llm_config *found, struct llm_err *e)
{
    struct llm_config same = *want;
    forget(&same, found);
    json_t *a = llm_config_to_json(&same, e), *b = llm_config_to_json(found, e), *v;
    const char *key;
    int r = a && b ? 0 : -1;
    for (int turn = 0; r == 0 && turn < 2; turn++) {
        json_t *of = turn ? b : a, *other = turn ? a : b;
        json_object_foreach(of, key, v) {
            if (r == 0 && !same_value(v, json_object_get(other, key))) {
                r = llm_fail(e, EX_UNAVAILABLE, "%s: GGUF cannot say this of a model of type '%s'", key, want->model_type);
            }
        }
    }
    json_decref(a);
    json_decref(b);
    return r;
}

/* What a reader makes of the metadata, but for what it sees in the tensors. */
static int read_back(const struct save *s, struct llm_config *c, struct llm_err *e)
{
    struct llm_buf file = {0};
    struct llm_gguf g;
    struct llm_header h;
    int r = llm_gguf_header(&s->values, NULL, 0, &file, e);
    if (r == 0) r = llm_gguf_parse(&g, &h, (const unsigned char *)file.p, file.n, "GGUF metadata", e);
    if (r == 0) {
        r = llm_gguf_config(c, &g, e);
        llm_gguf_release(&g);
        llm_header_release(&h);
    }
    llm_buf_release(&file);
    if (r < 0) return -1;
    const struct llm_config *in = &s->config;
    c->vocab_size = in->vocab_size;
    c->tie_word_embeddings = in->tie_word_embeddings;
    c->attention_bias = in->attention_bias;
    c->mlp_bias = in->mlp_bias;
    c->norm_bias = in->norm_bias;
    if (in->rope_scaling.kind == LLM_ROPE_LONGROPE) { /* by tensors */
        c->rope_scaling.kind = LLM_ROPE_LONGROPE;
        c->rope_scaling.n_factors = in->rope_scaling.n_factors;
        memcpy(c->rope_scaling.short_factors, in->rope_scaling.short_factors, sizeof c->rope_scaling.short_factors);
        memcpy(c->rope_scaling.long_factors, in->rope_scaling.long_factors, sizeof c->rope_scaling.long_factors);
        if (llm_gguf_one_list(&in->rope_scaling)) c->rope_scaling.attention_factor = 1;
    }
    json_t *nothing = json_object();
    r = nothing ? llm_config_finish(c, nothing, e) : llm_no_memory(e, "configuration");
    json_decref(nothing);
    if (r == 0) plain_scaling(c);
    return r;
}

/* The type that llama.cpp calls the file by: that of most of its weights. */
static uint32_t file_type(const struct llm_model *m)
{
    static const struct { enum llm_dtype dtype; uint32_t number; } rows[] = {
        {LLM_F32, 0}, {LLM_F16, 1}, {LLM_Q4_0, 2}, {LLM_Q4_1, 3}, {LLM_Q8_0, 7}, {LLM_Q5_0, 8}, {LLM_Q5_1, 9}, {LLM_Q2_K, 10}, {LLM_Q3_K, 12},
        {LLM_Q4_K, 15}, {LLM_Q5_K, 17}, {LLM_Q6_K, 18}, {LLM_IQ4_NL, 25}, {LLM_IQ4_XS, 30}, {LLM_BF16, 32}, {LLM_MXFP4, 38}};
    int64_t count[LLM_N_DTYPES] = {0};
    enum llm_dtype most = LLM_F32;
    for (size_t i = 0; i < m->n_params; i++) {
        if (m->params[i].n_dims > 1) count[m->params[i].weight.dtype] += llm_param_count(&m->params[i]);
    }
    for (int t = 0; t < LLM_N_DTYPES; t++) most = count[t] > count[most] ? (enum llm_dtype)t : most;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].dtype == most) return rows[i].number;
    }
    return 0;
}

static int put_values(struct save *s, struct llm_err *e)
{
    const struct llm_model *m = s->m;
    struct llm_gguf_out *o = &s->values;
    struct llm_config back;
    bool blocks = false;
    llm_gguf_put_str(o, "general.architecture", s->arch->gguf, strlen(s->arch->gguf));
    llm_gguf_put_str(o, "general.name", m->config.model_type, strlen(m->config.model_type));
    llm_gguf_put_str(o, "general.type", "model", 5);
    llm_gguf_put_u32(o, "general.file_type", file_type(m));
    for (size_t i = 0; i < m->n_params; i++) blocks |= llm_dtypes[m->params[i].weight.dtype].is_quantised;
    if (blocks) llm_gguf_put_u32(o, "general.quantization_version", 2);
    llm_gguf_put_config(o, &s->config, s->arch->gguf);
    if (read_back(s, &back, e) < 0 || compare(&s->config, &back, e) < 0) return -1;
    if (m->tokenizer) {
        if (llm_tokenizer_to_gguf(m->tokenizer, m->config.vocab_size, m->config.bos_token_id, m->config.eos_token_id, o, e) < 0) return -1;
    } else {
        llm_gguf_put_str(o, "tokenizer.ggml.model", "no_vocab", 8);
        if (m->config.bos_token_id >= 0) llm_gguf_put_u32(o, "tokenizer.ggml.bos_token_id", (uint32_t)m->config.bos_token_id);
        if (m->config.eos_token_id >= 0) llm_gguf_put_u32(o, "tokenizer.ggml.eos_token_id", (uint32_t)m->config.eos_token_id);
    }
    if (m->config.n_more_eos > 0) llm_gguf_put_u32(o, "tokenizer.ggml.eot_token_id", (uint32_t)m->config.more_eos_token_ids[0]);
    if (m->config.n_more_eos > 1) llm_gguf_put_u32(o, "tokenizer.ggml.eom_token_id", (uint32_t)m->config.more_eos_token_ids[1]);
    if (m->chat_template) llm_gguf_put_str(o, "tokenizer.chat_template", m->chat_template, strlen(m->chat_template));
    return o->failed ? -1 : 0;
}

/* ---- tensors ---- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* Of queries and keys: matrices, biases and the gains of their norms. */
static bool turns(const struct save *s, const char *name)
{
    if (s->config.rope_pairing == s->m->config.rope_pairing || s->config.position != LLM_POSITION_ROPE) return false;
    return strstr(name, ".attn_q.") || strstr(name, ".attn_k.") || strstr(name, ".attn_q_norm.") || strstr(name, ".attn_k_norm.");
}

/* Rows of each head, those that turn together side by side (from halves), or back. */
static void pair_rows(const struct llm_config *c, bool to_pairs, int64_t rows, size_t row_bytes, const char *in, char *out)
{
    int64_t d = c->head_dim, half = c->rotary_dim / 2;
    for (int64_t r = 0; r < rows; r++) {
        int64_t k = r % d, from = r;
        if (k < 2 * half) from = r - k + (to_pairs ? k / 2 + k % 2 * half : 2 * (k % half) + k / half);
        memcpy(out + (size_t)r * row_bytes, in + (size_t)from * row_bytes, row_bytes);
    }
}

static const void *make_vector(struct save *s, const struct llm_param *p, const char *name, struct llm_err *e)
{
    int64_t n = llm_param_count(p);
    float *x = llm_alloc((size_t)n, sizeof *x, name, e), *turned = NULL;
    if (!x) return NULL;
    llm_dtypes[p->weight.dtype].decode(p->weight.data, x, (size_t)n);
    float plus = ends_with(name, "_norm.weight") ? (float)s->m->config.norm_gain_offset : 0;
    for (int64_t i = 0; plus != 0 && i < n; i++) x[i] += plus;
    s->made = x;
    if (!turns(s, name)) return x;
    if (!(turned = llm_alloc((size_t)n, sizeof *x, name, e))) return NULL;
    pair_rows(&s->config, s->config.rope_pairing == LLM_ROPE_INTERLEAVED, n, sizeof *x, (const char *)x, (char *)turned);
    free(x);
    return s->made = turned;
}

static const void *tensor_data(void *arg, size_t i, struct llm_err *e)
{
    struct save *s = arg;
    free(s->made);
    s->made = NULL;
    if (i >= s->m->n_params) return s->tensors[i].data;
    const struct llm_param *p = &s->m->params[i];
    const char *name = s->tensors[i].name;
    if (p->n_dims == 1) return make_vector(s, p, name, e);
    if (!turns(s, name)) return p->weight.data;
    size_t bytes = llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p));
    s->made = llm_alloc(bytes, 1, name, e);
    if (!s->made) return NULL;
    pair_rows(&s->config, s->config.rope_pairing == LLM_ROPE_INTERLEAVED, p->shape[0], bytes / (size_t)p->shape[0], p->weight.data, s->made);
    return s->made;
}

static void add_factors(struct save *s, const char *name, const float *v)
{
    s->tensors[s->n++] = (struct llm_tensor_out){.name = name, .dtype = LLM_F32, .n_dims = 1, .shape = {s->config.rope_scaling.n_factors}, .data = v};
}

static int list_tensors(struct save *s, struct llm_err *e)
{
    const struct llm_model *m = s->m;
    const struct llm_rope_scaling *r = &s->config.rope_scaling;
    s->tensors = llm_calloc(m->n_params + 2, sizeof *s->tensors, "tensors", e);
    if (!s->tensors) return -1;
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param *p = &m->params[i];
        const char *name = s->names.specs[i].name;
        if (s->config.rope_pairing != m->config.rope_pairing && strstr(name, ".attn_qkv.")) {
            return llm_fail(e, EX_UNAVAILABLE, "rope_pairing: GGUF cannot say this of a model of type '%s'", m->config.model_type);
        }
        s->tensors[s->n++] = (struct llm_tensor_out){.name = name, .dtype = p->n_dims == 1 ? LLM_F32 : p->weight.dtype, .n_dims = p->n_dims,
                                                     .shape = {p->shape[0], p->shape[1]}};
    }
    if (r->kind != LLM_ROPE_LONGROPE) return 0;
    if (llm_gguf_one_list(r)) {
        add_factors(s, "rope_freqs.weight", r->short_factors);
    } else {
        add_factors(s, "rope_factors_long.weight", r->long_factors);
        add_factors(s, "rope_factors_short.weight", r->short_factors);
    }
    return 0;
}

int llm_model_save_gguf(struct llm_model *m, struct llm_output *o, struct llm_err *e)
{
    struct save s = {.m = m, .arch = family_of(m->arch, e), .values = {.err = e}};
    if (!s.arch) return -1;
    s.config = config_in_file(&m->config, s.arch);
    int r = llm_model_declare_gguf(&m->config, &s.names, e);
    if (r == 0) r = put_values(&s, e);
    if (r == 0) r = list_tensors(&s, e);
    if (r == 0) r = llm_gguf_write(o, &s.values, s.tensors, s.n, tensor_data, &s, e);
    llm_declare_release(&s.names);
    llm_gguf_out_release(&s.values);
    free(s.tensors);
    free(s.made);
    return r;
}
