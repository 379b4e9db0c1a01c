#include "train/options.h"

#include <math.h>
#include <string.h>
#include "cpu/matmul.h"
#include "data/order.h"
#include "tensor/sequence.h"
#include "tensor/slices.h"
#include "train/objective.h"
#include "train/optim.h"
#include "train/schedule.h"

/* Names of table rows and of enums. */
const char *llm_schedule_word(int i) { return llm_schedules[i] ? llm_schedules[i]->name : NULL; }
const char *llm_optim_word(int i) { return llm_optims[i] ? llm_optims[i]->name : NULL; }
const char *llm_objective_word(int i) { return llm_objectives[i] ? llm_objectives[i]->name : NULL; }
const char *llm_order_word(int i)
{
    static const char *const names[] = {[LLM_ORDER_SHUFFLE] = "shuffle", [LLM_ORDER_RANDOM] = "random", [LLM_ORDER_SEQUENTIAL] = "sequential", NULL};
    return names[i];
}

const char *llm_decay_word(int i)
{
    static const char *const names[] = {[LLM_DECAY_LINEAR] = "linear", [LLM_DECAY_COSINE] = "cosine", [LLM_DECAY_MINUS_SQRT] = "minus-sqrt", NULL};
    return names[i];
}

const char *llm_outer_word(int i)
{
    static const char *const names[] = {[LLM_OUTER_NONE] = "none", [LLM_OUTER_DILOCO] = "diloco", NULL};
    return names[i];
}

const char *llm_gradients_word(int i)
{
    static const char *const names[] = {[LLM_GRADIENTS_F32] = "f32", [LLM_GRADIENTS_INT8] = "int8", NULL};
    return names[i];
}

const char *llm_stored_word(int i)
{
    static const char *const names[] = {[LLM_STORED_F32] = "f32", [LLM_STORED_BF16] = "bf16", [LLM_STORED_INT8] = "int8",
                                        [LLM_STORED_TOP] = "top", [LLM_STORED_RANK] = "rank", NULL};
    return names[i];
}

int llm_train_options_stored(struct llm_train_options *o, const char *text, struct llm_err *e)
{
    const char *value = strchr(text, '=');
    const size_t n = value ? (size_t)(value - text) : strlen(text);
    int kind = 0;
    char *end = NULL;
    while (llm_stored_word(kind) && (strlen(llm_stored_word(kind)) != n || strncmp(llm_stored_word(kind), text, n) != 0)) kind++;
    const bool takes = kind == LLM_STORED_TOP || kind == LLM_STORED_RANK;
    if (!llm_stored_word(kind) || takes != (value != NULL)) {
        return llm_fail(e, LLM_EX_USAGE, "--activations: expected f32, bf16, int8, top=SHARE or rank=R, found '%s'", text);
    }
    o->activations = kind;
    o->activations_share = 0;
    o->activations_rank = 0;
    if (kind == LLM_STORED_TOP) o->activations_share = strtod(value + 1, &end);
    if (kind == LLM_STORED_RANK) o->activations_rank = strtoll(value + 1, &end, 10);
    if (!takes || (end > value + 1 && !*end)) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--activations: expected a number after '=', found '%s'", text);
}

const char *llm_muon_word(int i)
{
    static const char *const names[] = {[LLM_MUON_ORIGINAL] = "original", [LLM_MUON_MATCH_RMS] = "match-rms-adamw", NULL};
    return names[i];
}

/* Rows are chosen by name, so that the order of a table means nothing. */
static int index_of(const char *(*word)(int), const char *name)
{
    int i = 0;
    while (word(i) && strcmp(word(i), name) != 0) i++;
    return i;
}

void llm_train_options_default(struct llm_train_options *o)
{
    *o = (struct llm_train_options){.objective = index_of(llm_objective_word, "lm"), .optimizer = index_of(llm_optim_word, "adamw"),
                                    .schedule = index_of(llm_schedule_word, "cosine"), .steps = 1000, .batch = 8, .context = 0,
                                    .accumulate = 1, .grad_shards = 1, .tensor_parts = 1, .seq_parts = 1, .outer_lr = -1,
                                    .outer_momentum = -1, .lr = 1e-3, .min_lr = -1, .warmup = -1, .decay_fraction = .1,
                                    .beta1 = .9, .beta2 = -1, .eps = -1, .momentum = -1, .nesterov = -1, .muon_lr = -1,
                                    .weight_decay = .1, .clip = 1, .precision = LLM_COMPUTE_BF16,
                                    .order = LLM_ORDER_SHUFFLE, .eval_every = 250, .dropout = -1};
    llm_objective_values_default(&o->own);
}

enum type { INT, REAL, FLAG, NAME, OWN /* an objective's option, whatever the objective; `at` is unused */ };
static const struct key {
    const char *name;
    enum type type;
    size_t at;
    const char *(*word)(int);
} keys[] = {
#define AT(field) offsetof(struct llm_train_options, field)
    {"steps", INT, AT(steps), NULL},
    {"context", INT, AT(context), NULL},
    {"lr", REAL, AT(lr), NULL},
    {"min_lr", REAL, AT(min_lr), NULL},
    {"warmup", INT, AT(warmup), NULL},
    {"decay_fraction", REAL, AT(decay_fraction), NULL},
    {"decay_style", NAME, AT(decay_style), llm_decay_word},
    {"schedule", NAME, AT(schedule), llm_schedule_word},
    {"optimizer", NAME, AT(optimizer), llm_optim_word},
    {"objective", NAME, AT(objective), llm_objective_word},
    {"beta1", REAL, AT(beta1), NULL},
    {"beta2", REAL, AT(beta2), NULL},
    {"eps", REAL, AT(eps), NULL},
    {"momentum", REAL, AT(momentum), NULL},
    {"nesterov", FLAG, AT(nesterov), NULL},
    {"muon_lr", REAL, AT(muon_lr), NULL},
    {"muon_scale", NAME, AT(muon_scale), llm_muon_word},
    {"mup_base_width", INT, AT(mup_base_width), NULL},
    {"z_loss", REAL, AT(z_loss), NULL},
    {"activations", NAME, AT(activations), llm_stored_word},
    {"ema", REAL, AT(ema), NULL},
    {"eval_ema", FLAG, AT(eval_ema), NULL},
    {"weight_decay", REAL, AT(weight_decay), NULL},
    {"clip", REAL, AT(clip), NULL},
    {"fim_rate", OWN, 0, NULL},
    {"fim_spm_rate", OWN, 0, NULL},
    {"mask_rate", OWN, 0, NULL},
    {"precision", NAME, AT(precision), llm_compute_word},
    {"order", NAME, AT(order), llm_order_word},
    {"cross_document", FLAG, AT(cross_document), NULL},
    {"overfit_one", FLAG, AT(overfit_one), NULL},
    {"stream", FLAG, AT(stream), NULL},
    {"carry_state", FLAG, AT(carry_state), NULL},
    {"eval_every", INT, AT(eval_every), NULL},
    {"eval_rows", INT, AT(eval_rows), NULL},
    {"seed", INT, AT(seed), NULL},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

static const struct key gradients_key = {"gradients", NAME, AT(gradients), llm_gradients_word};

/* Of an outer optimizer, stored if there is one. */
static const struct key outer_keys[] = {
    {"outer", NAME, AT(outer), llm_outer_word},
    {"replicas", INT, AT(replicas), NULL},
    {"inner_steps", INT, AT(inner_steps), NULL},
    {"outer_lr", REAL, AT(outer_lr), NULL},
    {"outer_momentum", REAL, AT(outer_momentum), NULL},
};
enum { N_OUTER_KEYS = sizeof outer_keys / sizeof *outer_keys };

static json_t *write_key(const struct llm_train_options *o, const struct key *k)
{
    const char *at = (const char *)o + k->at;
    switch (k->type) {
    case INT: return json_integer(*(const int64_t *)at);
    case REAL: return json_real(*(const double *)at);
    case FLAG: return json_boolean(*(const int *)at);
    case NAME: return json_string(k->word(*(const int *)at));
    case OWN: return llm_option_to_json(o, k->name);
    }
    return NULL;
}

/* The options of the objective in use that have no row in keys[]: they follow all other keys. */
static int write_own(const struct llm_train_options *o, json_t *j)
{
    const struct llm_objective_option *list = llm_objectives[o->objective]->options;
    for (int i = 0; list && list[i].name; i++) {
        char key[64];
        llm_option_key(list[i].name, key);
        bool text = list[i].type == LLM_STR || list[i].type == LLM_INPUT;
        if (list[i].begins || json_object_get(j, key) || (text && !llm_option_text(o, list[i].name))) continue;
        if (list[i].if_given && !llm_option_given(o, list[i].name)) continue;
        if (json_object_set_new(j, key, llm_option_to_json(o, list[i].name)) < 0) return -1;
    }
    return 0;
}

static int read_own(struct llm_train_options *o, const json_t *j, struct llm_err *e)
{
    const struct llm_objective_option *list = llm_objectives[o->objective]->options;
    for (int i = 0; list && list[i].name; i++) {
        if (!list[i].begins && llm_option_from_json(o, list[i].name, j, e) < 0) return -1;
    }
    return 0;
}

static json_t *write_patterns(const struct llm_patterns *p)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < p->n; i++) json_array_append_new(list, json_string(p->v[i]));
    return list;
}

static int read_patterns(const json_t *j, const char *key, struct llm_patterns *p, struct llm_err *e)
{
    const json_t *list = json_object_get(j, key), *v;
    size_t i;
    if (!list) return 0;
    if (!json_is_array(list) || json_array_size(list) > LLM_MAX_PATTERNS) {
        return llm_fail(e, EX_DATAERR, "%s: expected a list of at most %d patterns", key, LLM_MAX_PATTERNS);
    }
    p->n = 0;
    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        if (!json_is_string(v)) return llm_fail(e, EX_DATAERR, "%s: expected a list of texts", key);
        p->v[p->n++] = json_string_value(v);
    }
    return 0;
}

json_t *llm_train_options_to_json(const struct llm_train_options *o, struct llm_err *e)
{
    json_t *j = json_object();
    for (size_t i = 0; j && i < N_KEYS; i++) {
        if (json_object_set_new(j, keys[i].name, write_key(o, &keys[i])) == 0) continue;
        json_decref(j);
        j = NULL;
    }
    bool by_tokens = o->batch_tokens > 0;
    int64_t size = by_tokens ? o->batch_tokens : o->batch * o->accumulate;
    int failed = !j || json_object_set_new(j, by_tokens ? "batch_tokens" : "rows", json_integer(size));
    if (!failed && o->grad_shards != 1) failed = json_object_set_new(j, "grad_shards", json_integer(o->grad_shards));
    if (!failed && o->tensor_parts != 1) failed = json_object_set_new(j, "tensor_parts", json_integer(o->tensor_parts));
    if (!failed && o->seq_parts != 1) failed = json_object_set_new(j, "seq_parts", json_integer(o->seq_parts));
    if (!failed && o->gradients != LLM_GRADIENTS_F32) failed = json_object_set_new(j, gradients_key.name, write_key(o, &gradients_key));
    for (size_t i = 0; o->outer != LLM_OUTER_NONE && !failed && i < N_OUTER_KEYS; i++) {
        failed = json_object_set_new(j, outer_keys[i].name, write_key(o, &outer_keys[i]));
    }
    if (!failed && o->keep_zeros) failed = json_object_set_new(j, "keep_zeros", json_true());
    if (!failed && o->activations_share > 0) failed = json_object_set_new(j, "activations_share", json_real(o->activations_share));
    if (!failed && o->dropout >= 0) failed = json_object_set_new(j, "dropout", json_real(o->dropout));
    if (!failed && o->activations_rank > 0) failed = json_object_set_new(j, "activations_rank", json_integer(o->activations_rank));
    if (!failed && o->train.n > 0) failed = json_object_set_new(j, "train", write_patterns(&o->train));
    if (!failed && o->freeze.n > 0) failed = json_object_set_new(j, "freeze", write_patterns(&o->freeze));
    if (!failed) failed = write_own(o, j);
    if (!failed) return j;
    json_decref(j);
    llm_no_memory(e, "training options");
    return NULL;
}

static int read_name(const json_t *j, const struct key *k, int *out, struct llm_err *e)
{
    const char *word = NULL;
    if (llm_json_str(j, k->name, &word, e) < 0) return -1;
    if (!word) return 0;
    for (int i = 0; k->word(i); i++) {
        if (strcmp(k->word(i), word) != 0) continue;
        *out = i;
        return 0;
    }
    return llm_fail(e, EX_DATAERR, "%s: expected a known one, found '%s'", k->name, word);
}

static int read_key(const json_t *j, const struct key *k, void *at, struct llm_err *e)
{
    if (k->type == INT) return llm_json_int(j, k->name, -1, INT64_MAX / 2, at, e);
    if (k->type == REAL) return llm_json_real(j, k->name, at, e);
    if (k->type == NAME) return read_name(j, k, at, e);
    bool flag = *(int *)at;
    if (llm_json_bool(j, k->name, &flag, e) < 0) return -1;
    if (json_object_get(j, k->name)) *(int *)at = flag;
    return 0;
}

/* Rows of a pass: the largest divisor of a step's rows that is no more than 8 or than 8,192 tokens make. */
static int64_t choose_batch(int64_t rows, int64_t context)
{
    int64_t batch = context > 0 && context < 1024 ? 8192 / context : 8;
    if (batch > rows) batch = rows;
    while (rows % batch != 0) batch--;
    return batch;
}

/* Older checkpoints have "batch" and "accumulate" in place of "rows". */
static int read_division(struct llm_train_options *o, const json_t *j, struct llm_err *e)
{
    int64_t rows = 0;
    if (llm_json_int(j, "rows", 1, INT64_MAX / 2, &rows, e) < 0 || llm_json_int(j, "batch_tokens", 1, INT32_MAX, &o->batch_tokens, e) < 0) return -1;
    if (rows > 0) o->batch = choose_batch(rows, o->context);
    if (llm_json_int(j, "batch", 1, INT64_MAX / 2, &o->batch, e) < 0) return -1;
    if (rows == 0) return llm_json_int(j, "accumulate", 1, INT64_MAX / 2, &o->accumulate, e);
    if (rows % o->batch != 0) {
        return llm_fail(e, EX_DATAERR, "batch: expected a divisor of %lld (rows), found %lld", (long long)rows, (long long)o->batch);
    }
    o->accumulate = rows / o->batch;
    return 0;
}

int llm_train_options_divide(struct llm_train_options *o, const struct llm_train_options *stored, struct llm_err *e)
{
    int64_t rows = stored->batch * stored->accumulate, given = o->batch > 0 ? o->batch : o->accumulate;
    if (o->batch_tokens > 0) { /* which say how many rows there are */
        if (o->accumulate > 0) return llm_fail(e, LLM_EX_USAGE, "--accumulate: the passes of a step follow from --batch-tokens");
        if (o->batch == 0) o->batch = stored->batch;
        o->accumulate = 1;
        return 0;
    }
    if (o->batch > 0 && o->accumulate > 0) return 0;
    if (given > 0 && rows % given != 0) {
        return llm_fail(e, LLM_EX_USAGE, "--%s: expected a divisor of the run's %lld rows a step, or --batch and --accumulate, found %lld",
                        o->batch > 0 ? "batch" : "accumulate", (long long)rows, (long long)given);
    }
    if (given == 0) {
        o->batch = stored->batch;
        o->accumulate = stored->accumulate;
    } else if (o->batch > 0) o->accumulate = rows / given;
    else o->batch = rows / given;
    return 0;
}

/* With batch_tokens: sets batch and accumulate to as many rows of `context` tokens as it has room for, in passes of at most o->batch rows.
 * `documents`: rows are documents; else batch_tokens, which the rows stand for, becomes 0. 0 or -1 (LLM_EX_USAGE). */
static int place_tokens(struct llm_train_options *o, int64_t context, bool documents, struct llm_err *e)
{
    int64_t rows = o->batch_tokens / context;
    if (o->batch_tokens == 0) return 0;
    if (rows < 1) {
        return llm_fail(e, LLM_EX_USAGE, "--batch-tokens: expected at least the tokens of a row, %lld (--context), found %lld", (long long)context,
                        (long long)o->batch_tokens);
    }
    if (o->batch > rows) o->batch = rows;
    while (rows % o->batch != 0) o->batch--;
    o->accumulate = rows / o->batch;
    if (!documents) o->batch_tokens = 0;
    return 0;
}

int llm_train_options_from_json(struct llm_train_options *o, const json_t *j, struct llm_err *e)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        int got = keys[i].type == OWN ? llm_option_from_json(o, keys[i].name, j, e) : read_key(j, &keys[i], (char *)o + keys[i].at, e);
        if (got < 0) return -1;
    }
    if (read_key(j, &gradients_key, &o->gradients, e) < 0) return -1;
    for (size_t i = 0; i < N_OUTER_KEYS; i++) {
        if (read_key(j, &outer_keys[i], (char *)o + outer_keys[i].at, e) < 0) return -1;
    }
    if (read_own(o, j, e) < 0) return -1;
    if (llm_json_int(j, "grad_shards", 1, INT64_MAX / 2, &o->grad_shards, e) < 0
        || llm_json_int(j, "tensor_parts", 1, LLM_MAX_SLICES, &o->tensor_parts, e) < 0
        || llm_json_int(j, "seq_parts", 1, LLM_MAX_PARTS_OF_ROW, &o->seq_parts, e) < 0) return -1;
    if (llm_json_real(j, "activations_share", &o->activations_share, e) < 0
        || llm_json_int(j, "activations_rank", 1, INT64_MAX / 2, &o->activations_rank, e) < 0
        || llm_json_real(j, "dropout", &o->dropout, e) < 0) return -1;
    bool zeros = o->keep_zeros;
    if (llm_json_bool(j, "keep_zeros", &zeros, e) < 0) return -1;
    o->keep_zeros = zeros;
    if (read_division(o, j, e) < 0 || read_patterns(j, "train", &o->train, e) < 0 || read_patterns(j, "freeze", &o->freeze, e) < 0) return -1;
    return llm_train_options_check(o, e);
}

static int bad(struct llm_err *e, const char *name, const char *expected, double found)
{
    return llm_fail(e, LLM_EX_USAGE, "%s: expected %s, found %g", name, expected, found);
}

static void resolve_outer(struct llm_train_options *o)
{
    if (o->outer == LLM_OUTER_NONE) return;
    if (o->replicas == 0) o->replicas = 4;
    if (o->inner_steps == 0) o->inner_steps = 50;
    if (o->outer_lr < 0) o->outer_lr = .7;
    if (o->outer_momentum < 0) o->outer_momentum = .9;
}

int llm_train_options_resolve(struct llm_train_options *o, const struct llm_config *c, struct llm_err *e)
{
    const struct llm_optim *optim = llm_optims[o->optimizer];
    const struct llm_objective *objective = llm_objectives[o->objective];
    if (objective->activations) o->context = 1;
    if (c->patch_size > 0 && o->context > 0 && o->context != llm_config_picture_tokens(c)) {
        return llm_fail(e, LLM_EX_USAGE, "--context: expected %lld, the tokens of a picture, found %lld", (long long)llm_config_picture_tokens(c),
                        (long long)o->context);
    }
    if (o->context == 0) o->context = llm_config_default_context(c);
    if (o->min_lr < 0) o->min_lr = o->lr / 10;
    resolve_outer(o);
    if (o->beta2 < 0) o->beta2 = optim->beta2;
    if (o->eps < 0) o->eps = optim->eps;
    if (o->momentum < 0) o->momentum = optim->momentum;
    if (o->nesterov < 0) o->nesterov = optim->nesterov;
    if (o->muon_lr < 0) o->muon_lr = o->muon_scale == LLM_MUON_ORIGINAL ? .02 : o->lr;
    return place_tokens(o, o->context, llm_objective_documents(objective, o), e);
}

int64_t llm_train_options_parts(const struct llm_train_options *o)
{
    return o->outer != LLM_OUTER_NONE ? o->replicas : o->grad_shards;
}

/* What --outer asks of the other options. */
static int check_outer(const struct llm_train_options *o, struct llm_err *e)
{
    const struct llm_objective *objective = llm_objectives[o->objective];
    if (o->outer == LLM_OUTER_NONE) {
        const bool given = o->replicas > 0 || o->inner_steps > 0 || o->outer_lr >= 0 || o->outer_momentum >= 0;
        return given ? llm_fail(e, LLM_EX_USAGE, "--replicas, --inner-steps, --outer-lr and --outer-momentum go with --outer diloco") : 0;
    }
    if (o->replicas < 1) return bad(e, "replicas", "at least 1", (double)o->replicas);
    if (o->inner_steps < 1) return bad(e, "inner_steps", "at least 1", (double)o->inner_steps);
    if (!(o->outer_lr >= 0 && isfinite(o->outer_lr))) return bad(e, "outer_lr", "a number not below 0", o->outer_lr);
    if (!(o->outer_momentum >= 0 && o->outer_momentum < 1)) return bad(e, "outer_momentum", "within [0, 1)", o->outer_momentum);
    const char *refused = o->batch_tokens > 0 ? "--batch-tokens" : o->carry_state ? "--carry-state" : o->ema > 0 ? "--ema" : NULL;
    if (refused) return llm_fail(e, LLM_EX_USAGE, "--outer diloco: expected no %s", refused);
    if (llm_objective_per_run(objective, o) || objective->beside || objective->state[0] || objective->updated) {
        return llm_fail(e, LLM_EX_USAGE, "--outer diloco: expected an objective that keeps nothing from step to step, found %s", objective->name);
    }
    if (o->batch * o->accumulate % o->replicas == 0) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--replicas: expected a divisor of the %lld rows of a step, found %lld", (long long)(o->batch * o->accumulate),
                    (long long)o->replicas);
}

/* What --tensor-parts asks of the other options. */
static int check_parts(const struct llm_train_options *o, struct llm_err *e)
{
    const struct llm_objective *objective = llm_objectives[o->objective];
    const char *other = o->outer != LLM_OUTER_NONE ? "--outer" : o->ema > 0 ? "averages (--ema)" : o->carry_state ? "--carry-state"
        : o->gradients == LLM_GRADIENTS_INT8 ? "--gradients int8" : o->activations != LLM_STORED_F32 ? "--activations"
        : o->train.n > 0 ? "--train" : o->freeze.n > 0 ? "--freeze" : NULL;
    if (o->tensor_parts == 1) return 0;
    if (o->tensor_parts < 1 || o->tensor_parts > LLM_MAX_SLICES) return bad(e, "tensor_parts", "within [1, 64]", (double)o->tensor_parts);
    if (other) return llm_fail(e, LLM_EX_USAGE, "--tensor-parts: expected a run without %s", other);
    if (llm_optims[o->optimizer]->update_matrix) {
        return llm_fail(e, LLM_EX_USAGE, "--tensor-parts: expected an optimizer that updates element by element, found %s",
                        llm_optims[o->optimizer]->name);
    }
    if (objective->run == llm_objective_run_next) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--tensor-parts: expected an objective that predicts the next token in one pass (lm, sft, prefix, fim), "
                    "found %s", objective->name);
}

int llm_train_options_check(const struct llm_train_options *o, struct llm_err *e)
{
    int64_t rows, tokens;
    if (o->steps < 0) return bad(e, "steps", "at least 0", (double)o->steps);
    if (o->batch < 1) return bad(e, "batch", "at least 1", (double)o->batch);
    if (o->accumulate < 1) return bad(e, "accumulate", "at least 1", (double)o->accumulate);
    if (__builtin_mul_overflow(o->batch, o->accumulate, &rows) || __builtin_mul_overflow(rows, o->context + 1, &tokens) || tokens > INT32_MAX) {
        return llm_fail(e, LLM_EX_USAGE, "batch * accumulate * context: expected below 2^31 tokens");
    }
    if (!(o->lr >= 0 && isfinite(o->lr))) return bad(e, "lr", "a number not below 0", o->lr);
    if (!(o->beta1 >= 0 && o->beta1 < 1)) return bad(e, "beta1", "within [0, 1)", o->beta1);
    if (!(o->beta2 >= 0 && o->beta2 < 1)) return bad(e, "beta2", "within [0, 1)", o->beta2);
    if (!(o->momentum >= 0 && o->momentum < 1)) return bad(e, "momentum", "within [0, 1)", o->momentum);
    if (!(o->muon_lr >= 0 && isfinite(o->muon_lr))) return bad(e, "muon_lr", "a number not below 0", o->muon_lr);
    if (!(o->decay_fraction >= 0 && o->decay_fraction <= 1)) return bad(e, "decay_fraction", "within [0, 1]", o->decay_fraction);
    if (o->mup_base_width < 0) return bad(e, "mup_base_width", "not below 0", (double)o->mup_base_width);
    if (!(o->z_loss >= 0 && isfinite(o->z_loss))) return bad(e, "z_loss", "a number not below 0", o->z_loss);
    if (o->activations == LLM_STORED_TOP && !(o->activations_share > 0 && o->activations_share <= 1)) {
        return bad(e, "activations: top", "a share above 0, at most 1", o->activations_share);
    }
    if (o->activations == LLM_STORED_RANK && !(o->activations_rank >= 1 && o->activations_rank <= 4096)) {
        return bad(e, "activations: rank", "a rank within [1, 4096]", (double)o->activations_rank);
    }
    if (!(o->dropout == -1 || (o->dropout >= 0 && o->dropout < 1))) return bad(e, "dropout", "within [0, 1)", o->dropout);
    if (o->carry_state && (o->stream || o->overfit_one)) {
        return llm_fail(e, LLM_EX_USAGE, "--carry-state: expected rows that go on through the data, not with --%s",
                        o->stream ? "stream" : "overfit-one");
    }
    if (o->keep_zeros && llm_optims[o->optimizer]->update_matrix) {
        return llm_fail(e, LLM_EX_USAGE, "--keep-zeros: expected an optimizer that updates element by element, found %s",
                        llm_optims[o->optimizer]->name);
    }
    if (o->keep_zeros && o->eps == 0) return bad(e, "eps", "above 0 with --keep-zeros", o->eps);
    if (!(o->ema >= 0 && o->ema < 1)) return bad(e, "ema", "within [0, 1)", o->ema);
    if (o->eval_ema && o->ema == 0) return llm_fail(e, LLM_EX_USAGE, "--eval-ema: expected an average of the weights (--ema), found none");
    if (!(o->eps >= 0)) return bad(e, "eps", "not below 0", o->eps);
    if (!(o->clip >= 0)) return bad(e, "clip", "not below 0", o->clip);
    if (!(o->weight_decay >= 0)) return bad(e, "weight_decay", "not below 0", o->weight_decay);
    if (o->seq_parts < 1 || o->seq_parts > LLM_MAX_PARTS_OF_ROW) return bad(e, "seq_parts", "within [1, 64]", (double)o->seq_parts);
    if (check_outer(o, e) < 0 || check_parts(o, e) < 0) return -1;
    const struct llm_objective *objective = llm_objectives[o->objective];
    if (o->batch_tokens > 0 && llm_objective_documents(objective, o) && !objective->by_tokens) {
        return llm_fail(e, LLM_EX_USAGE, "--batch-tokens: expected rows that are windows of a token stream, or conversations (sft), found "
                        "--objective %s: --batch counts its rows", objective->name);
    }
    return objective->check_options && objective->check_options(o, e) < 0 ? llm_in(e, "--objective %s", objective->name) : 0;
}
