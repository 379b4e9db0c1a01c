#include "train/rollouts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "cpu/detect.h"
#include "model/weights/lora.h"
#include "train/objective.h"
#include "train/policy.h"

const struct llm_column llm_rollout_columns[] = {
    {"advantage", LLM_PER_TOKEN, false}, {"logprobs", LLM_PER_TOKEN, false}, {"reward", LLM_PER_ROW, false}, {"deviation", LLM_PER_ROW, false},
    {"truncated", LLM_PER_ROW, false}, {"token_reward", LLM_PER_TOKEN, false}, {"reference", LLM_PER_TOKEN, false},
    {"value", LLM_PER_TOKEN, false}, {"return", LLM_PER_TOKEN, false}, {"group", LLM_PER_ROW, false}, {NULL, LLM_PER_ROW, false}};

/* A completion: its prompt and reply one after the other. */
struct rollout {
    int64_t group, sample, samples;
    int32_t *ids;
    float *log_probs;           /* [reply] */
    double *rewards;            /* [reply] per token; NULL: `reward` is of the whole */
    uint8_t *mask;              /* [reply] 0: the token is no action of the policy; NULL: all are */
    int64_t prompt, reply;      /* tokens */
    double reward;              /* the sum of all */
    bool cut;
};
struct rollouts {
    struct rollout *v;
    size_t n, room;
    int64_t groups;             /* that the lines declare */
    bool drawn_otherwise;       /* some tokens were drawn from another distribution than the model's own */
};

static void release(struct rollout *r)
{
    free(r->ids);
    free(r->log_probs);
    free(r->rewards);
    free(r->mask);
}

/* ---- a line ---- */

/* Appends a list of ids to r->ids, which has room for them. */
static int take_ids(int32_t *out, const json_t *list, const char *key, int64_t vocab, struct llm_err *e)
{
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= vocab) {
            return llm_fail(e, EX_DATAERR, "\"%s\": element %zu: expected an id below %" PRId64 " (the vocabulary)", key, i, vocab);
        }
        out[i] = (int32_t)id;
    }
    return 0;
}

static const json_t *take_list(const json_t *line, const char *key, int64_t n, struct llm_err *e)
{
    const json_t *list = json_object_get(line, key);
    int64_t found = (int64_t)json_array_size(list);
    if (json_is_array(list) && found > 0 && (n < 0 || n == found)) return list;
    if (!json_is_array(list)) llm_fail(e, EX_DATAERR, "\"%s\": expected a list", key);
    else if (n < 0) llm_fail(e, EX_DATAERR, "\"%s\": expected tokens, found none", key);
    else llm_fail(e, EX_DATAERR, "\"%s\": expected %" PRId64 " numbers, one for each of \"ids\", found %" PRId64, key, n, found);
    return NULL;
}

/* Tokens that a tool wrote into the completion have 0. */
static int take_mask(struct rollout *r, const json_t *line, struct llm_err *e)
{
    if (!json_object_get(line, "mask")) return 0;
    const json_t *list = take_list(line, "mask", r->reply, e);
    if (!list || !(r->mask = llm_alloc((size_t)r->reply, 1, "a rollout", e))) return -1;
    for (int64_t i = 0; i < r->reply; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 1) {
            return llm_fail(e, EX_DATAERR, "\"mask\": element %" PRId64 ": expected 0 or 1", i);
        }
        r->mask[i] = json_integer_value(v) == 1;
    }
    return 0;
}

/* The member of the line that has the log-probabilities of the distribution that is learned. NULL: see `e`. */
static const char *log_probs_key(const struct llm_train_options *o, const json_t *line, struct llm_err *e)
{
    static const struct { const char *name; double off; } filters[] = {{"top_k", 0}, {"min_p", 0}, {"top_p", 1}, {"typical", 1},
                                                                       {"repeat_penalty", 1}, {"presence_penalty", 0}, {"frequency_penalty", 0}};
    double temperature = llm_option_real(o, "ratio-temp"), drawn = 1;
    const json_t *sampling = json_object_get(line, "sampling");
    bool filtered = json_object_get(sampling, "logit_bias") || json_is_true(json_object_get(sampling, "ignore_eos"));
    if (temperature == 1) return "logprobs";
    if (llm_json_real(sampling, "temp", &drawn, e) < 0) return NULL;
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        const json_t *found = json_object_get(sampling, filters[i].name);
        filtered |= found && json_number_value(found) != filters[i].off;
    }
    if (drawn == temperature && !filtered) return "sampled_logprobs";
    llm_fail(e, EX_DATAERR, "--ratio-temp %g: expected completions drawn with this temperature, without filters, penalties and biases, found "
             "temperature %g%s", temperature, drawn, filtered ? " with others" : "");
    return NULL;
}

static int take_tokens(struct rollout *r, const json_t *line, const char *key, int64_t vocab, struct llm_err *e)
{
    const json_t *prompt = take_list(line, "prompt_ids", -1, e), *ids = prompt ? take_list(line, "ids", -1, e) : NULL;
    if (!ids) return -1;
    r->prompt = (int64_t)json_array_size(prompt);
    r->reply = (int64_t)json_array_size(ids);
    const json_t *log_probs = take_list(line, key, r->reply, e);
    if (!log_probs || take_mask(r, line, e) < 0) return -1;
    r->ids = llm_alloc((size_t)(r->prompt + r->reply), sizeof *r->ids, "a rollout", e);
    r->log_probs = llm_alloc((size_t)r->reply, sizeof *r->log_probs, "a rollout", e);
    if (!r->ids || !r->log_probs || take_ids(r->ids, prompt, "prompt_ids", vocab, e) < 0
        || take_ids(r->ids + r->prompt, ids, "ids", vocab, e) < 0) return -1;
    for (int64_t i = 0; i < r->reply; i++) {
        const json_t *v = json_array_get(log_probs, (size_t)i);
        double x = json_number_value(v);
        if (r->mask && !r->mask[i]) x = 0; /* nobody drew it */
        else if (!json_is_number(v) || !(x <= 0)) {
            return llm_fail(e, EX_DATAERR, "\"%s\": element %" PRId64 ": expected a logarithm of a probability", key, i);
        }
        r->log_probs[i] = (float)x;
    }
    return 0;
}

/* JSON has neither NaN nor infinity; commands write null, a text or nothing instead. */
static int take_reward(struct rollout *r, const json_t *line, bool needed, struct llm_err *e)
{
    const json_t *one = json_object_get(line, "reward"), *each = json_object_get(line, "rewards");
    if (!needed) return 0;
    if (!one && each) {
        if (!(each = take_list(line, "rewards", r->reply, e))) return -1;
        r->rewards = llm_alloc((size_t)r->reply, sizeof *r->rewards, "a rollout", e);
        for (int64_t i = 0; r->rewards && i < r->reply; i++) {
            const json_t *v = json_array_get(each, (size_t)i);
            if (!json_is_number(v)) return llm_fail(e, EX_DATAERR, "\"rewards\": element %" PRId64 ": expected a finite number", i);
            r->reward += r->rewards[i] = json_number_value(v);
        }
        return r->rewards ? 0 : -1;
    }
    if (!json_is_number(one)) return llm_fail(e, EX_DATAERR, "\"reward\": expected a finite number, found %s", one ? "none" : "no such member");
    r->reward = json_number_value(one);
    return 0;
}

/* Whether completions of the model with this fingerprint are the policy's: it is the policy, or the base of an adapter that changes nothing yet. */
static bool is_policy(const struct llm_model *m, const char *fingerprint)
{
    const struct llm_lora *l = m->lora;
    if (strcmp(m->fingerprint, fingerprint) == 0) return true;
    return l && !l->next && strcmp(l->base_fingerprint, fingerprint) == 0 && llm_lora_is_zero(l);
}

/* What the ratio of the probabilities now and then needs to begin at 1. */
static int check_policy(const struct llm_lines *l, const json_t *line, struct llm_err *e)
{
    const char *model = "", *precision = "", *cache = "", *isa = "", *ours = llm_compute_word(l->o->precision);
    if (llm_json_str(line, "model", &model, e) < 0 || llm_json_str(line, "precision", &precision, e) < 0
        || llm_json_str(line, "cache_type", &cache, e) < 0 || llm_json_str(line, "isa", &isa, e) < 0) return -1;
    if (llm_option_word(l->o, "off-policy")) return 0;
    const struct { const char *key, *wanted, *found; } same[] = {{"model", l->model->fingerprint, model}, {"precision", ours, precision},
                                                                 {"cache_type", ours, cache}, {"isa", llm_isa_name(), isa}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (strcmp(same[i].wanted, same[i].found) == 0 || (i == 0 && is_policy(l->model, model))) continue;
        return llm_fail(e, EX_DATAERR, "\"%s\": expected '%s', the policy's (--off-policy learns from others), found '%s'", same[i].key,
                        same[i].wanted, same[i].found);
    }
    return 0;
}

static int take_place(struct rollouts *all, struct rollout *r, const json_t *line, struct llm_err *e)
{
    int64_t groups = -1;
    r->group = r->sample = r->samples = -1;
    if (llm_json_int(line, "groups", 1, INT32_MAX, &groups, e) < 0 || llm_json_int(line, "group", 0, INT32_MAX, &r->group, e) < 0
        || llm_json_int(line, "samples", 1, INT32_MAX, &r->samples, e) < 0
        || llm_json_int(line, "sample", 0, INT32_MAX, &r->sample, e) < 0) return -1;
    if (groups < 0 || r->group < 0 || r->samples < 0 || r->sample < 0) {
        return llm_fail(e, EX_DATAERR, "expected \"group\", \"groups\", \"sample\" and \"samples\" (llm-infer --rollout)");
    }
    if (all->n > 1 && groups != all->groups) {
        return llm_fail(e, EX_DATAERR, "\"groups\": expected %" PRId64 " as in the lines before, found %" PRId64, all->groups, groups);
    }
    all->groups = groups;
    if (r->group < groups && r->sample < r->samples) return 0;
    return llm_fail(e, EX_DATAERR, "expected \"group\" below \"groups\" and \"sample\" below \"samples\", found %" PRId64 " of %" PRId64
                    " and %" PRId64 " of %" PRId64, r->group, groups, r->sample, r->samples);
}

int llm_rollouts_record(struct llm_lines *l, const json_t *line, struct llm_err *e)
{
    struct rollouts *all = l->own;
    const char *finish = "", *error = NULL;
    if (!all && !(all = l->own = llm_calloc(1, sizeof *all, "rollouts", e))) return -1;
    if (!json_is_object(line)) return llm_fail(e, EX_DATAERR, "expected an object");
    if (llm_json_str(line, "error", &error, e) < 0 || llm_json_str(line, "finish_reason", &finish, e) < 0) return -1;
    if (error) return llm_fail(e, EX_DATAERR, "expected a completion, found an error: %s", error);
    if (llm_grow((void **)&all->v, &all->room, all->n + 1, sizeof *all->v, e) < 0) return -1;
    struct rollout *r = &all->v[all->n++];
    *r = (struct rollout){.cut = strcmp(finish, "stop") != 0};
    const char *key = log_probs_key(l->o, line, e);
    if (!key) return -1;
    if (strcmp(key, "logprobs") == 0 && json_object_get(line, "sampled_logprobs")) all->drawn_otherwise = true;
    if (check_policy(l, line, e) < 0 || take_place(all, r, line, e) < 0 || take_tokens(r, line, key, l->model->config.vocab_size, e) < 0) return -1;
    if (r->prompt + r->reply > l->context + 1) {
        return llm_fail(e, EX_DATAERR, "expected at most %" PRId64 " tokens (--context), found %" PRId64, l->context + 1, r->prompt + r->reply);
    }
    return take_reward(r, line, !l->objective->unrewarded, e);
}

/* ---- groups ---- */

static int by_place(const void *a, const void *b)
{
    const struct rollout *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return (x->sample > y->sample) - (x->sample < y->sample);
}

/* The number of completions of the group that begins at completion `at`, all of which must be there. -1: one is missing, or came twice. */
static int64_t group_of(const struct rollouts *all, size_t at, int64_t group, struct llm_err *e)
{
    const struct rollout *r = all->v + at;
    int64_t n = 0;
    if (at == all->n || r->group != group) {
        return llm_fail(e, EX_DATAERR, "expected completions of all %" PRId64 " prompts, found none of group %" PRId64, all->groups, group);
    }
    for (; at + (size_t)n < all->n && r[n].group == group; n++) {
        if (r[n].samples != r->samples) {
            return llm_fail(e, EX_DATAERR, "group %" PRId64 ": expected %" PRId64 " samples in all of its lines, found %" PRId64, group, r->samples,
                            r[n].samples);
        }
        if (n > 0 && r[n].sample == r[n - 1].sample) {
            return llm_fail(e, EX_DATAERR, "group %" PRId64 ": expected sample %" PRId64 " once, found it twice", group, r[n].sample);
        }
        if (r[n].sample > n) break;
    }
    if (n == r->samples) return n;
    return llm_fail(e, EX_DATAERR, "group %" PRId64 ": expected %" PRId64 " samples, found sample %" PRId64 " missing", group, r->samples, n);
}

/* Numbers per token of a record, one column after the other. */
enum { OWN_COLUMNS = 6 };

/* Advantages of tokens: the completion's; if rewards are the tokens' own, what is still to come in place of the whole. `scale`: the advantage of a
 * reward of 1. */
static int add_record(struct llm_lines *l, const struct rollout *r, double advantage, double scale, double deviation, double reward,
                      struct llm_err *e)
{
    int64_t n = r->prompt + r->reply;
    bool masked = r->cut && llm_option_word(l->o, "truncated") == 1;
    uint8_t *mask = llm_calloc((size_t)n, 1, "a rollout", e);
    float *columns = mask ? llm_calloc((size_t)n * OWN_COLUMNS, sizeof *columns, "a rollout", e) : NULL;
    float numbers[4] = {(float)r->reward, (float)deviation, r->cut ? 1 : 0, (float)(r->group % (1 << 20))};
    int status = columns ? 0 : -1;
    double passed = 0;
    for (int64_t i = 0; columns && i < r->reply; i++) {
        float *of = columns + r->prompt + i;
        mask[r->prompt + i] = !masked && (!r->mask || r->mask[i]);
        of[0] = (float)(advantage - scale * passed);
        of[n] = of[3 * n] = r->log_probs[i];
        if (r->rewards) passed += r->rewards[i];
        of[2 * n] = (float)(r->rewards ? r->rewards[i] : 0);
        if (i == r->reply - 1) of[2 * n] += (float)(reward - (r->rewards ? r->reward : 0));
    }
    if (status == 0) {
        const struct llm_record record = {.ids = r->ids, .mask = mask, .n = n, .second = r->prompt,
                                          .column = {columns, columns + n, &numbers[0], &numbers[1], &numbers[2], columns + 2 * n, columns + 3 * n,
                                                     columns + 4 * n, columns + 5 * n, &numbers[3]}};
        status = llm_records_add(l->records, &record, e);
    }
    free(mask);
    free(columns);
    return status;
}

static int add_groups(struct llm_lines *l, const struct rollouts *all, llm_rollout_advantages *advantages, struct llm_err *e)
{
    double *reward = llm_alloc(3 * all->n, sizeof *reward, "rewards", e), *advantage = reward + all->n, *scale = advantage + all->n;
    const double penalty = llm_option_real(l->o, "truncated-penalty");
    if (!reward) return -1;
    for (size_t i = 0; i < all->n; i++) reward[i] = all->v[i].reward - (all->v[i].cut ? penalty : 0);
    const struct llm_group_stats whole = llm_group_stats(reward, (int64_t)all->n);
    int status = 0;
    size_t at = 0;
    for (int64_t group = 0; group < all->groups && status == 0; group++) {
        int64_t n = group_of(all, at, group, e);
        double of_one = 0;
        if (n < 0 || advantages(l->o, reward + at, n, whole.mean, advantage + at, &of_one, e) < 0) {
            status = n < 0 ? -1 : llm_in(e, "group %" PRId64, group);
        }
        for (int64_t i = 0; i < n && status == 0; i++) scale[at++] = of_one;
    }
    for (size_t i = 0; i < all->n && status == 0; i++) status = add_record(l, &all->v[i], advantage[i], scale[i], whole.deviation, reward[i], e);
    free(reward);
    return status;
}

int llm_rollouts_recorded(struct llm_lines *l, llm_rollout_advantages *advantages, struct llm_err *e, bool failed)
{
    struct rollouts *all = l->own;
    int status = 0;
    if (all && !failed) {
        qsort(all->v, all->n, sizeof *all->v, by_place);
        status = add_groups(l, all, advantages, e);
        if (status == 0 && all->drawn_otherwise) {
            llm_note("some tokens were drawn with a temperature or filters; what is learned is the model's own distribution, without them");
        }
    }
    for (size_t i = 0; all && i < all->n; i++) release(&all->v[i]);
    if (all) free(all->v);
    free(all);
    l->own = NULL;
    return status;
}
