/* Configurations from JSON and back, by the families' tables of keys. */
#include "model/config/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/suggest.h"
#include "io/sniff.h"
#include "model/config/arch.h"
#include "model/config/preset.h"
#include "model/config/transformers.h"

static const char *const act_names[LLM_N_ACTS] = {"gelu", "gelu_new", "relu", "silu", "sigmoid", "tanh", "relu2", "quick_gelu", "linear"};
static const char sqrt_scale[] = "1/sqrt(hidden)";

/* `word` (NULL: none) is not one of the n known ones. */
static int no_such_word(const char *key, const char *word, const char *const *known, size_t n, struct llm_err *e)
{
    struct llm_suggest near;
    char list[512] = "";
    llm_suggest_begin(&near, word ? word : "");
    for (size_t i = 0; i < n; i++) {
        llm_suggest_add(&near, known[i], known[i]);
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, known[i], sizeof list - strlen(list) - 1);
    }
    const char *quote = word ? "'" : "";
    return llm_fail(e, EX_DATAERR, "%s: expected one of %s; found %s%s%s%s", key, list, quote, word ? word : "none", quote,
                    llm_suggest_text(&near, ""));
}

static int read_word(const json_t *o, const struct llm_config_key *k, int *out, struct llm_err *e)
{
    const char *word = NULL;
    if (llm_json_str(o, k->name, &word, e) < 0) return -1;
    if (!word) return 0;
    if (k->type == LLM_KEY_ACT) {
        int act = llm_act_find(word);
        if (act < 0) return no_such_word(k->name, word, act_names, LLM_N_ACTS, e);
        *out = act;
        return 0;
    }
    size_t n = 0;
    for (; k->words[n]; n++) {
        if (strcmp(word, k->words[n]) != 0) continue;
        *out = (int)n;
        return 0;
    }
    return no_such_word(k->name, word, k->words, n, e);
}

static int read_real(const json_t *o, const struct llm_config_key *k, double *out, struct llm_err *e)
{
    double v = *out;
    if (llm_json_real(o, k->name, &v, e) < 0) return -1;
    if (!(v >= k->min && v <= k->max)) return llm_fail(e, EX_DATAERR, "%s: expected %g to %g, found %g", k->name, k->min, k->max, v);
    *out = v;
    return 0;
}

static int read_length(const json_t *o, const struct llm_config_key *k, int64_t *out, struct llm_err *e)
{
    if (json_is_null(json_object_get(o, k->name))) *out = 0;
    return llm_json_int(o, k->name, (int64_t)k->min, (int64_t)k->max, out, e);
}

static int read_token(const json_t *o, const char *name, int64_t *out, struct llm_err *e)
{
    const json_t *v = json_object_get(o, name);
    if (json_is_null(v)) *out = -1;
    if (!json_is_array(v)) return llm_json_int(o, name, -1, INT32_MAX, out, e);
    v = json_array_get(v, 0);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX) {
        return llm_fail(e, EX_DATAERR, "%s: expected token ids", name);
    }
    *out = json_integer_value(v);
    return 0;
}

void llm_config_add_eos(struct llm_config *c, int64_t id)
{
    if (id < 0 || id == c->eos_token_id) return;
    if (c->eos_token_id < 0) {
        c->eos_token_id = id;
        return;
    }
    for (int i = 0; i < c->n_more_eos; i++) {
        if (c->more_eos_token_ids[i] == id) return;
    }
    if (c->n_more_eos < LLM_MAX_EOS) c->more_eos_token_ids[c->n_more_eos++] = id;
}

int llm_config_add_eos_from(struct llm_config *c, const json_t *o, const char *key, struct llm_err *e)
{
    const json_t *v = json_object_get(o, key);
    size_t n = json_is_array(v) ? json_array_size(v) : v && !json_is_null(v);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(id) || json_integer_value(id) < -1 || json_integer_value(id) > INT32_MAX) {
            return llm_fail(e, EX_DATAERR, "%s: expected token ids", key);
        }
        llm_config_add_eos(c, json_integer_value(id));
    }
    return 0;
}

/* Reads a list of layers by number. Numbers beyond the model's layers are ignored. */
static int read_layers(const json_t *o, const char *name, uint64_t *set, struct llm_err *e)
{
    const json_t *list = json_object_get(o, name);
    if (!list) return 0;
    memset(set, 0, sizeof(llm_layer_set));
    if (!json_is_array(list) && !json_is_null(list)) return llm_fail(e, EX_DATAERR, "%s: expected a list of layers", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= LLM_MAX_LAYERS) {
            return llm_fail(e, EX_DATAERR, "%s: expected numbers of layers, 0 to %d", name, LLM_MAX_LAYERS - 1);
        }
        set[json_integer_value(v) / 64] |= (uint64_t)1 << json_integer_value(v) % 64;
    }
    return 0;
}

static json_t *write_layers(const uint64_t *set)
{
    json_t *list = json_array();
    for (int64_t l = 0; list && l < LLM_MAX_LAYERS; l++) {
        if (llm_layer_in(set, l)) json_array_append_new(list, json_integer(l));
    }
    return list;
}

static int read_key(struct llm_config *c, const json_t *o, const struct llm_config_key *k, struct llm_err *e)
{
    void *at = (char *)c + k->offset;
    switch (k->type) {
    case LLM_KEY_INT: return llm_json_int(o, k->name, (int64_t)k->min, (int64_t)k->max, at, e);
    case LLM_KEY_TOKEN: return read_token(o, k->name, at, e);
    case LLM_KEY_LENGTH: return read_length(o, k, at, e);
    case LLM_KEY_CAP:
        if (json_is_null(json_object_get(o, k->name))) *(double *)at = 0;
        return read_real(o, k, at, e);
    case LLM_KEY_REAL: return read_real(o, k, at, e);
    case LLM_KEY_BOOL: return llm_json_bool(o, k->name, at, e);
    case LLM_KEY_LAYERS: return read_layers(o, k->name, at, e);
    case LLM_KEY_WORD:
    case LLM_KEY_ACT: return read_word(o, k, at, e);
    case LLM_KEY_SCALE: {
        const char *text = json_string_value(json_object_get(o, k->name));
        if (!text) return read_real(o, k, at, e);
        if (strcmp(text, sqrt_scale) != 0) return llm_fail(e, EX_DATAERR, "%s: expected a number or \"%s\", found '%s'", k->name, sqrt_scale, text);
        *(double *)at = 0; /* resolved when hidden_size is known */
        return 0;
    }
    }
    return 0;
}

static int check_experts(const struct llm_config *c, struct llm_err *e)
{
    if (c->num_experts_per_tok < 1 || c->num_experts_per_tok > c->num_experts) {
        return llm_fail(e, EX_DATAERR, "num_experts_per_tok: expected 1 to %lld, found %lld", (long long)c->num_experts,
                        (long long)c->num_experts_per_tok);
    }
    if (!c->gated || c->moe_intermediate_size < 1) {
        return llm_fail(e, EX_DATAERR, "moe_intermediate_size: expected gated experts of at least 1, found %lld",
                        (long long)c->moe_intermediate_size);
    }
    if (c->num_experts % c->n_group == 0 && c->topk_group <= c->n_group &&
        c->topk_group * (c->num_experts / c->n_group) >= c->num_experts_per_tok) return 0;
    return llm_fail(e, EX_DATAERR, "n_group, topk_group: expected equal groups with num_experts_per_tok experts in those chosen, found %lld of %lld",
                    (long long)c->topk_group, (long long)c->n_group);
}

/* Checks what every family must satisfy. Later code multiplies sizes without checking them again. */
static int check(const struct llm_config *c, struct llm_err *e)
{
    if (c->num_attention_heads % c->num_key_value_heads != 0) {
        return llm_fail(e, EX_DATAERR, "num_attention_heads: expected a multiple of num_key_value_heads (%lld), found %lld",
                        (long long)c->num_key_value_heads, (long long)c->num_attention_heads);
    }
    if (c->head_dim < 1 || c->num_attention_heads > (1 << 22) / c->head_dim) {
        return llm_fail(e, EX_DATAERR, "head_dim: expected 1 to %lld with %lld heads, found %lld", (1LL << 22) / (long long)c->num_attention_heads,
                        (long long)c->num_attention_heads, (long long)c->head_dim);
    }
    if (c->position == LLM_POSITION_ROPE && (c->rotary_dim < 2 || c->rotary_dim % 2 != 0 || c->rotary_dim > c->head_dim)) {
        return llm_fail(e, EX_DATAERR, "head_dim: expected an even number of rotated channels, 2 to %lld, found %lld", (long long)c->head_dim,
                        (long long)c->rotary_dim);
    }
    if (c->attention_sinks && !llm_arch_find(c->model_type)->names.stem[LLM_STEM_SINKS]) {
        return llm_fail(e, EX_DATAERR, "attention_sinks: expected of a family that has a name for them (llama), found %s", c->model_type);
    }
    if (c->kv_sharing > 1 && !llm_arch_find(c->model_type)->names.stem[LLM_STEM_K]) {
        return llm_fail(e, EX_DATAERR, "kv_sharing: expected of a family with separate projections (llama), found %s", c->model_type);
    }
    if (c->num_experts > 0 && check_experts(c, e) < 0) return -1;
    if (c->rope_scaling.n_factors && c->rope_scaling.n_factors != c->rotary_dim / 2) {
        return llm_fail(e, EX_DATAERR, "long_factor: expected %lld numbers, found %d", (long long)c->rotary_dim / 2, c->rope_scaling.n_factors);
    }
    return 0;
}

int llm_config_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const struct llm_arch *arch = llm_arch_find(c->model_type);
    if (!arch->out_bias_apart) c->attention_out_bias = c->attention_bias;
    if (arch->finish && arch->finish(c, o, e) < 0) return -1;
    if (c->logit_scale == 0) c->logit_scale = 1 / sqrt((double)c->hidden_size);
    if (c->norm == LLM_NORM_GROUP && c->hidden_size % c->norm_groups != 0) {
        return llm_fail(e, EX_DATAERR, "norm_groups: expected a divisor of hidden_size (%lld), found %lld", (long long)c->hidden_size,
                        (long long)c->norm_groups);
    }
    if (c->norm != LLM_NORM_RMS && c->norm_gain_offset != 0) return llm_fail(e, EX_DATAERR, "norm: expected rms with norm_gain_offset");
    if (llm_config_read_labels(c, o, e) < 0) return -1;
    if (c->contrastive) llm_config_compare(c);
    if (c->embedding_scale == 0) c->embedding_scale = sqrt((double)c->hidden_size);
    return check(c, e);
}

/* Makes the file `o` one of ours: removes the keys that transformers' class of the family ignores, because here they would mean something (`say`:
 * warns of each), and changes those that its class changes if transformers wrote them. 0 or -1. */
static int make_ours(json_t *o, const struct llm_arch *arch, bool say, struct llm_err *e)
{
    if (llm_config_is_foreign(o) && arch->of_transformers && arch->of_transformers(o, e) < 0) return -1;
    for (const char *const *p = arch->ignored; p && *p; p++) {
        const json_t *value = json_object_get(o, *p);
        if (say && value && !json_is_null(value)) llm_warn("configuration: %s: ignored, as transformers' %s ignores it", *p, arch->model_type);
        json_object_del(o, *p);
    }
    json_object_del(o, "transformers_version");
    return 0;
}

int llm_config_of_file(json_t *o, struct llm_err *e)
{
    const char *type = json_string_value(json_object_get(o, "model_type"));
    const struct llm_arch *arch = type ? llm_arch_find(type) : NULL;
    return arch ? make_ours(o, arch, !llm_config_is_foreign(o), e) : 0;
}

static int read_rows(struct llm_config *c, const json_t *o, const struct llm_arch *arch, struct llm_err *e)
{
    for (const struct llm_config_key *k = arch->keys; k->name; k++) {
        if (read_key(c, o, k, e) < 0) return -1;
    }
    for (const struct llm_config_key *k = llm_config_common_keys; k->name; k++) {
        if (read_key(c, o, k, e) < 0) return -1;
    }
    if (json_is_array(json_object_get(o, "eos_token_id")) && llm_config_add_eos_from(c, o, "eos_token_id", e) < 0) return -1;
    return llm_config_finish(c, o, e);
}

/* Adds the members of a section, or of "<section>_dict", which earlier versions of transformers wrote beside it and which decides. 0 or -1. */
static int flatten_section(json_t *flat, const char *section, const char *end, struct llm_err *e)
{
    char name[160];
    const char *key;
    json_t *value;
    snprintf(name, sizeof name, "%s%s", section, end);
    const json_t *o = json_object_get(flat, name);
    if (o && !json_is_object(o) && !json_is_null(o)) return llm_fail(e, EX_DATAERR, "%s: expected an object", name);
    json_object_foreach((json_t *)(uintptr_t)o, key, value) {
        if (snprintf(name, sizeof name, "%s.%s", section, key) >= (int)sizeof name) return llm_fail(e, EX_DATAERR, "%s: key too long", section);
        if (json_object_set(flat, name, value) < 0) return llm_no_memory(e, "configuration");
    }
    snprintf(name, sizeof name, "%s%s", section, end);
    json_object_del(flat, name);
    return 0;
}

/* A copy of `o` in which keys of sections are named "section.key". Keys that are named so already decide: they were set by the user. */
static json_t *flatten(const json_t *o, const struct llm_arch *arch, struct llm_err *e)
{
    json_t *flat = json_copy((json_t *)(uintptr_t)o), *given = json_copy((json_t *)(uintptr_t)o);
    int failed = flat && given ? 0 : llm_no_memory(e, "configuration");
    for (const char *const *s = arch->sections; s && *s && !failed; s++) {
        failed = flatten_section(flat, *s, "", e) < 0 || flatten_section(flat, *s, "_dict", e) < 0;
        json_object_del(given, *s);
    }
    if (!failed && arch->sections && json_object_update_existing(flat, given) < 0) failed = llm_no_memory(e, "configuration");
    json_decref(given);
    if (!failed) return flat;
    json_decref(flat);
    return NULL;
}

static int from_json(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *type = NULL;
    if (!json_is_object(o)) return llm_fail(e, EX_DATAERR, "configuration: expected a JSON object");
    if (llm_json_str(o, "model_type", &type, e) < 0) return -1;
    const struct llm_arch *arch = type ? llm_arch_find(type) : NULL;
    if (!arch) {
        const char *known[64];
        size_t n = 0;
        for (; llm_archs[n] && n < sizeof known / sizeof *known; n++) known[n] = llm_archs[n]->model_type;
        return no_such_word("model_type", type, known, n, e);
    }
    *c = llm_config_blank(arch);
    json_t *ours = flatten(o, arch, e);
    if (!ours) return -1;
    int r = llm_config_check_keys(arch, ours, e);
    if (r == 0 && llm_config_is_foreign(ours)) r = make_ours(ours, arch, false, e);
    if (r == 0) r = read_rows(c, ours, arch, e);
    json_decref(ours);
    return r;
}

int llm_config_from_json(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    if (from_json(c, o, e) < 0) return -1;
    if (c->vocab_size < 1) return llm_fail(e, EX_DATAERR, "vocab_size: expected at least 1, found %lld", (long long)c->vocab_size);
    return 0;
}

static json_t *write_key(const struct llm_config *c, const struct llm_config_key *k)
{
    const void *at = (const char *)c + k->offset;
    switch (k->type) {
    case LLM_KEY_INT: return json_integer(*(const int64_t *)at);
    case LLM_KEY_TOKEN: return *(const int64_t *)at < 0 ? json_null() : json_integer(*(const int64_t *)at);
    case LLM_KEY_LENGTH: return *(const int64_t *)at == 0 ? json_null() : json_integer(*(const int64_t *)at);
    case LLM_KEY_CAP: return *(const double *)at == 0 ? json_null() : json_real(*(const double *)at);
    case LLM_KEY_REAL: return json_real(*(const double *)at);
    case LLM_KEY_BOOL: return json_boolean(*(const bool *)at);
    case LLM_KEY_LAYERS: return write_layers(at);
    case LLM_KEY_WORD: return json_string(k->words[*(const int *)at]);
    case LLM_KEY_ACT: return json_string(act_names[*(const int *)at]);
    case LLM_KEY_SCALE:
        if (*(const double *)at == 1 / sqrt((double)c->hidden_size)) return json_string(sqrt_scale);
        return json_real(*(const double *)at);
    }
    return NULL;
}

/* Sets a key, or "section.key" in the object of that name. 0 or -1. */
static int set_key(json_t *o, const char *name, json_t *v)
{
    char section[64];
    const char *dot = strchr(name, '.');
    if (!dot) return json_object_set(o, name, v);
    snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    json_t *within = json_object_get(o, section);
    if (!within && json_object_set_new(o, section, within = json_object()) < 0) return -1;
    return json_object_set(within, dot + 1, v);
}

/* Writes one key to `o`. A key that transformers does not know is written only if its value differs from the family's default. 0 or -1. */
static int put_key(json_t *o, const struct llm_config *c, const struct llm_config *plain, const struct llm_config_key *k)
{
    json_t *v = write_key(c, k), *usual = write_key(plain, k);
    int failed = v ? 0 : -1;
    if (v && k->origin != LLM_KEY_ALIAS && (k->origin == LLM_KEY_HF || !json_equal(v, usual))) failed = set_key(o, k->name, v);
    json_decref(v);
    json_decref(usual);
    return failed;
}

static int put_eos_list(json_t *o, const struct llm_config *c)
{
    json_t *list = json_pack("[I]", (json_int_t)c->eos_token_id);
    int failed = !list;
    for (int i = 0; i < c->n_more_eos && !failed; i++) failed = json_array_append_new(list, json_integer(c->more_eos_token_ids[i]));
    return json_object_set_new(o, "eos_token_id", list) | failed ? -1 : 0;
}

json_t *llm_config_to_json(const struct llm_config *c, struct llm_err *e)
{
    const struct llm_arch *arch = llm_arch_find(c->model_type);
    const struct llm_config plain = llm_config_blank(arch);
    json_t *o = json_pack("{s:[s],s:s}", "architectures", arch->architecture, "model_type", arch->model_type);
    int failed = o ? 0 : -1;
    for (const struct llm_config_key *k = arch->keys; !failed && k->name; k++) failed = put_key(o, c, &plain, k);
    for (const struct llm_config_key *k = llm_config_common_keys; !failed && k->name; k++) failed = put_key(o, c, &plain, k);
    if (!failed && c->n_more_eos > 0) failed = put_eos_list(o, c);
    if (!failed && arch->extra) failed = arch->extra(c, o);
    if (failed) {
        json_decref(o);
        llm_no_memory(e, "configuration");
        return NULL;
    }
    return o;
}

static bool is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* Adds what transformers' classes have other defaults for: of mixtures (DeepSeek's) and of padding. 0 or -1. */
static int put_class_defaults(json_t *o, const struct llm_config *c, const struct llm_arch *arch, const char *const *keys)
{
    int failed = 0;
    for (const struct llm_config_key *k = arch->keys; !failed && k->name; k++) {
        if (!is_among(k->name, keys) || llm_config_ignores(arch, k->name)) continue;
        const int64_t *length = (const void *)((const char *)c + k->offset); /* transformers' default is 0, not null */
        failed = json_object_set_new(o, k->name, k->type == LLM_KEY_LENGTH ? json_integer(*length) : write_key(c, k));
    }
    json_t *experts = json_object_get(o, "n_routed_experts");
    if (!failed && json_is_null(experts)) { /* transformers' DeepSeek class has experts in all layers from the first that is named */
        failed = json_object_del(o, "n_routed_experts") | json_object_set_new(o, "first_k_dense_replace", json_integer(c->num_hidden_layers));
    }
    /* Phi-3's and SmolLM3's padding is a token beyond small vocabularies. An encoder-decoder's begins its answers. */
    if (!failed && !arch->sections && !json_object_get(o, "pad_token_id") && !json_object_get(o, "decoder_start_token_id")) {
        failed = json_object_set_new(o, "pad_token_id", json_null());
    }
    return failed ? -1 : 0;
}

struct llm_config llm_config_in_transformers(const struct llm_config *c)
{
    struct llm_config in = *c;
    const struct llm_config usual = llm_config_blank(llm_arch_find(c->model_type));
    bool windows = c->sliding_window > 0 && !c->attention_bias && !c->mlp_bias;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) windows &= llm_config_window(c, l) == c->sliding_window;
    if (windows && strcmp(c->model_type, "llama") == 0) snprintf(in.model_type, sizeof in.model_type, "mistral");
    if (c->kv_lora_rank == 0) in.rope_pairing = usual.rope_pairing; /* with latent attention transformers has a key for it */
    return in;
}

json_t *llm_config_for_transformers(const struct llm_config *c, struct llm_err *e)
{
    static const char *const mixtures[] = {"n_shared_experts", "first_k_dense_replace", "n_group", "topk_group", "routed_scaling_factor", NULL};
    static const char *const whole[] = {"query_pre_attn_scalar", "expand"}; /* of type int in transformers */
    const struct llm_config in = llm_config_in_transformers(c);
    const struct llm_arch *arch = llm_arch_find(in.model_type);
    json_t *o = llm_config_to_json(&in, e);
    int failed = o ? put_class_defaults(o, &in, arch, mixtures) : 0;
    for (size_t i = 0; o && !failed && i < sizeof whole / sizeof *whole; i++) {
        double v = json_real_value(json_object_get(o, whole[i]));
        if (v >= 1 && v < 9e15 && v == floor(v)) failed = json_object_set_new(o, whole[i], json_integer((json_int_t)v));
    }
    json_t *limits = json_object_get(o, "time_step_limit"); /* of Mamba 2 */
    if (!failed && json_is_null(json_array_get(limits, 1))) failed = json_array_set_new(limits, 1, json_pack("{s:s}", "__float__", "Infinity"));
    if (!failed) return o;
    json_decref(o);
    llm_no_memory(e, "configuration");
    return NULL;
}

/* Removes from `o` the other names of a key that has several, so that the name that was set last decides. */
static void drop_aliases(json_t *o, const struct llm_arch *arch, const char *name)
{
    const struct llm_config_key *set = arch->keys;
    while (set->name && strcmp(set->name, name) != 0) set++;
    for (const struct llm_config_key *k = arch->keys; set->name && k->name; k++) {
        if (k != set && k->offset == set->offset && (k->origin == LLM_KEY_ALIAS || set->origin == LLM_KEY_ALIAS)) json_object_del(o, k->name);
    }
}

/* "key=value" into `o`; the value is JSON where it parses as such, else a word. */
static int set(json_t *o, const char *text, struct llm_err *e)
{
    const char *equals = strchr(text, '=');
    const struct llm_arch *arch = llm_arch_find(json_string_value(json_object_get(o, "model_type")));
    char name[64];
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof name) {
        return llm_fail(e, LLM_EX_USAGE, "--set: expected KEY=VALUE, found '%s'", text);
    }
    memcpy(name, text, (size_t)(equals - text));
    name[equals - text] = 0;
    if (!llm_config_has_row(arch, name)) {
        char list[900] = "";
        struct llm_suggest near;
        llm_suggest_begin(&near, name);
        for (const struct llm_config_key *k = arch->keys; k->name; k++) {
            llm_suggest_add(&near, k->name, k->name);
            strncat(list, k == arch->keys ? "" : " ", sizeof list - strlen(list) - 1);
            strncat(list, k->name, sizeof list - strlen(list) - 1);
        }
        return llm_fail(e, LLM_EX_USAGE, "--set: unknown key '%s'%s; %s has: %s", name, llm_suggest_text(&near, ""), arch->model_type, list);
    }
    char number[64];
    const char *value = equals + 1;
    if (*value == '.' && snprintf(number, sizeof number, "0%s", value) < (int)sizeof number) value = number; /* JSON has no ".5"; people do */
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    if (!v) v = json_string(equals + 1);
    if (!v || json_object_set_new(o, name, v) < 0) return llm_fail(e, LLM_EX_USAGE, "--set %s: expected a value, found '%s'", name, equals + 1);
    drop_aliases(o, arch, name);
    return 0;
}

/* Reads the configuration `o`, whose reference it takes, with the overrides `sets`. `ours`: `o` is the toolkit's own (a preset), not a user's file.
 * */
static int load(struct llm_config *c, json_t *o, const char *what, bool ours, const char *const *sets, size_t n_sets, struct llm_err *e)
{
    /* A new model uses its own tokenizer's tokens. If the file names none, the family's defaults would be wrong, so there are none. */
    static const char *const tokens[] = {"bos_token_id", "eos_token_id"};
    for (size_t i = 0; !ours && json_is_object(o) && i < sizeof tokens / sizeof *tokens; i++) {
        if (!json_object_get(o, tokens[i])) json_object_set_new(o, tokens[i], json_null());
    }
    int r = ours ? 0 : llm_config_of_file(o, e); /* before `sets`: what the user sets counts, even if transformers ignores it */
    if (r == 0) r = from_json(c, o, e); /* first, because setting keys needs a known family */
    if (r < 0) llm_in(e, "%s", what);
    for (size_t i = 0; r == 0 && i < n_sets; i++) r = set(o, sets[i], e);
    if (r == 0 && n_sets > 0 && (r = from_json(c, o, e)) < 0) {
        e->status = ours ? LLM_EX_USAGE : e->status;
        llm_in(e, "%s with --set", what);
    }
    json_decref(o);
    return r;
}

int llm_config_load_text(struct llm_config *c, const char *text, const char *const *sets, size_t n_sets, struct llm_err *e)
{
    json_t *o = llm_json_parse(text, strlen(text), e);
    return o ? load(c, o, "configuration", true, sets, n_sets, e) : -1;
}

/* Fills the error for `what`, which is no preset and no file, with the list of presets. */
static void list_presets(const char *what, struct llm_err *e)
{
    struct llm_suggest near;
    char list[512];
    size_t n = 0;
    llm_suggest_begin(&near, what);
    for (const char *const *p = llm_config_presets(); *p && n < sizeof list; p++) {
        llm_suggest_add(&near, *p, *p);
        int more = snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", *p);
        n += more > 0 ? (size_t)more : 0;
    }
    llm_in(e, "neither a file nor one of %s%s", list, llm_suggest_text(&near, ""));
}

/* If `path`, which is not JSON, is a model, fills the error with a message that says so. */
static void refuse_model(const char *path, struct llm_err *e)
{
    enum llm_content content;
    struct llm_err other = {0};
    struct llm_file *f = llm_file_open(path, &other);
    if (f && llm_sniff(f, &content, &other) == 0
        && (content == LLM_CONTENT_CHECKPOINT || content == LLM_CONTENT_MESSAGE || content == LLM_CONTENT_GGUF))
        llm_sniff_refuse(f, "a preset or a config.json (--init begins with a model)", e);
    llm_file_close(f);
}

int llm_config_load(struct llm_config *c, const char *what, const char *const *sets, size_t n_sets, struct llm_err *e)
{
    const char *preset = llm_preset_find(what);
    json_t *o = preset ? llm_json_parse(preset, strlen(preset), e) : llm_json_load(what, 1 << 20, e);
    if (o) return load(c, o, what, preset != NULL, sets, n_sets, e);
    if (e->status == EX_DATAERR && strcmp(what, "-") != 0) refuse_model(what, e);
    if (e->status == EX_NOINPUT && !strchr(what, '/') && !strchr(what, '.')) list_presets(what, e);
    return -1;
}

int32_t llm_config_answer_start(const struct llm_config *c)
{
    int64_t id = c->decoder_start_token_id >= 0 ? c->decoder_start_token_id : c->bos_token_id >= 0 ? c->bos_token_id : c->eos_token_id;
    return id >= 0 && id < c->vocab_size ? (int32_t)id : 0;
}

int64_t llm_config_default_context(const struct llm_config *c)
{
    return c->position == LLM_POSITION_ROPE ? llm_rope_default_context(&c->rope_scaling, c->max_position_embeddings) : c->max_position_embeddings;
}
