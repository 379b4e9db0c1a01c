/* The order of a stage's passes: each pass of each chunk once forward and once backward, those of a chunk ascending, and stages that wait for one
 * another's messages never wait for ever, whatever the number of stages, chunks and passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "train/share.h"

enum { STAGES = 7, CHUNKS = 4, PASSES = 23 };
/* Whether a pass of chunk number j of all is done: forward, backward. */
static bool done[2][STAGES * CHUNKS][PASSES];

static struct llm_stage_order order_of(int64_t stage, int64_t n, int64_t chunks, int64_t passes, bool gpipe)
{
    return (struct llm_stage_order){stage, n, chunks, passes, gpipe};
}

/* Runs what a stage can run of its order, from *at on: what it receives must have been sent. Returns the number of actions. */
static int64_t advance(const struct llm_stage_order *o, int64_t *at, int64_t *flying, int64_t *most)
{
    const int64_t from = *at, last = o->n * o->chunks - 1;
    for (; *at < llm_stages_acts(o); ++*at) {
        const struct llm_stage_act a = llm_stages_act(o, *at);
        assert_in_range(a.chunk, 0, o->chunks - 1);
        if (a.pass < 0) continue;
        assert_in_range(a.pass, 0, o->passes - 1);
        const int64_t j = a.chunk * o->n + o->stage;
        if (a.forward && j > 0 && !done[0][j - 1][a.pass]) break;
        if (!a.forward && j < last && !done[1][j + 1][a.pass]) break;
        assert_true(a.forward || done[0][j][a.pass]);
        assert_false(done[!a.forward][j][a.pass]);
        assert_true(a.pass == 0 || done[!a.forward][j][a.pass - 1]);
        done[!a.forward][j][a.pass] = true;
        *flying += a.forward ? 1 : -1;
        *most = *flying > *most ? *flying : *most;
    }
    return *at - from;
}

static void run(int64_t n, int64_t chunks, int64_t passes, bool gpipe)
{
    int64_t at[STAGES] = {0}, flying[STAGES] = {0}, most[STAGES] = {0}, moved = 1;
    memset(done, 0, sizeof done);
    while (moved > 0) {
        moved = 0;
        for (int64_t k = 0; k < n; k++) {
            const struct llm_stage_order o = order_of(k, n, chunks, passes, gpipe);
            moved += advance(&o, &at[k], &flying[k], &most[k]);
        }
    }
    for (int64_t k = 0; k < n; k++) {
        const struct llm_stage_order o = order_of(k, n, chunks, passes, gpipe);
        assert_int_equal(at[k], llm_stages_acts(&o));
        assert_int_equal(flying[k], 0);
        assert_true(most[k] <= llm_stages_flying(&o));
        for (int64_t v = 0; v < chunks; v++) {
            for (int64_t i = 0; i < passes; i++) assert_true(done[0][v * n + k][i] && done[1][v * n + k][i]);
        }
    }
}

static void test_all_run(void **state)
{
    (void)state;
    for (int64_t n = 2; n <= STAGES; n++) {
        for (int64_t passes = 1; passes <= PASSES; passes++) {
            for (int64_t chunks = 1; chunks <= CHUNKS; chunks++) run(n, chunks, passes, false);
            run(n, 1, passes, true);
        }
    }
}

/* Messages between two stages arrive in the order in which they were sent: all stages have one order of forward passes and one of backward passes, in
 * which a chunk's place does not depend on the stage. */
static void test_one_order(void **state)
{
    (void)state;
    for (int64_t n = 2; n <= STAGES; n++) {
        for (int64_t chunks = 1; chunks <= CHUNKS; chunks++) {
            for (int64_t passes = 1; passes <= PASSES; passes++) {
                struct llm_stage_act first[2][CHUNKS * (PASSES + STAGES * 2)];
                for (int64_t k = 0; k < n; k++) {
                    const struct llm_stage_order o = order_of(k, n, chunks, passes, false);
                    int64_t seen[2] = {0};
                    for (int64_t i = 0; i < llm_stages_acts(&o); i++) {
                        const struct llm_stage_act a = llm_stages_act(&o, i);
                        struct llm_stage_act *same = &first[a.forward][seen[a.forward]++];
                        if (k == 0) *same = a;
                        assert_int_equal(a.chunk, same->chunk);
                        assert_int_equal(a.pass, same->pass);
                    }
                }
            }
        }
    }
}

/* The gradient of the head is computed in the forward pass: in the last stage nothing lies between that and the backward pass. */
static void test_last_chunk(void **state)
{
    (void)state;
    for (int64_t n = 2; n <= STAGES; n++) {
        for (int64_t chunks = 1; chunks <= CHUNKS; chunks++) {
            for (int64_t passes = 1; passes <= PASSES; passes++) {
                const struct llm_stage_order o = order_of(n - 1, n, chunks, passes, false);
                for (int64_t i = 0; i < llm_stages_acts(&o); i++) {
                    const struct llm_stage_act a = llm_stages_act(&o, i);
                    if (!a.forward || a.chunk < chunks - 1 || a.pass < 0) continue;
                    const struct llm_stage_act next = llm_stages_act(&o, i + 1);
                    assert_true(!next.forward && next.chunk == a.chunk && next.pass == a.pass);
                }
            }
        }
    }
}

/* 1F1B of Narayanan et al. 2021, figure 4: 4 stages of 2 chunks, 8 passes. */
static void test_figure(void **state)
{
    (void)state;
    const int64_t flying[] = {11, 9, 7, 5};
    for (int64_t k = 0; k < 4; k++) {
        const struct llm_stage_order o = order_of(k, 4, 2, 8, false);
        assert_int_equal(llm_stages_flying(&o), flying[k]);
    }
    const struct llm_stage_order o = order_of(3, 4, 2, 8, false);
    const struct llm_stage_act expected[] = {{true, 0, 0}, {true, 0, 1}, {true, 0, 2}, {true, 0, 3}, {true, 1, 0}, {false, 1, 0}, {true, 1, 1},
                                             {false, 1, 1}, {true, 1, 2}, {false, 1, 2}, {true, 1, 3}, {false, 1, 3}, {true, 0, 4}, {false, 0, 0}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct llm_stage_act a = llm_stages_act(&o, (int64_t)i);
        assert_int_equal(a.forward, expected[i].forward);
        assert_int_equal(a.chunk, expected[i].chunk);
        assert_int_equal(a.pass, expected[i].pass);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_run), cmocka_unit_test(test_one_order), cmocka_unit_test(test_last_chunk),
                                       cmocka_unit_test(test_figure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
