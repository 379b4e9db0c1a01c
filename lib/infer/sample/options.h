/* The options that choose tokens, described once: the command line, JSON Lines and their tests read this table. Rows are in the order in which the
 * steps are applied; to add one: its field in struct llm_sampling, its row here, its entry in the manual. */
#ifndef LLM_INFER_SAMPLE_OPTIONS_H
#define LLM_INFER_SAMPLE_OPTIONS_H

#include "base/cli.h"
#include "infer/sample/sampler.h"

/* ROW(name, argument, help, type of value, field, least, most), with extra arguments in front */
#define LLM_SAMPLING_TABLE(ROW, type, member)                                                                                                       \
    ROW(type, member, repeat_penalty, "repeat-penalty", "X", "divide positive logits of recent tokens by X, multiply negative ones [1: off]",       \
        LLM_REAL, 1e-6, 1e6)                                                                                                                        \
    ROW(type, member, presence_penalty, "presence-penalty", "X", "subtract X from the logit of each recent token [0]", LLM_REAL, -1e6, 1e6)         \
    ROW(type, member, frequency_penalty, "frequency-penalty", "X", "subtract X from a token's logit for each recent occurrence [0]",                \
        LLM_REAL, -1e6, 1e6)                                                                                                                        \
    ROW(type, member, repeat_last_n, "repeat-last-n", "N", "number of last tokens that the penalties count as recent; -1: all [64]",                \
        LLM_INT, -1, 2147483647)                                                                                                                    \
    ROW(type, member, top_k, "top-k", "K", "keep the K most likely tokens; 0: all [40]", LLM_INT, 0, 2147483647)                                    \
    ROW(type, member, typical, "typical", "P", "keep the most typical tokens up to a total probability of P [1: off]", LLM_REAL, 0, 1)              \
    ROW(type, member, top_p, "top-p", "P", "keep the most likely tokens up to a total probability of P [0.95]", LLM_REAL, 0, 1)                     \
    ROW(type, member, min_p, "min-p", "P", "keep tokens at least P times as likely as the most likely one [0.05]", LLM_REAL, 0, 1)                  \
    ROW(type, member, temperature, "temp", "T", "divide logits by T; 0: always the most likely token [0.8]", LLM_REAL, 0, 1e6)

/* Rows of an option table; `type` is the args struct, `member` its struct llm_sampling. */
#define LLM_SAMPLING_OPTIONS(type, member) LLM_SAMPLING_TABLE(LLM_SAMPLING_ROW, type, member)
#define LLM_SAMPLING_ROW(type, member, field, name, arg, help, kind, least, most)                                                               \
    {0, name, arg, help, kind, offsetof(type, member.field), least, most, NULL},
/* "repeat-penalty|…|temp|" */
#define LLM_SAMPLING_NAMES LLM_SAMPLING_TABLE(LLM_SAMPLING_NAME, , )
#define LLM_SAMPLING_NAME(type, member, field, name, ...) name "|"

/* "42+1.5", "42-3", "42-inf": an id and what is added to its logit. 0, or -1 if it is not of that form. */
int llm_logit_bias_parse(const char *text, struct llm_logit_bias *bias) LLM_MUST_CHECK;

#endif
