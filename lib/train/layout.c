/* --shard: how a run is divided among ranks (train/share.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "train/share.h"

#define AUTO "auto,ranks=RANKS,memory=BYTES,flops=RATE,bandwidth=RATE,latency=SECONDS"
#define FORM "dp=RANKS,zero=0|1|2|3,tp=RANKS,cp=RANKS,ep=RANKS,pp=STAGES,vp=CHUNKS,schedule=1f1b|gpipe|interleaved"
enum { HIGHEST_ZERO = 3 };

static int read_pair(struct llm_layout *l, const char *pair, struct llm_err *e)
{
    const char *sign = strchr(pair, '=');
    const size_t n = sign ? (size_t)(sign - pair) : 0;
    int64_t v;
    if (n == 8 && strncmp(pair, "schedule", n) == 0) {
        l->gpipe = strcmp(sign + 1, "gpipe") == 0;
        l->interleaved = strcmp(sign + 1, "interleaved") == 0;
        if (l->gpipe || l->interleaved || strcmp(sign + 1, "1f1b") == 0) return 0;
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected schedule=1f1b, gpipe or interleaved, found %s", pair);
    }
    if (!sign || llm_parse_int(sign + 1, &v) < 0 || v < 0 || v > LLM_COMM_MAX_RANKS) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected " FORM ", found '%s'", pair);
    }
    if (n == 2 && strncmp(pair, "dp", n) == 0 && v > 0) {
        l->dp = v;
        return 0;
    }
    if (n == 2 && strncmp(pair, "pp", n) == 0 && v > 0) {
        l->pp = v;
        return 0;
    }
    if (n == 2 && strncmp(pair, "vp", n) == 0 && v > 0) {
        l->vp = v;
        return 0;
    }
    if (n == 2 && strncmp(pair, "tp", n) == 0 && v > 0) {
        l->tp = v;
        return 0;
    }
    if (n == 2 && strncmp(pair, "cp", n) == 0 && v > 0) {
        l->cp = v;
        return 0;
    }
    if (n == 2 && strncmp(pair, "ep", n) == 0 && v > 0) {
        l->ep = v;
        return 0;
    }
    if (n == 4 && strncmp(pair, "zero", n) == 0) {
        l->zero = v;
        return v <= HIGHEST_ZERO ? 0 : llm_fail(e, LLM_EX_USAGE, "--shard: expected zero=0, 1, 2 or 3, found %s", pair);
    }
    return llm_fail(e, LLM_EX_USAGE, "--shard: expected " FORM ", found '%s'", pair);
}

/* A word beside "auto". */
static int read_reckoning(struct llm_layout *l, const char *word, struct llm_err *e)
{
    const struct { const char *name; double *to, least; } rates[] = {
        {"flops", &l->costs.flops, 1}, {"bandwidth", &l->costs.bandwidth, 1}, {"latency", &l->costs.latency, 0}};
    const char *sign = strchr(word, '=');
    int64_t v;
    double x;
    if (strncmp(word, "ranks=", 6) == 0 && llm_parse_int(sign + 1, &v) == 0 && v > 0 && v <= LLM_COMM_MAX_RANKS) {
        l->ranks = v;
        return 0;
    }
    if (strncmp(word, "memory=", 7) == 0 && llm_parse_size(sign + 1, &v) == 0 && v > 0) {
        l->costs.memory = (double)v;
        return 0;
    }
    for (size_t i = 0; sign && i < sizeof rates / sizeof *rates; i++) {
        const size_t n = strlen(rates[i].name);
        if ((size_t)(sign - word) != n || strncmp(word, rates[i].name, n) != 0) continue;
        if (llm_parse_real(sign + 1, &x) < 0 || !(x >= rates[i].least && x <= 1e30)) break;
        *rates[i].to = x;
        return 0;
    }
    return llm_fail(e, LLM_EX_USAGE, "--shard: expected " AUTO ", found '%s'", word);
}

int llm_layout_check_groups(const struct llm_layout *l, struct llm_err *e)
{
    const int64_t cp = llm_layout_rows(l), ep = llm_layout_experts(l), dp = l->dp > 0 ? l->dp : ep;
    if (dp * cp % ep != 0) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected ep to be a divisor of dp%s, %d, found ep=%d", cp > 1 ? " × cp" : "", (int)(dp * cp),
                        (int)ep);
    }
    if (ep % cp == 0 || cp % ep == 0) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--shard: expected ep to be a divisor or a multiple of cp, %d, found ep=%d", (int)cp, (int)ep);
}

/* The chunks of the interleaved schedule. */
static int place_chunks(struct llm_layout *l, struct llm_err *e)
{
    const bool cut = llm_layout_stages(l) > 1;
    if (l->interleaved && l->vp == 0) l->vp = 2;
    if (!cut && (l->gpipe || l->vp > 0)) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected %s beside pp, found it alone", l->gpipe ? "schedule=gpipe"
                        : l->interleaved ? "schedule=interleaved" : "vp");
    }
    if (l->interleaved && l->vp == 1) return llm_fail(e, LLM_EX_USAGE, "--shard: expected vp=2 or more beside schedule=interleaved, found vp=1");
    if (l->gpipe && l->vp > 1) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected schedule=interleaved beside vp=%d, found schedule=gpipe", (int)l->vp);
    }
    l->interleaved = l->vp > 1;
    return 0;
}

int llm_layout_read(struct llm_layout *l, const char *text, struct llm_err *e)
{
    char copy[200];
    *l = (struct llm_layout){.zero = -1, .costs = {.latency = -1}};
    if (strlen(text) >= sizeof copy) return llm_fail(e, LLM_EX_USAGE, "--shard: expected " FORM ", found a longer text");
    memcpy(copy, text, strlen(text) + 1);
    for (char *at = copy, *end; at; at = end) {
        if ((end = strchr(at, ','))) *end++ = 0;
        if (at == copy && strcmp(at, "auto") == 0) l->automatic = true;
        else if ((l->automatic ? read_reckoning : read_pair)(l, at, e) < 0) return -1;
    }
    if (l->automatic) {
        l->zero = 0;
        return 0;
    }
    if (place_chunks(l, e) < 0) return -1;
    const bool lanes = llm_layout_lanes(l) > 1, experts = llm_layout_experts(l) > 1; /* whose ranks divide their moments among the replicas */
    if (l->zero < 0) l->zero = lanes || experts;
    return experts ? llm_layout_check_groups(l, e) : 0;
}

void llm_layout_text(const struct llm_layout *l, char text[LLM_LAYOUT_TEXT])
{
    const struct { const char *name; int64_t v; } words[] = {{"tp", l->tp}, {"cp", l->cp}, {"ep", l->ep}, {"pp", l->pp}, {"vp", l->vp}};
    int n = snprintf(text, LLM_LAYOUT_TEXT, "dp=%d,zero=%d", (int)(l->dp > 0 ? l->dp : 1), (int)l->zero);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i].v > 1) n += snprintf(text + n, (size_t)(LLM_LAYOUT_TEXT - n), ",%s=%d", words[i].name, (int)words[i].v);
    }
    if (l->gpipe) snprintf(text + n, (size_t)(LLM_LAYOUT_TEXT - n), ",schedule=gpipe");
}

int llm_layout_check(const struct llm_layout *l, int n_ranks, struct llm_err *e)
{
    const int64_t of_replica = llm_layout_rows(l) * llm_layout_lanes(l), lanes = llm_layout_experts(l) * of_replica;
    const int64_t dp = l->automatic ? l->ranks : l->dp, wanted = dp > 0 ? dp * of_replica : lanes;
    if (dp == 0 ? n_ranks % lanes == 0 : n_ranks == wanted) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--shard: expected a launcher that starts %lld ranks (mpirun -n %lld)%s, found %d rank%s", (long long)wanted,
                    (long long)wanted, dp == 0 ? ", or a multiple" : "", n_ranks, n_ranks == 1 ? "" : "s");
}

bool llm_share_rounds(const struct llm_layout *l, const struct llm_train_options *o, bool adapted)
{
    return l->zero > 0 && o->precision == LLM_COMPUTE_BF16 && o->ema == 0 && !adapted; /* averages are of exact values, at every rank */
}

enum { FEW_RANKS = 31 /* who send to all others at once, so that no message waits for another one */ };

int llm_share_stages_of(int64_t n_ranks)
{
    int stages = 0;
    while (n_ranks >> (stages + 1) > 0) stages++;
    return n_ranks > FEW_RANKS && n_ranks == (int64_t)1 << stages ? stages : 0;
}

bool llm_share_halves_nodes(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o)
{
    const int64_t shards = llm_train_options_parts(o);
    return llm_share_stages_of(n_ranks) > 0 && l->zero < 2 && o->seq_parts == 1 && (shards & (shards - 1)) == 0;
}
