/* Rows of --objective fim: undone, each document is what it was; both orders and untouched documents come as often as they should; the same whatever
 * the rows of a pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cpu/pool.h"
#include "train/objective.h"

enum { LETTERS = 10, PREFIX = 10, SUFFIX, MIDDLE, END, VOCAB, LEN = 96, ROWS = 64 };

static const char tokenizer_json[] =
    "{\"version\":\"1.0\",\"added_tokens\":["
    "{\"id\":10,\"content\":\"<|fim_prefix|>\",\"special\":true},{\"id\":11,\"content\":\"<|fim_suffix|>\",\"special\":true},"
    "{\"id\":12,\"content\":\"<|fim_middle|>\",\"special\":true},{\"id\":13,\"content\":\"</s>\",\"special\":true}],"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"f\":5,\"g\":6,\"h\":7,\"i\":8,\"j\":9,"
    "\"<|fim_prefix|>\":10,\"<|fim_suffix|>\":11,\"<|fim_middle|>\":12,\"</s>\":13},\"merges\":[]}}";

static struct llm_model *model(void)
{
    struct llm_config c;
    struct llm_err e;
    char path[] = "/tmp/llm-fim.XXXXXX";
    static const char *const sets[] = {"vocab_size=14", "hidden_size=8", "num_attention_heads=1", "num_key_value_heads=1", "num_hidden_layers=1",
                                       "eos_token_id=13"};
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, tokenizer_json, sizeof tokenizer_json - 1) == (ssize_t)sizeof tokenizer_json - 1);
    close(fd);
    if (llm_config_load(&c, "tiny", sets, sizeof sets / sizeof *sets, &e) < 0) fail_msg("%s", e.text);
    struct llm_model *m = llm_model_create(&c, 1, &e);
    assert_non_null(m);
    m->tokenizer = llm_tokenizer_load(path, NULL, &e);
    if (!m->tokenizer) fail_msg("%s", e.text);
    unlink(path);
    return m;
}

/* Documents of several lengths; of some the first tokens have no loss. Their letters count up. */
static void fill(struct llm_rows *r, int64_t rows)
{
    int32_t ids[LEN + 1];
    uint8_t mask[LEN + 1];
    uint64_t ends[LEN + 1];
    for (int64_t row = 0; row < rows; row++) {
        size_t n_ends = 0;
        for (int64_t i = 0, at = 0, n = 5 + row % 40; i <= LEN; i++, at++) {
            bool last = at == n - 1;
            ids[i] = last && row % 2 ? END : (int32_t)(i % LETTERS);
            mask[i] = at > 2 || row % 3;
            if (!last) continue;
            ends[n_ends++] = (uint64_t)i + 1;
            at = -1;
        }
        llm_rows_put(r, row, ids, mask, LEN + 1, ends, n_ends, 0, false);
    }
}

/* The tokens of [from, to) of a row back in their order, without what was added; how many. *kind: 0 untouched, 1 PSM, 2 SPM. */
static int64_t undo(const int32_t *ids, int64_t from, int64_t to, int32_t *out, int *kind)
{
    int64_t n = 0, suffix = from + 1, middle, end = to;
    *kind = 0;
    if (ids[from] != PREFIX) {
        memcpy(out, ids + from, (size_t)(to - from) * sizeof *out);
        return to - from;
    }
    while (suffix < to && ids[suffix] != SUFFIX) suffix++;
    for (middle = suffix; middle < to && ids[middle] != MIDDLE;) middle++;
    assert_true(middle < to);
    while (end > middle && ids[end - 1] == END) end--;
    *kind = suffix == from + 1 ? 2 : 1; /* an empty prefix looks like either, and is read alike */
    for (int64_t i = from + 1; i < suffix; i++) out[n++] = ids[i];
    for (int64_t i = middle + 1; i < end; i++) out[n++] = ids[i];
    for (int64_t i = suffix + 1; i < middle; i++) out[n++] = ids[i];
    return n;
}

static struct llm_task task_of(struct llm_model *m, double rate, double spm_rate)
{
    struct llm_task task = {.model = m};
    llm_train_options_default(&task.o);
    llm_option_set_real(&task.o, "fim-rate", rate);
    llm_option_set_real(&task.o, "fim-spm-rate", spm_rate);
    return task;
}

static void test_rows(void **state)
{
    struct llm_model *m = model();
    struct llm_rows r, before;
    struct llm_err e;
    struct llm_task task = task_of(m, .75, .25);
    const struct llm_objective *fim = llm_objective_find("fim");
    int counts[3] = {0};
    (void)state;
    assert_int_equal(fim->check(m, &e), 0);
    assert_int_equal(llm_rows_init(&r, ROWS, LEN, &e), 0);
    assert_int_equal(llm_rows_init(&before, ROWS, LEN, &e), 0);
    fill(&before, ROWS);
    for (uint64_t step = 0; step < 20; step++) {
        const struct llm_rows_key key = {7, step, 0};
        fill(&r, ROWS);
        assert_int_equal(fim->transform(&task, &key, &r, &e), 0);
        for (int64_t row = 0; row < ROWS; row++) {
            const int32_t *ids = r.ids + row * LEN, *starts = r.doc_start + row * LEN, *old = before.ids + row * LEN;
            int64_t was = 0;
            for (int64_t from = 0, to; from < LEN; from = to) {
                int32_t out[LEN];
                int kind;
                for (to = from + 1; to < LEN && starts[to] == from; to++) {}
                if (to == LEN) break; /* the last may have been cut */
                int64_t n = undo(ids, from, to, out, &kind), length = 5 + row % 40;
                counts[kind]++;
                if (kind) assert_int_equal(ids[to - 1], END);
                assert_memory_equal(out, old + was, (size_t)n * sizeof *out);
                assert_int_equal(n, length - (kind && row % 2)); /* but for its end, which stands behind the middle now */
                for (int64_t i = from; i + 1 < to; i++) { /* what is learned is the next token, unless its loss mask says no */
                    bool letter = ids[i + 1] < LETTERS, learned = r.targets[row * LEN + i] >= 0;
                    if (learned) assert_int_equal(r.targets[row * LEN + i], ids[i + 1]);
                    if (kind == 0) assert_int_equal(learned, row % 3 != 0 || i + 1 - from > 2);
                    else if (row % 3 != 0 || !letter) assert_true(learned);
                }
                was += length;
            }
        }
    }
    double all = counts[0] + counts[1] + counts[2], cut = counts[1] + counts[2];
    print_message("  %d untouched, %d PSM, %d SPM\n", counts[0], counts[1], counts[2]);
    assert_true(cut / all > .71 && cut / all < .79);
    assert_true(counts[2] / cut > .25 && counts[2] / cut < .40); /* and those with an empty prefix */
    llm_rows_release(&before);
    /* the second half of a batch alone */
    struct llm_rows whole, half;
    const struct llm_rows_key key = {7, 3, 0}, later = {7, 3, ROWS / 2};
    assert_int_equal(llm_rows_init(&whole, ROWS, LEN, &e), 0);
    fill(&whole, ROWS);
    fill(&r, ROWS);
    half = llm_rows_part(&r, ROWS / 2, ROWS / 2);
    assert_int_equal(fim->transform(&task, &key, &whole, &e), 0);
    assert_int_equal(fim->transform(&task, &later, &half, &e), 0);
    assert_memory_equal(whole.ids + ROWS / 2 * LEN, half.ids, (size_t)(ROWS / 2 * LEN) * sizeof *half.ids);
    llm_rows_release(&whole);
    llm_rows_release(&r);
    llm_model_destroy(m);
}

/* However short rows are, nothing is written beyond them, and what is made fits. */
static void test_short_rows(void **state)
{
    struct llm_model *m = model();
    struct llm_err e;
    struct llm_task task = task_of(m, 1, .5);
    (void)state;
    for (int64_t len = 1; len < 12; len++) {
        struct llm_rows r;
        int32_t ids[13];
        uint8_t mask[13];
        const uint64_t ends[] = {3};
        const struct llm_rows_key key = {7, 1, 0};
        memset(mask, 1, sizeof mask);
        for (int i = 0; i < 13; i++) ids[i] = i % LETTERS;
        assert_int_equal(llm_rows_init(&r, 1, len, &e), 0);
        llm_rows_put(&r, 0, ids, mask, len + 1, ends, len > 2, 0, false);
        assert_int_equal(llm_objective_find("fim")->transform(&task, &key, &r, &e), 0);
        for (int64_t i = 0; i < len; i++) assert_true(r.ids[i] >= 0 && r.ids[i] < VOCAB);
        llm_rows_release(&r);
    }
    llm_model_destroy(m);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_short_rows)};
    if (llm_pool_start(1, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
