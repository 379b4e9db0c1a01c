#include "token/added.h"
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

int llm_added_put(struct llm_added *a, const unsigned char *text, size_t n, int32_t id, bool special, struct llm_err *e)
{
    if (llm_grow((void **)&a->entries, &a->room, a->n + 1, sizeof *a->entries, e) < 0)
        return -1;
    a->entries[a->n++] = (struct llm_added_entry){text, n, id, special};
    a->first[text[0]] = 1;
    if (n > a->longest)
        a->longest = n;
    return 0;
}

static int by_bytes(const void *x, const void *y)
{
    const struct llm_added_entry *a = x, *b = y;
    int d = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    if (d == 0)
        d = (a->n > b->n) - (a->n < b->n);
    return d ? d : a->special != b->special ? b->special - a->special : (a->id > b->id) - (a->id < b->id);
}

void llm_added_sort(struct llm_added *a)
{
    if (a->n)
        qsort(a->entries, a->n, sizeof *a->entries, by_bytes);
}

void llm_added_release(struct llm_added *a)
{
    free(a->entries);
    *a = (struct llm_added){0};
}

/* The longest entry that the n bytes at p begin with, or NULL. *cut: a longer one may follow when more text comes. */
static const struct llm_added_entry *longest_at(const struct llm_added *a, const unsigned char *p, size_t n, bool *cut)
{
    size_t low = 0, high = a->n;
    const struct llm_added_entry *best = NULL;
    *cut = false;
    for (size_t depth = 0; low < high; depth++) {
        /* [low, high) begin with p[0..depth); the one that ends here sorts first */
        for (size_t first = low; low < high && a->entries[low].n == depth; low++)
            best = &a->entries[first];
        if (low == high)
            break;
        if (depth == n) {
            *cut = true;
            break;
        }
        size_t from = low, to = high;
        while (from < to) {
            size_t mid = (from + to) / 2;
            if (a->entries[mid].text[depth] < p[depth])
                from = mid + 1;
            else
                to = mid;
        }
        low = from;
        to = high;
        while (from < to) {
            size_t mid = (from + to) / 2;
            if (a->entries[mid].text[depth] <= p[depth])
                from = mid + 1;
            else
                to = mid;
        }
        high = from;
    }
    return best;
}

size_t llm_added_find(const struct llm_added *a, const unsigned char *p, size_t n, bool last, size_t *len, int32_t *id)
{
    *len = 0;
    *id = -1;
    if (a->n == 0)
        return n;
    for (size_t at = 0; at < n; at++) {
        if (!a->first[p[at]])
            continue;
        bool cut;
        const struct llm_added_entry *found = longest_at(a, p + at, n - at, &cut);
        if (cut && !last)
            return at;
        if (found) {
            *len = found->n;
            *id = found->id;
            return at;
        }
    }
    return n;
}
