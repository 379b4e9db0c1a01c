/* Fill-in-the-middle: --fim-prefix and --fim-suffix, "input_prefix" and "input_suffix" of --jsonl. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/infer/infer.h"

/* Tokens of one of the texts, as they stand within a text. */
static int encode(const struct session *s, const char *text, size_t n, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    if (llm_encode(s->model->tokenizer, text, n, s->a->special ? LLM_ENCODE_SPECIAL : 0, ids, n_ids, e) < 0) return -1;
    return prompt_check_vocab(s, *ids, *n_ids, e);
}

/* Whether texts begin with a token of their own. */
static int begins(const struct session *s, bool *begin, struct llm_err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    int status = llm_encode(s->model->tokenizer, "", 0, LLM_ENCODE_ADD_SPECIAL, &ids, &n, e);
    *begin = n > 0 && ids[0] == s->fim.begin;
    free(ids);
    return status;
}

int fim_encode(struct session *s, const char *prefix, size_t n_prefix, const char *suffix, size_t n_suffix, int32_t **ids, size_t *n_ids,
               struct llm_err *e)
{
    int32_t *before = NULL, *after = NULL;
    size_t n_before = 0, n_after = 0;
    bool begin = false;
    if (!s->fim_known && llm_model_fim(s->model, &s->fim, e) < 0) return -1;
    s->fim_known = true;
    memcpy(s->fim_ends, (int32_t[]){s->fim.prefix, s->fim.suffix, s->fim.middle}, sizeof s->fim_ends);
    int status = begins(s, &begin, e);
    if (status == 0) status = encode(s, prefix, n_prefix, &before, &n_before, e);
    if (status == 0) status = encode(s, suffix, n_suffix, &after, &n_after, e);
    if (status == 0 && !(*ids = llm_alloc(n_before + n_after + LLM_FIM_MARKS + 1, sizeof **ids, "a prompt", e))) status = -1;
    if (status == 0) {
        if (begin) (*ids)[0] = s->fim.begin;
        *n_ids = begin + (size_t)llm_fim_put(&s->fim, s->a->fim_spm, (struct llm_fim_part){before, (int64_t)n_before},
                                             (struct llm_fim_part){after, (int64_t)n_after}, (struct llm_fim_part){NULL, 0}, *ids + begin);
    }
    free(before);
    free(after);
    return status;
}

int fim_read(struct session *s, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    const char *const paths[] = {s->a->fim_prefix, s->a->fim_suffix};
    for (int i = 0; i < 2; i++) {
        if (paths[i] && prompt_read_all(s, paths[i], &s->around[i], e) < 0) return -1;
        if (llm_buf_reserve(&s->around[i], 1, e) < 0) return -1; /* an empty text has an address too */
    }
    return fim_encode(s, s->around[0].p, s->around[0].n, s->around[1].p, s->around[1].n, ids, n_ids, e);
}
