/* Template text to tokens, with Jinja's rules for white space: trim_blocks (the line end after a block goes), lstrip_blocks (so does the
 * white space before a block that begins a line), and "-" and "+" beside a delimiter. */
#include <ctype.h>
#include <string.h>
#include "base/utf8.h"
#include "token/chat/jinja.h"

struct lexer {
    struct work *w;
    const char *p;
    size_t n, at, counted; /* counted: newlines before it are in `line` */
    int line;
    struct token *tokens;
    size_t n_tokens;
    char closing[64];      /* brackets that are open */
    size_t depth;
};

static void put(struct lexer *x, enum token_type type, size_t from, size_t to)
{
    for (; x->counted < from; x->counted++) x->line += x->p[x->counted] == '\n';
    x->tokens[x->n_tokens++] = (struct token){type, x->line, x->p + from, to - from};
}

static int fail(struct lexer *x, const char *what)
{
    for (; x->counted < x->at && x->counted < x->n; x->counted++) x->line += x->p[x->counted] == '\n';
    x->w->line = x->line;
    return llm_jinja_error(x->w, "%s", what);
}

static bool is_at(const struct lexer *x, size_t at, const char *what)
{
    size_t n = strlen(what);
    return x->n - at >= n && memcmp(x->p + at, what, n) == 0;
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    return llm_utf8_skip_space(x->p, x->n, at);
}

/* "%}" with its sign and the white space it takes along; `at` itself when it does not stand there. */
static size_t block_end(const struct lexer *x, size_t at, const char *end)
{
    bool strip = at < x->n && x->p[at] == '-', keep = at < x->n && x->p[at] == '+' && end[0] != '}';
    size_t to = at + (strip || keep);
    if (!is_at(x, to, end)) return at;
    to += 2;
    if (strip) return skip_space(x, to);
    if (!keep && end[0] != '}' && to < x->n && x->p[to] == '\n') to++;
    return to;
}

/* After "{%": the end of `word` and the block that holds it alone, or 0. */
static size_t lone_word(const struct lexer *x, size_t at, const char *word, size_t *word_end)
{
    if (at < x->n && (x->p[at] == '-' || x->p[at] == '+')) at++;
    at = skip_space(x, at);
    if (!is_at(x, at, word)) return 0;
    at = skip_space(x, at + strlen(word));
    *word_end = at;
    size_t to = block_end(x, at, "%}");
    return to > at ? to : 0;
}

/* Text before a delimiter at `to` loses the white space that the delimiter's sign, or lstrip_blocks, takes. */
static void put_data(struct lexer *x, size_t from, size_t to, bool is_print, bool whole_line)
{
    char sign = to + 2 < x->n ? x->p[to + 2] : 0;
    size_t end = to;
    if (sign == '-') {
        end = from + llm_utf8_trim_end(x->p + from, to - from);
    } else if (sign != '+' && !is_print) {
        size_t line = to;
        while (line > from && x->p[line - 1] != '\n') line--;
        if ((line > from || whole_line) && from + llm_utf8_trim_end(x->p + from, to - from) <= line) end = line;
    }
    if (end > from) put(x, T_DATA, from, end);
}

static int lex_raw(struct lexer *x, size_t from)
{
    size_t to = from, word, end = 0;
    for (; to < x->n; to++)
        if (is_at(x, to, "{%") && (end = lone_word(x, to + 2, "endraw", &word)) > 0) break;
    if (to >= x->n) return fail(x, "Missing end of raw directive");
    put_data(x, from, to, false, x->p[from - 1] == '\n');
    x->at = end;
    return 0;
}

static int lex_comment(struct lexer *x)
{
    size_t to = x->at + 2, end = 0;
    if (to < x->n && (x->p[to] == '-' || x->p[to] == '+')) to++;
    for (; to < x->n; to++)
        if ((end = block_end(x, to, "#}")) > to) break;
    if (to >= x->n) return fail(x, "Missing end of comment tag");
    x->at = end;
    return 0;
}

static bool is_digit_at(const struct lexer *x, size_t at)
{
    return at < x->n && isdigit((unsigned char)x->p[at]);
}

/* Digits with single underscores between them. */
static size_t digits(const struct lexer *x, size_t at)
{
    while (is_digit_at(x, at) || (at < x->n && x->p[at] == '_' && is_digit_at(x, at + 1))) at++;
    return at;
}

static void lex_number(struct lexer *x)
{
    size_t from = x->at, to = digits(x, from), exponent;
    bool real = false;
    if (from == 0 || x->p[from - 1] != '.') {
        if (to < x->n && x->p[to] == '.' && is_digit_at(x, to + 1)) {
            real = true;
            to = digits(x, to + 1);
        }
        if (to < x->n && (x->p[to] == 'e' || x->p[to] == 'E')) {
            exponent = to + 1;
            if (exponent < x->n && (x->p[exponent] == '+' || x->p[exponent] == '-')) exponent++;
            if (is_digit_at(x, exponent)) {
                real = true;
                to = digits(x, exponent);
            }
        }
    }
    if (!real && x->p[from] == '0' && from + 2 < x->n && strchr("xXoObB", x->p[from + 1]) && isxdigit((unsigned char)x->p[from + 2])) {
        to = from + 2;
        while (to < x->n && (isxdigit((unsigned char)x->p[to]) || x->p[to] == '_')) to++;
    } else if (!real && x->p[from] == '0') {
        to = from;
        while (to < x->n && (x->p[to] == '0' || x->p[to] == '_')) to++;
    }
    put(x, real ? T_REAL : T_INTEGER, from, to);
    x->at = to;
}

static int lex_string(struct lexer *x)
{
    size_t to = x->at + 1;
    while (to < x->n && x->p[to] != x->p[x->at]) to += x->p[to] == '\\' ? 2 : 1;
    if (to >= x->n) return fail(x, "a string that does not end");
    put(x, T_STRING, x->at + 1, to);
    x->at = to + 1;
    return 0;
}

static int lex_operator(struct lexer *x)
{
    static const char two[][3] = {"**", "//", "==", "!=", ">=", "<="};
    char c = x->p[x->at];
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (is_at(x, x->at, two[i])) n = 2;
    if (n == 1 && (c == 0 || !strchr("+-/*%~[](){}><=.:|,;", c))) return fail(x, "unexpected character");
    if (strchr("([{", c)) {
        if (x->depth == sizeof x->closing) return fail(x, "more than 64 brackets within each other");
        x->closing[x->depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c)) {
        if (x->depth == 0 || x->closing[x->depth - 1] != c) return fail(x, "a closing bracket that closes nothing");
        x->depth--;
    }
    put(x, T_OPERATOR, x->at, x->at + n);
    x->at += n;
    return 0;
}

/* What stands between "{{" or "{%" and its end. */
static int lex_inside(struct lexer *x, bool is_print)
{
    const char *end = is_print ? "}}" : "%}";
    x->depth = 0;
    for (;;) {
        size_t from = x->at, to = x->depth ? from : block_end(x, from, end);
        if (to > from) {
            put(x, is_print ? T_PRINT_END : T_BLOCK_END, from, to);
            x->at = to;
            return 0;
        }
        if (from >= x->n) return fail(x, is_print ? "a {{ that does not end" : "a {% that does not end");
        unsigned char c = (unsigned char)x->p[from];
        int status = 0;
        if ((to = skip_space(x, from)) > from) {
            x->at = to;
        } else if (isdigit(c)) {
            lex_number(x);
        } else if (isalpha(c) || c == '_' || c >= 0x80) {
            for (to = from; to < x->n && (isalnum((unsigned char)x->p[to]) || x->p[to] == '_' || (unsigned char)x->p[to] >= 0x80); to++) {}
            put(x, T_NAME, from, to);
            x->at = to;
        } else {
            status = c == '\'' || c == '"' ? lex_string(x) : lex_operator(x);
        }
        if (status < 0) return -1;
    }
}

static int lex(struct lexer *x)
{
    while (x->at < x->n) {
        size_t from = x->at, to = from, word, end;
        bool whole_line = from == 0 || x->p[from - 1] == '\n';
        while (to < x->n && !(x->p[to] == '{' && to + 1 < x->n && strchr("{%#", x->p[to + 1]) && x->p[to + 1])) to++;
        if (to >= x->n) {
            put(x, T_DATA, from, x->n);
            x->at = x->n;
            return 0;
        }
        char kind = x->p[to + 1];
        put_data(x, from, to, kind == '{', whole_line);
        x->at = to;
        if (kind == '%' && (end = lone_word(x, to + 2, "raw", &word)) > 0) {
            /* Unlike other blocks, `raw` keeps the line end after it. */
            if (x->p[word] != '-') end = word + 2 + (x->p[word] == '+');
            if (lex_raw(x, end) < 0) return -1;
            continue;
        }
        if (kind == '#') {
            if (lex_comment(x) < 0) return -1;
            continue;
        }
        put(x, kind == '{' ? T_PRINT_BEGIN : T_BLOCK_BEGIN, to, to + 2);
        x->at = to + 2;
        if (x->at < x->n && (x->p[x->at] == '-' || x->p[x->at] == '+')) x->at++;
        if (lex_inside(x, kind == '{') < 0) return -1;
    }
    return 0;
}

struct token *llm_jinja_lex(struct work *w, const char *text, size_t n)
{
    /* Line ends become \n, and one at the very end goes. */
    char *p = llm_jinja_alloc(w, n + 1);
    if (!p) return NULL;
    struct lexer x = {.w = w, .p = p, .line = 1};
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        p[x.n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (x.n > 0 && p[x.n - 1] == '\n') x.n--;
    x.tokens = llm_jinja_alloc(w, (x.n + 2) * sizeof *x.tokens); /* a token holds at least a character */
    if (!x.tokens || lex(&x) < 0) return NULL;
    put(&x, T_END, x.n, x.n);
    return x.tokens;
}
