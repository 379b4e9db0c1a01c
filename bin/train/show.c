/* llm-train --show: the first rows of a run as text, so that a person sees what is learned. */
#include <stdio.h>
#include <unistd.h>
#include "bin/train/train.h"
#include "train/shown.h"
#include "io/output.h"

/* Of ids of a picture's embeddings (train/shown.h) that follow each other the placeholder that stands for it is left. Returns how many ids there are
 * then. */
static size_t hide_pictures(const struct llm_config *c, const struct llm_shown *shown, int32_t *ids, size_t n)
{
    size_t kept = 0;
    int64_t before = -1; /* the picture whose ids come first here */
    for (size_t i = 0; i < n; i++) {
        const int64_t picture = ids[i] < c->vocab_size ? -1 : llm_shown_find(shown, ids[i]);
        if (picture < 0) ids[kept++] = ids[i];
        else if (picture != before) ids[kept++] = (int32_t)c->projector.image_token;
        before = picture;
    }
    return kept;
}

/* A run of tokens that are all learned, or all not. Text that is not learned is dim on a terminal, else in brackets. */
static int put_run(const struct llm_trainer *t, int32_t *ids, size_t n, bool learned, bool terminal, struct llm_err *e)
{
    struct llm_buf text = {0};
    if (t->task.shown) n = hide_pictures(&t->model->config, t->task.shown, ids, n);
    int got = llm_decode(t->model->tokenizer, ids, n, false, &text, e);
    if (got == 0) {
        fputs(learned ? "" : terminal ? "\033[2m" : "[", stdout);
        fwrite(text.p, 1, text.n, stdout);
        fputs(learned ? "" : terminal ? "\033[0m" : "]", stdout);
    }
    llm_buf_release(&text);
    return got;
}

/* Token i of a row is learned if it is the target of token i - 1. `end`: tokens of the row without padding, the last target included. */
static int put_row(const struct llm_trainer *t, int64_t row, bool terminal, struct llm_err *e)
{
    const struct llm_rows *rows = &t->rows;
    int64_t len = rows->row_len, at = row * len, end = 0, n_ids = 0;
    int32_t *ids = rows->window;
    for (int64_t i = 0; i < len; i++) {
        ids[i] = rows->ids[at + i];
        if (rows->targets[at + i] >= 0) end = i + 2;
    }
    if (end > len) ids[len] = rows->targets[at + len - 1];
    for (int64_t from = 0, to; from < end; from = to) {
        bool learned = from > 0 && rows->targets[at + from - 1] >= 0;
        for (to = from + 1; to < end && (rows->targets[at + to - 1] >= 0) == learned; to++) {}
        if (put_run(t, ids + from, (size_t)(to - from), learned, terminal, e) < 0) return -1;
        n_ids = to;
    }
    printf("%s\n", n_ids > 0 ? "" : "[]");
    return 0;
}

int llm_run_show(struct llm_trainer *t, const struct args *a, struct llm_err *e)
{
    int64_t shown = 0;
    if (t->objective->two_texts || t->objective->other_targets) {
        return llm_fail(e, LLM_EX_USAGE, "--show: expected an objective whose rows continue a text, found %s", t->objective->name);
    }
    if (!t->model->tokenizer) return llm_fail(e, LLM_EX_USAGE, "--show: expected a tokenizer (-T), found a model without one");
    while (shown < a->show) {
        int got = llm_trainer_rows(t, e);
        if (got) return got < 0 ? -1 : 0;
        for (int64_t r = 0; r < t->rows.n_rows && shown < a->show; r++, shown++) {
            if (put_row(t, r, isatty(STDOUT_FILENO), e) < 0) return -1;
        }
        t->step++;
        t->sample += llm_trainer_samples(t);
    }
    return 0;
}
