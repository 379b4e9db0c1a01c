#include "infer/constrain/number.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

enum { MAX_SPECS = 1 << 20, MAX_DIGITS = 700, MAX_DIVISOR = 100000 /* states of an automaton */ };

/* A decimal number: digits before and after the point, without needless zeros ("0" stays before it). */
struct decimal {
    bool negative;
    int n_int, n_fraction;
    char *digits;            /* [n_int + n_fraction], as characters */
};

struct spec {
    struct decimal bound;
    int relations;           /* 0: multiples */
    uint64_t divisor;        /* multiples: of divisor · 10^-scale */
    int scale;
};

struct llm_numbers {
    struct llm_terms *t;
    uint32_t machine;
    struct spec *v;
    size_t n, room;
};

/* ---- reading decimal numbers ---- */

static int read_decimal(struct decimal *d, const char *s, struct llm_err *e)
{
    char all[MAX_DIGITS + 2];
    int n = 0, point = 0, first = 0;
    long exponent = 0;
    const char *p = s;
    *d = (struct decimal){.negative = *p == '-'};
    p += *p == '-' || *p == '+';
    for (bool after = false; (*p >= '0' && *p <= '9') || (*p == '.' && !after); p++) {
        if (*p == '.') {
            after = true;
            continue;
        }
        if (n == MAX_DIGITS / 2) return llm_fail(e, EX_DATAERR, "the number %.40s... has too many digits", s);
        all[n++] = *p;
        point += !after;
    }
    if (*p == 'e' || *p == 'E') exponent = strtol(p + 1, NULL, 10);
    if (n == 0 || exponent > 400 || exponent < -400) return llm_fail(e, EX_DATAERR, "the number %.40s is too large or too small", s);
    point += (int)exponent;
    if (point <= 0) { /* zeros in front */
        if (n + 1 - point > MAX_DIGITS) return llm_fail(e, EX_DATAERR, "the number %.40s has too many digits", s);
        memmove(all + 1 - point, all, (size_t)n);
        memset(all, '0', (size_t)(1 - point));
        n += 1 - point;
        point = 1;
    }
    while (n < point) {
        if (n == MAX_DIGITS) return llm_fail(e, EX_DATAERR, "the number %.40s has too many digits", s);
        all[n++] = '0';
    }
    while (first < point - 1 && all[first] == '0') first++;
    while (n > point && all[n - 1] == '0') n--;
    d->n_int = point - first;
    d->n_fraction = n - point;
    d->digits = llm_alloc((size_t)(n - first) + 1, 1, "a number", e);
    if (!d->digits) return -1;
    memcpy(d->digits, all + first, (size_t)(n - first));
    if (d->n_int == 1 && d->n_fraction == 0 && d->digits[0] == '0') d->negative = false;
    return 0;
}

/* ---- automata ----
 * y: bits 0-1 phase, 2 minus sign, 3 some digit is not zero, 4-5 how the digits compare with the bound's, 8-.. digits read in this phase (one more
 * than the bound has stands for all greater numbers). z: the remainder, of multiples. */

enum { START, SIGN, INTEGER, FRACTION };
enum { SAME, LESS, MORE };

static uint32_t pack(unsigned phase, bool minus, bool some, unsigned order, unsigned count)
{
    return phase | (unsigned)minus << 2 | (unsigned)some << 3 | order << 4 | count << 8;
}

/* How the whole integer part compares, once it is over. */
static unsigned integer_order(const struct spec *s, unsigned order, unsigned count)
{
    return (int)count < s->bound.n_int ? LESS : (int)count > s->bound.n_int ? MORE : order;
}

/* Whether what has been read decides the comparison, whatever follows, and against the bound's relations. */
static bool is_lost(const struct spec *s, unsigned phase, bool minus, bool some, unsigned order, unsigned count)
{
    bool larger = phase == INTEGER && (int)count > s->bound.n_int; /* more digits make a number larger still */
    if (larger) order = MORE;
    else if (phase == FRACTION ? order == SAME : minus == s->bound.negative) return false;
    if (minus && !some) return false; /* it may be 0 */
    if (minus != s->bound.negative) order = minus ? LESS : MORE;
    else if (minus) order = order == LESS ? MORE : LESS;
    return !(s->relations & (order == LESS ? LLM_LESS : LLM_GREATER));
}

static bool step(void *arg, uint32_t x, uint32_t *y, uint32_t *z, unsigned char byte)
{
    const struct llm_numbers *n = arg;
    const struct spec *s = &n->v[x];
    unsigned phase = *y & 3, order = *y >> 4 & 3, count = *y >> 8;
    bool minus = *y >> 2 & 1, some = *y >> 3 & 1;
    if (byte == '-') {
        *y = pack(SIGN, true, false, SAME, 0);
        return phase == START;
    }
    if (byte == '.') {
        if (s->relations) order = integer_order(s, order, count);
        *y = pack(FRACTION, minus, some, order, 0);
        return phase == INTEGER && !(s->relations && is_lost(s, FRACTION, minus, some, order, 0));
    }
    if (byte < '0' || byte > '9') return false;
    unsigned digit = byte - '0', length = (unsigned)(phase == FRACTION ? s->bound.n_fraction : s->bound.n_int);
    if (phase < INTEGER) phase = INTEGER;
    some = some || digit > 0;
    if (!s->relations) {
        if (phase == FRACTION && (int)count >= s->scale) {
            if (digit != 0) return false; /* the number has digits that no multiple has */
        } else {
            *z = (uint32_t)(((uint64_t)*z * 10 + digit) % s->divisor);
            if (phase == FRACTION) count++;
        }
        *y = pack(phase, minus, false, SAME, count);
        return true;
    }
    if (order == SAME) {
        unsigned other = count < length ? (unsigned)(s->bound.digits[(phase == FRACTION ? s->bound.n_int : 0) + (int)count] - '0') : 0;
        if (count < length || phase == FRACTION) order = digit < other ? LESS : digit > other ? MORE : SAME;
    }
    if (count <= length) count++;
    *y = pack(phase, minus, some, order, count);
    return !is_lost(s, phase, minus, some, order, count);
}

static bool accepts(void *arg, uint32_t x, uint32_t y, uint32_t z)
{
    const struct llm_numbers *n = arg;
    const struct spec *s = &n->v[x];
    unsigned phase = y & 3, order = y >> 4 & 3, count = y >> 8;
    bool minus = (y >> 2 & 1) && (y >> 3 & 1); /* -0 is 0 */
    if (phase < INTEGER) return false;
    if (!s->relations) {
        uint64_t rest = z;
        for (int i = phase == FRACTION ? (int)count : 0; i < s->scale && rest > 0; i++) rest = rest * 10 % s->divisor;
        return rest == 0;
    }
    if (phase == INTEGER) {
        order = integer_order(s, order, count);
        if (order == SAME && s->bound.n_fraction > 0) order = LESS;
    } else if (order == SAME && (int)count < s->bound.n_fraction) {
        order = LESS;
    }
    if (minus != s->bound.negative) order = minus ? LESS : MORE;
    else if (minus && order != SAME) order = order == LESS ? MORE : LESS;
    return s->relations & (order == LESS ? LLM_LESS : order == SAME ? LLM_EQUAL : LLM_GREATER);
}

struct llm_numbers *llm_numbers_create(struct llm_terms *t, struct llm_err *e)
{
    struct llm_numbers *n = llm_calloc(1, sizeof *n, "numbers", e);
    if (!n) return NULL;
    n->t = t;
    n->machine = llm_terms_machine(t, &(struct llm_term_machine){step, accepts, n});
    return n;
}

void llm_numbers_destroy(struct llm_numbers *n)
{
    if (!n) return;
    for (size_t i = 0; i < n->n; i++) free(n->v[i].bound.digits);
    free(n->v);
    free(n);
}

/* ---- terms ---- */

static llm_term digits(struct llm_terms *t, uint32_t min, uint32_t max)
{
    return llm_term_repeat(t, llm_term_range(t, '0', '9'), min, max);
}

static llm_term maybe(struct llm_terms *t, llm_term a)
{
    return llm_term_or(t, LLM_TERM_EMPTY_TEXT, a);
}

/* -?(0|[1-9][0-9]*) */
static llm_term integer_part(struct llm_terms *t)
{
    llm_term some = llm_term_join(t, llm_term_range(t, '1', '9'), digits(t, 0, LLM_REPEAT_ALWAYS));
    return llm_term_join(t, maybe(t, llm_term_byte(t, '-')), llm_term_or(t, llm_term_byte(t, '0'), some));
}

static llm_term fraction(struct llm_terms *t, llm_term digit)
{
    return maybe(t, llm_term_join(t, llm_term_byte(t, '.'), llm_term_repeat(t, digit, 1, LLM_NUMBER_FRACTION)));
}

llm_term llm_number_integer(struct llm_terms *t, uint32_t zeros)
{
    llm_term after = llm_term_join(t, llm_term_byte(t, '.'), llm_term_repeat(t, llm_term_byte(t, '0'), 1, zeros));
    return llm_term_join(t, integer_part(t), zeros ? maybe(t, after) : LLM_TERM_EMPTY_TEXT);
}

llm_term llm_number_tidy(struct llm_terms *t)
{
    llm_term some = llm_term_join(t, digits(t, 0, LLM_NUMBER_FRACTION - 1), llm_term_range(t, '1', '9'));
    llm_term after = llm_term_join(t, llm_term_byte(t, '.'), llm_term_or(t, llm_term_byte(t, '0'), some));
    return llm_term_join(t, integer_part(t), maybe(t, after));
}

llm_term llm_number_any(struct llm_terms *t, bool exponents)
{
    llm_term digit = llm_term_range(t, '0', '9'), plain = llm_term_join(t, integer_part(t), fraction(t, digit));
    if (!exponents) return plain;
    llm_term sign = maybe(t, llm_term_or(t, llm_term_byte(t, '-'), llm_term_byte(t, '+')));
    llm_term large = llm_term_join(t, llm_term_range(t, '1', '2'), digits(t, 2, 2));
    llm_term exponent = llm_term_join(t, llm_term_or(t, llm_term_byte(t, 'e'), llm_term_byte(t, 'E')),
                                      llm_term_join(t, sign, llm_term_or(t, digits(t, 1, 2), large)));
    llm_term mantissa = llm_term_join(t, maybe(t, llm_term_byte(t, '-')), llm_term_join(t, digit, fraction(t, digit)));
    return llm_term_or(t, plain, llm_term_join(t, mantissa, exponent));
}

static llm_term add(struct llm_numbers *n, const struct spec *s)
{
    struct llm_err e = {0};
    if (n->n >= MAX_SPECS) llm_fail(&e, EX_DATAERR, "too many numbers");
    if (e.status || llm_grow((void **)&n->v, &n->room, n->n + 1, sizeof *n->v, &e) < 0) {
        llm_terms_fail(n->t, &e);
        free(s->bound.digits);
        return LLM_TERM_NOTHING;
    }
    n->v[n->n++] = *s;
    return llm_term_machine(n->t, n->machine, (uint32_t)n->n - 1, 0, 0);
}

llm_term llm_number_compared(struct llm_numbers *n, const char *bound, int relations)
{
    struct spec s = {.relations = relations};
    struct llm_err e = {0};
    if (read_decimal(&s.bound, bound, &e) < 0) {
        llm_terms_fail(n->t, &e);
        return LLM_TERM_NOTHING;
    }
    return add(n, &s);
}

llm_term llm_number_multiple(struct llm_numbers *n, const char *of)
{
    struct spec s = {0};
    struct llm_err e = {0};
    int status = read_decimal(&s.bound, of, &e);
    for (int i = 0; status == 0 && i < s.bound.n_int + s.bound.n_fraction; i++) {
        s.divisor = s.divisor * 10 + (uint64_t)(s.bound.digits[i] - '0');
        if (s.divisor > MAX_DIVISOR) status = llm_fail(&e, EX_DATAERR, "multipleOf: %.40s has too many digits", of);
    }
    s.scale = s.bound.n_fraction;
    if (status == 0 && (s.divisor == 0 || s.bound.negative)) status = llm_fail(&e, EX_DATAERR, "multipleOf: expected a positive number");
    if (status < 0) {
        llm_terms_fail(n->t, &e);
        free(s.bound.digits);
        return LLM_TERM_NOTHING;
    }
    return add(n, &s);
}
