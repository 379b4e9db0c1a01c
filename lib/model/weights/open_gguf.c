/* Models from GGUF files, of one part or several, perhaps with a vision tower in a file of its own. */
#include <sys/stat.h>
#include "model/config/gguf.h"
#include "model/config/picture.h"
#include "model/weights/open.h"

/* mmproj: the last of the files is one; its name. NULL: there is none. */
static int gguf_config(struct llm_config *c, const struct llm_model_files *files, const char *mmproj, struct llm_err *e)
{
    const struct llm_gguf *tower = mmproj ? llm_checkpoint_gguf(files->v[files->n - 1]) : NULL;
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
    if (mmproj && !tower) return llm_fail(e, EX_DATAERR, "%s: expected a GGUF file", mmproj);
    if (tower && llm_gguf_mmproj(c, tower, files, e) < 0) return llm_in(e, "%s", mmproj);
    json_t *nothing = json_object();
    int r = nothing ? llm_config_finish(c, nothing, e) : llm_no_memory(e, "configuration");
    json_decref(nothing);
    return r;
}

/* What an mmproj file does not say: the placeholder; and how pictures are prepared. 0 or -1. */
static int finish_seeing(struct llm_model *m, struct llm_err *e)
{
    const struct llm_tokenizer *t = m->tokenizer;
    const int32_t image = t ? llm_tokenizer_special(t, "<image>") : -1, unknown = t ? llm_tokenizer_unknown(t) : -1;
    if (image < 0 && unknown < 0) return llm_fail(e, EX_DATAERR, "expected a tokenizer with a token <image>, or one for what is unknown; found none");
    m->config.projector.image_token = image >= 0 ? image : unknown;
    json_t *o = llm_picture_preprocessor(&m->config);
    if (o && llm_gguf_preprocessor(o, &m->config, llm_checkpoint_gguf(m->files[m->n_files - 1]), e) < 0) {
        json_decref(o);
        return -1;
    }
    return llm_model_give_preprocessor(m, o, e);
}

struct llm_model *llm_open_gguf(struct llm_model_files *files, const char *path, const char *mmproj, struct llm_err *e)
{
    struct llm_config c;
    if (llm_model_files_open_split(files, path, e) < 0) return NULL;
    if (mmproj && llm_model_files_open(files, mmproj, e) < 0) {
        llm_model_files_close(files);
        return NULL;
    }
    if (gguf_config(&c, files, mmproj, e) < 0) {
        llm_in(e, "%s", llm_checkpoint_name(files->v[0]));
        llm_model_files_close(files);
        return NULL;
    }
    struct llm_model *m = llm_open_with_config(files, llm_checkpoint_name(files->v[0]), &c, e);
    if (!m || !mmproj || finish_seeing(m, e) == 0) return m;
    llm_in(e, "%s", mmproj);
    llm_model_destroy(m);
    return NULL;
}

struct llm_model *llm_open_gguf_seeing(const char *path, const char *mmproj, struct llm_err *e)
{
    struct llm_model_files files = {0};
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        llm_fail(e, EX_DATAERR, "%s: expected the GGUF file of a language model beside --mmproj, found a folder", path);
        return NULL;
    }
    if (llm_model_files_open(&files, path, e) < 0) return NULL;
    if (llm_checkpoint_gguf(files.v[0])) return llm_open_gguf(&files, path, mmproj, e);
    llm_fail(e, EX_DATAERR, "%s: expected the GGUF file of a language model beside --mmproj, found another format", path);
    llm_model_files_close(&files);
    return NULL;
}
