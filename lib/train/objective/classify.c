/* Classes of texts and pictures: of the hidden states one vector is made (an encoder's first token through its pooler, a decoder's last token, or the
 * mean), and -log p(class) is minimised. Rows are documents; where these are two texts, the second is another kind of segment. Pictures may be
 * changed before they are learned from (data/pictures.h); the loss of a mixed one is that of both classes by their shares (mixup, Zhang et al.
 * 2018). */
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
    return llm_fail(e, EX_DATAERR, "expected at least two classes (llm-tokenize %s), found %lld",
                    c->patch_size > 0 ? "image --labels" : "encode --label", (long long)c->num_labels);
}

static int configure(struct llm_config *c, const struct llm_train_options *o, const struct llm_train_data *data, struct llm_err *e)
{
    const struct llm_labels *names;
    (void)o;
    if (c->num_encoder_layers > 0 || c->num_labels > 0 || !(data->train || data->pictures)) return 0;
    if (data->pictures && llm_pictures_classes(data->pictures) > LLM_MAX_LABELS) {
        return llm_fail(e, EX_DATAERR, "training data: expected at most %d classes, found %lld", LLM_MAX_LABELS,
                        (long long)llm_pictures_classes(data->pictures));
    }
    if (data->pictures && llm_pictures_classes(data->pictures) > 0) {
        llm_config_classify(c, llm_pictures_classes(data->pictures));
        return 0;
    }
    if (data->pictures) {
        return llm_fail(e, EX_DATAERR, "training data: expected a class of each picture (llm-tokenize image --labels), found none");
    }
    if (!llm_tokens_labels(data->train, &names)) {
        return llm_fail(e, EX_DATAERR, "training data: expected a class of each document (llm-tokenize encode --label), found none");
    }
    llm_config_classify(c, llm_labels_count(names));
    return 0;
}

/* Row `row` is a picture, whose number stands at the row's first token. */
static int picture(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    const int64_t at = row * rows->row_len;
    const int32_t label = t->pictures ? llm_pictures_label(t->pictures, d->ids[0]) : d->label;
    if (label < 0 || label >= t->model->config.num_labels) {
        return llm_fail(e, EX_DATAERR, "expected a class below %lld (the model's), found %d", (long long)t->model->config.num_labels, label);
    }
    rows->lengths[row] = (int32_t)rows->row_len;
    for (int64_t i = 0; i < rows->row_len; i++) {
        rows->ids[at + i] = i == 0 ? d->ids[0] : 0;
        rows->positions[at + i] = (int32_t)i;
        rows->doc_start[at + i] = 0;
        rows->own[at + i] = 1;
        rows->targets[at + i] = i == 0 ? label : -1;
    }
    return 0;
}

static int document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    const struct llm_model *m = t->model;
    if (m->config.patch_size > 0) return picture(t, rows, row, d, e);
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
static void judge(struct llm_ctx *c, const struct llm_model *m, struct llm_mean *right, struct llm_tensor *x, const int32_t *targets)
{
    const struct llm_tensor *logits = llm_model_class_logits(c, m, x);
    for (int64_t r = 0; r < logits->rows; r++) {
        const float *row = logits->data + r * logits->stride;
        int64_t best = 0;
        for (int64_t k = 1; k < logits->cols; k++) best = row[k] > row[best] ? k : best;
        right->n += targets[r] >= 0;
        right->sum += targets[r] == best;
    }
}

/* ---- pictures ---- */

static struct llm_augment augment_of(const struct llm_task *t)
{
    return (struct llm_augment){.crop = llm_option_int(&t->o, "crop"), .flip = llm_option_real(&t->o, "flip"),
                                .mixup = llm_option_real(&t->o, "mixup")};
}

/* The batch of the rows' pictures. In training they are changed; mixed[r] says what was mixed into row r, if anything. */
static struct llm_batch see(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, struct llm_augmented *mixed)
{
    const struct llm_augment augment = augment_of(t);
    const bool changed = c->training && t->pictures && (augment.crop > 0 || augment.flip > 0 || augment.mixup > 0);
    for (int64_t r = 0; r < rows->n_rows && !llm_ctx_failed(c); r++) {
        mixed[r] = (struct llm_augmented){.other = -1, .keep = 1};
        if (changed) mixed[r] = llm_augment_draw(&augment, c->seed, c->step, (uint32_t)(c->first_row + r), t->n_pictures);
    }
    return llm_task_see(c, t, &t->model->config, rows->ids, rows->row_len, rows->n_rows, changed ? mixed : NULL);
}

/* ---- a pass ---- */

/* The loss of vectors x [n, width] of pictures that have been mixed with others: each stands twice, as its own class and as the other's, weighted by
 * the shares. */
static void mixed_loss(struct llm_ctx *c, const struct llm_task *t, struct llm_tensor *x, struct llm_param *classes, struct llm_cross_entropy *loss,
                       const struct llm_augmented *mixed, float *losses)
{
    const int64_t n = x->rows;
    int32_t *rows = llm_op_alloc(c, 4 * n, sizeof *rows), *targets = rows + 2 * n;
    float *weights = llm_op_alloc(c, 4 * n, sizeof *weights), *both = weights + 2 * n;
    for (int64_t r = 0; r < n && !llm_ctx_failed(c); r++) {
        rows[2 * r] = rows[2 * r + 1] = (int32_t)r;
        targets[2 * r] = loss->targets[r];
        targets[2 * r + 1] = mixed[r].keep < 1 ? llm_pictures_label(t->pictures, mixed[r].other) : -1;
        weights[2 * r] = mixed[r].keep;
        weights[2 * r + 1] = 1 - mixed[r].keep;
    }
    loss->targets = targets;
    loss->weights = weights;
    loss->token_nll = both;
    llm_cross_entropy(c, llm_gather(c, x, rows, 2 * n), classes, loss);
    for (int64_t r = 0; r < n && !llm_ctx_failed(c); r++) losses[r] = weights[2 * r] * both[2 * r] + weights[2 * r + 1] * both[2 * r + 1];
}

/* The loss of one head, or, with two heads, the mean of both heads' losses (Touvron et al. 2021, equation 3, with the classes of the data in place
 * of a teacher's). */
static void losses_of(struct llm_ctx *c, const struct llm_task *t, struct llm_tensor *x, const int32_t *targets, double grad_scale,
                      const struct llm_augmented *mixed, float *losses)
{
    const struct llm_model *m = t->model;
    struct llm_param *bias;
    const int heads = llm_model_classes(m, 1, &bias) ? 2 : 1;
    const int64_t n = x->rows, width = x->cols / heads;
    float *own = heads > 1 ? llm_op_alloc(c, n, sizeof *own) : losses;
    for (int h = 0; h < heads && !llm_ctx_failed(c); h++) {
        struct llm_param *classes = llm_model_classes(m, h, &bias);
        struct llm_tensor *part = heads > 1 ? llm_columns(c, x, h * width, width) : x;
        struct llm_cross_entropy loss = {.targets = targets, .bias = bias, .logit_scale = 1, .grad_scale = grad_scale / heads, .token_nll = own};
        if (mixed) mixed_loss(c, t, part, classes, &loss, mixed, own);
        else llm_cross_entropy(c, part, classes, &loss);
        for (int64_t r = 0; heads > 1 && r < n; r++) losses[r] = (h > 0 ? losses[r] : 0) + own[r] / 2;
    }
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct llm_model *m = t->model;
    int64_t n = rows->n_rows, len = rows->row_len;
    c->n_rows = n;
    c->row_len = len;
    const bool sees = m->config.patch_size > 0;
    struct llm_augmented *mixed = sees ? llm_op_alloc(c, n, sizeof *mixed) : NULL;
    struct llm_batch b = sees ? see(c, t, rows, mixed) : llm_rows_batch(t, rows);
    b.lengths = m->config.bidirectional && !sees ? rows->lengths : NULL;
    b.kinds = rows->kinded ? rows->kinds : NULL;
    int32_t *targets = llm_op_alloc(c, n, sizeof *targets);
    float *losses = llm_op_alloc(c, n, sizeof *losses);
    for (int64_t r = 0; r < n && losses; r++) targets[r] = rows->targets[r * len];
    struct llm_tensor *pooled = llm_model_pool(c, m, llm_model_forward(c, m, &b), rows->ids, rows->lengths, n);
    struct llm_tensor *x = llm_model_before_classes(c, m, pooled);
    losses_of(c, t, x, targets, grad_scale, sees && c->training && llm_option_real(&t->o, "mixup") > 0 ? mixed : NULL, losses);
    if (!llm_ctx_failed(c) && !c->training) judge(c, m, &t->means[0], x, targets);
    if (llm_ctx_failed(c)) {
        *e = c->err;
        return -1;
    }
    memset(token_loss, 0, (size_t)(n * len) * sizeof *token_loss);
    for (int64_t r = 0; r < n; r++) token_loss[r * len] = losses[r];
    return 0;
}

static int create(struct llm_task *t, struct llm_err *e)
{
    const struct llm_config *f = &t->model->config;
    const struct llm_augment a = augment_of(t);
    const char *changes = a.crop > 0 ? "crop" : a.flip > 0 ? "flip" : a.mixup > 0 ? "mixup" : NULL;
    if (f->patch_size == 0 && changes) return llm_fail(e, LLM_EX_USAGE, "--%s: expected a model of pictures, found one of texts", changes);
    if (f->patch_size == 0 || a.crop < f->image_size) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--crop: expected fewer pixels than the picture's %lld, found %lld", (long long)f->image_size,
                    (long long)a.crop);
}

static const struct llm_objective_option options[] = {
    {.name = "crop", .arg = "N", .type = LLM_INT, .max = 1 << 14, .if_given = true,
     .help = "move pictures by up to N pixels each way, at random [0]"},
    {.name = "flip", .arg = "P", .type = LLM_REAL, .max = 1, .if_given = true, .help = "mirror pictures with probability P [0]"},
    {.name = "mixup", .arg = "ALPHA", .type = LLM_REAL, .max = 4, .if_given = true,
     .help = "mix pictures in pairs, by shares of Beta(ALPHA, ALPHA); 0: no [0]"},
    {.name = NULL}};

extern const struct llm_objective llm_objective_classify;
const struct llm_objective llm_objective_classify = {.name = "classify", .summary = "tell classes of texts or pictures apart", .check = check,
                                                     .options = options, .configure = configure, .create = create, .document = document,
                                                     .run = run, .labelled = true, .pictures = true, .other_targets = true,
                                                     .means = {"accuracy"}};
