/* The lists of families and keys in llm-train(1) and llm-infer(1) against the tables (model/config/arch.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "io/file.h"
#include "model/config/arch.h"

/* The lines of a page from the one that begins with `from` up to the next that begins with `to`; the caller releases them. */
static struct llm_buf section(const char *path, const char *from, const char *to)
{
    struct llm_err e;
    struct llm_map m;
    struct llm_buf b = {0};
    bool inside = false;
    if (llm_map_open(&m, path, &e) < 0) fail_msg("%s", e.text);
    const char *p = (const char *)m.p, *end = p + m.n;
    for (const char *next; p < end; p = next) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        next = newline ? newline + 1 : end;
        if (strncmp(p, from, strlen(from)) == 0) inside = true;
        else if (inside && strncmp(p, to, strlen(to)) == 0) break;
        if (inside) assert_int_equal(llm_buf_put(&b, p, (size_t)(next - p), &e), 0);
    }
    llm_map_close(&m);
    if (b.n == 0) fail_msg("%s: expected a line that begins with '%s'", path, from);
    return b;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Whether the text has `word` as a whole word. stars: 0 without a star after it, 1 with one, -1 either. */
static bool has(const char *text, const char *word, int stars)
{
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += n)
        if ((p == text || !is_word(p[-1])) && !is_word(p[n]) && (stars < 0 || (p[n] == '*') == stars)) return true;
    return false;
}

/* Whether the key is an extension in some family; only then the manual may mark it with a star. */
static bool is_extension(const char *name)
{
    for (size_t i = 0; llm_archs[i]; i++)
        for (const struct llm_config_key *k = llm_archs[i]->keys; k->name; k++)
            if (k->origin != LLM_KEY_HF && strcmp(k->name, name) == 0) return true;
    return false;
}

/* Whether some family has the key, or a value of one of its keys is the word. */
static bool is_known(const char *word)
{
    for (size_t i = 0; llm_archs[i]; i++) {
        if (llm_config_has_row(llm_archs[i], word)) return true;
        for (const struct llm_config_key *k = llm_archs[i]->keys; k->name; k++) {
            const char *dot = strchr(k->name, '.'); /* "text_config.pad_token_id": both parts are words here */
            if (dot && strcmp(dot + 1, word) == 0) return true;
            for (const char *const *w = k->words; w && *w; w++)
                if (strcmp(*w, word) == 0) return true;
        }
        for (const struct llm_other_key *k = llm_archs[i]->other_keys; k && k->name; k++)
            if (strcmp(k->name, word) == 0) return true;
        for (const char *const *s = llm_archs[i]->sections; s && *s; s++)
            if (strcmp(*s, word) == 0) return true;
    }
    return llm_arch_find(word) != NULL;
}

/* Every family, and every key of each; no star at keys that no family has as an extension. */
static void test_keys(void **state)
{
    struct llm_buf b = section("man/llm-train.1", ".Ss Configuration", ".Ss Log");
    int missing = 0;
    (void)state;
    for (size_t i = 0; llm_archs[i]; i++) {
        const struct llm_arch *a = llm_archs[i];
        if (!has(b.p, a->model_type, -1)) missing++, print_error("man/llm-train.1: missing: family %s\n", a->model_type);
        for (const struct llm_config_key *k = a->keys; k->name; k++)
            if (!has(b.p, k->name, is_extension(k->name) ? -1 : 0))
                missing++, print_error("man/llm-train.1: missing: %s (%s)\n", k->name, a->model_type);
    }
    assert_int_equal(missing, 0);
    llm_buf_release(&b);
}

/* Words of the section that look like keys: those with an underscore. */
static void test_no_other_keys(void **state)
{
    /* rope_scaling, which code reads, and its members; tensors; a function of transformers; types of vision towers */
    static const char *const others[] = {"rope_type", "short_factor", "long_factor", "original_max_position_embeddings", "running_mean",
                                         "running_var", "quick_gelu", "load_balancing_loss_func", "model_type", "rope_scaling",
                                         "rope_parameters", "clip_vision_model", "siglip_vision_model", NULL};
    struct llm_buf b = section("man/llm-train.1", ".Ss Configuration", ".Ss Log");
    int wrong = 0;
    (void)state;
    for (char *p = b.p, *end; *p; p = end) {
        char word[100];
        bool listed = false;
        for (end = p; is_word(*end); end++) { }
        if (end == p) end++;
        snprintf(word, sizeof word, "%.*s", (int)(end - p), p);
        if (!strchr(word, '_')) continue;
        for (size_t i = 0; others[i]; i++) listed |= strcmp(others[i], word) == 0;
        if (!listed && !is_known(word)) wrong++, print_error("man/llm-train.1: no such key: %s\n", word);
    }
    assert_int_equal(wrong, 0);
    llm_buf_release(&b);
}

/* Every family. */
static void test_families(void **state)
{
    struct llm_buf b = section("man/llm-infer.1", "The families that are known are", "others are refused by name");
    int missing = 0;
    (void)state;
    for (size_t i = 0; llm_archs[i]; i++)
        if (!has(b.p, llm_archs[i]->model_type, -1)) missing++, print_error("man/llm-infer.1: missing: family %s\n", llm_archs[i]->model_type);
    assert_int_equal(missing, 0);
    llm_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_no_other_keys), cmocka_unit_test(test_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
