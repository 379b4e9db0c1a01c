/* The options that choose tokens, from sample/table.h: for the command line, JSON Lines and their tests. */
#ifndef LLM_INFER_SAMPLE_OPTIONS_H
#define LLM_INFER_SAMPLE_OPTIONS_H

#include "base/cli.h"
#include "infer/sample/sampler.h"

/* Rows of an option table; `type` is the args struct, `member` its struct llm_sampling. */
#define LLM_SAMPLING_OPTIONS(type, member) LLM_SAMPLE_TABLE(LLM_SAMPLE_NO_STEP, LLM_SAMPLING_REAL, LLM_SAMPLING_INT, type, member)
#define LLM_SAMPLING_REAL(type, member, field, standard, name, arg, help, least, max) \
    {0, name, arg, help, LLM_REAL, offsetof(type, member.field), least, max, NULL},
#define LLM_SAMPLING_INT(type, member, field, standard, name, arg, help, least, max) \
    {0, name, arg, help, LLM_INT, offsetof(type, member.field), least, max, NULL},
/* "repeat-penalty|…|temp|" */
#define LLM_SAMPLING_NAMES LLM_SAMPLE_TABLE(LLM_SAMPLE_NO_STEP, LLM_SAMPLING_NAME, LLM_SAMPLING_NAME, , )
#define LLM_SAMPLING_NAME(type, member, field, standard, name, ...) name "|"

/* "42+1.5", "42-3", "42-inf": an id and what is added to its logit. 0, or -1 if it is not of that form. */
int llm_logit_bias_parse(const char *text, struct llm_logit_bias *bias) LLM_MUST_CHECK;

#endif
