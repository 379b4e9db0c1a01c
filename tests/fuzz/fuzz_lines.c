/* JSON Lines that training reads: conversations, pairs, single replies, a teacher's log-probabilities, rollouts, their log, prompts. The first byte
 * says which, and by its case whether --strict (upper) or --off-policy (lower) holds. Lines become records and these rows, within the vocabulary and
 * the row, or are refused with a reason. */
#include "fuzz.h"
#include "base/log.h"
#include "base/paths.h"
#include "cpu/pool.h"
#include "model/weights/model.h"
#include "train/lines.h"
#include "train/objective.h"
#include "train/prompts.h"
#include "train/rollout_log.h"

enum { CONTEXT = 64 };
static const struct { char key; const char *name; } kinds[] = {
    {'s', "sft"}, {'d', "dpo"}, {'k', "kto"}, {'r', "reward"}, {'t', "distill"}, {'o', "distill"}, {'f', "reinforce"}, {'g', "grpo"}, {'p', "ppo"},
    {'l', "rollout log"}, {'q', "prompts"}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static struct llm_model *model(void)
{
    static struct llm_model *m;
    struct llm_err e = {0};
    if (m) return m;
    llm_verbosity = -1;
    MUST(llm_pool_start(1, &e) == 0);
    m = llm_model_load("tests/golden/tiny", &e);
    MUST(m && m->tokenizer && llm_model_fingerprint(m, &e) == 0);
    /* Each objective that reads lines is one of the kinds. */
    for (int i = 0, listed; llm_objectives[i]; i++) {
        listed = !llm_objectives[i]->record;
        for (int k = 0; k < N_KINDS; k++) listed |= strcmp(kinds[k].name, llm_objectives[i]->name) == 0;
        MUST(listed);
    }
    return m;
}

/* Each record as a row, if it is not longer than the trainer would make one of. */
static void make_rows(const struct llm_objective *objective, const struct llm_train_options *o, const struct llm_records *r)
{
    const struct llm_task t = {.objective = objective, .model = model(), .o = *o};
    struct llm_rows rows;
    struct llm_err e = {0};
    MUST(llm_rows_init(&rows, 1, CONTEXT, &e) == 0 && llm_rows_add_columns(&rows, objective->columns, llm_records_choices(r), &e) == 0);
    for (int64_t i = 0; i < llm_records_count(r) && i < 1000; i++) {
        const struct llm_record record = llm_records_at(r, i);
        const struct llm_document d = {.ids = record.ids, .mask = record.mask, .n = record.n, .second = record.second, .label = -1,
                                       .column = record.column};
        if (record.n > 2 * CONTEXT + 2) continue;
        if (objective->document(&t, &rows, 0, &d, &e) < 0) {
            MUST(e.status);
            continue;
        }
        for (int64_t k = 0; k < CONTEXT; k++) {
            MUST(rows.ids[k] >= 0 && rows.ids[k] < model()->config.vocab_size);
            MUST(rows.targets[k] >= -1 && (objective->other_targets || rows.targets[k] < model()->config.vocab_size));
        }
    }
    llm_rows_release(&rows);
}

static void read_records(const char *name, bool strict, bool on_policy, const char *path)
{
    struct llm_train_options o;
    struct llm_lines l;
    struct llm_err e = {0};
    llm_train_options_default(&o);
    for (o.objective = 0; strcmp(llm_objectives[o.objective]->name, name) != 0;) o.objective++;
    const struct llm_objective *objective = llm_objectives[o.objective];
    if (strict && strcmp(name, "distill") != 0 && !objective->data_per_run) llm_option_set_word(&o, "strict", true);
    if (on_policy) llm_option_set_word(&o, "on-policy", true);
    if (!strict && objective->data_per_run) llm_option_set_word(&o, "off-policy", true);
    MUST(llm_lines_init(&l, &o, model()->tokenizer, NULL, CONTEXT, &e) == 0);
    l.model = model();
    MUST(llm_chat_find(&l.chat, "chatml", NULL, model()->tokenizer, &e) == 0);
    struct llm_records *r = llm_lines_read(&l, &path, 1, &e);
    MUST(r || e.status);
    if (r) make_rows(objective, &o, r);
    llm_records_destroy(r);
    llm_lines_release(&l);
}

static void read_log(const char *path)
{
    struct llm_rollout_log l;
    struct llm_err e = {0};
    MUST(llm_rollout_log_open(&l, path, 2, 1, &e) == 0 || e.status);
    for (int64_t i = 0; i < 4; i++) {
        for (int64_t group = 0; group < 2; group++) json_decref(llm_rollout_log_take(&l, i, group, 0));
    }
    llm_rollout_log_release(&l);
    llm_paths_clear(); /* which has borrowed `path` */
}

static void read_prompts(const char *path)
{
    struct llm_prompts p = {.v = NULL};
    struct llm_err e = {0};
    MUST(llm_prompts_read(&p, path, model(), "tests/golden/tiny", CONTEXT, &e) == 0 || e.status);
    for (size_t i = 0; i < p.n && !e.status; i++) {
        MUST(p.v[i].n >= 1 && p.v[i].n < CONTEXT && p.v[i].object);
        for (int64_t k = 0; k < p.v[i].n; k++) MUST(p.v[i].ids[k] >= 0 && p.v[i].ids[k] < model()->config.vocab_size);
    }
    llm_prompts_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[40];
    int k = 0;
    if (n == 0) return 0;
    while (k < N_KINDS && kinds[k].key != (data[0] | 0x20)) k++;
    if (k == N_KINDS) k = data[0] % N_KINDS;
    model();
    int fd = fuzz_file(data + 1, n - 1, path);
    if (kinds[k].key == 'l') read_log(path);
    else if (kinds[k].key == 'q') read_prompts(path);
    else read_records(kinds[k].name, !(data[0] & 0x20), kinds[k].key == 'o', path);
    close(fd);
    return 0;
}
