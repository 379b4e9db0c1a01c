/* Models from files: the content says which format it is, and that format's opener does the rest. */
#include <string.h>
#include <sys/stat.h>
#include "io/sniff.h"
#include "model/weights/names.h"
#include "model/weights/ngram.h"
#include "model/weights/open.h"

/* Refuses a file that holds an adapter or another thing that belongs to a model: it needs that model. */
static int refuse_part(const struct llm_model_files *files, const char *path, struct llm_err *e)
{
    const char *kind = llm_checkpoint_header(files->v[0])->kind, *type = NULL, *architecture = NULL;
    const struct llm_gguf *g = llm_checkpoint_gguf(files->v[0]);
    size_t n = 0, n_architecture = 0;
    if (g && llm_gguf_str(g, "general.architecture", &architecture, &n_architecture, e) < 0) return llm_in(e, "%s", path);
    if (architecture && n_architecture == 4 && memcmp(architecture, "clip", 4) == 0) {
        return llm_fail(e, EX_DATAERR, "%s: expected a model, found the vision tower of one: llm-infer -m MODEL --mmproj %s", path, path);
    }
    if (g && llm_gguf_str(g, "general.type", &type, &n, e) < 0) return llm_in(e, "%s", path);
    if (kind && (strcmp(kind, "lens") == 0 || strcmp(kind, "dictionary") == 0)) {
        return llm_fail(e, EX_DATAERR, "%s: expected a model, found a %s of one", path, kind);
    }
    if (!(kind && strcmp(kind, "adapter") == 0) && !(type && n == 7 && memcmp(type, "adapter", 7) == 0)) return 0;
    return llm_fail(e, EX_DATAERR, "%s: expected a model, found an adapter of one: llm-infer -m MODEL --adapter %s adds it to its model", path, path);
}

struct llm_model *llm_model_load(const char *path, struct llm_err *e)
{
    return llm_model_load_seeing(path, NULL, e);
}

struct llm_model *llm_model_load_seeing(const char *path, const char *mmproj, struct llm_err *e)
{
    struct llm_model_files files = {0};
    struct stat st;
    char beside[4096];
    bool pipe = strcmp(path, "-") == 0;
    if (mmproj) return llm_open_gguf_seeing(path, mmproj, e);
    if (!pipe && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return llm_open_folder(path, e);
    struct llm_file *f = llm_file_open(path, e);
    enum llm_content content;
    if (!f) return NULL;
    if (llm_sniff(f, &content, e) < 0) {
        llm_file_close(f);
        return NULL;
    }
    if (content == LLM_CONTENT_ARPA) return llm_arpa_read(f, e);
    if (llm_model_files_take(&files, f, e) < 0) return NULL;
    if (refuse_part(&files, path, e) < 0) {
        llm_model_files_close(&files);
        return NULL;
    }
    if (llm_checkpoint_gguf(files.v[0])) return llm_open_gguf(&files, path, NULL, e);
    if (llm_checkpoint_rwkv_cpp(files.v[0])) return llm_open_rwkv_cpp(&files, e);
    const char *text = llm_header_meta(llm_checkpoint_header(files.v[0]), LLM_META_CONFIG);
    const char *slash = strrchr(path, '/'), *folder = !slash ? "." : path;
    size_t n = !slash ? 1 : (size_t)(slash - path);
    if (!text && !pipe && llm_path_join(beside, folder, n, "config.json", e) == 0 && stat(beside, &st) == 0) {
        return llm_open_in_folder(folder, n, &files, path, e);
    }
    return llm_open_own(&files, text, e);
}
