/* An adapter as a .llm file stores it: metadata and tensors. */
#include <string.h>
#include "cpu/kernels.h"
#include "model/weights/lora_internal.h"
#include "model/weights/names.h"

/* Describes one parameter. F32 data that represent BF16 values are described as BF16. */
static int describe_param(struct llm_lora *l, const struct llm_param *p, const char *name, struct llm_tensor_list *t, struct llm_err *e)
{
    struct llm_tensor_out out = {.name = name, .dtype = p->weight.dtype, .n_dims = p->n_dims, .shape = {p->shape[0], p->shape[1], p->shape[2]},
                                 .data = p->weight.data};
    if (p->weight.rounded) {
        size_t n = (size_t)llm_param_count(p);
        uint16_t *rounded = llm_lora_stage(l, n * sizeof *rounded, e);
        if (!rounded) return -1;
        llm_k.elementwise.to_bf16(rounded, p->weight.data, n);
        out.dtype = LLM_BF16;
        out.data = rounded;
    }
    if (llm_grow((void **)&t->v, &t->room, t->n + 1, sizeof *t->v, e) < 0) return -1;
    t->v[t->n++] = out;
    return 0;
}

static int set_text(json_t *meta, const char *key, const char *text, size_t n, struct llm_err *e)
{
    return json_object_set_new(meta, key, json_stringn(text, n)) < 0 ? llm_no_memory(e, "metadata") : 0;
}

int llm_lora_describe(struct llm_lora *l, struct llm_model *m, json_t *meta, struct llm_tensor_list *tensors, struct llm_err *e)
{
    struct llm_buf text = {0};
    json_t *config = llm_lora_config(l, m, e);
    llm_lora_drop_staging(l);
    int r = config ? llm_json_dump(config, &text, e) : -1;
    if (r == 0) r = set_text(meta, LLM_META_ADAPTER, text.p, text.n, e);
    if (r == 0 && l->base_fingerprint[0]) r = set_text(meta, LLM_META_BASE_FINGERPRINT, l->base_fingerprint, strlen(l->base_fingerprint), e);
    if (r == 0 && m->chat_template) r = set_text(meta, LLM_META_CHAT_TEMPLATE, m->chat_template, strlen(m->chat_template), e);
    if (r == 0 && l->model_dropout >= 0) {
        text.n = 0;
        r = llm_json_number(&text, l->model_dropout, e);
        if (r == 0) r = set_text(meta, LLM_META_MODEL_DROPOUT, text.p, text.n, e);
    }
    for (size_t i = 0; r == 0 && i < l->n_pairs; i++) {
        r = describe_param(l, &l->pairs[i].a, l->pairs[i].names[0], tensors, e);
        if (r == 0) r = describe_param(l, &l->pairs[i].b, l->pairs[i].names[1], tensors, e);
        if (r == 0 && l->dora) r = describe_param(l, &l->pairs[i].magnitude, l->pairs[i].names[2], tensors, e);
    }
    for (size_t i = 0; r == 0 && i < l->n_whole; i++) r = describe_param(l, l->whole[i], l->whole_names[i], tensors, e);
    json_decref(config);
    llm_buf_release(&text);
    return r;
}
