/* Dynamic programming over lists of states that no other state dominates (Nemhauser and Ullmann 1969): after each item a list of (size, harm), of
 * which none is both larger and more harmful than another. A state is dropped too if even the Lagrangian bound of the items to come, at the
 * multiplier of the linear relaxation, does not bring it below a solution that is known. */
#include "quant/knapsack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

struct state { uint64_t size; double harm; uint32_t parent; int8_t choice; };
struct list { struct state *v; size_t n; };

/* The choice of least harm + price · size; of equals the smallest. */
static int best_at(const struct llm_knapsack_item *item, double price)
{
    int best = 0;
    for (int i = 1; i < item->n; i++) {
        const double a = item->harm[i] + price * (double)item->size[i], b = item->harm[best] + price * (double)item->size[best];
        if (a < b || (a == b && item->size[i] < item->size[best])) best = i;
    }
    return best;
}

static uint64_t size_at(const struct llm_knapsack_item *items, size_t n, double price)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += items[i].size[best_at(&items[i], price)];
    return sum;
}

/* The least price, within rounding, at which what is chosen fits; its choices are a solution. */
static double price_that_fits(const struct llm_knapsack_item *items, size_t n, uint64_t capacity)
{
    double low = 0, high = 1e-30;
    if (size_at(items, n, 0) <= capacity) return 0;
    while (high < 1e30 && size_at(items, n, high) > capacity) high *= 4;
    for (int i = 0; i < 200; i++) {
        const double middle = low > 0 ? sqrt(low * high) : high / 16;
        if (size_at(items, n, middle) <= capacity) high = middle;
        else low = middle;
    }
    return high;
}

static int by_size(const void *a, const void *b)
{
    const struct state *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    if (x->harm != y->harm) return x->harm < y->harm ? -1 : 1;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    return x->choice - y->choice;
}

/* What the bound needs: the harm of a known solution, and the sums over the items to come. */
struct bound { double price, known, rest; uint64_t capacity, least; };

static int extend(const struct list *from, const struct llm_knapsack_item *item, const struct bound *b, struct list *to, struct llm_err *e)
{
    to->v = llm_alloc(from->n * (size_t)item->n + 1, sizeof *to->v, "knapsack", e);
    to->n = 0;
    if (!to->v) return -1;
    for (size_t i = 0; i < from->n; i++) {
        for (int c = 0; c < item->n; c++) {
            const struct state s = {from->v[i].size + item->size[c], from->v[i].harm + item->harm[c], (uint32_t)i, (int8_t)c};
            if (s.size + b->least > b->capacity) continue;
            const double bound = s.harm + b->rest + b->price * ((double)s.size - (double)b->capacity);
            if (bound > b->known + 1e-9 * fabs(b->known)) continue;
            to->v[to->n++] = s;
        }
    }
    qsort(to->v, to->n, sizeof *to->v, by_size);
    size_t kept = 0;
    for (size_t i = 0; i < to->n; i++) {
        if (kept == 0 || to->v[i].harm < to->v[kept - 1].harm) to->v[kept++] = to->v[i];
    }
    to->n = kept;
    if (kept > UINT32_MAX) return llm_no_memory(e, "knapsack");
    return 0;
}

static int solve(const struct llm_knapsack_item *items, size_t n, struct bound b, struct list *lists, int *choice, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++) {
        const int at_price = best_at(&items[i], b.price);
        uint64_t least = items[i].size[0];
        for (int c = 1; c < items[i].n; c++) least = items[i].size[c] < least ? items[i].size[c] : least;
        b.least -= least;
        b.rest -= items[i].harm[at_price] + b.price * (double)items[i].size[at_price];
        if (extend(&lists[i], &items[i], &b, &lists[i + 1], e) < 0) return -1;
    }
    if (lists[n].n == 0) return 0; /* rounding of the bound: the known solution stays */
    size_t at = lists[n].n - 1; /* the largest is the least harmful */
    for (size_t i = n; i > 0; i--) {
        choice[i - 1] = lists[i].v[at].choice;
        at = lists[i].v[at].parent;
    }
    return 0;
}

int llm_knapsack(const struct llm_knapsack_item *items, size_t n, uint64_t capacity, int *choice, struct llm_err *e)
{
    struct bound b = {.capacity = capacity};
    for (size_t i = 0; i < n; i++) {
        uint64_t least = items[i].size[0];
        for (int c = 1; c < items[i].n; c++) least = items[i].size[c] < least ? items[i].size[c] : least;
        b.least += least;
    }
    if (b.least > capacity) return 1;
    b.price = price_that_fits(items, n, capacity);
    for (size_t i = 0; i < n; i++) {
        choice[i] = best_at(&items[i], b.price);
        b.known += items[i].harm[choice[i]];
        b.rest += items[i].harm[choice[i]] + b.price * (double)items[i].size[choice[i]];
    }
    struct list *lists = llm_calloc(n + 1, sizeof *lists, "knapsack", e);
    struct state *first = lists ? llm_calloc(1, sizeof *first, "knapsack", e) : NULL;
    int status = first ? 0 : -1;
    if (status == 0) {
        lists[0] = (struct list){first, 1};
        status = solve(items, n, b, lists, choice, e);
    }
    for (size_t i = 0; lists && i <= n; i++) free(lists[i].v);
    free(lists);
    return status;
}
