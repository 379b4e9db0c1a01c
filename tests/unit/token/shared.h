/* Tokenizers of other people, in the folder of test data that not every machine has. */
#ifndef LLM_TEST_TOKEN_SHARED_H
#define LLM_TEST_TOKEN_SHARED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "token/tokenizer.h"

/* $LLM_SHARED, or ../shared. */
static inline const char *shared(void)
{
    const char *s = getenv("LLM_SHARED");
    return s ? s : "../shared";
}

/* NULL: the file is not there. */
static inline struct llm_tokenizer *load_shared(const char *name)
{
    char path[600];
    struct llm_err e = {0};
    snprintf(path, sizeof path, "%s/data/tokenizers/%s", shared(), name);
    if (access(path, R_OK) != 0)
        return NULL;
    struct llm_tokenizer *t = llm_tokenizer_load(path, NULL, &e);
    if (!t)
        fail_msg("%s", e.text);
    return t;
}

#endif
