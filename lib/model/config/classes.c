/* Configurations of classifiers and of models that compare texts. */
#include <string.h>
#include "model/config/arch.h"

/* BERT classifies from its pooler. Decoders classify from the last token's hidden state, and so do decoders with bidirectional attention. */
bool llm_config_like_bert(const struct llm_config *c)
{
    return c->bidirectional && !c->use_bidirectional_attention;
}

void llm_config_classify(struct llm_config *c, int64_t n)
{
    c->num_labels = n;
    if (!llm_config_like_bert(c)) return;
    c->head_transform = false;
    c->pooler = c->patch_size == 0 && llm_config_pooling(c) == LLM_POOL_CLS;
}

enum llm_pool_kind llm_config_pooling(const struct llm_config *c)
{
    if (c->pooling != LLM_POOL_UNSET || c->num_labels == 0) return c->pooling;
    return llm_config_like_bert(c) ? LLM_POOL_CLS : LLM_POOL_LAST;
}

void llm_config_compare(struct llm_config *c)
{
    c->contrastive = c->normalize_embeddings = true;
    c->head_transform = c->pooler = false;
    if (c->pooling == LLM_POOL_UNSET) c->pooling = c->bidirectional ? LLM_POOL_MEAN : LLM_POOL_LAST;
}

int64_t llm_config_pooled_token(const struct llm_config *c, enum llm_pool_kind pool, const int32_t *ids, int64_t n)
{
    int64_t largest = 0;
    if (pool != LLM_POOL_EOS) return pool == LLM_POOL_LAST ? n - 1 : 0;
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] == c->eos_token_id && c->eos_token_id != 2) return i;
        if (ids[i] > ids[largest]) largest = i;
    }
    return c->eos_token_id == 2 ? largest : -1; /* older files name 2 and mean the largest id */
}

int64_t llm_config_vector(const struct llm_config *c) { return c->projection_dim > 0 ? c->projection_dim : c->hidden_size; }

bool llm_config_has_head(const struct llm_config *c)
{
    return c->num_labels == 0 && c->patch_size == 0 && !c->contrastive && !llm_config_learns_latents(c);
}

/* transformers marks a classifier in "architectures" and names its classes in "id2label". Without "id2label" there are two. */
int llm_config_read_labels(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *architecture = json_string_value(json_array_get(json_object_get(o, "architectures"), 0));
    bool classifies = architecture && (strstr(architecture, "ForSequenceClassification") || strstr(architecture, "ForImageClassification"));
    bool said = json_object_get(o, "num_labels") != NULL;
    size_t named = json_object_size(json_object_get(o, "id2label"));
    if (architecture && !classifies) c->num_labels = 0;
    if (classifies && !said) c->num_labels = named > 0 ? (int64_t)named : 2;
    if (c->num_labels > LLM_MAX_LABELS) {
        return llm_fail(e, EX_DATAERR, "num_labels: expected at most %d, found %lld", LLM_MAX_LABELS, (long long)c->num_labels);
    }
    if (c->num_labels == 0) return 0;
    if (c->num_encoder_layers > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "num_labels: expected one stack of layers, found an encoder-decoder (%s)", c->model_type);
    }
    llm_config_classify(c, c->num_labels);
    return 0;
}
