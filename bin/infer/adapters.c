/* --adapter: adapters that are added to the model. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
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

/* Whether the adapters can differ between the texts of a pass. */
static int check_mixing(const struct session *s, struct llm_err *e)
{
    const struct llm_lora *l = s->model->lora;
    if (!l) return llm_fail(e, EX_DATAERR, "\"adapter\": expected --adapter, which loads what lines may name");
    if (s->begin.n > 0) return llm_fail(e, EX_DATAERR, "\"adapter\": expected no --kv-in, which has been made with the adapters of --adapter");
    if (s->engine.draft > 0) return llm_fail(e, EX_DATAERR, "\"adapter\": expected no --draft-max");
    for (; l; l = l->next) {
        if (l->n_whole > 0) {
            return llm_fail(e, EX_DATAERR, "\"adapter\": expected pairs of matrices alone, found '%s' stored whole in %s", l->whole[0]->name,
                            l->path);
        }
        for (size_t i = 0; i < l->n_pairs; i++) {
            if (l->pairs[i].param->spec->stem != LLM_STEM_KV_B) continue;
            return llm_fail(e, EX_DATAERR, "\"adapter\": '%s', which is absorbed into queries and outputs, has one adapter for all texts",
                            l->pairs[i].param->name);
        }
    }
    return 0;
}

/* Adds one name to the factors. */
static int take_name(const struct session *s, const json_t *name, float *factors, struct llm_err *e)
{
    char *path = NULL;
    float scale = 1;
    const char *text = json_string_value(name);
    bool found = false;
    if (!text) return llm_fail(e, EX_DATAERR, "\"adapter\": expected a string or a list of strings");
    if (llm_lora_parse(text, &path, &scale, e) < 0) return -1;
    for (const struct llm_lora *l = s->model->lora; l; l = l->next) {
        if (strcmp(l->path, path) != 0) continue;
        found = true;
        factors[l->id] += scale;
    }
    free(path);
    return found ? 0 : llm_fail(e, EX_DATAERR, "\"adapter\": expected a file of --adapter, found '%s'", text);
}

int adapters_take(const struct session *s, const json_t *object, float **factors, struct llm_err *e)
{
    const json_t *given = json_object_get(object, "adapter"), *v;
    size_t i, n = s->a->adapters.n;
    *factors = NULL;
    if (!given || (json_is_null(given) && n == 0)) return 0;
    if (check_mixing(s, e) < 0) return -1;
    *factors = llm_calloc(n, sizeof **factors, "a line", e);
    if (!*factors) return -1;
    if (json_is_null(given)) return 0;
    if (!json_is_array(given)) return take_name(s, given, *factors, e);
    json_array_foreach((json_t *)(uintptr_t)given, i, v) {
        if (take_name(s, v, *factors, e) < 0) return -1;
    }
    return 0;
}
