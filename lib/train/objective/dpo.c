/* Preference optimisation: of two replies to a prompt the chosen one is made more likely than the rejected one, against a fixed reference model that
 * says what each would be without training (train/preference.h has the losses). The reference is computed by the same forward pass as the policy. */
#include <stdlib.h>
#include "train/pair_scores.h"

static const struct llm_column columns[] = {LLM_PAIR_COLUMNS("ref_chosen_logps", "ref_rejected_logps"), {NULL, LLM_PER_ROW, false}};

struct dpo {
    struct llm_preference loss;
    struct llm_pair_scores scores;
};

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    double smoothing = llm_option_real(o, "label-smoothing");
    if (!(smoothing < .5)) return llm_fail(e, LLM_EX_USAGE, "label-smoothing: expected a share below 0.5, found %g", smoothing);
    return llm_pair_scores_check_options(o, e);
}

static int create(struct llm_task *t, struct llm_err *e)
{
    struct dpo *d = llm_calloc(1, sizeof *d, "preferences", e);
    const char *path = llm_option_text(&t->o, "reference");
    t->own = d;
    if (!d) return -1;
    d->loss = (struct llm_preference){.kind = (enum llm_preference_kind)llm_option_word(&t->o, "loss"), .beta = llm_option_real(&t->o, "beta"),
                                      .label_smoothing = llm_option_real(&t->o, "label-smoothing"),
                                      .target_margin = llm_option_real(&t->o, "target-margin")};
    return llm_preference_refers(d->loss.kind) && path ? llm_pair_scores_init(&d->scores, t, path, e) : 0;
}

static void destroy(struct llm_task *t)
{
    struct dpo *d = t->own;
    if (!d) return;
    llm_pair_scores_release(&d->scores);
    free(d);
    t->own = NULL;
}

/* Losses of the pairs, and the weight of each token in the gradient: d loss / d (-log p). */
static void judge(struct llm_task *t, const struct llm_rows *pairs, const struct llm_rows *rows, float *weights, float *token_loss)
{
    const struct dpo *d = t->own;
    int64_t n = rows->n_rows / 2, len = rows->row_len;
    double reward[2] = {0}, policy[2] = {0}, right = 0;
    (void)pairs;
    for (int64_t r = 0; r < n; r++) {
        const struct llm_preference_loss l = llm_preference_loss(&d->loss, &d->scores.pairs[r]);
        token_loss[r * len] = (float)l.loss;
        for (int i = 0; i < 2; i++) {
            for (int64_t k = 0; k < len; k++) weights[(2 * r + i) * len + k] = (float)-l.slope[i];
            reward[i] += l.reward[i];
            policy[i] += d->scores.pairs[r].policy[i];
        }
        right += l.reward[LLM_CHOSEN] > l.reward[LLM_REJECTED];
    }
    llm_task_note(t, "reward_chosen", reward[LLM_CHOSEN], (double)n);
    llm_task_note(t, "reward_rejected", reward[LLM_REJECTED], (double)n);
    llm_task_note(t, "reward_margin", reward[LLM_CHOSEN] - reward[LLM_REJECTED], (double)n);
    llm_task_note(t, "reward_accuracy", right, (double)n);
    llm_task_note(t, "logps_chosen", policy[LLM_CHOSEN], (double)n);
    llm_task_note(t, "logps_rejected", policy[LLM_REJECTED], (double)n);
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *pairs, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct dpo *d = t->own;
    return llm_pair_scores_run(&d->scores, c, t, pairs, grad_scale, llm_preference_refers(d->loss.kind), judge, token_loss, e);
}

static const struct llm_objective_option options[] = {
    {.name = "loss", .arg = "NAME", .help = "loss of --objective dpo: sigmoid, ipo, hinge, robust, simpo, orpo [sigmoid]", .type = LLM_CHOICE,
     .choices = LLM_PREFERENCE_WORDS},
    LLM_PAIR_BETA_OPTION,
    {.name = "label-smoothing", .arg = "P", .help = "share of the pairs of --objective dpo whose order is taken to be wrong [0]", .type = LLM_REAL,
     .max = .5},
    {.name = "target-margin", .arg = "X", .help = "margin that --loss simpo asks for between the two rewards [0.5]", .type = LLM_REAL, .max = 1e6,
     .fallback = .5},
    LLM_PAIR_REFERENCE_OPTION,
    LLM_PAIRS_OPTIONS,
    {.name = NULL}};

extern const struct llm_objective llm_objective_dpo;
const struct llm_objective llm_objective_dpo = {.name = "dpo", .summary = "prefer one reply to another", .options = options,
                                                .init_option = "reference", .check_options = check_options, .check = llm_objective_check_one,
                                                .create = create, .destroy = destroy, .columns = columns, .record = llm_pairs_record,
                                                .document = llm_pairs_document, .two_texts = true, .other_targets = true, .run = run,
                                                .means = {"reward_chosen", "reward_rejected", "reward_margin", "reward_accuracy", "logps_chosen",
                                                          "logps_rejected"}};
