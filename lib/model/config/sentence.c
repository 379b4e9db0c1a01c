#include "model/config/sentence.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_BYTES = 1 << 20 };

/* Pooling modes: earlier versions of sentence-transformers write a flag for each, later ones a word. */
static const struct { const char *flag, *word; enum llm_pool_kind kind; } modes[] = {
    {"pooling_mode_mean_tokens", "mean", LLM_POOL_MEAN}, {"pooling_mode_cls_token", "cls", LLM_POOL_CLS},
    {"pooling_mode_lasttoken", "lasttoken", LLM_POOL_LAST}, {"pooling_mode_max_tokens", "max", LLM_POOL_OTHER},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", LLM_POOL_OTHER},
    {"pooling_mode_weightedmean_tokens", "weightedmean", LLM_POOL_OTHER}};

static enum llm_pool_kind pooling_of(const json_t *o)
{
    const json_t *mode = json_object_get(o, "pooling_mode");
    const char *word = json_string_value(mode);
    enum llm_pool_kind kind = LLM_POOL_UNSET;
    int chosen = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (mode ? !word || strcmp(word, modes[i].word) != 0 : !json_is_true(json_object_get(o, modes[i].flag))) continue;
        kind = modes[i].kind;
        chosen++;
    }
    return chosen == 1 ? kind : LLM_POOL_OTHER; /* several modes would be concatenated, which is not supported */
}

static int read_pooling(struct llm_config *c, const char *folder, size_t n, const char *name, struct llm_err *e)
{
    char path[4096];
    if (!name || !name[0] || name[0] == '.' || strchr(name, '/')) { /* a name with a path is refused: it must not make us read other folders */
        return llm_fail(e, EX_DATAERR, "%.*s/modules.json: path: expected a name in this folder, found '%s'", (int)n, folder, name ? name : "");
    }
    if (snprintf(path, sizeof path, "%.*s/%s/config.json", (int)n, folder, name) >= (int)sizeof path) {
        return llm_fail(e, EX_NOINPUT, "%.*s: name too long", (int)n, folder);
    }
    json_t *o = llm_json_load(path, MAX_BYTES, e);
    if (!o) return -1;
    c->pooling = pooling_of(o);
    json_decref(o);
    return 0;
}

static int read_module(struct llm_config *c, const json_t *module, const char *folder, size_t n, struct llm_err *e)
{
    const char *type = json_string_value(json_object_get(module, "type")), *dot = type ? strrchr(type, '.') : NULL;
    if (!dot) return llm_fail(e, EX_DATAERR, "%.*s/modules.json: expected a \"type\" in each module", (int)n, folder);
    if (strcmp(dot, ".Transformer") == 0) return 0;
    if (strcmp(dot, ".Pooling") == 0) return read_pooling(c, folder, n, json_string_value(json_object_get(module, "path")), e);
    if (strcmp(dot, ".Normalize") == 0) c->normalize_embeddings = true;
    else c->pooling = LLM_POOL_OTHER;
    return 0;
}

int llm_sentence_read(struct llm_config *c, const char *folder, size_t n, struct llm_err *e)
{
    char path[4096];
    struct stat st;
    size_t i;
    json_t *module;
    if (snprintf(path, sizeof path, "%.*s/modules.json", (int)n, folder) >= (int)sizeof path || stat(path, &st) != 0) return 0;
    json_t *list = llm_json_load(path, MAX_BYTES, e);
    if (!list) return -1;
    int status = json_is_array(list) ? 0 : llm_fail(e, EX_DATAERR, "%s: expected a list of modules", path);
    bool other = false;
    c->normalize_embeddings = false;
    json_array_foreach(list, i, module) {
        if (status == 0) status = read_module(c, module, folder, n, e);
        other |= c->pooling == LLM_POOL_OTHER;
    }
    if (other) c->pooling = LLM_POOL_OTHER;
    json_decref(list);
    return status;
}
