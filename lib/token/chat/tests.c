/* Tests: what may follow `is`, and what select and reject ask by name. */
#include <string.h>
#include "token/chat/jinja.h"

static bool is_undefined(struct value v) { return v.type == V_UNDEFINED; }
static bool is_defined(struct value v) { return v.type != V_UNDEFINED; }
static bool is_none(struct value v) { return v.type == V_NONE; }
static bool is_boolean(struct value v) { return v.type == V_BOOL; }
static bool is_true(struct value v) { return v.type == V_BOOL && v.as.truth; }
static bool is_false(struct value v) { return v.type == V_BOOL && !v.as.truth; }
static bool is_integer(struct value v) { return v.type == V_INT; }
static bool is_float(struct value v) { return v.type == V_REAL; }
static bool is_string(struct value v) { return v.type == V_TEXT; }
static bool is_escaped(struct value v) { return v.type == V_TEXT && v.as.text->safe; }
static bool is_mapping(struct value v) { return v.type == V_DICT && !v.as.dict->is_namespace; }
static bool is_iterable(struct value v) { return is_string(v) || is_undefined(v) || is_mapping(v) || v.type == V_SEQUENCE || v.type == V_LOOP; }
static bool is_sequence(struct value v)
{
    return is_string(v) || is_undefined(v) || is_mapping(v) || (v.type == V_SEQUENCE && v.as.sequence->kind <= S_RANGE);
}
static bool is_callable(struct value v)
{
    return is_undefined(v) || v.type == V_MACRO || v.type == V_METHOD || v.type == V_FUNCTION || v.type == V_LOOP;
}

static const struct { const char *name; bool (*test)(struct value v); } plain[] = {
    {"defined", is_defined}, {"undefined", is_undefined}, {"none", is_none}, {"boolean", is_boolean}, {"true", is_true}, {"false", is_false},
    {"integer", is_integer}, {"float", is_float}, {"number", is_number}, {"string", is_string}, {"mapping", is_mapping},
    {"iterable", is_iterable}, {"sequence", is_sequence}, {"callable", is_callable}, {"escaped", is_escaped}};

static const struct { const char *name; enum op op; } comparisons[] = {
    {"==", OP_EQ}, {"eq", OP_EQ}, {"equalto", OP_EQ}, {"!=", OP_NE}, {"ne", OP_NE}, {">", OP_GT}, {"gt", OP_GT}, {"greaterthan", OP_GT},
    {">=", OP_GE}, {"ge", OP_GE}, {"<", OP_LT}, {"lt", OP_LT}, {"lessthan", OP_LT}, {"<=", OP_LE}, {"le", OP_LE}, {"in", OP_IN}};

static int is_same(struct value a, struct value b)
{
    if (a.type != b.type) return 0;
    switch (a.type) {
    case V_NONE: return 1;
    case V_BOOL: return a.as.truth == b.as.truth;
    case V_INT: return a.as.integer == b.as.integer;
    case V_REAL: return a.as.real == b.as.real;
    case V_TEXT: return a.as.text->p == b.as.text->p && a.as.text->n == b.as.text->n;
    default: return a.as.dict == b.as.dict;
    }
}

/* Whether v % by is `rest`: 2.5 is neither odd nor even. */
static int leaves(struct work *w, struct value v, struct value by, double rest)
{
    struct value found = llm_jinja_binary(w, OP_MOD, v, by);
    return is_error(found) ? -1 : is_number(found) && number(found) == rest;
}

static int has_case(struct work *w, struct value v, const char *method)
{
    const struct call none = {0};
    v = llm_jinja_str(w, v);
    if (!is_error(v)) v = llm_jinja_method(w, v, method, &none);
    return is_error(v) ? -1 : v.as.truth;
}

static int names(struct work *w, struct value v, bool (*known)(const char *name))
{
    char name[64];
    v = llm_jinja_str(w, v);
    if (is_error(v)) return -1;
    if (v.as.text->n >= sizeof name) return 0;
    memcpy(name, v.as.text->p, v.as.text->n);
    name[v.as.text->n] = 0;
    return known(name);
}

static const char *const others[] = {"odd", "even", "divisibleby", "sameas", "lower", "upper", "filter", "test", NULL};

bool llm_jinja_is_test(const char *name)
{
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(plain[i].name, name) == 0) return true;
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++)
        if (strcmp(comparisons[i].name, name) == 0) return true;
    for (size_t i = 0; others[i]; i++)
        if (strcmp(others[i], name) == 0) return true;
    return false;
}

int llm_jinja_test(struct work *w, const char *name, struct value v, const struct call *c)
{
    struct value arg;
    if (llm_jinja_step(w, 1) < 0 || llm_jinja_bind(w, name, "other", c, &arg) < 0) return -1;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (strcmp(plain[i].name, name) != 0) continue;
        if (arg.type != V_ABSENT) return llm_jinja_error(w, "the test '%s' takes no argument", name);
        return plain[i].test(v);
    }
    if (strcmp(name, "odd") == 0 || strcmp(name, "even") == 0) return leaves(w, v, v_int(2), name[0] == 'o');
    if (strcmp(name, "lower") == 0) return has_case(w, v, "islower");
    if (strcmp(name, "upper") == 0) return has_case(w, v, "isupper");
    if (strcmp(name, "filter") == 0) return names(w, v, llm_jinja_is_filter);
    if (strcmp(name, "test") == 0) return names(w, v, llm_jinja_is_test);
    if (!llm_jinja_is_test(name)) return llm_jinja_error(w, "No test named '%s'.", name);
    if (arg.type == V_ABSENT) return llm_jinja_error(w, "the test '%s' takes an argument", name);
    if (strcmp(name, "divisibleby") == 0) return leaves(w, v, arg, 0);
    if (strcmp(name, "sameas") == 0) return is_same(v, arg);
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++)
        if (strcmp(comparisons[i].name, name) == 0) return llm_jinja_compare(w, comparisons[i].op, v, arg);
    return -1;
}
