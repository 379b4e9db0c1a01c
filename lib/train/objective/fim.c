/* Filling in the middle (Bavarian et al. 2022): a share of the documents is cut at two places into prefix, middle and suffix, whose order is changed
 * so that the middle comes last, and then an end. The tokens of all parts are learned as any text's. */
#include <stdlib.h>
#include <string.h>
#include "model/weights/fim.h"
#include "train/objective.h"

static int check(const struct llm_model *m, struct llm_err *e)
{
    struct llm_fim f;
    return llm_objective_check_next(m, e) < 0 ? -1 : llm_model_fim(m, &f, e);
}

/* A row as it is made anew. */
struct making {
    double rate, spm_rate;      /* --fim-rate, --fim-spm-rate */
    struct llm_fim fim;
    int32_t *ids;               /* [room] */
    uint8_t *mask;
    uint64_t *ends;
    int64_t n, room, n_ends;
    int32_t *marks;             /* [row_len + 1]: positions in a document, put as its ids are, so that the loss mask follows */
};

/* Ids [0, n) as they are. */
static void keep(struct making *k, const int32_t *ids, const uint8_t *mask, int64_t n)
{
    if (n > k->room - k->n) n = k->room - k->n;
    memcpy(k->ids + k->n, ids, (size_t)n * sizeof *ids);
    memcpy(k->mask + k->n, mask, (size_t)n);
    k->n += n;
}

/* The n tokens of a document without its beginning and end, cut at a ≤ b. */
static void rearrange(struct making *k, const int32_t *ids, const uint8_t *mask, int64_t n, int64_t a, int64_t b, bool suffix_first)
{
    static const struct llm_fim places = {.prefix = -1, .suffix = -1, .middle = -1};
    int32_t *at = k->marks;
    int64_t all = n + LLM_FIM_MARKS;
    for (int64_t i = 0; i < n; i++) at[i] = (int32_t)i;
    llm_fim_put(&k->fim, suffix_first, (struct llm_fim_part){ids, a}, (struct llm_fim_part){ids + b, n - b}, (struct llm_fim_part){ids + a, b - a},
                k->ids + k->n);
    int32_t *order = at + n;
    llm_fim_put(&places, suffix_first, (struct llm_fim_part){at, a}, (struct llm_fim_part){at + b, n - b},
                (struct llm_fim_part){at + a, b - a}, order);
    for (int64_t i = 0; i < all; i++) k->mask[k->n + i] = order[i] < 0 || mask[order[i]];
    k->n += all;
    k->ids[k->n] = k->fim.end;
    k->mask[k->n++] = 1;
}

/* A document of n tokens, or what there is of it. What has no place in the row is left off its end, never the middle's. */
static void add_document(struct making *k, const struct llm_rng *r, const int32_t *ids, const uint8_t *mask, int64_t n)
{
    int64_t begins = n > 0 && ids[0] == k->fim.begin, ends = n > begins && ids[n - 1] == k->fim.end, inner = n - begins - ends;
    int64_t room = k->room - k->n - begins - LLM_FIM_MARKS - 1;
    bool learned = memchr(mask, 1, (size_t)n) != NULL;
    if (inner > room) inner = room;
    if (inner < 1 || !learned || !(llm_rng_uniform64(r, 0) < k->rate)) {
        keep(k, ids, mask, n);
    } else {
        int64_t a = (int64_t)llm_rng_below(r, 4, (uint64_t)inner + 1), b = (int64_t)llm_rng_below(r, 8, (uint64_t)inner + 1);
        keep(k, ids, mask, begins);
        rearrange(k, ids + begins, mask + begins, inner, a < b ? a : b, a < b ? b : a, llm_rng_uniform64(r, 12) < k->spm_rate);
    }
    k->ends[k->n_ends++] = (uint64_t)k->n;
}

static void transform_row(struct making *k, const struct llm_rows_key *key, struct llm_rows *rows, int64_t row, int32_t *ids, uint8_t *mask)
{
    int64_t len = rows->row_len, at = row * len, n = len;
    const int32_t *starts = rows->doc_start + at;
    memcpy(ids, rows->ids + at, (size_t)len * sizeof *ids);
    memcpy(mask, rows->own + at, (size_t)len);
    if (rows->targets[at + len - 1] >= 0) { /* the token that follows the row */
        ids[n] = rows->targets[at + len - 1];
        mask[n++] = 1;
    }
    k->n = k->n_ends = 0;
    for (int64_t from = 0, to; from < n && k->n < k->room; from = to) {
        struct llm_rng r = llm_rng_at(key->seed, key->step, LLM_RNG_FIM, 0, (uint32_t)(key->first_row + row), (uint32_t)from);
        for (to = from + 1; to < n && (to == len || starts[to] == starts[from]); to++) {}
        add_document(k, &r, ids + from, mask + from, to - from);
    }
    llm_rows_put(rows, row, k->ids, k->mask, k->n, k->ends, (size_t)k->n_ends, 0, false);
}

static int transform(const struct llm_task *t, const struct llm_rows_key *key, struct llm_rows *rows, struct llm_err *e)
{
    size_t room = (size_t)rows->row_len + 1;
    struct making k = {.rate = llm_option_real(&t->o, "fim-rate"), .spm_rate = llm_option_real(&t->o, "fim-spm-rate"),
                       .ids = rows->window, .mask = rows->mask, .room = (int64_t)room};
    if (llm_model_fim(t->model, &k.fim, e) < 0) return -1;
    int32_t *ids = llm_alloc(4 * room + LLM_FIM_MARKS, sizeof *ids, "a batch", e);
    uint8_t *mask = ids ? llm_alloc(room, 1, "a batch", e) : NULL;
    k.ends = mask ? llm_alloc(room, sizeof *k.ends, "a batch", e) : NULL;
    k.marks = ids ? ids + room : NULL;
    for (int64_t row = 0; row < rows->n_rows && k.ends; row++) transform_row(&k, key, rows, row, ids, mask);
    int status = k.ends ? 0 : -1;
    free(ids);
    free(mask);
    free(k.ends);
    return status;
}

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    return o->cross_document ? llm_fail(e, LLM_EX_USAGE, "documents are cut: not with --cross-document") : 0;
}

static const struct llm_objective_option options[] = {
    {.name = "fim-rate", .arg = "P", .help = "share of documents that --objective fim rearranges for infilling [0.5]", .type = LLM_REAL, .max = 1,
     .fallback = .5},
    {.name = "fim-spm-rate", .arg = "P", .help = "share of the documents rearranged by fim that put the suffix before the prefix [0.5]",
     .type = LLM_REAL, .max = 1, .fallback = .5},
    {.name = NULL}};

extern const struct llm_objective llm_objective_fim;
const struct llm_objective llm_objective_fim = {.name = "fim", .summary = "predict the next token, also of a middle that comes last", .check = check,
                                                .check_options = check_options, .options = options,
                                                .transform = transform, .run = llm_objective_run_next, .means = {LLM_MEAN_FURTHER}};
