/* llm-bench speed --against: paired measurements of two models, options or programs. */
#ifndef LLM_BIN_BENCH_PAIRS_H
#define LLM_BIN_BENCH_PAIRS_H

#include "bin/bench/bench.h"

/* In the environment of a side: of two -m the second counts, which AGAINST puts after this command line's. */
#define BENCH_SIDE "LLM_BENCH_SIDE"

struct bench_pairs {
    const char *program;         /* this one: a path, or a name that the shell finds */
    const char *against;         /* further words of the other side's command line; NULL: none */
    const char *against_program; /* NULL: the same */
    const char *own;             /* "a|b|c": options of this command line that are for neither side */
    int64_t pairs;
    uint64_t seed;
};
/* Right after llm_cli_parse, whose options both sides get: measures and prints the table. The first failure of a side ends it with that status. */
int bench_pairs(const struct bench_pairs *p, const struct llm_common *common, struct llm_err *e) LLM_MUST_CHECK;

#endif
