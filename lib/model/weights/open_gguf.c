/* Models from GGUF files, of one part or several. */
#include "model/config/gguf.h"
#include "model/weights/open.h"

static int gguf_config(struct llm_config *c, const struct llm_model_files *files, struct llm_err *e)
{
    struct llm_checkpoint *f;
    const struct llm_entry *embed = llm_model_files_find(files, "token_embd.weight", &f);
    if (llm_gguf_config(c, llm_checkpoint_gguf(files->v[0]), e) < 0) return -1;
    if (!embed || embed->n_dims != 2 || embed->shape[0] < 1 || embed->shape[0] > 1 << 24) {
        return llm_fail(e, EX_DATAERR, "tensor 'token_embd.weight': expected [vocabulary, %lld], found %s", (long long)c->hidden_size,
                        embed ? "another shape" : "none");
    }
    c->vocab_size = embed->shape[0];
    c->tie_word_embeddings = !llm_model_files_find(files, "output.weight", &f);
    llm_gguf_biases(c, files);
    if (llm_gguf_rope_factors(c, files, e) < 0) return -1;
    json_t *nothing = json_object();
    int r = nothing ? llm_config_finish(c, nothing, e) : llm_no_memory(e, "configuration");
    json_decref(nothing);
    return r;
}

struct llm_model *llm_open_gguf(struct llm_model_files *files, const char *path, struct llm_err *e)
{
    struct llm_config c;
    if (llm_model_files_open_split(files, path, e) < 0) return NULL;
    if (gguf_config(&c, files, e) == 0) return llm_open_with_config(files, llm_checkpoint_name(files->v[0]), &c, e);
    llm_in(e, "%s", llm_checkpoint_name(files->v[0]));
    llm_model_files_close(files);
    return NULL;
}
