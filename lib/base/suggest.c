#include "base/suggest.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WORD = 63 };

static int same(char a, char b)
{
    if (a == '_') a = '-';
    if (b == '_') b = '-';
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static int least(int a, int b) { return a < b ? a : b; }

int llm_edit_distance(const char *a, const char *b)
{
    int rows[3][MAX_WORD + 1]; /* distances between a prefix of a and all prefixes of b; that of the prefix of length i is rows[i % 3] */
    int n = (int)strnlen(a, MAX_WORD + 1), m = (int)strnlen(b, MAX_WORD + 1);
    if (n > MAX_WORD || m > MAX_WORD) return INT_MAX;
    for (int k = 0; k <= m; k++) rows[0][k] = k;
    for (int i = 1; i <= n; i++) {
        int *row = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        row[0] = i;
        for (int k = 1; k <= m; k++) {
            row[k] = least(least(before[k], row[k - 1]) + 1, before[k - 1] + !same(a[i - 1], b[k - 1]));
            if (i > 1 && k > 1 && same(a[i - 1], b[k - 2]) && same(a[i - 2], b[k - 1])) row[k] = least(row[k], two_before[k - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

void llm_suggest_begin(struct llm_suggest *s, const char *word)
{
    size_t n = strlen(word);
    *s = (struct llm_suggest){.word = word, .distance = n < 5 ? 1 : n < 8 ? 2 : 3};
}

void llm_suggest_add(struct llm_suggest *s, const char *known, const char *shown)
{
    int d = llm_edit_distance(s->word, known);
    if (d > s->distance || d >= (int)strlen(known)) return;
    if (d < s->distance) s->n = 0;
    s->distance = d;
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->nearest[i], shown) == 0) return;
    if (s->n < LLM_SUGGEST_MAX) s->nearest[s->n++] = shown;
}

const char *llm_suggest_text(struct llm_suggest *s, const char *prefix)
{
    size_t at = 0;
    s->text[0] = 0;
    for (size_t i = 0; i < s->n && at < sizeof s->text; i++) {
        const char *before = i == 0 ? " (did you mean " : i + 1 < s->n ? ", " : " or ";
        at += (size_t)snprintf(s->text + at, sizeof s->text - at, "%s%s%s", before, prefix, s->nearest[i]);
    }
    if (s->n > 0 && at < sizeof s->text) snprintf(s->text + at, sizeof s->text - at, "?)");
    return s->text;
}
