/* Classes of texts: of the hidden states one vector is made (an encoder's first token through its pooler, a decoder's last token, or the mean), and
 * -log p(class) is minimised. Rows are documents; where these are two texts, the second is another kind of segment. */
#include <string.h>
#include "tensor/tape.h"
#include "train/objective.h"

static int check(const struct llm_model *m, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    if (c->num_encoder_layers > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "expected one stack of layers, found an encoder-decoder (%s)", c->model_type);
    }
    if (c->pooling == LLM_POOL_OTHER) return llm_fail(e, EX_UNAVAILABLE, "pooling: expected mean, cls or last, found another");
    if (c->num_labels > 1) return 0;
    return llm_fail(e, EX_DATAERR, "expected at least two classes (llm-tokenize encode --label), found %lld", (long long)c->num_labels);
}

static int configure(struct llm_config *c, const struct llm_train_options *o, const struct llm_tokens *data, struct llm_err *e)
{
    const struct llm_labels *names;
    (void)o;
    if (c->num_encoder_layers > 0 || c->num_labels > 0 || !data) return 0;
    if (!llm_tokens_labels(data, &names)) {
        return llm_fail(e, EX_DATAERR, "training data: expected a class of each document (llm-tokenize encode --label), found none");
    }
    llm_config_classify(c, llm_labels_count(names));
    return 0;
}

static int document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    const struct llm_model *m = t->model;
    int64_t at = row * rows->row_len, n = 0, second = 0;
    while (second < d->n && !d->mask[second]) second++; /* of two texts the first has loss mask 0 */
    bool two = second > 0 && second < d->n;
    /* a pair begins with one beginning */
    bool again = two && d->ids[second] == d->ids[0] && m->tokenizer && llm_tokenizer_is_special(m->tokenizer, d->ids[0]);
    if (d->n - again > rows->row_len) {
        return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld", (long long)rows->row_len, (long long)(d->n - again));
    }
    for (int64_t i = 0; i < d->n; i++) {
        if (again && i == second) continue;
        rows->ids[at + n] = d->ids[i];
        rows->kinds[at + n++] = two && i >= second && m->config.type_vocab_size > 1;
    }
    rows->kinded = m->config.type_vocab_size > 0;
    rows->lengths[row] = (int32_t)n;
    for (int64_t i = 0; i < rows->row_len; i++) {
        if (i >= n) rows->ids[at + i] = rows->kinds[at + i] = 0;
        rows->positions[at + i] = (int32_t)i;
        rows->doc_start[at + i] = 0;
        rows->own[at + i] = i < n;
        rows->targets[at + i] = i == 0 ? d->label : -1;
    }
    return 0;
}

/* How many texts have their own class as the most likely one; of equals the first. */
static void judge(struct llm_ctx *c, struct llm_mean *right, struct llm_tensor *x, struct llm_param *w, struct llm_param *b, const int32_t *targets)
{
    const struct llm_tensor *logits = llm_linear(c, x, w, b);
    for (int64_t r = 0; r < logits->rows; r++) {
        const float *row = logits->data + r * logits->stride;
        int64_t best = 0;
        for (int64_t k = 1; k < logits->cols; k++) best = row[k] > row[best] ? k : best;
        right->n += targets[r] >= 0;
        right->sum += targets[r] == best;
    }
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct llm_model *m = t->model;
    int64_t n = rows->n_rows, len = rows->row_len;
    struct llm_param *bias, *classes = llm_model_classes(m, &bias);
    c->n_rows = n;
    c->row_len = len;
    struct llm_batch b = llm_rows_batch(t, rows);
    b.lengths = m->config.bidirectional ? rows->lengths : NULL;
    b.kinds = rows->kinded ? rows->kinds : NULL;
    int32_t *targets = llm_op_alloc(c, n, sizeof *targets);
    float *losses = llm_op_alloc(c, n, sizeof *losses);
    for (int64_t r = 0; r < n && losses; r++) targets[r] = rows->targets[r * len];
    struct llm_tensor *pooled = llm_model_pool(c, m, llm_model_forward(c, m, &b), rows->lengths, n);
    struct llm_tensor *x = llm_model_before_classes(c, m, pooled);
    const struct llm_cross_entropy loss = {.targets = targets, .bias = bias, .logit_scale = 1, .grad_scale = grad_scale, .token_nll = losses};
    llm_cross_entropy(c, x, classes, &loss);
    if (!llm_ctx_failed(c) && !c->training) judge(c, &t->means[0], x, classes, bias, targets);
    if (llm_ctx_failed(c)) {
        *e = c->err;
        return -1;
    }
    memset(token_loss, 0, (size_t)(n * len) * sizeof *token_loss);
    for (int64_t r = 0; r < n; r++) token_loss[r * len] = losses[r];
    return 0;
}

extern const struct llm_objective llm_objective_classify;
const struct llm_objective llm_objective_classify = {.name = "classify", .summary = "tell classes of texts apart", .check = check,
                                                     .configure = configure, .document = document, .run = run, .labelled = true,
                                                     .other_targets = true,
                                                     .means = {"accuracy"}};
