/* Token streams: any bytes as llm-train reads them. What is taken keeps its promises: ids below the vocabulary, ends that ascend. */
#include "data/tokens.h"
#include "fuzz.h"

enum { VOCAB = 300 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    char path[40], hex[17];
    int fd = fuzz_file(data, n, path);
    const char *const paths[] = {path, path};
    size_t files = n && data[0] & 1 ? 2 : 1, n_ends;
    struct llm_tokens *t = llm_tokens_open(paths, files, NULL, VOCAB, &e);
    close(fd);
    MUST(t || e.status);
    if (!t) return 0;
    int32_t ids[64];
    uint8_t mask[64];
    uint64_t count = llm_tokens_count(t), before = 0;
    for (uint64_t at = 0, step; at < count; at += step) {
        step = count - at < 64 ? count - at : 64;
        llm_tokens_get(t, at, step, ids, mask);
        for (uint64_t i = 0; i < step; i++) MUST(ids[i] >= 0 && ids[i] < VOCAB && mask[i] <= 1);
    }
    const uint64_t *ends = llm_tokens_doc_ends(t, &n_ends);
    for (size_t i = 0; i < n_ends; i++) {
        MUST(ends[i] > before && ends[i] <= count);
        before = ends[i];
    }
    MUST(llm_tokens_fingerprint(t, hex, &e) == 0 && strlen(hex) == 16);
    llm_tokens_close(t);
    return 0;
}
