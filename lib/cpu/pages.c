#include "cpu/pages.h"

#include "cpu/matmul_internal.h"

enum { MANY = 32, AROUND = 64 << 10 }; /* rows for which all pages are given back at once; bytes around an address that a kernel maps with it */

void llm_weight_looked_up(const struct llm_weight *w, const int32_t *ids, int64_t n)
{
    const size_t row = llm_dtype_bytes(w->dtype, (uint64_t)w->k), all = llm_dtype_bytes(w->dtype, (uint64_t)(w->n * w->k));
    if (!w->mapped || (w->few_rows > 0 && w->packed_bytes == 0)) return;
    if (n >= MANY) {
        llm_weight_release_pages(w, 0, all);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        size_t from = (size_t)ids[i] * row, end = from + row + AROUND < all ? from + row + AROUND : all;
        from = from > AROUND ? from - AROUND : 0;
        llm_weight_release_pages(w, from, end - from);
    }
}
