/* What a Hugging Face folder says of the tokens that end a text, beside config.json: all of them count (model/model.h, llm_model_ends). */
#include <stdio.h>
#include <sys/stat.h>
#include "model/config/arch.h"

/* "eos_token": a text, or an object with "content". */
static void add_token(struct llm_model *m, const json_t *o)
{
    const json_t *v = json_object_get(o, "eos_token");
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    if (text && m->tokenizer) llm_config_add_eos(&m->config, llm_tokenizer_special(m->tokenizer, text));
}

int llm_folder_ends(struct llm_model *m, const char *folder, size_t n, struct llm_err *e)
{
    static const struct { const char *name; bool ids; } files[] = {
        {"generation_config.json", true}, {"tokenizer_config.json", false}, {"special_tokens_map.json", false}};
    char path[4096];
    struct stat st;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (snprintf(path, sizeof path, "%.*s/%s", (int)n, folder, files[i].name) >= (int)sizeof path || stat(path, &st) != 0) continue;
        json_t *o = llm_json_load(path, 64 << 20, e);
        if (!o) return -1;
        int r = files[i].ids ? llm_config_add_eos_from(&m->config, o, "eos_token_id", e) : 0;
        if (!files[i].ids) add_token(m, o);
        json_decref(o);
        if (r < 0) return llm_in(e, "%s", path);
    }
    return 0;
}
