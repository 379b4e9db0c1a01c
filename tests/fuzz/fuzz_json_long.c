/* JSON whose strings are decoded in place: the same values, and the same errors, as of a parser that copies them. The first byte says which strings
 * are long. */
#include "base/json_long.h"
#include "fuzz.h"

/* What both say of two values that came from the same text. */
static void compare(const struct llm_json_long *l, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *v;
    size_t n, i;
    MUST(json_typeof(a) == json_typeof(b));
    if (json_is_string(a)) {
        const char *text = llm_json_long_string(l, a, &n);
        MUST(n == json_string_length(b) && memcmp(text, json_string_value(b), n) == 0);
    } else if (json_is_object(a)) {
        MUST(json_object_size(a) == json_object_size(b));
        json_object_foreach((json_t *)(uintptr_t)b, key, v) compare(l, json_object_get(a, key), v);
    } else if (json_is_array(a)) {
        MUST(json_array_size(a) == json_array_size(b));
        json_array_foreach(b, i, v) compare(l, json_array_get(a, i), v);
    } else {
        MUST(json_equal(a, b));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0}, plain = {0};
    if (n == 0) return 0;
    struct llm_json_long l = {.least = 2 + data[0] % 16};
    char *text = malloc(n), *copy = malloc(n);
    MUST(text && copy);
    memcpy(text, data + 1, n - 1);
    memcpy(copy, data + 1, n - 1);
    json_t *want = llm_json_parse_python(copy, n - 1, &plain), *got = llm_json_long_parse(&l, text, n - 1, &e);
    MUST(!want == !got);
    if (got) compare(&l, got, want);
    else MUST(e.status == plain.status && strcmp(e.text, plain.text) == 0);
    json_decref(want);
    json_decref(got);
    llm_json_long_release(&l);
    free(text);
    free(copy);
    return 0;
}
