/* KTO (Ethayarajh et al. 2024): replies that are each desirable or undesirable, without pairs, against a fixed reference. The divergence of the
 * policy from the reference, which a reply's gain is compared with, is estimated as TRL does it: the mean, over the rows of a pass, of the log-ratio
 * of replies to other prompts, 0 at least, and without a gradient. A row is a prompt with its reply, and the same prompt with the reply of the line
 * before (of the first line: the last). */
#include <math.h>
#include <stdlib.h>
#include "train/pair_scores.h"

enum { LABEL = LLM_PAIR_COLUMNS_N };
static const struct llm_column columns[] = {LLM_PAIR_COLUMNS("ref_logps", "ref_kl_logps"), {"label", LLM_PER_ROW, false}, {NULL, LLM_PER_ROW, false}};

struct kto {
    double beta, weight[2];         /* weight[1]: of desirable replies */
    struct llm_pair_scores scores;
};

static int create(struct llm_task *t, struct llm_err *e)
{
    struct kto *k = llm_calloc(1, sizeof *k, "preferences", e);
    const char *path = llm_option_text(&t->o, "reference");
    t->own = k;
    if (!k) return -1;
    k->beta = llm_option_real(&t->o, "beta");
    k->weight[0] = llm_option_real(&t->o, "undesirable-weight");
    k->weight[1] = llm_option_real(&t->o, "desirable-weight");
    return path ? llm_pair_scores_init(&k->scores, t, path, e) : 0;
}

static void destroy(struct llm_task *t)
{
    struct kto *k = t->own;
    if (!k) return;
    llm_pair_scores_release(&k->scores);
    free(k);
    t->own = NULL;
}

/* ---- lines ---- */

static int record(struct llm_lines *l, const json_t *line, struct llm_err *e)
{
    const json_t *label = json_object_get(line, "label");
    if (!l->own && !(l->own = json_array())) return llm_no_memory(e, "lines");
    if (llm_singles_keep(l->own, line, e) < 0) return -1;
    if (json_is_boolean(label)) return 0;
    return llm_fail(e, EX_DATAERR, "expected 'label', true (desirable) or false, found %s", label ? "another" : "none");
}

static int recorded(struct llm_lines *l, struct llm_err *e, bool failed)
{
    json_t *lines = l->own;
    size_t n = json_array_size(lines);
    int got = failed ? 0 : llm_singles_check(lines, e);
    l->own = NULL;
    for (size_t i = 0; !failed && got == 0 && i < n; i++) {
        got = llm_singles_add(l, lines, i, e);
        if (got < 0) llm_in(e, "line %zu of all", i + 1);
    }
    json_decref(lines);
    return got;
}

/* ---- a pass ---- */

static void judge(struct llm_task *t, const struct llm_rows *pairs, const struct llm_rows *rows, float *weights, float *token_loss)
{
    const struct kto *k = t->own;
    int64_t n = pairs->n_rows, len = pairs->row_len;
    double kl = 0, reward[2] = {0}, policy[2] = {0}, count[2] = {0};
    (void)rows;
    for (int64_t r = 0; r < n; r++) kl += (k->scores.pairs[r].policy[1] - k->scores.pairs[r].reference[1]) / (double)n;
    if (kl < 0) kl = 0;
    for (int64_t r = 0; r < n; r++) {
        const struct llm_preference_pair *p = &k->scores.pairs[r];
        int desirable = pairs->column[LABEL][r] > 0;
        double slope, ratio = p->policy[0] - p->reference[0];
        token_loss[r * len] = (float)llm_kto_loss(k->beta, k->weight[desirable], desirable, ratio, kl, &slope);
        for (int64_t i = 0; i < len; i++) weights[2 * r * len + i] = (float)-slope;
        reward[desirable] += k->beta * ratio;
        policy[desirable] += p->policy[0];
        count[desirable]++;
    }
    llm_task_note(t, "kl", kl, 1);
    if (count[1] > 0) llm_task_note(t, "reward_chosen", reward[1], count[1]);
    if (count[0] > 0) llm_task_note(t, "reward_rejected", reward[0], count[0]);
    if (count[1] > 0) llm_task_note(t, "logps_chosen", policy[1], count[1]);
    if (count[0] > 0) llm_task_note(t, "logps_rejected", policy[0], count[0]);
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *pairs, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct kto *k = t->own;
    return llm_pair_scores_run(&k->scores, c, t, pairs, grad_scale, true, judge, token_loss, e);
}

static const struct llm_objective_option options[] = {
    LLM_PAIR_BETA_OPTION,
    {.name = "desirable-weight", .arg = "X", .help = "weight of desirable replies in the loss of kto [1]", .type = LLM_REAL, .max = 1e6,
     .fallback = 1},
    {.name = "undesirable-weight", .arg = "X", .help = "weight of undesirable replies in the loss of kto [1]", .type = LLM_REAL, .max = 1e6,
     .fallback = 1},
    LLM_PAIR_REFERENCE_OPTION,
    LLM_PAIRS_OPTIONS,
    {.name = NULL}};

extern const struct llm_objective llm_objective_kto;
const struct llm_objective llm_objective_kto = {.name = "kto", .summary = "learn from replies that are desirable or not", .options = options,
                                                .init_option = "reference", .check_options = llm_pair_scores_check_options,
                                                .check = llm_objective_check_one, .create = create, .destroy = destroy, .columns = columns,
                                                .record = record, .recorded = recorded, .document = llm_pairs_document, .two_texts = true,
                                                .other_targets = true, .by_pass = true, .run = run,
                                                .means = {"kl", "reward_chosen", "reward_rejected", "logps_chosen", "logps_rejected"}};
