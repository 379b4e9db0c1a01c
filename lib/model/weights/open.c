/* What the openers of all formats share: a configuration and open files become a model (model/weights/open.h). */
#include "model/weights/open.h"

#include <stdlib.h>
#include <string.h>
#include "base/pages.h"
#include "model/weights/names.h"
#include "model/weights/ngram.h"

static int load_tokenizer(struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e)
{
    const struct llm_header *h = llm_checkpoint_header(f);
    const struct llm_gguf *g = llm_checkpoint_gguf(f);
    bool carries = g ? llm_gguf_find(g, "tokenizer.ggml.tokens") != NULL
                     : llm_header_find(h, LLM_NAME_TOKENIZER_JSON) || llm_header_find(h, LLM_NAME_TOKENIZER "pieces");
    if (!carries) return 0;
    m->tokenizer = llm_tokenizer_from_checkpoint(f, e);
    return m->tokenizer ? 0 : -1;
}

/* Takes the chat template of a GGUF file (key tokenizer.chat_template), if it has one. */
static int load_gguf_template(struct llm_model *m, const struct llm_gguf *g, struct llm_err *e)
{
    const char *text = NULL;
    size_t n = 0;
    if (llm_gguf_str(g, "tokenizer.chat_template", &text, &n, e) < 0) return -1;
    if (text && !memchr(text, 0, n) && !(m->chat_template = strndup(text, n))) return llm_no_memory(e, "chat template");
    return 0;
}

static int load_state(struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e)
{
    const char *training = llm_header_meta(llm_checkpoint_header(f), LLM_META_TRAINING);
    const char *fingerprint = llm_header_meta(llm_checkpoint_header(f), LLM_META_FINGERPRINT);
    const char *chat_template = llm_header_meta(llm_checkpoint_header(f), LLM_META_CHAT_TEMPLATE);
    const char *preprocessor = llm_header_meta(llm_checkpoint_header(f), LLM_META_PREPROCESSOR);
    if (load_tokenizer(m, f, e) < 0) return -1;
    if (llm_checkpoint_gguf(f)) return load_gguf_template(m, llm_checkpoint_gguf(f), e);
    if (chat_template && !m->chat_template && !(m->chat_template = strdup(chat_template))) return llm_no_memory(e, "chat template");
    if (preprocessor && !m->preprocessor && !(m->preprocessor = strdup(preprocessor))) return llm_no_memory(e, "a preprocessor");
    if (training && !(m->training = llm_json_parse(training, strlen(training), e))) return llm_in(e, LLM_META_TRAINING);
    if (fingerprint && strlen(fingerprint) < sizeof m->fingerprint) memcpy(m->fingerprint, fingerprint, strlen(fingerprint) + 1);
    return 0;
}

/* Releases memory that only loading needed: pages of the model's files and of the program, which are read again if they are used, and what malloc
 * kept from building the tokenizer. */
static void release_pages(const struct llm_model *m)
{
    for (size_t i = 0; i < m->n_files; i++) llm_checkpoint_release_pages(m->files[i]);
    llm_pages_release_program();
    llm_pages_release_freed();
}

struct llm_model *llm_open_with_config(struct llm_model_files *files, const char *name, const struct llm_config *c, struct llm_err *e)
{
    struct llm_declare d = {.specs = NULL};
    struct llm_config fitted = *c;
    const struct llm_arch *arch = llm_arch_find(c->model_type);
    if (arch->in_files) arch->in_files(&fitted, files);
    struct llm_model *m = llm_model_shape(&fitted, e);
    if (!m) {
        llm_in(e, "%s", name);
        llm_model_files_close(files);
        return NULL;
    }
    m->files = files->v;
    m->n_files = files->n;
    int r = 0;
    if (m->arch->tables) {
        m->ngram = llm_ngram_load(m->files[0], &m->config, e);
        r = m->ngram ? 0 : -1;
    } else if (llm_checkpoint_gguf(m->files[0]) || llm_checkpoint_rwkv_cpp(m->files[0])) { /* which have other names for the parameters */
        r = llm_checkpoint_gguf(m->files[0]) ? llm_model_declare_gguf(&fitted, &d, e) : llm_model_declare_rwkv_cpp(&fitted, &d, e);
        if (r == 0) r = llm_params_read(m, &d, e);
        llm_declare_release(&d);
    } else {
        r = llm_params_read(m, &(struct llm_declare){.specs = m->specs, .n = m->n_params}, e);
    }
    if (r == 0) r = load_state(m, m->files[0], e);
    if (r == 0) release_pages(m);
    if (r == 0) return m;
    llm_in(e, "%s", name);
    llm_model_destroy(m);
    return NULL;
}

struct llm_model *llm_open_with_json(struct llm_model_files *files, const char *name, const json_t *config, struct llm_err *e)
{
    struct llm_config c;
    if (llm_config_from_json(&c, config, e) == 0) {
        struct llm_model *m = llm_open_with_config(files, name, &c, e);
        if (!m || llm_model_read_labels(m, config, e) == 0) return m;
        llm_in(e, "%s: configuration", name);
        llm_model_destroy(m);
        return NULL;
    }
    llm_in(e, "%s: configuration", name);
    llm_model_files_close(files);
    return NULL;
}

int llm_path_join(char out[4096], const char *folder, size_t n, const char *name, struct llm_err *e)
{
    if (snprintf(out, 4096, "%.*s/%s", (int)n, folder, name) < 4096) return 0;
    return llm_fail(e, EX_NOINPUT, "%.*s: name too long", (int)n, folder);
}
