/* Models from files of rwkv.cpp. Their tensors have the names of RWKV's own checkpoints, and which of them there are tells the version. */
#include <string.h>
#include "io/rwkv_cpp.h"
#include "model/weights/open.h"

/* The family of a file; NULL: see `e`. Version 5.1 has the norm of heads but no gate. */
static const char *family_of(const struct llm_model_files *files, struct llm_err *e)
{
    static const struct { const char *tensor, *family; } marks[] = {
        {"blocks.0.att.r_k", "rwkv7"}, {"blocks.0.att.time_maa_x", "rwkv6"}, {"blocks.0.att.gate.weight", "rwkv5"},
        {"blocks.0.att.ln_x.weight", NULL}};
    struct llm_checkpoint *file;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (!llm_model_files_find(files, marks[i].tensor, &file)) continue;
        if (!marks[i].family) llm_fail(e, EX_UNAVAILABLE, "expected a model of RWKV 4, 5.2, 6 or 7, found one with '%s'", marks[i].tensor);
        return marks[i].family;
    }
    return "rwkv";
}

static int config_of(struct llm_config *c, const struct llm_model_files *files, struct llm_err *e)
{
    const struct llm_rwkv_cpp *f = llm_checkpoint_rwkv_cpp(files->v[0]);
    struct llm_checkpoint *file;
    const struct llm_entry *k = llm_model_files_find(files, "blocks.0.att.key.weight", &file);
    const struct llm_entry *up = llm_model_files_find(files, "blocks.0.ffn.key.weight", &file);
    const char *family = family_of(files, e);
    if (!family) return -1;
    const bool seventh = strcmp(family, "rwkv7") == 0;
    const char *by_head = seventh ? "blocks.0.att.r_k" : "blocks.0.att.time_faaaa"; /* version 4 has none */
    const struct llm_entry *heads = llm_model_files_find(files, by_head, &file);
    if (!k || !up || k->n_dims != 2 || up->n_dims != 2) {
        return llm_fail(e, EX_DATAERR, "tensors 'blocks.0.att.key.weight' and 'blocks.0.ffn.key.weight': expected matrices, found none");
    }
    json_t *o = json_pack("{s:s,s:I,s:I,s:I,s:I,s:b}", "model_type", family, "vocab_size", (json_int_t)f->vocab, "hidden_size",
                          (json_int_t)f->width, "num_hidden_layers", (json_int_t)f->layers, "intermediate_size", (json_int_t)up->shape[0],
                          "tie_word_embeddings", !llm_model_files_find(files, "head.weight", &file));
    if (o && !seventh) json_object_set_new(o, "attention_hidden_size", json_integer(k->shape[0]));
    if (o && heads && heads->n_dims > 0) {
        json_object_set_new(o, seventh ? "head_dim" : "head_size", json_integer(heads->shape[heads->n_dims - 1]));
    }
    int r = o ? llm_config_from_json(c, o, e) : llm_no_memory(e, "configuration");
    json_decref(o);
    return r;
}

struct llm_model *llm_open_rwkv_cpp(struct llm_model_files *files, struct llm_err *e)
{
    struct llm_config c;
    if (config_of(&c, files, e) == 0) return llm_open_with_config(files, llm_checkpoint_name(files->v[0]), &c, e);
    llm_in(e, "%s", llm_checkpoint_name(files->v[0]));
    llm_model_files_close(files);
    return NULL;
}
