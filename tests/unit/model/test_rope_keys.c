/* Rotary frequencies that transformers computes from "rope_scaling", "rope_parameters" and the keys beside them, in every spelling that its
 * configurations read (tests/oracle/rope_keys.py). What transformers refuses may be read or refused here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/config/arch.h"

static int n_failed;

static void complain(const json_t *line, const char *what)
{
    char *text = json_dumps(line, JSON_COMPACT);
    print_message("  %s: %s\n", what, text);
    free(text);
    n_failed++;
}

/* Whether frequencies, magnitude and the context up to which short factors apply are those of `wanted`. */
static bool equal(const struct llm_config *c, const struct llm_rope_scaling *s, double theta, const json_t *wanted)
{
    float inv[LLM_MAX_ROTARY_PAIRS], magnitude;
    const json_t *list = json_object_get(wanted, "inv_freq"), *original = json_object_get(wanted, "original");
    if (json_array_size(list) != (size_t)c->rotary_dim / 2) return false;
    llm_rope_frequencies(s, theta, c->rotary_dim, 1, c->max_position_embeddings, inv, &magnitude);
    for (size_t i = 0; i < json_array_size(list); i++) {
        double want = json_number_value(json_array_get(list, i));
        if (!(fabs((double)inv[i] - want) <= 1e-5 * want)) return false;
    }
    int64_t context = s->original_context ? s->original_context : c->max_position_embeddings;
    return fabs((double)magnitude - json_number_value(json_object_get(wanted, "magnitude"))) < 1e-5
           && (s->kind != LLM_ROPE_LONGROPE || context == json_integer_value(original));
}

static void check_line(const json_t *line)
{
    static const struct llm_rope_scaling plain = {.kind = LLM_ROPE_PLAIN};
    const json_t *wanted = json_object_get(line, "wanted"), *local = json_object_get(wanted, "local"), *scale = json_object_get(wanted, "scale");
    struct llm_config c;
    struct llm_err e = {0};
    bool refused = llm_config_from_json(&c, json_object_get(line, "config"), &e) < 0;
    if (json_object_get(wanted, "error")) return;
    if (refused) {
        complain(line, e.text);
        return;
    }
    if (!equal(&c, &c.rope_scaling, c.rope_theta, json_object_get(wanted, "global"))) complain(line, "other frequencies");
    if (local && !equal(&c, &plain, c.rope_local_theta, local)) complain(line, "other frequencies of local layers");
    if (scale && !(fabs(1 / sqrt(c.query_pre_attn_scalar) - json_number_value(scale)) < 1e-6)) complain(line, "another scale of scores");
}

static void test_rope_keys(void **state)
{
    FILE *f = fopen("tests/golden/rope_keys.jsonl", "r");
    char *text = NULL;
    size_t room = 0;
    int lines = 0;
    (void)state;
    assert_non_null(f);
    for (ssize_t n; (n = getline(&text, &room, f)) > 0; lines++) {
        struct llm_err e = {0};
        json_t *line = llm_json_parse(text, (size_t)n, &e);
        if (!line) fail_msg("%s", e.text);
        check_line(line);
        json_decref(line);
    }
    free(text);
    fclose(f);
    print_message("  %d configurations\n", lines);
    assert_int_equal(n_failed, 0);
    assert_true(lines >= 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rope_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
