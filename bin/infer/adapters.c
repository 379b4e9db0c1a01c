/* --adapter: adapters that are added to the model. */
#include <stdlib.h>
#include "bin/infer/infer.h"
#include "model/weights/lora.h"

int adapters_load(struct session *s, struct llm_err *e)
{
    for (size_t i = 0; i < s->a->adapters.n; i++) {
        char *path;
        float scale;
        int r = llm_lora_parse(s->a->adapters.v[i], &path, &scale, e);
        if (r == 0 && path[0] == '-' && !path[1]) r = llm_fail(e, LLM_EX_USAGE, "--adapter: expected a file, found standard input");
        if (r == 0) r = llm_lora_load(s->model, path, scale, e);
        free(path);
        if (r < 0) return -1;
    }
    return 0;
}
