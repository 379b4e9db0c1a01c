/* Models from files that have their configuration in their metadata (formats/checkpoint.md). */
#include <string.h>
#include "model/weights/names.h"
#include "model/weights/open.h"

struct llm_model *llm_open_own(struct llm_model_files *files, const char *text, struct llm_err *e)
{
    const char *name = llm_checkpoint_name(files->v[0]);
    json_t *config = text ? llm_json_parse(text, strlen(text), e) : NULL;
    if (!config) {
        if (text) llm_in(e, "%s: metadata %s", name, LLM_META_CONFIG);
        else llm_fail(e, EX_DATAERR, "%s: expected a model (metadata %s, or config.json beside it), found none", name, LLM_META_CONFIG);
        llm_model_files_close(files);
        return NULL;
    }
    struct llm_model *m = llm_open_with_json(files, name, config, e);
    json_decref(config);
    return m;
}
