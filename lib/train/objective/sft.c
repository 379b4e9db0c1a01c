/* Supervised fine-tuning: of conversations the assistant's turns are learned, with the token that ends each of them. A row holds one or more whole
 * conversations, which do not see each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "train/lines.h"
#include "train/objective.h"

enum { DOCUMENT, WEIGHT };
static const struct llm_column columns[] = {{"document", LLM_PER_TOKEN, true}, {"weight", LLM_PER_TOKEN, true}, {NULL, LLM_PER_ROW, false}};

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    if (o->stream) return llm_fail(e, LLM_EX_USAGE, "rows are whole conversations: not with --stream");
    return llm_lines_check_map(llm_option_text(o, "map"), e);
}

/* ---- lines to records ---- */

/* A row under way. */
struct pack { int32_t *ids; uint8_t *mask; float *document, *weight; int64_t n; int documents; };
enum { N_OPEN = 32 };
/* Rows that may take another conversation, the oldest first. */
struct packs { struct pack open[N_OPEN]; int n; };

static void release_pack(struct pack *p)
{
    free(p->ids);
    free(p->mask);
    free(p->document);
    free(p->weight);
    *p = (struct pack){.ids = NULL};
}

static int init_pack(struct pack *p, int64_t room, struct llm_err *e)
{
    *p = (struct pack){.ids = llm_alloc((size_t)room, sizeof *p->ids, "a row", e)};
    p->mask = p->ids ? llm_alloc((size_t)room, 1, "a row", e) : NULL;
    p->document = p->mask ? llm_alloc((size_t)room, sizeof *p->document, "a row", e) : NULL;
    p->weight = p->document ? llm_alloc((size_t)room, sizeof *p->weight, "a row", e) : NULL;
    if (p->weight) return 0;
    release_pack(p);
    return -1;
}

/* Pack i becomes a record. */
static int close_pack(struct llm_lines *l, struct packs *all, int i, struct llm_err *e)
{
    struct pack *p = &all->open[i];
    const struct llm_record r = {.ids = p->ids, .mask = p->mask, .n = p->n, .second = p->n, .column = {p->document, p->weight}};
    int status = llm_records_add(l->records, &r, e);
    release_pack(p);
    memmove(p, p + 1, (size_t)(--all->n - i) * sizeof *p);
    return status;
}

/* The first open pack with room for n tokens, or a new one, for which the oldest may have to be closed. */
static struct pack *pack_for(struct llm_lines *l, struct packs *all, int64_t n, struct llm_err *e)
{
    for (int i = 0; i < all->n; i++) {
        if (all->open[i].n + n <= l->context + 1) return &all->open[i];
    }
    if (all->n == N_OPEN && close_pack(l, all, 0, e) < 0) return NULL;
    return init_pack(&all->open[all->n], l->context + 1, e) < 0 ? NULL : &all->open[all->n++];
}

/* Sets the weight of each turn of the assistant, from 1, to the message's "loss_weight", or 1. */
static int turn_weights(const json_t *messages, float weight[256], struct llm_err *e)
{
    size_t i;
    const json_t *m;
    int turn = 1;
    json_array_foreach((json_t *)(uintptr_t)messages, i, m) {
        const json_t *w = json_object_get(m, "loss_weight");
        if (strcmp(json_string_value(json_object_get(m, "role")), "assistant") != 0) continue;
        double v = json_is_number(w) ? json_number_value(w) : 1;
        if ((w && !json_is_number(w)) || !(v >= 0 && v <= 1e6)) {
            return llm_fail(e, EX_DATAERR, "message %zu: loss_weight: expected a number not below 0", i + 1);
        }
        if (w && turn > 254) return llm_fail(e, EX_DATAERR, "message %zu: loss_weight: expected at most 254 turns of the assistant", i + 1);
        if (turn < 255) weight[turn++] = (float)v;
    }
    return 0;
}

static int add_conversation(struct llm_lines *l, const float weight[256], struct llm_err *e)
{
    const struct llm_conversation *c = &l->scratch;
    int64_t n = (int64_t)c->n;
    bool counts = false;
    for (int64_t i = 1; i < n; i++) counts |= c->mask[i] && weight[c->mask[i]] > 0;
    if (!counts) return llm_lines_skip(l, LLM_SKIP_MASKED, e, "expected a token of the assistant to learn, found none among %lld", (long long)n);
    if (n > l->context + 1) {
        return llm_lines_skip(l, LLM_SKIP_LONG, e, "expected at most %lld tokens (--context), found %lld", (long long)l->context + 1, (long long)n);
    }
    struct packs *all = l->own;
    struct pack *p = pack_for(l, all, n, e);
    if (!p) return -1;
    memcpy(p->ids + p->n, c->ids, (size_t)n * sizeof *p->ids);
    for (int64_t i = 0; i < n; i++) {
        p->mask[p->n + i] = c->mask[i] && weight[c->mask[i]] > 0;
        p->weight[p->n + i] = weight[c->mask[i]];
        p->document[p->n + i] = (float)p->documents;
    }
    p->n += n;
    p->documents++;
    bool alone = llm_option_word(l->o, "packing") == 0;
    return alone ? close_pack(l, all, (int)(p - all->open), e) : 0;
}

static bool has(const json_t *line, const char *key)
{
    const json_t *v = json_object_get(line, key);
    return v && !json_is_null(v);
}

/* A line's prompt, and the completion that is learned, as TRL has them. False: the line has messages of --map's. */
static bool is_prompted(const struct llm_lines *l, const json_t *line)
{
    return !llm_option_text(l->o, "map") && !has(line, "messages") && has(line, "prompt") && has(line, "completion");
}

/* Of plain texts, without a template. 1 or -1. */
static int encode_plain(struct llm_lines *l, const json_t *prompt, const json_t *completion, struct llm_err *e)
{
    struct llm_conversation *c = &l->scratch;
    size_t first;
    c->n = 0;
    if (l->shown) return llm_fail(e, EX_DATAERR, "expected messages for a model that reads pictures, found a text as 'prompt'");
    if (llm_conversation_plain(c, l->tokenizer, prompt, completion, &first, e) < 0) return -1;
    memset(c->mask + first, 1, c->n - first);
    return 1;
}

/* The messages of a line with a prompt and a completion. *given: how many assistant messages the prompt has. 1, 0: skipped, -1. */
static int join(struct llm_lines *l, const json_t *prompt, const json_t *completion, json_t **messages, int *given, struct llm_err *e)
{
    json_t *all = llm_lines_join(prompt, completion, e), *whole = all ? json_pack("{s:o}", "messages", all) : NULL;
    if (all && !whole) llm_no_memory(e, "a conversation");
    int got = whole ? llm_lines_messages(l, whole, messages, e) : -1;
    if (got == 1) *given = llm_lines_turns(*messages, json_is_array(prompt) ? json_array_size(prompt) : 1);
    json_decref(whole);
    return got;
}

/* A line's tokens, and the weights of its turns. 1, 0: skipped, -1. */
static int encode(struct llm_lines *l, const json_t *line, float weight[256], struct llm_err *e)
{
    const bool prompted = is_prompted(l, line);
    const json_t *prompt = json_object_get(line, "prompt"), *completion = json_object_get(line, "completion");
    const json_t *tools = json_object_get(line, "tools");
    json_t *messages = NULL;
    int given = 0;
    for (int k = 0; k < 256; k++) weight[k] = 1;
    if (prompted && json_is_string(prompt) && json_is_string(completion)) return encode_plain(l, prompt, completion, e);
    if (llm_lines_chat(l, e) < 0) return -1;
    int got = prompted ? join(l, prompt, completion, &messages, &given, e) : llm_lines_messages(l, line, &messages, e);
    if (got != 1) return got;
    if (turn_weights(messages, weight, e) < 0
        || llm_conversation_encode(&l->scratch, &l->chat, l->tokenizer, messages, tools, false, NULL, e) < 0
        || (l->shown && llm_shown_put(l->shown, line, messages, &l->scratch, e) < 0)) got = -1;
    for (int k = 1; k <= given && k < 256; k++) weight[k] = 0;
    json_decref(messages);
    return got;
}

static int record(struct llm_lines *l, const json_t *line, struct llm_err *e)
{
    float weight[256];
    if (!l->own && !(l->own = llm_calloc(1, sizeof(struct packs), "rows", e))) return -1;
    int got = encode(l, line, weight, e);
    return got == 1 ? add_conversation(l, weight, e) : got;
}

static int recorded(struct llm_lines *l, struct llm_err *e, bool failed)
{
    struct packs *all = l->own;
    int status = 0;
    for (; all && all->n > 0 && !failed && status == 0;) status = close_pack(l, all, 0, e);
    while (all && all->n > 0) release_pack(&all->open[--all->n]);
    free(all);
    l->own = NULL;
    return status;
}

/* ---- records to rows ---- */

/* Where the documents of a record end, ascending. Returns how many. */
static size_t find_ends(const struct llm_document *d, uint64_t *ends)
{
    const float *number = d->column ? d->column[DOCUMENT] : NULL;
    size_t n = 0;
    for (int64_t i = 1; number && i < d->n; i++) {
        if (number[i] > number[i - 1] || number[i] < number[i - 1]) ends[n++] = (uint64_t)i;
    }
    ends[n++] = (uint64_t)d->n;
    return n;
}

static int document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    int64_t len = rows->row_len, at = row * len;
    const float *weight = d->column ? d->column[WEIGHT] : NULL;
    if (d->n > len + 1) {
        return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld", (long long)len + 1, (long long)d->n);
    }
    uint64_t *ends = llm_alloc((size_t)d->n + 1, sizeof *ends, "a row", e);
    if (!ends) return -1;
    size_t n_ends = find_ends(d, ends);
    llm_rows_put(rows, row, d->ids, d->mask, d->n, ends, n_ends, 0, t->o.cross_document);
    free(ends);
    rows->weighted = true;
    for (int64_t i = 0; i < len; i++) rows->weights[at + i] = weight && i + 1 < d->n && d->mask[i + 1] ? weight[i + 1] : 1;
    return 0;
}

static const struct llm_objective_option options[] = {
    {.name = "map", .arg = "NAME|KEY=FIELD,...", .type = LLM_STR,
     .help = "fields of a line that hold the conversation: messages, sharegpt, alpaca, or a list [messages]"},
    {.name = "packing", .arg = "WHEN", .help = "put several conversations into a row, which do not see each other: no, yes [yes]", .type = LLM_CHOICE,
     .choices = LLM_NO_YES, .fallback = 1},
    LLM_LINES_OPTIONS,
    {.name = NULL}};

extern const struct llm_objective llm_objective_sft;
const struct llm_objective llm_objective_sft = {.name = "sft", .summary = "learn the assistant's turns of conversations", .options = options,
                                                .check_options = check_options, .check = llm_objective_check_next, .columns = columns,
                                                .record = record, .recorded = recorded, .document = document, .shows = true, .by_tokens = true,
                                                .run = llm_objective_run_next,
                                                .means = {LLM_MEAN_FURTHER}};
