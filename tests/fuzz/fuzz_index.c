/* Indexes: any bytes, opened with and without the checksum. What is accepted can be searched, checked and written. */
#include "fuzz.h"
#include "cpu/pool.h"
#include "search/check.h"
#include "search/search.h"
#include "search/words.h"

static void use(const struct llm_index *x)
{
    struct llm_err e = {0};
    struct llm_hit hits[3];
    int64_t n = 0;
    struct llm_check c;
    const struct llm_lookup s = {.k = 3};
    if (x->dims > 4096 || x->n > 4096) return; /* what a file claims may be large */
    float *query = calloc((size_t)x->dims + 1, sizeof *query);
    uint8_t *allowed = calloc((size_t)x->n + 1, 1);
    static const char *const where[] = {"page>1"};
    MUST(query && allowed);
    query[0] = 1;
    if (llm_search_flat(x, query, 1, &s, hits, &n, &e) == 0) MUST(n >= 0 && n <= 3 && n <= x->n - x->n_deleted);
    n = llm_words_search(x, "tea with milk", 13, &s, hits, &e);
    MUST(n <= 3);
    for (int64_t i = 0; i < n; i++) MUST(hits[i].row >= 0 && hits[i].row < x->n);
    MUST(llm_search_where(x, where, 1, allowed, &e) == 0);
    if (llm_index_check(x, &c, &e) < 0) MUST(e.status != 0);
    free(query);
    free(allowed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[40];
    int fd = fuzz_file(data, n, path);
    static int started;
    for (int trusted = 0; trusted < 2; trusted++) {
        struct llm_index x = {0};
        struct llm_err e = {0};
        if (!started++) MUST(llm_pool_start(1, &e) == 0);
        if (llm_index_open(&x, path, trusted, &e) == 0) use(&x);
        else MUST(e.status != 0);
        llm_index_release(&x);
    }
    close(fd);
    return 0;
}
