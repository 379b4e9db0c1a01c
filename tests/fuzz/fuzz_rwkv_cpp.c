/* Models of rwkv.cpp: the tensors of whatever is accepted lie inside the input, one after another, and are found by name. */
#include "fuzz.h"
#include "io/rwkv_cpp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_rwkv_cpp f;
    struct llm_header h;
    struct llm_err e = {0};
    uint64_t last = 0;
    if (llm_rwkv_cpp_parse(&f, &h, data, n, "fuzz", &e) < 0) {
        MUST(e.status != 0);
        return 0;
    }
    for (size_t i = 0; i < h.n_entries; i++) {
        const struct llm_entry *t = &h.entries[i];
        MUST(t->offset >= last && t->offset <= n - h.header_bytes && t->bytes <= n - h.header_bytes - t->offset);
        MUST(llm_header_find(&h, t->name) == t);
        last = t->offset + t->bytes;
    }
    llm_header_release(&h);
    return 0;
}
