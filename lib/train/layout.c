/* --shard: how a run is divided among ranks (train/share.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "train/share.h"

enum { HIGHEST_ZERO = 3 };

static int read_pair(struct llm_layout *l, const char *pair, struct llm_err *e)
{
    static const char *const others[] = {"tp", "pp", "cp", "ep"};
    const char *sign = strchr(pair, '=');
    const size_t n = sign ? (size_t)(sign - pair) : 0;
    int64_t v;
    if (!sign || llm_parse_int(sign + 1, &v) < 0 || v < 0 || v > LLM_COMM_MAX_RANKS) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected dp=RANKS,zero=0|1|2|3, found '%s'", pair);
    }
    if (n == 2 && strncmp(pair, "dp", n) == 0 && v > 0) {
        l->dp = v;
        return 0;
    }
    if (n == 4 && strncmp(pair, "zero", n) == 0) {
        l->zero = v;
        return v <= HIGHEST_ZERO ? 0 : llm_fail(e, LLM_EX_USAGE, "--shard: expected zero=0, 1, 2 or 3, found %s", pair);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (n != 2 || strncmp(pair, others[i], n) != 0) continue;
        return v == 1 ? 0 : llm_fail(e, LLM_EX_USAGE, "--shard: expected %s=1, found %s, which is not built", others[i], pair);
    }
    return llm_fail(e, LLM_EX_USAGE, "--shard: expected dp=RANKS,zero=0|1|2|3, found '%s'", pair);
}

int llm_layout_read(struct llm_layout *l, const char *text, struct llm_err *e)
{
    char copy[200];
    *l = (struct llm_layout){0};
    if (strlen(text) >= sizeof copy) return llm_fail(e, LLM_EX_USAGE, "--shard: expected dp=RANKS,zero=0|1|2|3, found a longer text");
    memcpy(copy, text, strlen(text) + 1);
    for (char *at = copy, *end; at; at = end) {
        if ((end = strchr(at, ','))) *end++ = 0;
        if (read_pair(l, at, e) < 0) return -1;
    }
    return 0;
}

int llm_layout_check(const struct llm_layout *l, int n_ranks, struct llm_err *e)
{
    if (l->dp == 0 || l->dp == n_ranks) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--shard: expected a launcher that starts %lld ranks (mpirun -n %lld), found %d rank%s", (long long)l->dp,
                    (long long)l->dp, n_ranks, n_ranks == 1 ? "" : "s");
}
