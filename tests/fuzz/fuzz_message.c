/* Tensor streams: any bytes, read as llm_stream does, each tensor in turn. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "io/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    const struct llm_header *h;
    struct llm_file *f = llm_file_from_memory(data, n, "fuzz", &e);
    struct llm_stream *s = f ? llm_stream_from_file(f, &e) : NULL;
    unsigned char byte;
    while (s && llm_stream_next(s, &h, &e) > 0) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < h->n_entries; i++) {
            bytes += h->entries[i].bytes;
            if (llm_header_find(h, h->entries[i].name) != &h->entries[i]) abort();
        }
        if (bytes != h->data_bytes) abort();
        if (h->data_bytes && llm_stream_read(s, &byte, 1, &e) < 0) break;
    }
    llm_stream_destroy(s);
    return 0;
}
