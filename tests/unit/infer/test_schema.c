/* JSON Schema as a constraint: what each keyword allows and forbids, what is refused by name; and the test suite of draft 2020-12 and
 * JSONSchemaBench, where they lie beside the checkout: every valid instance can be written, no invalid one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "tests/unit/infer/byte_vocab.h"

static bool accepts(struct llm_matcher m, const char *text, size_t n)
{
    struct llm_err e;
    for (size_t i = 0; i < n; i++)
        if (llm_matcher_take(&m, (unsigned char)text[i], &e) < 0) return false;
    return llm_matcher_may_end(&m);
}

static const struct { const char *schema, *yes[7], *no[7]; } schemas[] = {
    {"true", {"null", "[1, {\"a\": \"\\u00e9\\n\"}]", "-1.5e+07", "{ }"}, {"01", "1.", "\"\n\"", "{\"a\":1,}", "\"\\ud800\"", "nul"}},
    {"{\"type\":[\"integer\",\"null\"]}", {"null", "-3", "12345678901234567890", "1.0"}, {"1.5", "true", "\"1\"", "-"}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"type\":\"integer\"}", {"1", "-20"}, {"1.0", "1.5"}},
    {"{\"minimum\":-1.5,\"exclusiveMaximum\":20}", {"-1.5", "0", "-0.0", "19.99", "\"x\"", "2.500"}, {"-1.51", "20", "20.0", "100", "-2"}},
    {"{\"type\":\"number\",\"minimum\":5,\"exclusiveMinimum\":true,\"maximum\":1e2}", {"5.1", "100", "99"}, {"5", "5.0", "101", "1000", "-6"}},
    {"{\"type\":\"number\",\"multipleOf\":0.25}", {"0", "-0.75", "1.50", "3"}, {"0.1", "1.3", "0.255"}},
    {"{\"type\":\"integer\",\"multipleOf\":7,\"not\":{\"multipleOf\":3}}", {"7", "-14", "49"}, {"21", "8", "0"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", {"\"ab\"", "\"\\u00e9\\ud83d\\ude00\"", "\"日本語\""}, {"\"a\"", "\"abcd\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]+$|x\",\"maxLength\":4}", {"\"abc\"", "\"12x4\"", "\"\\u0061\""}, {"\"abd\"", "\"abcab\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^\\\"b\"}", {"\"\\\"bc\""}, {"\"b\"", "\"a\\\"b\""}},
    {"{\"type\":\"string\",\"pattern\":\"^b\"}", {"\"bc\""}, {"\"a\\\"b\"", "\"\\\"b\""}},
    {"{\"not\":{\"type\":\"string\",\"pattern\":\"a\"},\"type\":\"string\"}", {"\"b\"", "\"\""}, {"\"bab\"", "\"\\u0061\""}},
    {"{\"enum\":[1,\"a\\n\",{\"b\":[null,2.5]},[]]}",
     {"1", "1.0", "\"a\\n\"", "{\"b\":[null,2.5]}", "[]"}, {"2", "1.5", "\"a\"", "{\"b\":[null]}", "[1]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},\"required\":[\"b\","
     "\"c\"],\"additionalProperties\":{\"type\":\"null\"}}",
     {"{\"c\":null,\"b\":1}", "{\"a\":1,\"b\":2,\"c\":null,\"d\":null}"},
     {"{\"b\":1}", "{\"a\":null,\"b\":1,\"c\":null}", "{\"b\":1,\"b\":1,\"c\":null}", "{\"b\":1,\"c\":1}", "{\"\\u0061\":null,\"b\":1,\"c\":null}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^s\":{\"type\":\"string\"},\"n$\":{\"maxLength\":1}},\"additionalProperties\":false}",
     {"{\"s1\":\"long\",\"n\":3}", "{\"sn\":\"x\"}", "{}"}, {"{\"sn\":\"xy\"}", "{\"s\":1}", "{\"x\":1}", "{\"n\":\"xy\"}"}},
    {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2,\"propertyNames\":{\"maxLength\":2}}", {"{\"a\":1}", "{\"ab\":1,\"b\":2}"},
     {"{}", "{\"abc\":1}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]},\"dependentSchemas\":{\"b\":{\"properties\":{\"c\":{\"const\":1}}}}}",
     {"{\"b\":1}", "{\"b\":1,\"a\":2}", "{\"c\":2}", "{\"c\":1,\"b\":0}"}, {"{\"a\":1}", "{\"c\":2,\"b\":0}"}},
    {"{\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"null\"}],\"items\":{\"type\":\"integer\"},\"type\":\"array\","
     "\"minItems\":1,\"maxItems\":4}",
     {"[\"a\"]", "[\"a\",null]", "[ \"a\", null, 1, 2 ]"}, {"[]", "[null]", "[\"a\",null,\"b\"]", "[\"a\",null,1,2,3]"}},
    {"{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":3,\"items\":{\"type\":\"integer\"}}",
     {"[1,1]", "[2,1,3,1,1]"}, {"[1]", "[]", "[1,1,1,1]", "[2,1,3]"}},
    {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\"}",
     {"{\"a\":1}", "{\"c\":1,\"b\":2}"}, {"{\"a\":1,\"b\":2}", "{}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"not\":{\"properties\":{\"a\":true},\"additionalProperties\":false}},"
     "{\"not\":{\"properties\":{\"b\":true},\"additionalProperties\":{\"type\":\"null\"}}}]}",
     {"{\"c\":1}", "{\"c\":null,\"d\":1}", "{\"a\":1,\"b\":1}"}, {"{\"a\":1}", "{\"b\":1}", "{\"c\":null}", "{}"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", {"1", "2.5"}, {"3", "3.00", "1.5"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":1}}},{\"properties\":{\"a\":{\"maximum\":3}},\"required\":[\"a\"]}],\"type\":\"object\"}",
     {"{\"a\":1}", "{\"a\":3,\"b\":0}"}, {"{\"a\":0}", "{\"a\":4}", "{}"}},
    {"{\"if\":{\"properties\":{\"t\":{\"const\":\"x\"}},\"required\":[\"t\"]},"
     "\"then\":{\"required\":[\"v\"]},\"else\":{\"maxProperties\":1},\"type\":\"object\"}",
     {"{\"t\":\"x\",\"v\":1}", "{\"t\":\"y\"}", "{}", "{\"v\":1,\"t\":\"x\",\"w\":0}"}, {"{\"t\":\"x\"}", "{\"t\":\"y\",\"v\":1}"}},
    {"{\"$defs\":{\"node\":{\"type\":\"object\","
     "\"properties\":{\"next\":{\"$ref\":\"#/$defs/node\"},\"v\":{\"type\":\"integer\"}},\"required\":[\"v\"],"
     "\"additionalProperties\":false}},\"$ref\":\"#/$defs/node\"}",
     {"{\"v\":1}", "{\"next\":{\"v\":2,\"next\":{\"v\":3}},\"v\":1}"}, {"{\"next\":{}}", "{\"v\":1,\"next\":{\"v\":\"2\"}}"}},
    {"{\"not\":{\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"b\"]}}", {"{\"a\":1}", "{}", "{\"a\":1,\"b\":2}"}, {"{\"b\":1}", "1",
     "{\"a\":\"\",\"b\":2}"}},
    {"{\"format\":\"date-time\",\"type\":\"string\"}", {"\"2024-02-29T23:59:59.5Z\"", "\"1999-12-31t00:00:00+01:30\""}, {"\"2023-02-29T00:00:00Z\"",
     "\"2024-13-01T00:00:00Z\""}},
    {"{\"format\":\"ipv6\",\"type\":\"string\"}", {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\""}, {"\"1::2::3\"", "\"12345::\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(?!admin$)[a-z]+$\"}", {"\"admins\"", "\"root\""}, {"\"admin\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(?!foo).*|^foo(?!d)\"}",
     {"\"bar\"", "\"\"", "\"fo\"", "\"foot\"", "\"foo\""}, {"\"food\"", "\"food foo\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(?!a)|(?:^|,)(?:b|^c)\"}", {"\"ba\"", "\"a,b\"", "\"c\""}, {"\"ab\"", "\"a,c\""}},
    {"{\"type\":\"string\",\"pattern\":\"(?!(^xn--|.+-s3alias$))^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$\"}",
     {"\"my-bucket\""}, {"\"ab-s3alias\"", "\"xn--a\"", "\"ab\""}},
    {"{\"type\":\"string\",\"pattern\":\"(?!foo)^[a-z]+$\"}", {"\"bar\""}, {"\"foo\"", "\"food\""}},
    {"{\"type\":\"string\",\"pattern\":\"(?!^)x$\"}", {"\"ax\""}, {"\"x\"", "\"xa\""}},
    {"{\"type\":\"string\",\"pattern\":\"^((^|, )(red|green))+$\"}", {"\"red\"", "\"red, green\""}, {"\"redgreen\"", "\"red,green\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(^foo$|^bar$)$\"}", {"\"foo\"", "\"bar\""}, {"\"foobar\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"(?=.*b)^ab$|(?=^$|c)\"}", {"\"ab\"", "\"\"", "\"xc\""}, {"\"aab\"", "\"x\""}},
};

static void test_keywords(void **state)
{
    const struct fixture *f = *state;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct llm_matcher m = {.ends[0] = {ends, 1}};
        struct llm_constraint *c = create(f, LLM_CONSTRAIN_SCHEMA, schemas[i].schema, &m);
        for (size_t k = 0; k < 7 && schemas[i].yes[k]; k++)
            if (!accepts(m, schemas[i].yes[k], strlen(schemas[i].yes[k]))) fail_msg("%s: %s", schemas[i].schema, schemas[i].yes[k]);
        for (size_t k = 0; k < 7 && schemas[i].no[k]; k++)
            if (accepts(m, schemas[i].no[k], strlen(schemas[i].no[k]))) fail_msg("%s: not %s", schemas[i].schema, schemas[i].no[k]);
        llm_constraint_destroy(c);
    }
}

static void test_refusals(void **state)
{
    static const char *const bad[][2] = {
        {"{\"uniqueItems\":true}", "uniqueItems is not supported"},
        {"{\"properties\":{\"a\":{\"unevaluatedProperties\":false}}}", "unevaluatedProperties is not supported"},
        {"{\"$dynamicRef\":\"#a\"}", "$dynamicRef is not supported"},
        {"{\"$ref\":\"other.json\"}", "$ref: 'other.json' is not in the schema"},
        {"{\"$ref\":\"#/nowhere\"}", "$ref: '#/nowhere' leads nowhere"},
        {"{\"$ref\":\"#\"}", "schemas refer to one another without end"},
        {"{\"pattern\":\"(a)\\\\1\"}", "pattern '(a)\\1': character 6: references to groups are not regular"},
        {"{\"properties\":{\"a\":{\"pattern\":\"(\"}}}", "pattern '('"},
        {"{\"minProperties\":3}", "minProperties above 1 is not supported"},
        /* What only an item that satisfies two conditions at once demands. */
        {"{\"type\":\"array\",\"allOf\":[{\"contains\":{\"type\":\"object\",\"patternProperties\":{\"1\":{},\"2\":{},\"3\":{},\"4\":{},\"5\":{}}}},"
         "{\"contains\":{\"type\":\"object\",\"patternProperties\":{\"6\":{},\"7\":{},\"8\":{},\"9\":{}}}}]}", "more than 8 patterns for one object"},
        {"{\"type\":\"strnig\"}", "type: 'strnig' is not known"},
        {"{\"properties\":[]}", "properties: expected another type"},
        {"{\"type\":\"integer\",\"minimum\":1.2,\"maximum\":1.8}", "no value satisfies it"},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"object\",\"required\":[\"b\"],\"properties\":{\"b\":{\"$ref\":\"#/$defs/a\"}}}}}",
         "no value satisfies it"},
        {"{\"a\":1", "line 1"},
        {"3", "expected a schema"},
    };
    const struct fixture *f = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct llm_err e = {0};
        assert_null(llm_constraint_create(LLM_CONSTRAIN_SCHEMA, bad[i][0], strlen(bad[i][0]), f->tokens, &e));
        if (e.status != EX_DATAERR || !strstr(e.text, bad[i][1])) fail_msg("%s: %d %s", bad[i][0], e.status, e.text);
    }
}

/* No state is a dead end: from every state that is reached at random, an allowed byte leads on, until the text is complete. */
static void test_no_dead_ends(void **state)
{
    const struct fixture *f = *state;
    uint32_t seed = 1;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct llm_matcher begin;
        struct llm_constraint *c = create(f, LLM_CONSTRAIN_SCHEMA, schemas[i].schema, &begin);
        for (int round = 0; round < 8; round++) {
            struct llm_matcher m = begin;
            for (int step = 0; step < 150 && !llm_matcher_must_end(&m); step++) {
                float logits[VOCAB];
                int32_t allowed[VOCAB], n = 0;
                struct llm_err e;
                memset(logits, 0, sizeof logits);
                if (llm_matcher_apply(&m, logits, VOCAB, &e) < 0) fail_msg("%s: %s", schemas[i].schema, e.text);
                for (int32_t k = 0; k < VOCAB; k++)
                    if (logits[k] == 0) allowed[n++] = k;
                seed = seed * 1664525 + 1013904223;
                int32_t id = allowed[(seed >> 8) % (uint32_t)n];
                if (id == END) break;
                assert_int_equal(llm_matcher_take(&m, id, &e), 0);
            }
        }
        llm_constraint_destroy(c);
    }
}

/* ---- the suites ---- */

static void put(struct llm_buf *b, const char *p)
{
    struct llm_err e;
    assert_int_equal(llm_buf_put(b, p, strlen(p), &e), 0);
}

/* A value as JSON with numbers in decimal notation. */
static void dump(struct llm_buf *b, const json_t *v, const char *comma)
{
    struct llm_err e;
    const char *key;
    json_t *x;
    size_t i;
    char text[400];
    if (json_is_real(v)) {
        struct llm_buf shortest = {0};
        assert_int_equal(llm_json_number(&shortest, json_real_value(v), &e), 0);
        snprintf(text, sizeof text, "%.*f", json_real_value(v) == (double)(int64_t)json_real_value(v) ? 1 : 20, json_real_value(v));
        put(b, strchr(shortest.p, 'e') ? text : shortest.p);
        llm_buf_release(&shortest);
    } else if (json_is_array(v)) {
        put(b, "[");
        json_array_foreach((json_t *)(uintptr_t)v, i, x) {
            if (i) put(b, comma);
            dump(b, x, comma);
        }
        put(b, "]");
    } else if (json_is_object(v)) {
        bool first = true;
        put(b, "{");
        json_object_foreach((json_t *)(uintptr_t)v, key, x) {
            if (!first) put(b, comma);
            first = false;
            assert_int_equal(llm_json_quote(b, key, strlen(key), &e), 0);
            put(b, comma[1] ? ": " : ":");
            dump(b, x, comma);
        }
        put(b, "}");
    } else {
        assert_int_equal(llm_json_dump(v, b, &e), 0);
    }
}

struct counts { int schemas, refused, valid, invalid; };

/* The instances of one schema. */
static void check_group(const struct fixture *f, const char *name, const json_t *group, struct counts *n)
{
    struct llm_err e = {0};
    struct llm_buf schema = {0}, text = {0};
    size_t i;
    json_t *test;
    assert_int_equal(llm_json_dump(json_object_get(group, "schema"), &schema, &e), 0);
    struct llm_constraint *c = llm_constraint_create(LLM_CONSTRAIN_SCHEMA, schema.p, schema.n, f->tokens, &e);
    n->schemas++;
    n->refused += !c;
    if (!c && e.status != EX_DATAERR) fail_msg("%s: %d %s", name, e.status, e.text);
    json_array_foreach(json_object_get(group, "tests"), i, test) {
        bool want = json_is_true(json_object_get(test, "valid"));
        struct llm_matcher m = {.ends[0] = {ends, 1}};
        for (int way = 0; c && way < 2; way++) {
            llm_matcher_begin(&m, c);
            text.n = 0;
            dump(&text, json_object_get(test, "data"), way ? ", " : ",");
            if (accepts(m, text.p, text.n) != want) fail_msg("%s: %s: expected %s: %s", name, schema.p, want ? "valid" : "invalid", text.p);
        }
        n->valid += c && want;
        n->invalid += c && !want;
    }
    /* A schema that no value satisfies is refused, and rightly so. */
    json_array_foreach(json_object_get(group, "tests"), i, test)
        if (!c && strstr(e.text, "no value satisfies it") && json_is_true(json_object_get(test, "valid"))) fail_msg("%s: %s", name, e.text);
    llm_constraint_destroy(c);
    llm_buf_release(&schema);
    llm_buf_release(&text);
}

/* Not so: formats are demanded; its metaschema says that minimum means nothing. */
static bool is_other(const char *file, const char *description)
{
    return strcmp(file, "format.json") == 0 || strcmp(file, "vocabulary.json") == 0 || strstr(description, "infinite");
}

static void test_suite(void **state)
{
    char path[400];
    const char *root = "../shared/data/json-schema/suite-2020-12";
    DIR *d = opendir(root);
    struct counts n = {0};
    if (!d) skip();
    for (struct dirent *entry; (entry = readdir(d));) {
        struct llm_err e;
        size_t i;
        json_t *group;
        if (!strstr(entry->d_name, ".json")) continue;
        snprintf(path, sizeof path, "%s/%s", root, entry->d_name);
        json_t *all = llm_json_load(path, 1 << 24, &e);
        json_array_foreach(all, i, group)
            if (!is_other(entry->d_name, json_string_value(json_object_get(group, "description")))) check_group(*state, entry->d_name, group, &n);
        json_decref(all);
    }
    closedir(d);
    print_message("    %d schemas, %d refused, %d valid and %d invalid instances\n", n.schemas, n.refused, n.valid, n.invalid);
    assert_true(n.schemas > 200 && n.schemas - n.refused > 200);
}

static void test_bench(void **state)
{
    FILE *in = fopen("../shared/data/json-schema/schemabench/schemas.jsonl", "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t got;
    struct counts n = {0};
    if (!in) skip();
    while ((got = getline(&line, &room, in)) > 0) {
        struct llm_err e;
        json_t *group = llm_json_parse(line, (size_t)got, &e);
        if (!group) continue;
        check_group(*state, json_string_value(json_object_get(group, "name")), group, &n);
        json_decref(group);
    }
    free(line);
    fclose(in);
    print_message("    %d schemas, %d refused, %d valid and %d invalid instances\n", n.schemas, n.refused, n.valid, n.invalid);
    assert_true(n.schemas > 400 && n.refused * 20 <= n.schemas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keywords),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_dead_ends),
        cmocka_unit_test(test_suite),
        cmocka_unit_test(test_bench),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
