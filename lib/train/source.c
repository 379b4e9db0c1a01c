/* Where the rows of a step come from: windows of a corpus, documents, a feed, or tokens drawn at random (train/trainer_internal.h). */
#include <stdlib.h>
#include <string.h>
#include "base/signals.h"
#include "cpu/profile.h"
#include "train/trainer_internal.h"

/* The model's class of each label of a stream. */
static int place_labels(struct llm_trainer *t, const struct llm_tokens *tokens, const char *what, int32_t **classes, struct llm_err *e)
{
    const struct llm_labels *names, *ours = &t->model->labels;
    if (!tokens) return 0;
    if (!llm_tokens_labels(tokens, &names)) {
        return llm_fail(e, EX_DATAERR, "%s: expected a class of each document (llm-tokenize encode --label), found none", what);
    }
    *classes = llm_calloc((size_t)llm_labels_count(names), sizeof **classes, "classes", e);
    for (int64_t i = 0; *classes && i < llm_labels_count(names); i++) {
        int64_t class = llm_labels_find(ours, llm_labels_name(names, i));
        if (class < 0) {
            return llm_fail(e, EX_DATAERR, "%s: expected classes that the model knows (%s, ...), found '%s'", what,
                            llm_labels_count(ours) ? llm_labels_name(ours, 0) : "none", llm_labels_name(names, i));
        }
        (*classes)[i] = (int32_t)class;
    }
    return *classes ? 0 : -1;
}

/* Columns that the objective needs, of data that has none. */
static int check_columns(const struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_column *columns = t->objective->columns;
    if (!t->data.train && !t->data.val) return 0;
    for (; columns && columns->name; columns++) {
        if (columns->optional) continue;
        return llm_fail(e, EX_DATAERR, "--objective %s: column '%s': expected data that has it, found a token stream, which has ids, loss mask and "
                        "documents alone", t->objective->name, columns->name);
    }
    return 0;
}

/* Tokens of a row that holds document `number` of the training data: the last one is a target alone. */
static int64_t row_of(const struct llm_train_data *d, uint64_t number)
{
    size_t n_ends;
    const uint64_t *ends = d->records ? NULL : llm_tokens_doc_ends(d->train, &n_ends);
    int64_t n = d->records ? llm_records_at(d->records, (int64_t)number).n : (int64_t)(ends[number] - (number > 0 ? ends[number - 1] : 0));
    return n > 2 ? n - 1 : 1;
}

/* Groups the first n documents into steps by their tokens. */
static int place_groups(struct llm_trainer *t, uint64_t n, struct llm_err *e)
{
    int64_t *lengths = llm_alloc((size_t)n, sizeof *lengths, "batches of documents", e);
    int got = lengths ? 0 : -1;
    for (uint64_t i = 0; i < n && got == 0; i++) {
        lengths[i] = row_of(&t->data, i);
        if (lengths[i] <= t->o.context) continue;
        got = llm_fail(e, EX_DATAERR, "document %llu: expected at most %lld tokens (--context), found %lld", (unsigned long long)i + 1,
                       (long long)t->o.context + 1, (long long)lengths[i] + 1);
    }
    if (got == 0) got = llm_groups_make(&t->groups, lengths, (int64_t)n, t->o.batch_tokens, (uint64_t)t->o.seed, e);
    free(lengths);
    t->order.n = (uint64_t)t->groups.n + 1;
    return got;
}

/* Documents are drawn as windows of one token are. */
static int place_documents(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_train_data *d = &t->data;
    uint64_t n = llm_train_data_documents(d, false), n_val = llm_train_data_documents(d, true);
    bool has = d->train || d->records, has_val = d->val || d->val_records;
    if (d->feed) return llm_fail(e, LLM_EX_USAGE, "--objective %s takes documents: not with --stream", t->objective->name);
    if (check_columns(t, e) < 0) return -1;
    if (t->objective->record && t->objective->two_texts && (d->train || d->val)) {
        return llm_fail(e, EX_DATAERR, "--objective %s: data: expected JSON Lines, found a token stream", t->objective->name);
    }
    if (t->objective->labelled && (place_labels(t, d->train, "training data", &t->classes[0], e) < 0
                                   || place_labels(t, d->val, "validation data", &t->classes[1], e) < 0)) {
        return -1;
    }
    uint64_t held = (uint64_t)((double)n * (1 - d->val_share));
    t->order = (struct llm_order){.kind = (enum llm_order_kind)t->o.order, .seed = (uint64_t)t->o.seed, .n = held + 1, .context = 1};
    if (has && held < 1) return llm_fail(e, EX_DATAERR, "training data: expected documents, found none");
    if ((has_val && n_val < 1) || (d->val_share > 0 && n == held)) return llm_fail(e, EX_DATAERR, "validation data: expected documents, found none");
    t->held = held;
    t->task.n_pictures = (int64_t)held;
    if (t->o.batch_tokens == 0 || !has) return 0;
    if (llm_objective_by_pass(t->objective, &t->model->config)) {
        return llm_fail(e, LLM_EX_USAGE, "--batch-tokens: expected a model whose rows do not depend on one another, found norm=batch");
    }
    return place_groups(t, held, e);
}

int llm_trainer_place_data(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_train_data *d = &t->data;
    if (t->documents) return place_documents(t, e);
    uint64_t n = d->train ? llm_tokens_count(d->train) : 0, held = (uint64_t)((double)n * (1 - d->val_share));
    t->order = (struct llm_order){.kind = (enum llm_order_kind)t->o.order, .seed = (uint64_t)t->o.seed, .n = held, .context = t->o.context};
    if (d->train && held <= (uint64_t)t->o.context) {
        return llm_fail(e, EX_DATAERR, "training data: expected more than one context of %lld tokens (--context), found %llu",
                        (long long)t->o.context, (unsigned long long)held);
    }
    if (d->val_share > 0 && n - held < 2) return llm_fail(e, EX_DATAERR, "validation data: expected at least 2 tokens, found %llu",
                                                          (unsigned long long)(n - held));
    if (d->val && llm_tokens_count(d->val) < 2) return llm_fail(e, EX_DATAERR, "%s: expected at least 2 tokens to validate on", d->val_path);
    return 0;
}

/* States for two steps: of each row of a step, all layers'. */
int llm_trainer_place_states(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_config *c = &t->model->config;
    if (!t->o.carry_state) return 0;
    if (!llm_model_can_carry(c) || t->objective != llm_objective_find("lm")) {
        return llm_fail(e, LLM_EX_USAGE, "--carry-state: expected a model with a state and --objective lm, found %s and %s", c->model_type,
                        t->objective->name);
    }
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        struct llm_state_shape s = llm_model_state(c, l);
        t->rows.state_floats += llm_state_floats(&s);
    }
    for (int i = 0; i < 2; i++) {
        t->carried[i] = llm_calloc((size_t)t->rows.n_rows, (size_t)t->rows.state_floats * sizeof **t->carried, "carried states", e);
        if (!t->carried[i]) return -1;
    }
    t->order.kind = LLM_ORDER_STREAMS;
    t->order.rows = (uint64_t)t->rows.n_rows;
    if (t->data.train && llm_order_stream_windows(&t->order) < 1) {
        return llm_fail(e, EX_DATAERR, "training data: expected a context of %lld tokens (--context) for each of %lld rows, found %llu tokens",
                        (long long)t->o.context, (long long)t->rows.n_rows, (unsigned long long)t->order.n);
    }
    return 0;
}

/* Fails unless a document of n tokens can fit a row. */
static int check_length(const struct llm_trainer *t, const struct llm_rows *rows, uint64_t n, struct llm_err *e)
{
    if (n <= 2 * (uint64_t)rows->row_len + 2) return 0;
    return llm_fail(e, EX_DATAERR, "expected at most %lld tokens%s (--context), found %llu in all", (long long)rows->row_len,
                    t->objective->two_texts ? " of source and of target" : "", (unsigned long long)n);
}

/* The first token whose loss mask is 1: the second text of a token stream's document. */
static int64_t second_of(const uint8_t *mask, int64_t n)
{
    int64_t i = 0;
    while (i < n && !mask[i]) i++;
    return i;
}

static int put_stream_document(struct llm_trainer *t, struct llm_rows *rows, int64_t row, bool val, uint64_t number, struct llm_err *e)
{
    const struct llm_tokens *tokens = val ? t->data.val : t->data.train;
    size_t n_ends;
    const uint64_t *ends = llm_tokens_doc_ends(tokens, &n_ends);
    uint64_t from = number > 0 ? ends[number - 1] : 0, n = ends[number] - from;
    const struct llm_labels *names;
    const int32_t *labels = llm_tokens_labels(tokens, &names), *classes = t->classes[val];
    if (check_length(t, rows, n, e) < 0) return -1;
    llm_tokens_get(tokens, from, (size_t)n, rows->window, rows->mask);
    const struct llm_document d = {.ids = rows->window, .mask = rows->mask, .n = (int64_t)n, .second = second_of(rows->mask, (int64_t)n),
                                   .label = labels && classes ? classes[labels[number]] : -1};
    return t->objective->document(&t->task, rows, row, &d, e);
}

static int put_record(struct llm_trainer *t, struct llm_rows *rows, int64_t row, const struct llm_records *records, uint64_t number,
                      struct llm_err *e)
{
    const struct llm_record r = llm_records_at(records, (int64_t)number);
    const struct llm_document d = {.ids = r.ids, .mask = r.mask, .n = r.n, .second = r.second, .label = -1, .column = r.column};
    return check_length(t, rows, (uint64_t)r.n, e) < 0 ? -1 : t->objective->document(&t->task, rows, row, &d, e);
}

int llm_trainer_put_document(struct llm_trainer *t, struct llm_rows *rows, int64_t row, bool val, uint64_t number, struct llm_err *e)
{
    const struct llm_records *records = val ? t->data.val_records : t->data.records;
    int status = records ? put_record(t, rows, row, records, number, e) : put_stream_document(t, rows, row, val, number, e);
    return status < 0 ? llm_in(e, "document %llu", (unsigned long long)number + 1) : 0;
}

/* Numbers between 0 and 1 for a row's columns. They are made in the place of the rows' own columns, which the objective then arranges. Optional
 * columns per token, which say what belongs together (documents of a row, choices), are left out. */
static void invent_columns(struct llm_trainer *t, const struct llm_rng *r, int64_t row, const float *column[LLM_MAX_COLUMNS])
{
    for (int k = 0; t->rows.columns && t->rows.columns[k].name; k++) {
        const struct llm_column *of = &t->rows.columns[k];
        int64_t n = llm_column_count(of, 1, t->rows.row_len, t->rows.choices);
        column[k] = NULL;
        if (of->optional && of->per != LLM_PER_ROW) continue;
        float *v = t->rows.column[k] + row * n;
        for (int64_t i = 0; i < n; i++) v[i] = (float)llm_rng_uniform64(r, (uint32_t)(1000003 * (k + 1) + i));
        column[k] = v;
    }
}

/* Tokens drawn at random, where there is no data (plans, gradient checks). */
static int invent(struct llm_trainer *t, int64_t row, struct llm_err *e)
{
    struct llm_rng r = llm_rng_at((uint64_t)t->o.seed, t->o.overfit_one ? 0 : (uint64_t)t->step, LLM_RNG_TEST, 0, (uint32_t)row, 0);
    bool documents = t->documents, two = t->objective->two_texts;
    for (int64_t i = 0; i <= (documents ? 2 : 1) * t->o.context; i++) {
        t->rows.window[i] = (int32_t)llm_rng_below(&r, (uint32_t)i, (uint64_t)t->model->config.vocab_size);
        t->rows.mask[i] = !two || i >= t->o.context - row % 3;
    }
    int64_t n = (two ? 2 : 1) * t->o.context - 1 - row % 3, classes = t->model->config.num_labels;
    if (n < 1) n = 1;
    const float *column[LLM_MAX_COLUMNS];
    invent_columns(t, &r, row, column);
    int64_t second = second_of(t->rows.mask, n);
    if (two && t->objective->record) memset(t->rows.mask, 1, (size_t)n); /* both texts have tokens that count */
    const struct llm_document d = {.ids = t->rows.window, .mask = t->rows.mask, .n = n, .second = second,
                                   .label = classes > 0 ? (int32_t)(row % classes) : -1, .column = column};
    if (documents) return t->objective->document(&t->task, &t->rows, row, &d, e);
    llm_rows_put(&t->rows, row, t->rows.window, t->rows.mask, t->o.context + 1, NULL, 0, 0, true);
    return 0;
}

/* A row of the feed. 1: it has ended, or a signal came. */
static int feed_row(struct llm_trainer *t, int64_t r, struct llm_err *e)
{
    int got = llm_feed_cut(t->data.feed, &t->rows, r, (uint64_t)(r * t->o.context), t->o.cross_document, e);
    if (got > 0) return 0;
    if (llm_signal_caught()) return 1; /* which may have ended the producer too */
    if (got < 0) return -1;
    t->ended = true;
    return 1;
}

/* Rows that begin a text, or their part of the data again, begin with nothing. */
static void begin_states(struct llm_trainer *t)
{
    const struct llm_order *o = &t->order;
    for (int64_t r = 0; r < t->rows.n_rows; r++) {
        uint64_t sample = t->sample + (uint64_t)r;
        bool begins = t->data.train && sample / o->rows % llm_order_stream_windows(o) == 0;
        begins |= t->data.train && !t->o.cross_document && llm_tokens_begins(t->data.train, llm_order_at(o, sample));
        if (begins) memset(t->carried[0] + r * t->rows.state_floats, 0, (size_t)t->rows.state_floats * sizeof **t->carried);
    }
    t->rows.state = t->carried[0];
    t->rows.state_after = t->carried[1];
}

/* Gives t->rows the shape of the step's batch of documents, of which it returns the numbers. NULL: rows are samples of the order. */
static const int64_t *shape_step(struct llm_trainer *t)
{
    const struct llm_groups *b = &t->groups;
    if (b->n == 0) return NULL;
    uint64_t batch = llm_order_at(&t->order, t->o.overfit_one ? 0 : t->sample);
    llm_rows_shape(&t->rows, b->first[batch + 1] - b->first[batch], b->length[batch]);
    return b->documents + b->first[batch];
}

int llm_trainer_rows(struct llm_trainer *t, struct llm_err *e)
{
    LLM_PROFILE("batch", 0);
    const int64_t *documents = shape_step(t);
    if (t->o.carry_state) begin_states(t);
    for (int64_t r = 0; r < t->rows.n_rows; r++) {
        if (t->data.feed) {
            int got = feed_row(t, r, e);
            if (got) return got;
            continue;
        }
        if (!t->data.train && !t->data.records) {
            if (invent(t, r, e) < 0) return -1;
            continue;
        }
        uint64_t sample = t->o.overfit_one ? (uint64_t)r : t->sample + (uint64_t)r;
        if (t->documents) {
            uint64_t number = documents ? (uint64_t)documents[r] : llm_order_at(&t->order, sample);
            if (llm_trainer_put_document(t, &t->rows, r, false, number, e) < 0) return -1;
            continue;
        }
        llm_rows_cut(&t->rows, r, t->data.train, llm_order_at(&t->order, sample), t->o.context + 1, t->o.cross_document);
    }
    const struct llm_rows_key key = {(uint64_t)t->o.seed, t->o.overfit_one ? 0 : (uint64_t)t->step, 0};
    if (t->objective->transform && t->objective->transform(&t->task, &key, &t->rows, e) < 0) return -1;
    const struct llm_rows all = llm_rows_part(&t->rows, 0, t->rows.n_rows);
    t->rows.counted = all.counted;
    t->rows.weight = all.weight;
    if (all.counted > 0 && all.weight > 0) return 0;
    if (all.counted > 0) {
        return llm_fail(e, EX_DATAERR, "step %lld: expected targets whose weights have a sum above 0, found %g", (long long)t->step + 1, all.weight);
    }
    return llm_fail(e, EX_DATAERR, "step %lld: expected some tokens to learn from, found all %lld targets masked", (long long)t->step + 1,
                    (long long)(t->rows.n_rows * t->rows.row_len));
}
