/* Every key of 40 configurations of transformers (tests/oracle/config_keys.py): with another value each is known and changes what our configuration
 * says, or changes nothing in transformers either, or is refused by its name. What changes results in transformers is never ignored silently; what
 * transformers ignores changes nothing here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include "model/config/arch.h"

struct result {
    bool refused;
    char reason[1024];
    json_t *config;
};

static struct result read_config(const json_t *o)
{
    struct result r = {.refused = false};
    struct llm_config c;
    struct llm_err e = {0};
    if (llm_config_from_json(&c, o, &e) < 0) {
        r.refused = true;
        snprintf(r.reason, sizeof r.reason, "%s", e.text);
        assert_true(e.status == EX_DATAERR || e.status == EX_UNAVAILABLE);
        return r;
    }
    r.config = llm_config_to_json(&c, &e);
    assert_non_null(r.config);
    return r;
}

static int n_failed, n_keys;

static void complain(const char *name, const char *key, const char *what, const char *more)
{
    print_message("  %s: %s: %s %s\n", name, key, what, more);
    n_failed++;
}

/* What these two say is not seen in logits: another kind of model, another loss. */
static bool is_meant(const char *key)
{
    return strcmp(key, "is_encoder_decoder") == 0 || strcmp(key, "problem_type") == 0;
}

/* Whether changing only `key` means to transformers what it means to us. */
static void check_key(const char *name, const json_t *base, const json_t *plain, const char *key, const json_t *change, bool foreign)
{
    json_t *o = json_copy((json_t *)(uintptr_t)base), *value = json_array_get(change, 0);
    const char *effect = json_string_value(json_array_get(change, 1));
    const struct llm_arch *arch = llm_arch_find(json_string_value(json_object_get(base, "model_type")));
    json_object_set(o, key, value);
    struct result r = read_config(o);
    bool same = !r.refused && json_equal(r.config, plain);
    n_keys++;
    if (r.refused) {
        if (!effect || strcmp(effect, "error") == 0) goto done;
        if (!strstr(r.reason, key)) complain(name, key, "refused without its name:", r.reason);
        if (!foreign && !is_meant(key) && strcmp(effect, "none") == 0 && llm_config_key_use(arch, key, value, true) != LLM_KEY_KNOWN) {
            complain(name, key, "refused, though transformers ignores it:", r.reason);
        }
    } else if (same) {
        bool fresh = effect && strcmp(effect, "init") == 0 && llm_config_key_use(arch, key, value, true) == LLM_KEY_HARMLESS; /* not of files */
        if (effect && strcmp(effect, "none") != 0 && strcmp(effect, "error") != 0 && !fresh) {
            complain(name, key, "ignored, in transformers its effect is", effect);
        }
        if (!effect && llm_config_key_use(arch, key, value, true) == LLM_KEY_UNKNOWN) complain(name, key, "ignored and not known", "");
    } else if (foreign && effect && strcmp(effect, "none") == 0) {
        complain(name, key, "taken, though transformers ignores it", "");
    }
done:
    json_decref(r.config);
    json_decref(o);
}

static void check_line(const json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "name")), *key;
    const json_t *config = json_object_get(line, "config");
    json_t *change, *old = json_copy((json_t *)(uintptr_t)config);
    struct result plain = read_config(config);
    if (plain.refused) fail_msg("%s: %s", name, plain.reason);
    json_object_foreach(json_object_get(line, "changes"), key, change) check_key(name, config, plain.config, key, change, false);
    json_decref(plain.config);
    json_object_del(old, "rope_parameters");
    plain = read_config(old);
    if (plain.refused) fail_msg("%s: %s", name, plain.reason);
    json_object_foreach(json_object_get(line, "foreign"), key, change) check_key(name, old, plain.config, key, change, true);
    json_decref(plain.config);
    json_decref(old);
}

static int each_line(const char *path, void (*check)(const json_t *line))
{
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    int lines = 0;
    assert_non_null(f);
    for (ssize_t n; (n = getline(&text, &room, f)) > 0; lines++) {
        struct llm_err e = {0};
        json_t *line = llm_json_parse(text, (size_t)n, &e);
        if (!line) fail_msg("%s", e.text);
        check(line);
        json_decref(line);
    }
    free(text);
    fclose(f);
    return lines;
}

static void test_keys(void **state)
{
    int lines = each_line("tests/golden/config_keys.jsonl", check_line);
    (void)state;
    print_message("  %d keys of %d configurations\n", n_keys, lines);
    assert_int_equal(n_failed, 0);
    assert_int_equal(lines, 40);
}

static void check_published(const json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "name"));
    struct result r = read_config(json_object_get(line, "config"));
    if (r.refused) complain(name, "config.json", "refused:", r.reason);
    json_decref(r.config);
}

/* Configurations in the form in which models are published load as they are. Hugging Face could not be reached when the file was written: most lines
 * are typed from memory; "source" says which values have been compared with a GGUF file or with the defaults of transformers. */
static void test_published(void **state)
{
    (void)state;
    n_failed = 0;
    assert_true(each_line("tests/golden/published_configs.jsonl", check_published) >= 40);
    assert_int_equal(n_failed, 0);
}

/* A key that nobody knows: null says nothing, other values are refused, and ignored when that is asked for. */
static void test_unknown(void **state)
{
    struct llm_config c;
    struct llm_err e = {0};
    json_t *o = json_pack("{s:s, s:i, s:n}", "model_type", "llama", "hidden_size", 64, "key_of_tomorrow");
    (void)state;
    assert_int_equal(llm_config_from_json(&c, o, &e), 0);
    json_object_set_new(o, "key_of_tomorrow", json_true());
    assert_int_equal(llm_config_from_json(&c, o, &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    assert_non_null(strstr(e.text, "key_of_tomorrow"));
    llm_config_force(true);
    assert_int_equal(llm_config_from_json(&c, o, &e), 0);
    llm_config_force(false);
    json_object_del(o, "key_of_tomorrow");
    json_object_set_new(o, "rope_scaling", json_pack("{s:s, s:[i,i]}", "type", "default", "mrope_section", 2, 2));
    assert_int_equal(llm_config_from_json(&c, o, &e), -1);
    assert_non_null(strstr(e.text, "rope_scaling.mrope_section"));
    json_decref(o);
}

/* DeepSeek's classes ignore how much of a head is rotated, but not with scaled positions, where they cannot run or all pairs turn alike. */
static void test_partial(void **state)
{
    static const char *const types[] = {"deepseek_v2", "deepseek_v3"};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct llm_config c;
        struct llm_err e = {0};
        json_t *o = json_pack("{s:s, s:f, s:{s:s, s:f}, s:s}", "model_type", types[i], "partial_rotary_factor", .5, "rope_scaling", "rope_type",
                              "linear", "factor", 2.0, "transformers_version", "5.24.0");
        assert_int_equal(llm_config_from_json(&c, o, &e), -1);
        assert_int_equal(e.status, EX_UNAVAILABLE);
        assert_non_null(strstr(e.text, "partial_rotary_factor: expected 1 beside linear positions, found 0.5"));
        json_object_del(o, "rope_scaling");
        if (llm_config_from_json(&c, o, &e) < 0) fail_msg("%s", e.text);
        json_decref(o);
    }
}

/* A key with two names: either is read, the one that is set last decides, and one is written. */
static void test_alias(void **state)
{
    static const char text[] = "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 64, \"num_mtp_layers\": 1}";
    const char *const none[] = {"num_nextn_predict_layers=0"}, *const two[] = {"num_nextn_predict_layers=0", "num_mtp_layers=2"};
    struct llm_config c;
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_config_load_text(&c, text, NULL, 0, &e), 0);
    assert_int_equal(c.num_nextn_predict_layers, 1);
    json_t *o = llm_config_to_json(&c, &e);
    assert_non_null(o);
    assert_int_equal(json_integer_value(json_object_get(o, "num_nextn_predict_layers")), 1);
    assert_null(json_object_get(o, "num_mtp_layers"));
    json_decref(o);
    assert_int_equal(llm_config_load_text(&c, text, none, 1, &e), 0);
    assert_int_equal(c.num_nextn_predict_layers, 0);
    assert_int_equal(llm_config_load_text(&c, text, two, 2, &e), 0);
    assert_int_equal(c.num_nextn_predict_layers, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_published), cmocka_unit_test(test_unknown),
                                       cmocka_unit_test(test_partial), cmocka_unit_test(test_alias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
