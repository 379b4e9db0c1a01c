/* Branches of drafts: beside its draft, a completion may have a second one that begins with another token. It is a sequence of its own in the pass,
 * which begins with the completion's last token and shares the pages of its cache, so that a branch has the bits of a text without drafts. If the
 * token that is chosen first is the branch's, the branch's cache takes the place of the completion's. */
#include "infer/generate_internal.h"

#define ROOM 12 /* rows that a pass with branches may have */
#define FORGETTING .05 /* weight of the newest value in a moving average */
#define WARM 8 /* passes whose times are known before they decide */
#define FIRST_GAIN .25 /* tokens that a branch is taken to gain before that is known */
#define ANEW 32 /* a branch is tried in one of so many passes that are better without */

void llm_generate_begin_branches(struct llm_completion *c, int32_t *drafts)
{
    c->branch = drafts;
    c->branch_gain = FIRST_GAIN;
    llm_kv_init(&c->branch_kv, c->kv.pool);
}

bool llm_generate_may_branch(const struct state *s, const struct llm_completion *c)
{
    return c->branch && !s->g->maximal && s->g->engine->pool.state_floats == 0 && s->waiting == 0 && s->n_paused == 0
           && c->prompt.trace_queries == 0 && !llm_generate_is_guided(&c->prompt);
}

static void forget(double *mean, double value, int64_t n)
{
    *mean += (value - *mean) * (n < WARM ? 1. / (double)(n + 1) : FORGETTING);
}

/* Seconds that one row more adds to a pass: the slope of a line through recent passes. 0: not known. */
static double seconds_of_row(const struct llm_row_costs *r)
{
    double spread = r->squares - r->rows * r->rows, both = r->products - r->rows * r->seconds;
    return r->n < WARM || spread < 1e-3 || both < 0 ? 0 : both / spread;
}

void llm_generate_note_rows(struct state *s, int64_t rows, int64_t tokens, double seconds)
{
    struct llm_row_costs *r = &s->row_costs;
    if (rows > ROOM) return;
    if (r->n >= WARM && seconds > 2 * r->seconds) seconds = 2 * r->seconds; /* other work on the machine */
    forget(&r->rows, (double)rows, r->n);
    forget(&r->seconds, seconds, r->n);
    forget(&r->squares, (double)(rows * rows), r->n);
    forget(&r->products, (double)rows * seconds, r->n);
    forget(&r->tokens, (double)tokens, r->n);
    r->n++;
}

double llm_generate_branch_gain(const struct state *s, const struct llm_completion *c, int64_t rows)
{
    const struct llm_row_costs *r = &s->row_costs;
    double cost = r->n < WARM ? 0 : r->tokens * seconds_of_row(r) * (double)rows / r->seconds;
    return llm_generate_may_branch(s, c) ? c->branch_gain - cost : 0;
}

/* Whether the tokens that a branch gains come at no less than the rate of all tokens. */
static bool is_worth(const struct state *s, struct llm_completion *c, int64_t rows)
{
    bool worth = llm_generate_branch_gain(s, c, rows) >= 0;
    c->unbranched = worth ? 0 : c->unbranched + 1;
    return worth || c->unbranched % ANEW == 0;
}

int llm_generate_feed_branches(struct state *s, int64_t *left, int64_t *at, int64_t *wanted)
{
    int64_t used = s->g->engine->batch - *left;
    for (int64_t i = 0; i < s->n_active; i++) {
        struct llm_completion *c = s->active[i];
        if (c->n_branch > c->n_drafts) c->n_branch = c->n_drafts;
        const int64_t rows = 1 + c->n_branch, bytes = 2 * llm_kv_sequence_bytes(&s->g->engine->pool, 1);
        if (c->n_branch == 0) continue;
        if (used + rows > ROOM || rows > *left || bytes > s->free || !is_worth(s, c, rows)) {
            c->n_branch = 0;
            continue;
        }
        int32_t *ids = s->ids + *at;
        if (llm_kv_fork(&c->branch_kv, &c->kv, s->e) < 0) return -1;
        ids[0] = c->ids[c->n - 1];
        for (int64_t k = 0; k < c->n_branch; k++) ids[1 + k] = c->branch[k];
        c->branch_logits = *wanted;
        s->prefilled[s->n_feeds - s->n_active] = NULL;
        s->feeds[s->n_feeds++] = (struct llm_feed){&c->branch_kv, ids, rows, false};
        for (int64_t k = 1; k < rows; k++) s->rows[(*wanted)++] = *at + k; /* the logits after the first token are those of the draft */
        *at += rows;
        *left -= rows;
        s->free -= bytes;
        used += rows;
    }
    return 0;
}

bool llm_generate_takes_branch(struct llm_completion *c)
{
    if (c->n_branch == 0 || c->ids[c->n - 1] != c->branch[0]) return false;
    struct llm_kv kv = c->kv;
    c->kv = c->branch_kv;
    c->branch_kv = kv;
    c->on_branch = true;
    return true;
}

void llm_generate_end_branch(struct llm_completion *c)
{
    if (c->n_branch == 0) return;
    llm_kv_release(&c->branch_kv);
    c->n_branch = 0;
    c->on_branch = false;
}

void llm_generate_learn_branch(struct llm_completion *c, int64_t gained)
{
    if (c->n_branch == 0) return;
    c->branch_gain += FORGETTING * ((double)gained - c->branch_gain);
    c->branched += c->on_branch;
}
