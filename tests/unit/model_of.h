/* Small models for unit tests, from the text of their config.json. */
#ifndef LLM_TEST_MODEL_OF_H
#define LLM_TEST_MODEL_OF_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "io/checkpoint.h"
#include "model/model.h"

static inline struct llm_config config_of(const char *text)
{
    struct llm_err e;
    struct llm_config c = {0};
    json_t *o = llm_json_parse(text, strlen(text), &e);
    if (!o || llm_config_from_json(&c, o, &e) < 0) fail_msg("%s", e.text);
    json_decref(o);
    return c;
}

/* The configuration that a golden of tests/golden/families has in its metadata. */
static inline struct llm_config golden_config(const char *path)
{
    struct llm_err e;
    struct llm_checkpoint *f = llm_checkpoint_open(path, &e);
    if (!f) fail_msg("%s", e.text);
    const struct llm_config c = config_of(llm_header_meta(llm_checkpoint_header(f), "config"));
    llm_checkpoint_close(f);
    return c;
}

/* With weights drawn from a seed. The caller destroys it. */
static inline struct llm_model *model_of(const char *text)
{
    struct llm_err e;
    const struct llm_config c = config_of(text);
    struct llm_model *m = llm_model_create(&c, 9, &e);
    if (!m) fail_msg("%s", e.text);
    return m;
}

#endif
