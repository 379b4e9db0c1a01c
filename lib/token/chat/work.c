/* Memory, limits and errors of a template at work. */
#include <stdio.h>
#include <string.h>
#include "token/chat/jinja.h"

enum { BLOCK = 1 << 16, ALIGN = 16 };

void *llm_jinja_alloc(struct work *w, size_t bytes)
{
    size_t rounded;
    void *p = NULL;
    if (__builtin_add_overflow(bytes, ALIGN - 1, &rounded)) rounded = SIZE_MAX;
    rounded &= ~(size_t)(ALIGN - 1);
    if (rounded <= w->left) {
        p = w->next;
        w->next += rounded;
        w->left -= rounded;
    } else if (rounded > BLOCK / 4) {
        p = llm_arena_alloc(&w->arena, rounded);
    } else if ((p = llm_arena_alloc(&w->arena, BLOCK)) != NULL) {
        w->next = (char *)p + rounded;
        w->left = BLOCK - rounded;
    }
    if (!p) llm_jinja_error(w, "more than %zu MiB of memory", w->memory >> 20);
    return p;
}

int llm_jinja_error(struct work *w, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *p = text; *p; p++)
        if (*p == '\n' || *p == '\r' || *p == '\t') *p = ' ';
    return llm_fail(w->e, EX_DATAERR, "template: line %d: %s", w->line, text);
}

struct value llm_jinja_fail(struct work *w, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    llm_jinja_error(w, "%s", text);
    return (struct value){.type = V_ERROR};
}

int llm_jinja_step(struct work *w, size_t n)
{
    if (n >= w->steps) {
        w->steps = 0;
        return llm_jinja_error(w, "more steps than its limit allows (does it loop for ever?)");
    }
    w->steps -= n;
    return 0;
}

int llm_jinja_enter(struct work *w)
{
    if (w->depth == 0) return llm_jinja_error(w, "nested or recursing deeper than its limit allows");
    w->depth--;
    return 0;
}

int llm_jinja_put(struct work *w, const char *p, size_t n)
{
    if (n > w->memory || w->out.n > w->memory - n) return llm_jinja_error(w, "more than %zu MiB of text", w->memory >> 20);
    if (llm_jinja_step(w, n / 64) < 0) return -1;
    return llm_buf_put(&w->out, p, n, w->e);
}

int llm_jinja_puts(struct work *w, const char *s)
{
    return llm_jinja_put(w, s, strlen(s));
}

size_t llm_jinja_same(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (n - i >= 4096 && memcmp(a + i, b + i, 4096) == 0) i += 4096;
    while (i < n && a[i] == b[i]) i++;
    return i;
}
