/* A message's header: what is accepted is built again and accepted again, the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    struct llm_header h, again;
    struct llm_buf json = {0};
    if (llm_header_parse(&h, (const char *)data, n, "fuzz", &e) < 0) return 0;
    json_object_del(h.metadata, "llm.kind");
    json_object_del(h.metadata, "llm.tensors");
    if (llm_header_build("fuzz", h.metadata, h.entries, h.n_entries, &json, &e) == 0) {
        if (llm_header_parse(&again, json.p, json.n, "again", &e) < 0) abort();
        if (again.n_entries != h.n_entries || again.data_bytes != h.data_bytes) abort();
        for (size_t i = 0; i < h.n_entries; i++) {
            const struct llm_entry *a = &h.entries[i], *b = llm_header_find(&again, a->name);
            if (!b || a->dtype != b->dtype || a->n_dims != b->n_dims || a->planes != b->planes || a->bytes != b->bytes) abort();
            if (memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->n_dims) != 0) abort();
        }
        llm_header_release(&again);
    }
    llm_buf_release(&json);
    llm_header_release(&h);
    return 0;
}
