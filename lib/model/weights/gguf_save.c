/* Models to GGUF files. Readers derive much of a configuration from the family's name. So the metadata are read back before the file is written, and
 * the configuration that results is compared with the model's: a key that GGUF cannot express is refused by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cpu/pages.h"
#include "model/config/gguf.h"
#include "model/weights/gguf_latent.h"
#include "model/weights/gguf_names.h"
#include "model/weights/names.h"

/* Where a tensor of the file comes from. */
struct source {
    enum { PARAM, LATENT_KEYS, LATENT_VALUES, GIVEN } kind;
    size_t spec;                   /* index in `names`; of stacked experts that of the first */
    char name[120];                /* halves of latent matrices: the tensor's name; else empty */
};
struct save {
    struct llm_model *m;
    struct llm_config config;      /* as it is in the file */
    const struct llm_arch *arch;   /* the family that the file names */
    struct llm_gguf_names names;
    struct llm_gguf_out values;
    struct llm_tensor_out *tensors;
    struct source *sources;
    size_t n;
    bool kv_b_whole;
};

/* ---- the configuration ---- */

/* Brings rotary scaling into the form in which it is read from GGUF files. */
static void plain_scaling(struct llm_config *c)
{
    struct llm_rope_scaling *s = &c->rope_scaling, plain = {.kind = LLM_ROPE_PLAIN};
    float with[LLM_MAX_ROTARY_PAIRS], without[LLM_MAX_ROTARY_PAIRS], magnitude;
    if (c->position != LLM_POSITION_ROPE || s->kind == LLM_ROPE_PLAIN || s->kind == LLM_ROPE_LINEAR || s->kind == LLM_ROPE_DYNAMIC
        || c->rotary_dim / 2 > LLM_MAX_ROTARY_PAIRS) return;
    llm_rope_frequencies(s, c->rope_theta, c->rotary_dim, c->max_position_embeddings, c->max_position_embeddings, with, &magnitude);
    s->attention_factor = (double)magnitude;
    if (c->kv_lora_rank == 0) s->mscale = s->mscale_all_dim = 0; /* with MLA the scale of attention scores depends on them */
    if (s->kind == LLM_ROPE_LLAMA3) {
        llm_rope_frequencies(&plain, c->rope_theta, c->rotary_dim, 0, c->max_position_embeddings, without, &magnitude);
        s->kind = LLM_ROPE_LONGROPE;
        s->n_factors = (int)c->rotary_dim / 2;
        for (int i = 0; i < s->n_factors; i++) s->short_factors[i] = s->long_factors[i] = without[i] / with[i];
    }
    if (llm_gguf_one_list(s)) { /* the list of factors determines everything */
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
    if (c->position == LLM_POSITION_ROPE && c->kv_lora_rank == 0) in.rope_pairing = usual.rope_pairing;
    in.norm_gain_offset = 0;
    llm_gguf_leave_out(&in, arch);
    if (in.topk_group == in.n_group) in.topk_group = in.n_group = 1; /* all groups are chosen; llama.cpp does not load such numbers */
    plain_scaling(&in);
    return in;
}

static bool same_windows(const struct llm_config *a, const struct llm_config *b)
{
    for (int64_t l = 0; l < a->num_hidden_layers; l++) {
        if (llm_config_window(a, l) != llm_config_window(b, l)) return false;
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

/* Sets the fields of `c` that do not change what the model computes to those of `as`, so that a comparison ignores them. */
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
    c->time_step_min = as->time_step_min;
    c->time_step_max = as->time_step_max;
    c->time_step_floor = as->time_step_floor;
    c->router_aux_loss_coef = as->router_aux_loss_coef;
    c->router_z_loss_coef = as->router_z_loss_coef;
    c->router_bias_update_rate = as->router_bias_update_rate;
    c->expert_capacity_factor = as->expert_capacity_factor;
    c->mask_token_id = as->mask_token_id;
    if (c->intermediate_size == as->intermediate_size) c->ssm_expand = as->ssm_expand;
    if (c->routing == LLM_ROUTING_GUMBEL) c->routing = as->routing; /* noise is for training */
    if (c->num_experts == 0) c->moe_intermediate_size = as->moe_intermediate_size;
    if (c->n_group == 1 && as->n_group == 1) c->topk_method = as->topk_method;
    if (same_number(llm_config_attention_scale(c, 0), llm_config_attention_scale(as, 0))) c->query_pre_attn_scalar = as->query_pre_attn_scalar;
    if (memcmp(c->no_rope_layers, as->no_rope_layers, sizeof c->no_rope_layers) == 0) c->no_rope_layer_interval = as->no_rope_layer_interval;
    if (!same_windows(c, as)) return;
    c->sliding_window_pattern = as->sliding_window_pattern;
    c->use_sliding_window = as->use_sliding_window;
    c->max_window_layers = as->max_window_layers;
}

/* Fills the error for a key that a reader of the GGUF file would read as `readers` (NULL: not at all) while the model has `own`. Returns -1. */
static int unsayable(const char *type, const char *key, const json_t *readers, const json_t *own, struct llm_err *e)
{
    const size_t flags = JSON_ENCODE_ANY | JSON_COMPACT;
    char *expected = readers ? json_dumps(readers, flags) : NULL, *found = own ? json_dumps(own, flags) : NULL;
    llm_fail(e, EX_UNAVAILABLE, "%s: GGUF cannot say this of a model of type '%s': expected %.60s, found %.60s", key, type,
             expected ? expected : "none", found ? found : "none");
    free(expected);
    free(found);
    return -1;
}

static int compare(const struct llm_config *want, const struct llm_config *found, struct llm_err *e)
{
    struct llm_config same = *want;
    forget(&same, found);
    if (!same_number(llm_config_attention_scale(want, 0), llm_config_attention_scale(found, 0))) {
        return llm_fail(e, EX_UNAVAILABLE, "the scale of attention scores: GGUF cannot say this of a model of type '%s': expected %g, found %g",
                        want->model_type, llm_config_attention_scale(found, 0), llm_config_attention_scale(want, 0));
    }
    json_t *a = llm_config_to_json(&same, e), *b = llm_config_to_json(found, e), *v;
    const char *key;
    int r = a && b ? 0 : -1;
    for (int turn = 0; r == 0 && turn < 2; turn++) {
        json_t *of = turn ? b : a, *other = turn ? a : b;
        json_object_foreach(of, key, v) {
            if (r == 0 && !same_value(v, json_object_get(other, key))) {
                r = unsayable(want->model_type, key, json_object_get(b, key), json_object_get(a, key), e);
            }
        }
    }
    json_decref(a);
    json_decref(b);
    return r;
}

/* Reads the metadata back into `c`. What a reader takes from the tensors is copied from the model. */
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
    if (in->mixer == LLM_MIXER_ATTENTION) c->mlp_bias = in->mlp_bias;
    c->norm_bias = in->norm_bias;
    c->head_transform = in->head_transform;
    c->pooler = in->pooler;
    c->type_vocab_size = in->type_vocab_size;
    c->router_bias = in->router_bias;
    c->qk_layernorm = in->qk_layernorm;
    c->feed_forward_kind = in->gated; /* GGUF has T5's first two kinds only: relu, gated-gelu */
    if (in->rope_scaling.kind == LLM_ROPE_LONGROPE) { /* its factors are tensors */
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

/* general.file_type: llama.cpp's number for the type that most weights have. */
static uint32_t file_type(const struct llm_model *m)
{
    int64_t count[LLM_N_DTYPES] = {0};
    enum llm_dtype max = LLM_F32;
    for (size_t i = 0; i < m->n_params; i++) {
        if (m->params[i].n_dims > 1) count[m->params[i].weight.dtype] += llm_param_count(&m->params[i]);
    }
    for (int t = 0; t < LLM_N_DTYPES; t++) max = count[t] > count[max] ? (enum llm_dtype)t : max;
    return llm_dtypes[max].ggml_file > 0 ? (uint32_t)llm_dtypes[max].ggml_file : 0;
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
    llm_gguf_put_config(o, &s->config, s->arch, s->kv_b_whole);
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

/* Whether the parameter's rows are rotated channels, which GGUF files order in pairs: matrices and biases of queries and keys, gains of their norms.
 * */
static bool pairs_rows(const struct save *s, const struct llm_param_spec *spec)
{
    if (s->config.rope_pairing == s->m->config.rope_pairing || s->config.position != LLM_POSITION_ROPE) return false;
    return spec->stem == LLM_STEM_Q || spec->stem == LLM_STEM_K || spec->stem == LLM_STEM_Q_NORM || spec->stem == LLM_STEM_K_NORM;
}

/* Adds a vector or a small table, in F32, to the tensors of the file. */
static int put_numbers(struct save *s, const struct llm_param_spec *spec, const struct llm_param *p, struct llm_output *o, struct llm_err *e)
{
    int64_t n = llm_param_count(p);
    float *x = llm_alloc((size_t)n, sizeof *x, spec->name, e), *paired = NULL, *out = x;
    int r = x ? 0 : -1;
    if (x) llm_dtypes[p->weight.dtype].decode(p->weight.data, x, (size_t)n);
    float plus = spec->gain ? (float)s->m->config.norm_gain_offset : 0;
    for (int64_t i = 0; x && plus != 0 && i < n; i++) x[i] += plus;
    for (int64_t i = 0; x && spec->minus_exp && i < n; i++) x[i] = (float)-exp((double)x[i]);
    if (x && pairs_rows(s, spec)) {
        out = paired = llm_alloc((size_t)n, sizeof *x, spec->name, e);
        if (paired) llm_rows_in_pairs(&s->config, x, n, sizeof *x, s->config.rope_pairing == LLM_ROPE_INTERLEAVED, paired);
        else r = -1;
    }
    if (r == 0) r = llm_output_write(o, out, (size_t)n * sizeof *x, e);
    free(paired);
    free(x);
    return r;
}

static int put_matrix(struct save *s, const struct llm_param_spec *spec, const struct llm_param *p, struct llm_output *o, struct llm_err *e)
{
    size_t bytes = llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p));
    if (!pairs_rows(s, spec)) {
        int status = llm_output_write(o, p->weight.data, bytes, e);
        llm_weight_release_pages(&p->weight, 0, bytes);
        return status;
    }
    char *made = llm_alloc(bytes, 1, spec->name, e);
    if (!made) return -1;
    llm_rows_in_pairs(&s->config, p->weight.data, p->shape[0], bytes / (size_t)p->shape[0], s->config.rope_pairing == LLM_ROPE_INTERLEAVED, made);
    llm_weight_release_pages(&p->weight, 0, bytes);
    int r = llm_output_write(o, made, bytes, e);
    free(made);
    return r;
}

/* Whether llama.cpp expects the parameter in F32, whatever the type of the matrices: vectors, decays, and tables that are added to embeddings. */
static bool is_exact(const struct llm_param_spec *spec)
{
    return spec->n_dims == 1 || spec->exact || spec->stem == LLM_STEM_TOKEN_TYPES || spec->stem == LLM_STEM_POSITIONS;
}

static int put_tensor(void *arg, size_t i, struct llm_output *o, struct llm_err *e)
{
    struct save *s = arg;
    const struct source *from = &s->sources[i];
    const struct llm_param_spec *spec = &s->names.declared.specs[from->spec];
    if (from->kind == GIVEN) return llm_output_write(o, s->tensors[i].data, llm_gguf_bytes(&s->tensors[i]), e);
    if (from->kind != PARAM) return llm_latent_write(&s->config, s->names.params[from->spec], from->kind == LATENT_KEYS, o, e);
    int64_t part = 0; /* experts of a layer stand one after another, gates, ups and downs among each other */
    for (size_t k = from->spec; part < (spec->n_parts ? spec->n_parts : 1); k++) {
        const struct llm_param *p = s->names.params[k];
        if (spec->n_parts && !llm_param_spec_stacked(&s->names.declared.specs[k], spec)) continue;
        if ((is_exact(spec) ? put_numbers(s, spec, p, o, e) : put_matrix(s, spec, p, o, e)) < 0) return -1;
        part++;
    }
    return 0;
}

static void add_factors(struct save *s, const char *name, const float *v)
{
    s->sources[s->n].kind = GIVEN;
    s->tensors[s->n++] = (struct llm_tensor_out){.name = name, .dtype = LLM_F32, .n_dims = 1, .shape = {s->config.rope_scaling.n_factors}, .data = v};
}

/* Checks that the experts of a layer, which are one tensor in the file, have one type. */
static int check_experts(const struct save *s, size_t first, struct llm_err *e)
{
    const struct llm_param_spec *spec = &s->names.declared.specs[first];
    for (size_t k = first, part = 0; part < (size_t)spec->n_parts; k++) {
        if (!llm_param_spec_stacked(&s->names.declared.specs[k], spec)) continue;
        if (s->names.params[k]->weight.dtype != s->names.params[first]->weight.dtype) {
            return llm_fail(e, EX_UNAVAILABLE, "tensor '%s': GGUF cannot say this: expected experts of one type, found %s and %s", spec->name,
                            llm_dtypes[s->names.params[first]->weight.dtype].name, llm_dtypes[s->names.params[k]->weight.dtype].name);
        }
        part++;
    }
    return 0;
}

/* What llama.cpp wants of a family's tensors: it refuses files that have others, or lack some. The metadata do not say it. */
struct wants {
    const char *gguf;              /* the family's name in files */
    enum { AS_IT_IS, BIAS, NO_BIAS, NO_OUT_BIAS } attention;
    bool no_mlp_bias, head, no_head; /* a head even of a tied model; none */
};

static const struct wants *wants_of(const struct llm_arch *arch)
{
    static const struct wants all[] = {
        {.gguf = "deepseek2", .attention = NO_BIAS}, {.gguf = "gemma2", .attention = NO_OUT_BIAS, .no_head = true},
        {.gguf = "gemma3", .attention = NO_OUT_BIAS}, {.gguf = "gptneox", .attention = BIAS, .head = true},
        {.gguf = "olmo2", .attention = NO_OUT_BIAS, .head = true}, {.gguf = "qwen3", .attention = NO_OUT_BIAS},
        {.gguf = "qwen3moe", .attention = NO_OUT_BIAS}, {.gguf = "smollm3", .attention = NO_OUT_BIAS, .no_mlp_bias = true},
        {.gguf = "stablelm", .head = true}};
    static const struct wants none;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].gguf, arch->gguf) == 0) return &all[i];
    return &none;
}

static int check_wants(const struct save *s, struct llm_err *e)
{
    const struct wants *w = wants_of(s->arch);
    const struct llm_config *c = &s->config;
    const bool out = w->attention == NO_OUT_BIAS && c->attention_bias && c->attention_out_bias, bias = w->attention == NO_BIAS && c->attention_bias;
    const char *key = out || bias || (w->attention == BIAS && !c->attention_bias) ? "attention_bias"
                    : w->no_mlp_bias && c->mlp_bias                              ? "mlp_bias"
                    : w->no_head && !c->tie_word_embeddings                      ? "tie_word_embeddings"
                                                                                 : NULL;
    const bool wanted = key && (w->attention == BIAS || strcmp(key, "tie_word_embeddings") == 0);
    if (!key) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "%s: GGUF cannot say this of a model of type '%s': expected %s, found %s", key, c->model_type,
                    wanted ? "true" : "false", wanted ? "false" : "true");
}

/* Says what the file has and llama.cpp does not look at, so that it computes something else or does not load the file. */
static void tell_unread(const struct save *s)
{
    const struct llm_config *c = &s->config;
    const struct llm_rope_scaling *r = &c->rope_scaling;
    int64_t window = 0;
    for (int64_t l = 0; l < c->num_hidden_layers && window == 0; l++) window = llm_config_window(c, l);
    if (window > 0 && window < c->max_position_embeddings && (strcmp(s->arch->gguf, "llama") == 0 || strcmp(s->arch->gguf, "phi3") == 0)) {
        llm_note("sliding_window: llama.cpp has none for a model of type '%s': it differs from the %lld-th token on", s->m->config.model_type,
                 (long long)window + 1);
    }
    if (r->kind == LLM_ROPE_YARN && ((r->beta_fast > 0 && r->beta_fast != 32) || (r->beta_slow > 0 && r->beta_slow != 1))) {
        llm_note("rope_scaling: llama.cpp takes 32 and 1 as beta_fast and beta_slow of a model of type '%s': it differs from the first token on",
                 s->m->config.model_type);
    }
    const bool reads_factors = strcmp(s->arch->gguf, "llama") == 0 || (strcmp(s->arch->gguf, "phi3") == 0 && !llm_gguf_one_list(r));
    if (r->kind == LLM_ROPE_LONGROPE && !reads_factors) {
        llm_note("rope_scaling: llama.cpp does not load a model of type '%s' with factors of rotary frequencies", s->m->config.model_type);
    }
    if (c->topk_method == LLM_TOPK_GROUPS && c->topk_group < c->n_group) {
        llm_note("topk_method: llama.cpp chooses groups of experts by their two best, and a model of type '%s' by the best one: it differs from the "
                 "first token on", s->m->config.model_type);
    }
    if (c->kv_lora_rank == 0) return;
    if (r->kind == LLM_ROPE_LINEAR && r->factor > 1) {
        llm_note("rope_scaling: llama.cpp multiplies attention scores of a model of type '%s' by %g, as if it were YaRN's: it differs from the "
                 "second token on", s->m->config.model_type, pow(llm_gguf_yarn_magnitude(r->factor), 2));
    }
    if (c->q_lora_rank == 0 && c->num_hidden_layers != 26 && c->num_hidden_layers != 27) {
        llm_note("q_lora_rank: llama.cpp loads a model of type '%s' without it only with 26 or 27 layers", s->m->config.model_type);
    }
}

static bool has_second_head(const struct llm_arch *family, const struct llm_config *c)
{
    return wants_of(family)->head && c->tie_word_embeddings;
}

uint64_t llm_model_gguf_bytes(const struct llm_model *m, const struct llm_param *p, enum llm_dtype type)
{
    const struct llm_arch *family = llm_gguf_family(m->arch);
    const bool twice = family && p->spec->stem == LLM_STEM_EMBED && has_second_head(family, &m->config);
    return llm_dtype_bytes(is_exact(p->spec) ? LLM_F32 : type, (uint64_t)llm_param_count(p)) * (twice ? 2 : 1);
}

/* The embedding once more, as the head. */
static void add_head(struct save *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->tensors[i].name, "token_embd.weight") != 0) continue;
        s->sources[s->n] = s->sources[i];
        s->tensors[s->n] = s->tensors[i];
        s->tensors[s->n++].name = "output.weight";
        return;
    }
}

static int list_tensor(struct save *s, size_t i, struct llm_err *e)
{
    const struct llm_param_spec *spec = &s->names.declared.specs[i];
    const struct llm_param *p = s->names.params[i];
    if (s->config.rope_pairing != s->m->config.rope_pairing && spec->stem == LLM_STEM_QKV && spec->unit == LLM_UNIT_ATTENTION) {
        return llm_fail(e, EX_UNAVAILABLE, "rope_pairing: GGUF cannot say this of a model of type '%s'", s->m->config.model_type);
    }
    if (spec->part > 0) return 0;
    if (spec->n_parts && !is_exact(spec) && check_experts(s, i, e) < 0) return -1;
    for (int half = 0; half < 2 && !s->kv_b_whole && spec->stem == LLM_STEM_KV_B; half++) {
        struct source *from = &s->sources[s->n];
        *from = (struct source){.kind = half ? LATENT_VALUES : LATENT_KEYS, .spec = i};
        s->tensors[s->n++] = llm_latent_half(&s->config, p, spec, !half, from->name);
        if (half) return 0;
    }
    struct llm_tensor_out t = {.name = spec->name, .dtype = is_exact(spec) ? LLM_F32 : p->weight.dtype, .n_dims = spec->n_dims,
                               .shape = {spec->shape[0], spec->shape[1]}};
    if (spec->file_dims) {
        t.n_dims = spec->file_dims;
        memcpy(t.shape, spec->file_shape, sizeof spec->file_shape);
    }
    s->sources[s->n].spec = i;
    s->tensors[s->n++] = t;
    return 0;
}

static int list_tensors(struct save *s, struct llm_err *e)
{
    const struct llm_rope_scaling *r = &s->config.rope_scaling;
    size_t room = 2 * s->names.declared.n + 3; /* halves of latent matrices, factors, and a head */
    s->tensors = llm_calloc(room, sizeof *s->tensors, "tensors", e);
    s->sources = s->tensors ? llm_calloc(room, sizeof *s->sources, "tensors", e) : NULL;
    if (!s->sources) return -1;
    for (size_t i = 0; i < s->names.declared.n; i++) {
        if (list_tensor(s, i, e) < 0) return -1;
    }
    if (has_second_head(s->arch, &s->config)) add_head(s);
    if (r->kind != LLM_ROPE_LONGROPE) return 0;
    if (llm_gguf_one_list(r)) {
        add_factors(s, "rope_freqs.weight", r->short_factors);
    } else {
        add_factors(s, "rope_factors_long.weight", r->long_factors);
        add_factors(s, "rope_factors_short.weight", r->short_factors);
    }
    return 0;
}

/* Chooses the parameters that go into the file: those that GGUF has a name for. */
static int choose_params(struct save *s, struct llm_err *e)
{
    if (llm_gguf_names_of(&s->names, s->m, e) < 0) return -1;
    for (size_t i = 0; i < s->names.declared.n; i++) {
        bool latent = s->names.declared.specs[i].stem == LLM_STEM_KV_B;
        s->kv_b_whole |= latent && llm_dtypes[s->names.params[i]->weight.dtype].is_quantised; /* blocks are not transposed */
    }
    return 0;
}

/* Everything but the tensors. To be released in any case. */
static int begin(struct save *s, struct llm_model *m, struct llm_err *e)
{
    *s = (struct save){.m = m, .arch = llm_gguf_family(m->arch), .values = {.err = e}};
    if (!s->arch) return llm_fail(e, EX_UNAVAILABLE, "a model of type '%s' cannot be written as GGUF", m->config.model_type);
    s->config = config_in_file(&m->config, s->arch);
    int r = choose_params(s, e);
    if (r == 0) r = put_values(s, e);
    return r == 0 ? check_wants(s, e) : r;
}

static void release(struct save *s)
{
    llm_gguf_names_release(&s->names);
    llm_gguf_out_release(&s->values);
    free(s->tensors);
    free(s->sources);
}

int llm_model_check_gguf(struct llm_model *m, struct llm_err *e)
{
    struct save s;
    const int r = begin(&s, m, e);
    release(&s);
    return r;
}

/* Where the file is written: one output `o`, or, if `o` is NULL, parts named after `path`. */
struct target { struct llm_output *o; const char *path; int64_t max_bytes, max_tensors; };

static int save_gguf(struct llm_model *m, const struct target *to, struct llm_err *e)
{
    struct save s;
    int r = begin(&s, m, e);
    if (r == 0 && s.names.declared.n < m->n_params) {
        llm_note("%zu tensors left out: GGUF has no names for a pooler, a masked-token head or layers that predict further",
                 m->n_params - s.names.declared.n);
    }
    if (r == 0) tell_unread(&s);
    if (r == 0) r = list_tensors(&s, e);
    if (r == 0 && to->o) r = llm_gguf_write(to->o, &s.values, s.tensors, s.n, put_tensor, &s, e);
    else if (r == 0) r = llm_gguf_write_parts(to->path, to->max_bytes, to->max_tensors, &s.values, s.tensors, s.n, put_tensor, &s, e);
    release(&s);
    return r;
}

int llm_model_save_gguf(struct llm_model *m, struct llm_output *o, struct llm_err *e)
{
    const struct target to = {.o = o};
    return save_gguf(m, &to, e);
}

int llm_model_save_gguf_parts(struct llm_model *m, const char *path, int64_t max_bytes, int64_t max_tensors, struct llm_err *e)
{
    const struct target to = {.path = path, .max_bytes = max_bytes, .max_tensors = max_tensors};
    return save_gguf(m, &to, e);
}
