/* Caches: any bytes as llm-infer --kv-in and llm-kvinspect read them. Every value of what is taken can be decoded. */
#include "fuzz.h"
#include "infer/kvfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    struct llm_kv_file f = {0};
    char path[40];
    int fd = fuzz_file(data, n, path), got = llm_kv_file_read(&f, path, &e);
    close(fd);
    MUST(got == 0 || e.status);
    for (int64_t l = 0; got == 0 && l < f.n_layers; l++) {
        const struct llm_state_shape *s = &f.layers[l].shape;
        float *row = malloc((size_t)(s->d_k + s->d_v) * sizeof *row);
        MUST(row || s->d_k + s->d_v == 0);
        for (int64_t r = 0; r < f.rows; r++)
            for (int64_t h = 0; h < s->n_kv_heads; h++) {
                llm_kv_file_decode(&f, 'k', l, r, h, row);
                llm_kv_file_decode(&f, 'v', l, r, h, row);
                int64_t t = llm_kv_file_token(&f, l, r, h);
                MUST(t >= r && t < f.n && (r == 0 || t > llm_kv_file_token(&f, l, r - 1, h)));
            }
        for (int64_t t = 0; t < f.n_queries; t++)
            for (int64_t h = 0; h < s->n_kv_heads; h++) llm_kv_file_decode(&f, 'q', l, t, h, row);
        free(row);
    }
    llm_kv_file_release(&f);
    return 0;
}
