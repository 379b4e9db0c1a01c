#include "cpu/pages.h"

#include <unistd.h>
#include "base/pages.h"
#include "cpu/matmul_internal.h"

enum { MANY = 32, AROUND = 64 << 10 }; /* rows for which all pages are released at once; bytes around an address that a kernel maps with it */

static uintptr_t larger(uintptr_t a, uintptr_t b)
{
    return a > b ? a : b;
}

void llm_weight_release_pages(const struct llm_weight *w, size_t from, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), data = (uintptr_t)w->data, map = (uintptr_t)w->map, map_end = (uintptr_t)w->map_end;
    uintptr_t first = (data + from + page - 1) / page * page, end = (data + from + bytes) / page * page;
    if (!w->map) return;
    if (from == 0) first = larger(map, data > AROUND ? data / AROUND * AROUND : 0);
    if (from + bytes >= llm_dtype_bytes(w->dtype, (uint64_t)(w->n * w->k))) {
        end = (data + from + bytes + AROUND - 1) / AROUND * AROUND;
        if (end > map_end) end = map_end;
    }
    if (first < end) llm_pages_release((void *)first, end - first);
}

void llm_weight_looked_up(const struct llm_weight *w, const int32_t *ids, int64_t n)
{
    const size_t row = llm_dtype_bytes(w->dtype, (uint64_t)w->k), all = llm_dtype_bytes(w->dtype, (uint64_t)(w->n * w->k));
    if (!w->map || (w->few_rows > 0 && w->packed_bytes == 0)) return;
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
