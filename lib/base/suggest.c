#include "base/suggest.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
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

/* The word without separators: people write q4km for q4_k_m. */
static const char *bare(const char *word, char out[MAX_WORD + 1])
{
    size_t n = 0;
    for (; *word && n < MAX_WORD; word++)
        if (!strchr("-_. ", *word)) out[n++] = *word;
    out[n] = 0;
    return out;
}

/* Whether `known` is the word with one more letter anywhere and the others in any order, after the same first one. */
static bool lacks_a_letter(const char *word, const char *known)
{
    char left[MAX_WORD + 2];
    size_t n = strlen(word);
    if (n < 3 || n > MAX_WORD || strlen(known) != n + 1 || !same(word[0], known[0])) return false;
    memcpy(left, known, n + 2);
    for (size_t i = 0; i < n; i++) {
        char *at = left;
        while (*at && !same(*at, word[i])) at++;
        if (!*at) return false;
        *at = ' '; /* found */
    }
    return true;
}

static int distance(const char *word, const char *known)
{
    char a[MAX_WORD + 1], b[MAX_WORD + 1];
    int d = llm_edit_distance(word, known);
    if (d > 1 && strlen(word) <= MAX_WORD && strlen(known) <= MAX_WORD && llm_edit_distance(bare(word, a), bare(known, b)) == 0) return 1;
    return d > 1 && lacks_a_letter(word, known) ? 1 : d;
}

void llm_suggest_begin(struct llm_suggest *s, const char *word)
{
    size_t n = strlen(word);
    *s = (struct llm_suggest){.word = word, .distance = n < 5 ? 1 : n < 8 ? 2 : 3};
}

void llm_suggest_add(struct llm_suggest *s, const char *known, const char *shown)
{
    int d = distance(s->word, known);
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
