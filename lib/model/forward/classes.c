/* Models that tell classes apart: what the configuration says, what stands behind the hidden states, and the classes' names. */
#include <stdlib.h>
#include <string.h>
#include "model/config/arch.h"
#include "tensor/tape.h"

/* BERT's manner of telling classes apart; decoders have another, also those whose tokens see both ways. */
static bool like_bert(const struct llm_config *c)
{
    return c->bidirectional && !c->use_bidirectional_attention;
}

void llm_config_classify(struct llm_config *c, int64_t n)
{
    c->num_labels = n;
    if (!like_bert(c)) return;
    c->head_transform = false;
    c->pooler = llm_config_pooling(c) == LLM_POOL_CLS;
}

enum llm_pool_kind llm_config_pooling(const struct llm_config *c)
{
    if (c->pooling != LLM_POOL_UNSET || c->num_labels == 0) return c->pooling;
    return like_bert(c) ? LLM_POOL_CLS : LLM_POOL_LAST;
}

void llm_config_compare(struct llm_config *c)
{
    c->contrastive = c->normalize_embeddings = true;
    c->head_transform = c->pooler = false;
    if (c->pooling == LLM_POOL_UNSET) c->pooling = c->bidirectional ? LLM_POOL_MEAN : LLM_POOL_LAST;
}

bool llm_config_has_head(const struct llm_config *c)
{
    return c->num_labels == 0 && !c->contrastive && !llm_config_learns_latents(c);
}

/* transformers names the model in "architectures", and the classes in "id2label"; two where it does not. */
int llm_config_read_labels(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *architecture = json_string_value(json_array_get(json_object_get(o, "architectures"), 0));
    bool classifies = architecture && strstr(architecture, "ForSequenceClassification"), said = json_object_get(o, "num_labels") != NULL;
    size_t named = json_object_size(json_object_get(o, "id2label"));
    if (architecture && !classifies) c->num_labels = 0;
    if (classifies && !said) c->num_labels = named > 0 ? (int64_t)named : 2;
    if (c->num_labels > LLM_MOST_LABELS) {
        return llm_fail(e, EX_DATAERR, "num_labels: expected at most %d, found %lld", LLM_MOST_LABELS, (long long)c->num_labels);
    }
    if (c->num_labels == 0) return 0;
    if (c->num_encoder_layers > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "num_labels: expected one stack of layers, found an encoder-decoder (%s)", c->model_type);
    }
    llm_config_classify(c, c->num_labels);
    return 0;
}

int llm_model_read_labels(struct llm_model *m, const json_t *config, struct llm_err *e)
{
    const json_t *names = json_object_get(config, "id2label");
    for (int64_t i = 0; i < m->config.num_labels; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)i);
        const char *name = json_string_value(json_object_get(names, number));
        char usual[40];
        snprintf(usual, sizeof usual, "LABEL_%s", number); /* as transformers calls those without a name */
        int64_t at = llm_labels_add(&m->labels, name ? name : usual, e);
        if (at < 0) return -1;
        if (at != i) return llm_fail(e, EX_DATAERR, "id2label: expected a name for each class, found '%s' twice", name ? name : usual);
    }
    return 0;
}

int llm_model_write_labels(const struct llm_model *m, json_t *config)
{
    int64_t n = m->config.num_labels;
    json_t *names = json_object(), *numbers = json_object();
    const char *causal = strstr(m->arch->architecture, "For");
    int failed = !names || !numbers;
    char text[96];
    for (int64_t i = 0; i < n && !failed && llm_labels_count(&m->labels) == n; i++) {
        snprintf(text, sizeof text, "%lld", (long long)i);
        failed = json_object_set(names, text, json_array_get(m->labels.names, (size_t)i))
            || json_object_set_new(numbers, llm_labels_name(&m->labels, i), json_integer(i));
    }
    if (m->config.contrastive && !failed) {
        snprintf(text, sizeof text, "%.*sModel", (int)(causal ? causal - m->arch->architecture : 0), m->arch->architecture);
        failed = json_object_set_new(config, "architectures", json_pack("[s]", text));
    }
    if (n > 0 && !failed) {
        snprintf(text, sizeof text, "%.*sForSequenceClassification", (int)(causal ? causal - m->arch->architecture : 0), m->arch->architecture);
        failed = json_object_set_new(config, "architectures", json_pack("[s]", text));
        if (json_object_size(names) > 0) failed |= json_object_set(config, "id2label", names) | json_object_set(config, "label2id", numbers);
    }
    json_decref(names);
    json_decref(numbers);
    return failed ? -1 : 0;
}

void llm_classes_declare(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    d->unit = LLM_UNIT_CLASSES;
    llm_declare_table(d, &m->classes.w, LLM_STEM_CLASSES, c->num_labels, c->hidden_size, "num_labels, hidden_size", false);
    if (like_bert(c)) llm_declare_bias(d, &m->classes.b, LLM_STEM_CLASSES, c->num_labels, "num_labels");
}

/* The mean of each row's latents. */
static struct llm_tensor *all_latents(struct llm_ctx *c, struct llm_tensor *hidden, int64_t n_rows, int64_t row_len)
{
    int32_t *lengths = llm_op_alloc(c, n_rows, sizeof *lengths);
    for (int64_t r = 0; r < n_rows && lengths; r++) lengths[r] = (int32_t)row_len;
    return llm_row_mean(c, hidden, lengths, n_rows);
}

struct llm_tensor *llm_model_pool(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *hidden, const int32_t *lengths, int64_t n_rows)
{
    enum llm_pool_kind kind = llm_config_pooling(&m->config);
    int64_t row_len = n_rows > 0 ? hidden->rows / n_rows : 0;
    if (llm_config_learns_latents(&m->config)) return all_latents(c, hidden, n_rows, row_len);
    if (kind == LLM_POOL_MEAN || kind == LLM_POOL_UNSET) return llm_row_mean(c, hidden, lengths, n_rows);
    int32_t *rows = llm_op_alloc(c, n_rows, sizeof *rows);
    if (llm_ctx_failed(c)) return &c->nothing;
    for (int64_t r = 0; r < n_rows; r++) rows[r] = (int32_t)(r * row_len + (kind == LLM_POOL_LAST ? lengths[r] - 1 : 0));
    return llm_gather(c, hidden, rows, n_rows);
}

struct llm_tensor *llm_model_before_classes(struct llm_ctx *c, const struct llm_model *m, struct llm_tensor *pooled)
{
    const struct llm_decoder *d = m->layout;
    const struct llm_site site = llm_watch_head(c, pooled->rows);
    pooled = llm_visit(c, &site, LLM_PLACE_POOLED, pooled);
    if (d->pooler.w) pooled = llm_activation(c, llm_linear(c, pooled, d->pooler.w, d->pooler.b), LLM_ACT_TANH);
    if (like_bert(&m->config)) pooled = llm_dropout(c, pooled, (float)m->config.resid_pdrop, LLM_RNG_DROPOUT_CLASSES);
    return llm_visit(c, &site, LLM_PLACE_CLASSES_INPUT, pooled);
}

struct llm_param *llm_model_classes(const struct llm_model *m, struct llm_param **bias)
{
    const struct llm_decoder *d = m->layout;
    *bias = d->classes.b;
    return d->classes.w;
}

struct llm_model *llm_model_graft(struct llm_model *from, const struct llm_config *c, uint64_t seed, struct llm_err *e)
{
    struct llm_model *m = llm_model_create(c, seed, e);
    for (size_t i = 0; m && i < m->n_params; i++) {
        struct llm_param *to = &m->params[i];
        struct llm_param *p = llm_model_find(from, to->name);
        if (!p || llm_param_count(p) != llm_param_count(to) || p->shape[0] != to->shape[0]) continue;
        free((void *)to->weight.data);
        to->weight = p->weight;
        to->owned = p->owned;
        p->weight = (struct llm_weight){.n = p->weight.n, .k = p->weight.k};
        p->owned = false;
    }
    if (!m) return NULL;
    m->files = from->files;
    m->n_files = from->n_files;
    from->files = NULL;
    from->n_files = 0;
    m->tokenizer = from->tokenizer;
    m->chat_template = from->chat_template;
    from->tokenizer = NULL;
    from->chat_template = NULL;
    return m;
}
