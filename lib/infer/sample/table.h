/* The steps that choose tokens, in the order in which they are applied, each followed by its options. From this table follow the list of steps
 * (steps.h), the fields of struct llm_sampling, their defaults and ranges (sampler.h), and the options of the command line and of JSON Lines
 * (options.h). To add a step: sample/<name>.c, its row here, and its options' entries in the manual. */
#ifndef LLM_INFER_SAMPLE_TABLE_H
#define LLM_INFER_SAMPLE_TABLE_H

/* STEP(name): sample/<name>.c has llm_sample_<name>.
 * REAL, INT(type, member, field, default, option, argument, help, minimum, maximum): a double or an int64_t. `type` and `member` are passed
 * through. */
#define LLM_SAMPLE_TABLE(STEP, REAL, INT, type, member)                                                                                             \
    STEP(logit_bias)                                                                                                                                \
    STEP(penalties)                                                                                                                                 \
    REAL(type, member, repeat_penalty, 1, "repeat-penalty", "X", "divide positive logits of recent tokens by X, multiply negative ones [1: off]",   \
         1e-6, 1e6)                                                                                                                                 \
    REAL(type, member, presence_penalty, 0, "presence-penalty", "X", "subtract X from the logit of each recent token [0]", -1e6, 1e6)               \
    REAL(type, member, frequency_penalty, 0, "frequency-penalty", "X", "subtract X from a token's logit for each recent occurrence [0]",            \
         -1e6, 1e6)                                                                                                                                 \
    INT(type, member, repeat_last_n, 64, "repeat-last-n", "N", "number of last tokens that the penalties count as recent; -1: all [64]",            \
        -1, 2147483647)                                                                                                                             \
    STEP(dry)                                                                                                                                       \
    REAL(type, member, dry_multiplier, 0, "dry-multiplier", "X", "DRY: subtract X * base^(length - allowed) from what continues a repetition [0]",  \
         0, 1e6)                                                                                                                                    \
    REAL(type, member, dry_base, 1.75, "dry-base", "X", "base of --dry-multiplier [1.75]", 1, 1e6)                                                   \
    INT(type, member, dry_allowed_length, 2, "dry-allowed-length", "N", "repetitions of fewer than N tokens lose nothing by DRY [2]", 0, 65536)      \
    INT(type, member, dry_penalty_last_n, -1, "dry-penalty-last-n", "N", "number of last tokens in which DRY looks for repetitions; -1: all [-1]",  \
        -1, 2147483647)                                                                                                                             \
    STEP(top_n_sigma)                                                                                                                               \
    REAL(type, member, top_n_sigma, 0, "top-n-sigma", "N", "keep tokens at most N standard deviations below the largest logit [0: off]", 0, 1e6)    \
    STEP(top_k) INT(type, member, top_k, 40, "top-k", "K", "keep the K most likely tokens; 0: all [40]", 0, 2147483647)                             \
    STEP(typical) REAL(type, member, typical, 1, "typical", "P", "keep the most typical tokens up to a total probability of P [1: off]", 0, 1)      \
    STEP(top_p) REAL(type, member, top_p, .95, "top-p", "P", "keep the most likely tokens up to a total probability of P [0.95]", 0, 1)             \
    STEP(min_p) REAL(type, member, min_p, .05, "min-p", "P", "keep tokens at least P times as likely as the most likely one [0.05]", 0, 1)          \
    STEP(xtc)                                                                                                                                       \
    REAL(type, member, xtc_probability, 0, "xtc-probability", "P", "with probability P remove all but the least of the top choices [0: off]", 0, 1) \
    REAL(type, member, xtc_threshold, .1, "xtc-threshold", "P", "probability of a top choice of --xtc-probability [0.1]", 0, 1)                      \
    STEP(temperature) REAL(type, member, temperature, .8, "temp", "T", "divide logits by T; 0: always the most likely token [0.8]", 0, 1e6)         \
    REAL(type, member, dynatemp_range, 0, "dynatemp-range", "X", "temperature from T - X where the model is certain to T + X [0: off]", 0, 1e6)      \
    REAL(type, member, dynatemp_exp, 1, "dynatemp-exp", "X", "exponent of the entropy in --dynatemp-range [1]", 0, 1e6)                              \
    STEP(mirostat)                                                                                                                                  \
    INT(type, member, mirostat, 0, "mirostat", "N", "Mirostat of version 1 or 2, in place of all filters but the temperature [0: off]", 0, 2)       \
    REAL(type, member, mirostat_lr, .1, "mirostat-lr", "X", "learning rate of --mirostat [0.1]", 0, 1e6)                                             \
    REAL(type, member, mirostat_ent, 5, "mirostat-ent", "X", "target of --mirostat: bits of surprise [5]", 0, 1e6)                                   \
    STEP(adaptive_p)                                                                                                                                \
    REAL(type, member, adaptive_target, 0, "adaptive-target", "P", "adaptive-p: choose tokens of a probability near P [0: off]", 0, 1)               \
    REAL(type, member, adaptive_decay, .9, "adaptive-decay", "X", "memory of --adaptive-target, of each token before the last [0.9]", 0, .99)

/* For users of one kind of row. */
#define LLM_SAMPLE_NO_STEP(name)
#define LLM_SAMPLE_NO_OPTION(...)

#endif
