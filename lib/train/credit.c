#include "train/credit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

/* The tokens of one completion that count. */
struct steps {
    int64_t *token;             /* [n] their numbers in the record */
    double *reward;             /* [n] with what the KL takes */
    double *value, *advantage;  /* [n] */
    double before;              /* the rewards before the first of them */
    int64_t n;
};

static int64_t longest(const struct llm_records *r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < llm_records_count(r); i++) {
        int64_t own = llm_records_at(r, i).n;
        if (own > n) n = own;
    }
    return n;
}

/* Fills in s, but for advantages. *kl: the sum of k1 over the tokens. Returns the completion's reward less what the KL takes: of all tokens, also of
 * those before the first that counts, and of a completion without any. */
static double read_steps(const struct llm_record *d, const struct llm_credit *c, struct steps *s, double *kl)
{
    double total = 0;
    *kl = s->before = 0;
    s->n = 0;
    for (int64_t t = d->second; t < d->n; t++) {
        double reward = (double)d->column[LLM_ROLLOUT_TOKEN_REWARD][t], k[3];
        if (!d->mask[t]) {
            *(s->n > 0 ? &s->reward[s->n - 1] : &s->before) += reward;
            total += reward;
            continue;
        }
        llm_kl_estimate((double)d->column[LLM_ROLLOUT_REFERENCE][t] - (double)d->column[LLM_ROLLOUT_LOG_PROB][t], k);
        s->token[s->n] = t;
        s->value[s->n] = (double)d->column[LLM_ROLLOUT_VALUE][t];
        s->reward[s->n] = reward - (c->kl_coef > 0 ? c->kl_coef * k[c->kl] : 0);
        total += s->reward[s->n++];
        if (c->kl_coef > 0) *kl += k[LLM_KL_K1];
    }
    return total;
}

/* Advantages, and targets of values, of one completion. `whole`: its advantage as a whole; without GAE a token has what of it is still to come.
 * `scale`: the advantage of a reward of 1. */
static void write_steps(struct llm_records *r, int64_t i, const struct llm_credit *c, struct steps *s, double whole, double scale)
{
    float *advantage = llm_records_column(r, i, LLM_ROLLOUT_ADVANTAGE), *target = llm_records_column(r, i, LLM_ROLLOUT_RETURN);
    double passed = s->before;
    if (!c->advantages) llm_advantage_gae(s->reward, s->value, s->n, c->gamma, c->lambda, s->advantage);
    for (int64_t k = 0; k < s->n; k++) {
        if (c->advantages) s->advantage[k] = whole - scale * passed;
        passed += s->reward[k];
        advantage[s->token[k]] = (float)s->advantage[k];
        target[s->token[k]] = (float)(s->advantage[k] + s->value[k]);
    }
}

static int whiten(struct llm_records *r, struct llm_err *e)
{
    size_t n = 0;
    double *all = NULL;
    for (int round = 0; round < 3; round++) { /* count, gather, write */
        size_t at = 0;
        for (int64_t i = 0; i < llm_records_count(r); i++) {
            const struct llm_record d = llm_records_at(r, i);
            float *advantage = llm_records_column(r, i, LLM_ROLLOUT_ADVANTAGE);
            for (int64_t t = d.second; t < d.n; t++) {
                if (!d.mask[t]) continue;
                if (round == 1) all[at] = (double)advantage[t];
                if (round == 2) advantage[t] = (float)all[at];
                at++;
            }
        }
        if (round == 0 && !(all = llm_alloc((n = at) + 1, sizeof *all, "advantages", e))) return -1;
        if (round == 1) llm_advantage_whiten(all, (int64_t)n);
    }
    free(all);
    return 0;
}

/* Advantages of whole completions and their scales, group by group: groups stand one after the other. */
static int by_groups(const struct llm_records *r, const struct llm_credit *c, const double *total, double *advantage, double *scale,
                     struct llm_err *e)
{
    int64_t n = llm_records_count(r), end;
    double mean = llm_group_stats(total, n).mean;
    for (int64_t from = 0; from < n; from = end) {
        float group = llm_records_at(r, from).column[LLM_ROLLOUT_GROUP][0];
        for (end = from + 1; end < n && llm_records_at(r, end).column[LLM_ROLLOUT_GROUP][0] == group;) end++;
        if (c->advantages(c->o, total + from, end - from, mean, advantage + from, &scale[from], e) < 0) return -1;
        for (int64_t i = from + 1; i < end; i++) scale[i] = scale[from];
    }
    return 0;
}

int llm_credit_assign(struct llm_records *r, const struct llm_credit *c, struct llm_credit_report *report, struct llm_err *e)
{
    int64_t n = llm_records_count(r), room = longest(r);
    double *numbers = llm_alloc((size_t)(3 * room + 3 * n + 1), sizeof *numbers, "advantages", e), *total = numbers ? numbers + 3 * room : NULL;
    struct steps s = {.token = llm_alloc((size_t)room + 1, sizeof *s.token, "advantages", e)};
    int status = numbers && s.token ? 0 : -1;
    *report = (struct llm_credit_report){.completions = n};
    for (int round = 0; round < 2 && status == 0; round++) { /* all rewards come before the first advantage */
        for (int64_t i = 0; i < n; i++) {
            const struct llm_record d = llm_records_at(r, i);
            double kl, reward;
            s.reward = numbers;
            s.value = numbers + room;
            s.advantage = numbers + 2 * room;
            reward = read_steps(&d, c, &s, &kl);
            if (round == 1) {
                write_steps(r, i, c, &s, total[n + i], total[2 * n + i]);
                continue;
            }
            total[i] = reward;
            report->kl += kl / (double)n;
            report->reward += reward / (double)n;
        }
        if (round == 0 && c->advantages) status = by_groups(r, c, total, total + n, total + 2 * n, e);
    }
    if (status == 0 && c->whiten) status = whiten(r, e);
    free(numbers);
    free(s.token);
    return status;
}
