/* Parameters beside a model: a lens, a dictionary (formats/beside.md), of tests/golden/tiny.
 * What is read has the model's widths and can be applied. */
#include "fuzz.h"
#include <math.h>
#include "base/log.h"
#include "cpu/pool.h"
#include "infer/dictionary.h"
#include "infer/lens.h"

static struct llm_model *model(void)
{
    static struct llm_model *m;
    struct llm_err e = {0};
    if (m) return m;
    llm_verbosity = -1;
    MUST(llm_pool_start(1, &e) == 0);
    m = llm_model_load("tests/golden/tiny", &e);
    MUST(m);
    return m;
}

static void read_lens(const char *path, struct llm_model *m)
{
    struct llm_lens lens = {0};
    struct llm_err e = {0};
    if (llm_lens_load(&lens, path, m, &e) == 0) {
        MUST(lens.layers == m->config.num_hidden_layers && lens.n_params == 2 * (size_t)(lens.layers - 1));
        for (size_t i = 0; i < lens.n_params; i++) MUST(lens.params[i].weight.data);
    } else {
        MUST(e.status != 0);
    }
    llm_lens_release(&lens);
}

static void read_dictionary(const char *path, struct llm_model *m)
{
    struct llm_dictionary d = {0};
    struct llm_err e = {0};
    if (llm_dictionary_load(&d, path, m, &e) == 0) {
        MUST(d.in > 0 && d.out > 0 && d.features > 0 && d.k >= 0 && d.k <= d.features);
        MUST(isfinite(d.scale[0]) && isfinite(d.scale[1]));
        struct llm_buf room = {0};
        MUST(llm_buf_reserve(&room, sizeof(float) * (size_t)(d.in + d.out + 2 * d.features), &e) == 0);
        float *z = (float *)(void *)room.p, *y = z + d.in, *pre = y + d.out, *f = pre + d.features;
        for (int64_t i = 0; i < d.in; i++) z[i] = 1;
        MUST(llm_dictionary_encode(&d, z, 1, LLM_COMPUTE_F32, pre, f, &e) == 0);
        MUST(llm_dictionary_decode(&d, f, 1, LLM_COMPUTE_F32, y, &e) == 0);
        llm_buf_release(&room);
    } else {
        MUST(e.status != 0);
    }
    llm_dictionary_release(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[100];
    int fd = fuzz_file(data, n, path);
    const char *kind = llm_beside_kind(path);
    MUST(!kind || *kind);
    read_lens(path, model());
    read_dictionary(path, model());
    close(fd);
    return 0;
}
