/* The search for scales: the same bits on every instruction set, sums and codes as defined, and no pair nearby is much better. */
#include "isas.h"

enum { SIZE = LLM_BLOCK_MAX };

#define EACH_KIND(t, kind) \
    for (int t = 0; t < LLM_N_DTYPES; t++) \
        for (const struct llm_block_kind *kind = llm_block_kind_of((enum llm_dtype)t); kind; kind = NULL)

/* Of bell shape, some far out, with weights over three powers of ten; every fourth group of one sign. */
static void draw(uint64_t *seed, int n, float *x, float *w)
{
    for (int j = 0; j < n; j++) {
        x[j] = noise(seed) + noise(seed) + noise(seed);
        if (j % 13 == 4) x[j] *= 4;
        if (*seed % 4 == 1) x[j] = fabsf(x[j]);
        w[j] = powf(10, 1.5f * noise(seed));
    }
}

static int level(const struct llm_block_kind *kind, int code)
{
    return kind->levels ? kind->levels[code] : code - kind->zero;
}

static float value(const struct llm_block_kind *kind, struct llm_group_fit f, int code)
{
    return f.scale * (float)level(kind, code) - f.low;
}

static void instruction_sets_agree(void **state)
{
    (void)state;
    EACH_KIND(t, kind) {
        uint64_t seed = (uint64_t)t + 5;
        for (int turn = 0; turn < 20; turn++) {
            float x[SIZE], w[SIZE];
            struct llm_group_fit first = {0};
            struct llm_fit_tries sums = {0};
            uint8_t codes[SIZE];
            int sets = 0;
            draw(&seed, kind->group, x, w);
            FOR_EACH_ISA(isa) {
                const struct llm_group_fit f = llm_k.fit.group(kind, x, w, kind->group);
                struct llm_fit_tries tries = {0};
                uint8_t q[SIZE];
                for (int i = 0; i < LLM_FIT_TRIES; i++) {
                    tries.scale[i] = f.scale * (0.8f + 0.025f * (float)i);
                    tries.low[i] = kind->low_max ? f.low * (1.2f - 0.025f * (float)i) : 0;
                }
                struct llm_fit_tries errors = tries;
                llm_k.fit.tries(kind, &(struct llm_fit_values){x, w, kind->group, 1}, LLM_FIT_TRIES, true, &tries);
                llm_k.fit.tries(kind, &(struct llm_fit_values){x, w, kind->group, 1}, LLM_FIT_TRIES, false, &errors);
                assert_memory_equal(errors.error, tries.error, LLM_FIT_TRIES * sizeof *tries.error);
                llm_k.fit.codes(kind, x, kind->group, f, q);
                if (sets++ == 0) {
                    first = f;
                    sums = tries;
                    memcpy(codes, q, sizeof codes);
                }
                assert_memory_equal(&f, &first, sizeof f);
                assert_memory_equal(&tries, &sums, sizeof sums);
                assert_memory_equal(q, codes, (size_t)kind->group);
            }
            assert_true(sets > 0);
        }
    }
}

/* Groups that are searched together have the sums that each has alone. */
static void groups_together(void **state)
{
    (void)state;
    EACH_KIND(t, kind) {
        const int groups = kind->size / kind->group, n = kind->group, count = 9;
        uint64_t seed = (uint64_t)t + 31;
        if (groups == 1) continue;
        FOR_EACH_ISA(isa) {
            float x[LLM_BLOCK_GROUPS][SIZE], w[LLM_BLOCK_GROUPS][SIZE], rows[2][SIZE * LLM_FIT_LANES];
            struct llm_fit_tries together = {0}, alone = {0};
            for (int g = 0; g < groups; g++) draw(&seed, n, x[g], w[g]);
            for (int at = 0; at < n * LLM_FIT_LANES; at++) {
                const int j = at / LLM_FIT_LANES, g = at % LLM_FIT_LANES % groups;
                rows[0][at] = x[g][j];
                rows[1][at] = w[g][j];
            }
            for (int at = 0; at < count * groups; at++) {
                together.scale[at] = 0.01f * (float)(at + 1);
                together.low[at] = kind->low_max ? 0.003f * (float)at : 0;
            }
            llm_k.fit.tries(kind, &(struct llm_fit_values){rows[0], rows[1], n, groups}, count, true, &together);
            for (int at = 0; at < count * groups; at++) {
                const int g = at % groups;
                alone.scale[0] = together.scale[at];
                alone.low[0] = together.low[at];
                llm_k.fit.tries(kind, &(struct llm_fit_values){x[g], w[g], n, 1}, 1, true, &alone);
                assert_true(together.error[at] == alone.error[0] && together.l[at] == alone.l[0]);
                assert_true(together.xl[at] == alone.xl[0] && together.ll[at] == alone.ll[0]);
            }
        }
    }
}

/* Codes are the nearest levels; sums are those of the codes; the fit is at least as good as pairs around it. */
static void sums_and_codes_are_as_defined(void **state)
{
    (void)state;
    EACH_KIND(t, kind) {
        uint64_t seed = (uint64_t)t + 77;
        for (int turn = 0; turn < 20; turn++) {
            float x[SIZE], w[SIZE];
            uint8_t q[SIZE];
            struct llm_fit_tries tries = {0};
            double error = 0, l = 0, xl = 0, ll = 0;
            draw(&seed, kind->group, x, w);
            const struct llm_group_fit f = llm_k.fit.group(kind, x, w, kind->group);
            for (int i = 0; i < LLM_FIT_TRIES; i++) {
                tries.scale[i] = f.scale * (1 + 0.002f * (float)(i - 8));
                tries.low[i] = f.low;
            }
            llm_k.fit.tries(kind, &(struct llm_fit_values){x, w, kind->group, 1}, LLM_FIT_TRIES, true, &tries);
            llm_k.fit.codes(kind, x, kind->group, f, q);
            for (int j = 0; j < kind->group; j++) {
                const double here = fabs((double)(x[j] - value(kind, f, q[j]))), weight = (double)w[j], at = (double)level(kind, q[j]);
                for (int c = kind->first_code; c < kind->n_codes; c++) {
                    assert_true(here <= fabs((double)(x[j] - value(kind, f, c))) + 1e-6);
                }
                error += weight * here * here;
                l += weight * at;
                xl += weight * (double)x[j] * at;
                ll += weight * at * at;
            }
            near(tries.error[8], error, 1e-4, 1e-9); /* FP32 sums of at most 32 squares of differences */
            near(tries.l[8], l, 1e-5, 1e-3);
            near(tries.xl[8], xl, 1e-5, 1e-3);
            near(tries.ll[8], ll, 1e-5, 0);
            for (int i = 0; i < LLM_FIT_TRIES; i++) {
                if (kind->n_codes <= 64 && tries.error[i] < 0.9f * tries.error[8]) {
                    fail_msg("%s: %g beside %g", llm_dtypes[t].name, (double)tries.error[i], error);
                }
            }
        }
    }
}

static void errors_add_up(void **state)
{
    float x[100], y[100];
    uint64_t seed = 3;
    (void)state;
    for (int j = 0; j < 100; j++) {
        x[j] = noise(&seed);
        y[j] = j % 7 ? x[j] + 0.01f * noise(&seed) : x[j];
    }
    FOR_EACH_ISA(isa) {
        for (size_t n = 0; n <= 100; n++) {
            struct llm_fit_errors s = {0};
            double xx = 0, dd = 0, xy = 0, most = 0;
            llm_k.fit.errors(x, y, n, &s);
            for (size_t j = 0; j < n; j++) {
                const double d = (double)x[j] - (double)y[j];
                xx += (double)x[j] * (double)x[j];
                xy += (double)x[j] * (double)y[j];
                dd += d * d;
                most = fmax(most, fabs(d));
            }
            near(s.xx, xx, 1e-14, 1e-300); /* another order of at most 100 sums */
            near(s.xy, xy, 1e-13, 1e-300);
            near(s.dd, dd, 1e-13, 1e-300);
            assert_true(s.max == most);
        }
        struct llm_fit_errors s = {0};
        y[20] = NAN;
        llm_k.fit.errors(x, y, 40, &s);
        assert_true(isnan(s.yy) && !isnan(s.xx));
        y[20] = x[20];
    }
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(instruction_sets_agree), cmocka_unit_test(errors_add_up),
                                       cmocka_unit_test(groups_together), cmocka_unit_test(sums_and_codes_are_as_defined)};
    if (llm_pool_start(1, &e) < 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
