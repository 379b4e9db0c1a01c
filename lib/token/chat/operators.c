/* Operators, with Python's meaning; integers are of 64 bits and say so when they are too small. */
#include <math.h>
#include <string.h>
#include "token/chat/jinja.h"

static const struct value error = {.type = V_ERROR};
static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

static struct value overflow(struct work *w)
{
    return llm_jinja_fail(w, "an integer of more than 64 bits");
}

static struct value power(struct work *w, int64_t a, int64_t b)
{
    int64_t result = 1;
    for (; b > 0; b >>= 1) {
        if ((b & 1) && __builtin_mul_overflow(result, a, &result)) return overflow(w);
        if (b > 1 && __builtin_mul_overflow(a, a, &a)) return overflow(w);
    }
    return v_int(result);
}

static struct value integers(struct work *w, enum op op, int64_t a, int64_t b)
{
    int64_t r = 0;
    switch (op) {
    case OP_ADD: return __builtin_add_overflow(a, b, &r) ? overflow(w) : v_int(r);
    case OP_SUB: return __builtin_sub_overflow(a, b, &r) ? overflow(w) : v_int(r);
    case OP_MUL: return __builtin_mul_overflow(a, b, &r) ? overflow(w) : v_int(r);
    case OP_DIV: return v_real((double)a / (double)b);
    case OP_FLOORDIV:
        if (a == INT64_MIN && b == -1) return overflow(w);
        return v_int(a / b - (a % b != 0 && (a < 0) != (b < 0)));
    case OP_MOD:
        if (b == -1) return v_int(0);
        r = a % b;
        return v_int(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    default: return b >= 0 ? power(w, a, b) : v_real(pow((double)a, (double)b));
    }
}

static struct value reals(struct work *w, enum op op, double a, double b)
{
    double r;
    switch (op) {
    case OP_ADD: return v_real(a + b);
    case OP_SUB: return v_real(a - b);
    case OP_MUL: return v_real(a * b);
    case OP_DIV: return v_real(a / b);
    case OP_POW:
        r = pow(a, b);
        if (isnan(r) && !isnan(a) && !isnan(b)) return llm_jinja_fail(w, "a power that is no real number");
        if (isinf(r) && isfinite(a) && isfinite(b)) return llm_jinja_fail(w, "a power too large for a float");
        return v_real(r);
    default:
        r = fmod(a, b);
        if (r != 0 && (r < 0) != (b < 0)) r += b;
        else if (r == 0) r = copysign(0, b);
        if (op == OP_MOD) return v_real(r);
        a = (a - r) / b;
        return v_real(a - floor(a) > 0.5 ? floor(a) + 1 : floor(a));
    }
}

static struct value add_texts(struct work *w, struct value a, struct value b)
{
    bool safe = a.as.text->safe || b.as.text->safe;
    if (safe) {
        a = llm_jinja_escape(w, a);
        b = is_error(a) ? a : llm_jinja_escape(w, b);
        if (is_error(b)) return b;
    }
    a = llm_jinja_join_terms(w, &(struct terms){{a, b}, 2});
    if (!is_error(a)) a.as.text->safe = safe;
    return a;
}

static struct value add_sequences(struct work *w, const struct sequence *a, const struct sequence *b)
{
    struct value list = llm_jinja_sequence(w, a->kind, a->n + b->n);
    if (is_error(list)) return list;
    if (a->n) memcpy(list.as.sequence->v, a->v, a->n * sizeof *a->v);
    if (b->n) memcpy(list.as.sequence->v + a->n, b->v, b->n * sizeof *b->v);
    list.as.sequence->n = a->n + b->n;
    return list;
}

static struct value repeat(struct work *w, struct value v, int64_t times)
{
    size_t mark = w->out.n, bytes, n = v.type == V_TEXT ? v.as.text->n : v.as.sequence->n * sizeof(struct value);
    if (times < 0) times = 0;
    if (__builtin_mul_overflow(n, (size_t)times, &bytes) || bytes > w->memory)
        return llm_jinja_fail(w, "more than %zu MiB of memory", w->memory >> 20);
    if (v.type == V_TEXT) {
        for (int64_t i = 0; i < times && n; i++)
            if (llm_jinja_put(w, v.as.text->p, n) < 0) return error;
        struct value out = llm_jinja_take(w, mark);
        if (!is_error(out)) out.as.text->safe = v.as.text->safe;
        return out;
    }
    struct value list = llm_jinja_sequence(w, v.as.sequence->kind, bytes / sizeof(struct value));
    if (is_error(list) || n == 0) return list;
    for (int64_t i = 0; i < times; i++) memcpy(list.as.sequence->v + (size_t)i * v.as.sequence->n, v.as.sequence->v, n);
    list.as.sequence->n = bytes / sizeof(struct value);
    return list;
}

static bool is_list(struct value v)
{
    return is_kind(v, S_LIST) || is_kind(v, S_TUPLE);
}

static struct value say_undefined(struct work *w, struct value v)
{
    return llm_jinja_item(w, v, v_none());
}

struct value llm_jinja_binary(struct work *w, enum op op, struct value a, struct value b)
{
    if (a.type == V_UNDEFINED) return say_undefined(w, a);
    if (op == OP_MOD && a.type == V_TEXT) return llm_jinja_format(w, a, b);
    if (b.type == V_UNDEFINED) return say_undefined(w, b);
    if (is_number(a) && is_number(b)) {
        if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && number(b) == 0) return llm_jinja_fail(w, "division by zero");
        if (op == OP_POW && number(a) == 0 && number(b) < 0) return llm_jinja_fail(w, "0 cannot be raised to a negative power");
        return is_whole(a) && is_whole(b) ? integers(w, op, whole(a), whole(b)) : reals(w, op, number(a), number(b));
    }
    if (op == OP_ADD && a.type == V_TEXT && b.type == V_TEXT) return add_texts(w, a, b);
    if (op == OP_ADD && is_list(a) && is_list(b) && a.as.sequence->kind == b.as.sequence->kind)
        return add_sequences(w, a.as.sequence, b.as.sequence);
    if (op == OP_MUL && (a.type == V_TEXT || is_list(a)) && is_whole(b)) return repeat(w, a, whole(b));
    if (op == OP_MUL && (b.type == V_TEXT || is_list(b)) && is_whole(a)) return repeat(w, b, whole(a));
    if (op == OP_ADD && (a.type == V_TEXT || is_list(a)))
        return llm_jinja_fail(w, "can only concatenate %s (not \"%s\") to %s", llm_jinja_type(a), llm_jinja_type(b), llm_jinja_type(a));
    return llm_jinja_fail(w, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op], llm_jinja_type(a), llm_jinja_type(b));
}

struct value llm_jinja_negative(struct work *w, struct value v, bool plus)
{
    if (v.type == V_UNDEFINED) return say_undefined(w, v);
    if (v.type == V_REAL) return v_real(plus ? v.as.real : -v.as.real);
    if (!is_whole(v)) return llm_jinja_fail(w, "bad operand type for unary %c: '%s'", plus ? '+' : '-', llm_jinja_type(v));
    if (plus) return v_int(whole(v));
    return whole(v) == INT64_MIN ? overflow(w) : v_int(-whole(v));
}

int llm_jinja_contains(struct work *w, struct value item, struct value in)
{
    struct sequence *s;
    if (in.type == V_TEXT) {
        if (item.type != V_TEXT) return llm_jinja_error(w, "'in <string>' requires string as left operand, not %s", llm_jinja_type(item));
        if (llm_jinja_step(w, in.as.text->n / 64) < 0) return -1;
        return llm_jinja_find(in.as.text, item.as.text, 0) >= 0;
    }
    if (in.type == V_DICT && !in.as.dict->is_namespace) {
        if (item.type == V_DICT || is_kind(item, S_LIST)) return llm_jinja_error(w, "unhashable type: '%s'", llm_jinja_type(item));
        return llm_jinja_dict_get(in.as.dict, item) != NULL;
    }
    if (in.type != V_SEQUENCE && in.type != V_UNDEFINED)
        return llm_jinja_error(w, "argument of type '%s' is not iterable", llm_jinja_type(in));
    if (llm_jinja_items(w, in, &s) < 0) return -1;
    for (size_t i = 0; i < s->n; i++) {
        int same = llm_jinja_equal(w, s->v[i], item);
        if (same != 0) return same;
    }
    return 0;
}

int llm_jinja_compare(struct work *w, enum op op, struct value a, struct value b)
{
    int got;
    if (op == OP_EQ || op == OP_NE) {
        got = llm_jinja_equal(w, a, b);
        return got < 0 ? -1 : got == (op == OP_EQ);
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        got = llm_jinja_contains(w, a, b);
        return got < 0 ? -1 : got == (op == OP_IN);
    }
    if (a.type == V_UNDEFINED || b.type == V_UNDEFINED) {
        say_undefined(w, a.type == V_UNDEFINED ? a : b);
        return -1;
    }
    if (llm_jinja_order(w, a, b, signs[op], &got) < 0) return -1;
    return op == OP_LT ? got < 0 : op == OP_LE ? got <= 0 : op == OP_GT ? got > 0 : got >= 0;
}
