/* Reward models: of two replies to a prompt the chosen one is to have the higher score, -log σ(score - score' - margin) (Bradley and Terry 1952; with
 * the margin of Llama 2). The score is a linear map of the last token's hidden state: a classifier of one class, as Hugging Face reads it. */
#include <math.h>
#include <string.h>
#include "tensor/tape.h"
#include "train/pairs.h"
#include "train/preference.h"

enum { MARGIN };
static const struct llm_column columns[] = {{"margin", LLM_PER_ROW, true}, {NULL, LLM_PER_ROW, false}};

static int check(const struct llm_model *m, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    if (c->num_encoder_layers > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "expected one stack of layers, found an encoder-decoder (%s)", c->model_type);
    }
    if (c->pooling == LLM_POOL_OTHER) return llm_fail(e, EX_UNAVAILABLE, "pooling: expected mean, cls or last, found another");
    if (c->num_labels == 1) return 0;
    return llm_fail(e, EX_DATAERR, "expected a model with one score (num_labels 1), found %lld classes", (long long)c->num_labels);
}

static int configure(struct llm_config *c, const struct llm_train_options *o, const struct llm_train_data *data,
                     struct llm_err *e)
{
    (void)o;
    (void)data;
    (void)e;
    if (c->num_encoder_layers == 0 && c->num_labels == 0) llm_config_classify(c, 1);
    return 0;
}

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    return llm_option_real(o, "center-rewards") >= 0 ? 0 : llm_fail(e, LLM_EX_USAGE, "center-rewards: expected a number not below 0");
}

/* The loss of a pair, and its slopes by the two scores. `center`: the weight of (score + score')², which keeps scores around 0. */
static double loss_of(double chosen, double rejected, double margin, double center, double slope[2])
{
    double x = chosen - rejected - margin, sum = chosen + rejected;
    slope[0] = llm_minus_log_sigmoid_slope(x) + 2 * center * sum;
    slope[1] = -llm_minus_log_sigmoid_slope(x) + 2 * center * sum;
    return llm_minus_log_sigmoid(x) + center * sum * sum;
}

/* Losses of all pairs of a pass. With a tape the gradient of the scores [2n, 1] is set. */
static void judge(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *pairs, struct llm_tensor *scores, double grad_scale,
                  float *token_loss)
{
    double center = llm_option_real(&t->o, "center-rewards"), slope[2], mean[2] = {0}, right = 0;
    int64_t n = pairs->n_rows;
    float *grad = c->tape ? llm_tensor_grad(c, scores) : NULL;
    memset(token_loss, 0, (size_t)(n * pairs->row_len) * sizeof *token_loss);
    for (int64_t r = 0; r < n; r++) {
        const float *score = scores->data + 2 * r * scores->stride;
        double chosen = (double)score[0], rejected = (double)score[scores->stride], margin = (double)pairs->column[MARGIN][r];
        token_loss[r * pairs->row_len] = (float)loss_of(chosen, rejected, isnan(margin) ? 0 : margin, center, slope);
        for (int i = 0; i < 2 && grad; i++) grad[2 * r + i] += (float)(grad_scale * slope[i]);
        mean[0] += chosen;
        mean[1] += rejected;
        right += chosen > rejected;
    }
    llm_task_note(t, "reward_chosen", mean[0], (double)n);
    llm_task_note(t, "reward_rejected", mean[1], (double)n);
    llm_task_note(t, "reward_margin", mean[0] - mean[1], (double)n);
    llm_task_note(t, "reward_accuracy", right, (double)n);
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *pairs, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct llm_model *m = t->model;
    struct llm_rows rows;
    struct llm_param *bias, *head = llm_model_classes(m, 0, &bias);
    int64_t n = 2 * pairs->n_rows;
    if (llm_pairs_rows(c, pairs, &rows, e) < 0) return -1;
    int32_t *lengths = llm_op_alloc(c, n, sizeof *lengths);
    for (int64_t r = 0; r < n && lengths; r++) lengths[r] = r % 2 ? pairs->source_len[r / 2] : pairs->lengths[r / 2];
    c->n_rows = n;
    c->row_len = rows.row_len;
    c->first_row *= 2;
    c->token_weight /= 2; /* there are twice the tokens */
    struct llm_batch b = llm_rows_batch(t, &rows);
    b.lengths = m->config.bidirectional ? lengths : NULL;
    struct llm_tensor *pooled = llm_model_pool(c, m, llm_model_forward(c, m, &b), b.ids, lengths, n);
    struct llm_tensor *scores = llm_linear(c, llm_model_before_classes(c, m, pooled), head, bias);
    if (!llm_ctx_failed(c)) judge(c, t, pairs, scores, grad_scale, token_loss);
    if (!llm_ctx_failed(c)) return 0;
    *e = c->err;
    return -1;
}

static const struct llm_objective_option options[] = {
    {.name = "center-rewards", .arg = "X", .help = "add X·(sum of both scores)² to each pair's loss in --objective reward [0]", .type = LLM_REAL,
     .max = 1e6},
    LLM_PAIRS_OPTIONS,
    {.name = NULL}};

extern const struct llm_objective llm_objective_reward;
const struct llm_objective llm_objective_reward = {.name = "reward", .summary = "score replies as people prefer them", .options = options,
                                                   .check_options = check_options, .check = check, .configure = configure,
                                                   .columns = columns, .record = llm_pairs_record, .document = llm_pairs_document,
                                                   .two_texts = true,
                                                   .other_targets = true, .run = run,
                                                   .means = {"reward_chosen", "reward_rejected", "reward_margin", "reward_accuracy"}};
