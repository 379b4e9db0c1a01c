/* PEFT's adapter_config.json, which .llm files of adapters keep too. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/config/arch.h"
#include "model/weights/lora_internal.h"

/* ---- names ---- */

const char *llm_lora_head(const struct llm_model *m)
{
    const char *head = m->arch->names.head ? m->arch->names.head : "lm_head";
    return strcmp(head, "embed_out") == 0 ? "lm_head" : head; /* GPT-NeoX: of files, and of transformers before 5 */
}

void llm_lora_peft_module(const struct llm_model *m, const struct llm_param *p, char out[LLM_LORA_NAME])
{
    llm_lora_module(p, out);
    if (m->arch->names.head && strcmp(out, m->arch->names.head) == 0) snprintf(out, LLM_LORA_NAME, "%s", llm_lora_head(m));
}

/* ---- writing ---- */

/* The last word of a module's name. */
static const char *last_word(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* Whether every matrix of the model whose module ends in `word`, and could have a pair, has one. */
static bool word_is_whole(const struct llm_lora *l, const struct llm_model *m, const char *word)
{
    for (size_t i = 0; i < m->n_params; i++) {
        char module[LLM_LORA_NAME];
        llm_lora_peft_module(m, &m->params[i], module);
        if (m->params[i].n_dims == 2 && strcmp(last_word(module), word) == 0 && !llm_lora_pair_of(l, &m->params[i])) return false;
    }
    return true;
}

static bool has_text(const json_t *list, const char *text)
{
    size_t i;
    const json_t *v;
    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        if (strcmp(json_string_value(v), text) == 0) return true;
    }
    return false;
}

/* The modules with pairs: by their last words ("q_proj") where those name these alone, else by their whole names. */
static json_t *targets(const struct llm_lora *l, const struct llm_model *m)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < l->n_pairs; i++) {
        char module[LLM_LORA_NAME];
        llm_lora_peft_module(m, l->pairs[i].param, module);
        const char *name = last_word(module);
        if (has_text(list, name)) continue;
        json_array_append_new(list, json_string(word_is_whole(l, m, name) ? name : module));
    }
    return list;
}

struct llm_param *llm_lora_beside(const struct llm_model *m, const struct llm_param *p, const char *piece)
{
    char name[LLM_LORA_NAME];
    const char *dot = strrchr(p->name, '.');
    snprintf(name, sizeof name, "%.*s.%s", dot ? (int)(dot - p->name) : 0, p->name, piece);
    return llm_model_find(m, name);
}

/* Whether PEFT has the parameter within a module that it saves, as which it takes those with weights. */
static bool is_saved_module(const struct llm_lora *l, const struct llm_model *m, const struct llm_param *p)
{
    const struct llm_param *weight = p->spec->piece == LLM_PIECE_BIAS ? llm_lora_beside(m, p, "weight") : p;
    return weight && weight->spec->piece == LLM_PIECE_WEIGHT && llm_lora_is_whole(l, weight) && !llm_lora_pair_of(l, weight);
}

/* Modules that are stored whole; null: none. */
static json_t *whole_modules(const struct llm_lora *l, const struct llm_model *m)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < l->n_whole; i++) {
        char module[LLM_LORA_NAME];
        if (l->whole[i]->spec->piece == LLM_PIECE_BIAS || !is_saved_module(l, m, l->whole[i])) continue;
        llm_lora_peft_module(m, l->whole[i], module);
        if (!has_text(list, module)) json_array_append_new(list, json_string(module));
    }
    if (!list || json_array_size(list) > 0) return list;
    json_decref(list);
    return json_null();
}

/* PEFT's word for biases that are stored beside pairs and saved modules. */
static const char *biases(const struct llm_lora *l, const struct llm_model *m)
{
    for (size_t i = 0; i < l->n_whole; i++) {
        if (l->whole[i]->spec->piece == LLM_PIECE_BIAS && !is_saved_module(l, m, l->whole[i])) return "all";
    }
    return "none";
}

static json_t *rank_pattern(const struct llm_lora *l, const struct llm_model *m)
{
    json_t *o = json_object();
    for (size_t i = 0; o && i < l->n_pairs; i++) {
        char module[LLM_LORA_NAME];
        llm_lora_peft_module(m, l->pairs[i].param, module);
        if (l->pairs[i].a.weight.n != l->rank) json_object_set_new(o, module, json_integer(l->pairs[i].a.weight.n));
    }
    return o;
}

/* A whole number as one: PEFT's lora_alpha is an integer. */
static json_t *number(double v)
{
    return v == (double)(int64_t)v ? json_integer((json_int_t)v) : json_real(v);
}

/* The alphas of pairs that have their own. */
static json_t *alpha_pattern(const struct llm_lora *l, const struct llm_model *m)
{
    json_t *o = json_object();
    for (size_t i = 0; o && i < l->n_pairs; i++) {
        char module[LLM_LORA_NAME];
        llm_lora_peft_module(m, l->pairs[i].param, module);
        if (l->pairs[i].alpha > 0 && l->pairs[i].alpha != l->alpha) json_object_set_new(o, module, number(l->pairs[i].alpha));
    }
    return o;
}

bool llm_lora_ties(const struct llm_lora *l, const struct llm_model *m)
{
    bool embedding = false;
    for (size_t i = 0; i < l->n_whole; i++) embedding |= l->whole[i] == llm_model_embedding(m);
    return embedding && m->config.tie_word_embeddings;
}

json_t *llm_lora_config(const struct llm_lora *l, const struct llm_model *m, struct llm_err *e)
{
    bool transposed = false;
    for (size_t i = 0; i < l->n_pairs; i++) transposed |= l->pairs[i].param->spec->transposed;
    json_t *o = json_pack("{s:s,s:s,s:o,s:I,s:o,s:o,s:b,s:b,s:s,s:b,s:o,s:o,s:o,s:o,s:b,s:b}", "peft_type", "LORA", "task_type",
                          m->config.num_labels > 0 ? "SEQ_CLS" : m->config.bidirectional ? "FEATURE_EXTRACTION"
                          : m->config.num_encoder_layers > 0 ? "SEQ_2_SEQ_LM" : "CAUSAL_LM",
                          "base_model_name_or_path", l->base_path ? json_string(l->base_path) : json_null(), "r", (json_int_t)l->rank,
                          "lora_alpha", number(l->alpha), "lora_dropout", json_real(l->dropout), "use_rslora", l->rslora, "use_dora", l->dora,
                          "bias", biases(l, m), "fan_in_fan_out", transposed, "target_modules", targets(l, m), "modules_to_save", whole_modules(l, m),
                          "rank_pattern", rank_pattern(l, m), "alpha_pattern", alpha_pattern(l, m), "inference_mode", true,
                          "init_lora_weights", true);
    /* Else PEFT leaves the head that is the embedding as it was. */
    if (o && llm_lora_ties(l, m)) json_object_set_new(o, "ensure_weight_tying", json_true());
    if (!o) llm_no_memory(e, "adapter_config.json");
    return o;
}

/* ---- reading ---- */

/* Keys whose values other than these change what the adapter computes in a way that is not supported. */
static const struct { const char *key, *harmless; } keys[] = {
    {"layer_replication", "[]"}, {"lora_bias", "[false]"},
    {"use_qalora", "[false]"}, {"megatron_config", "[]"}, {"trainable_token_indices", "[]"},
    {"init_lora_weights", "[true, false, \"gaussian\", \"orthogonal\", \"eva\"]"}, /* others change the base when PEFT loads them */
    {"exclude_modules", "*"}, {"alora_invocation_tokens", "[]"}, {"arrow_config", "[]"}, {"use_bdlora", "[]"}, {"kasa_config", "[]"},
    {"monteclora_config", "[]"}};

static int check_key(const json_t *config, const char *key, const char *harmless, struct llm_err *e)
{
    json_t *v = json_object_get(config, key);
    size_t i;
    const json_t *one;
    if (!v || json_is_null(v) || strcmp(harmless, "*") == 0) return 0;
    json_t *values = llm_json_parse(harmless, strlen(harmless), e);
    bool same = false;
    json_array_foreach(values, i, one) same |= json_equal(v, one) == 1;
    json_decref(values);
    if (same) return 0;
    struct llm_buf text = {0};
    int r = llm_json_dump(v, &text, e) == 0 ? llm_fail(e, EX_UNAVAILABLE, "%s: expected an adapter without it, found %.60s", key, text.p) : -1;
    llm_buf_release(&text);
    return r;
}

int llm_lora_read_config(struct llm_lora *l, const json_t *config, struct llm_err *e)
{
    const char *type = NULL, *base = NULL;
    int64_t rank = 0;
    l->alpha = 0;
    if (!json_is_object(config)) return llm_fail(e, EX_DATAERR, "expected an object");
    if (llm_json_str(config, "peft_type", &type, e) < 0 || llm_json_str(config, "base_model_name_or_path", &base, e) < 0
        || llm_json_int(config, "r", 1, LLM_LORA_MAX_RANK, &rank, e) < 0 || llm_json_real(config, "lora_alpha", &l->alpha, e) < 0
        || llm_json_real(config, "lora_dropout", &l->dropout, e) < 0 || llm_json_bool(config, "use_rslora", &l->rslora, e) < 0
        || llm_json_bool(config, "use_dora", &l->dora, e) < 0) return -1;
    if (!type || strcmp(type, "LORA") != 0) return llm_fail(e, EX_UNAVAILABLE, "peft_type: expected LORA, found %s", type ? type : "none");
    if (!(l->alpha > 0 && l->alpha < 1e9)) return llm_fail(e, EX_DATAERR, "lora_alpha: expected a number above 0, found %g", l->alpha);
    if (!(l->dropout >= 0 && l->dropout < 1)) return llm_fail(e, EX_DATAERR, "lora_dropout: expected within [0, 1), found %g", l->dropout);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (check_key(config, keys[i].key, keys[i].harmless, e) < 0) return -1;
    }
    json_t *alphas = json_object_get(config, "alpha_pattern");
    /* Those patterns name tensors of all experts. */
    if (json_array_size(json_object_get(config, "target_parameters")) > 0 && json_object_size(alphas) > 0)
        return llm_fail(e, EX_UNAVAILABLE, "target_parameters: expected no alpha_pattern beside it");
    if (alphas && !json_is_null(alphas) && !json_is_object(alphas)) return llm_fail(e, EX_DATAERR, "alpha_pattern: expected an object");
    json_decref(l->alphas);
    l->alphas = json_is_object(alphas) ? json_incref(alphas) : NULL;
    free(l->base_path);
    l->base_path = base ? strdup(base) : NULL;
    return base && !l->base_path ? llm_no_memory(e, "an adapter") : 0;
}

/* Whether PEFT's `pattern` names the module: a regular expression of its name or of the end of it after a dot. -1: it is none. */
static int names_module(const char *pattern, const char *module, struct llm_err *e)
{
    struct llm_buf text = {0};
    int code = 0, found = -1;
    PCRE2_SIZE at = 0;
    if (llm_buf_printf(&text, e, "^(.*\\.)?(%s)$", pattern) < 0) {
        llm_buf_release(&text);
        return -1;
    }
    pcre2_code *p = pcre2_compile((PCRE2_SPTR)text.p, text.n, PCRE2_UTF, &code, &at, NULL);
    pcre2_match_data *d = p ? pcre2_match_data_create_from_pattern(p, NULL) : NULL;
    if (d) found = pcre2_match(p, (PCRE2_SPTR)module, strlen(module), 0, 0, d, NULL) > 0;
    else if (p) llm_no_memory(e, "an adapter");
    else llm_fail(e, EX_DATAERR, "alpha_pattern: expected regular expressions, found '%.60s'", pattern);
    pcre2_match_data_free(d);
    pcre2_code_free(p);
    llm_buf_release(&text);
    return found;
}

int llm_lora_set_alphas(struct llm_lora *l, const struct llm_model *m, struct llm_err *e)
{
    for (size_t i = 0; l->alphas && i < l->n_pairs; i++) {
        char module[LLM_LORA_NAME], own[LLM_LORA_NAME];
        const char *pattern;
        json_t *v;
        llm_lora_peft_module(m, l->pairs[i].param, module);
        llm_lora_module(l->pairs[i].param, own);
        json_object_foreach(l->alphas, pattern, v) { /* the first that names it decides */
            int named = names_module(pattern, module, e);
            if (named == 0 && strcmp(own, module) != 0) named = names_module(pattern, own, e);
            if (named < 0) return -1;
            if (!named) continue;
            l->pairs[i].alpha = json_number_value(v);
            if (l->pairs[i].alpha > 0 && l->pairs[i].alpha < 1e9) break;
            return llm_fail(e, EX_DATAERR, "alpha_pattern: '%.60s': expected a number above 0", pattern);
        }
    }
    json_decref(l->alphas);
    l->alphas = NULL;
    return 0;
}
