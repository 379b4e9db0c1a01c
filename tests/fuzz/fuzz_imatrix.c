/* Importance files of both forms, for a tiny model: importances that come out are finite and not negative. */
#include "fuzz.h"
#include <math.h>
#include "base/log.h"
#include "cpu/pool.h"
#include "model/weights/model.h"
#include "quant/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct llm_model *model;
    struct llm_err e = {0};
    struct llm_moments m;
    size_t unknown = 0;
    float importance[1 << 12]; /* the model is narrower */
    char path[40];
    if (!model) {
        llm_verbosity = -1;
        MUST(llm_pool_start(1, &e) == 0);
        model = llm_model_load("tests/golden/tiny", &e);
        MUST(model);
    }
    int fd = fuzz_file(data, n, path);
    MUST(llm_moments_init(&m, model, &e) == 0);
    int got = llm_imatrix_read(&m, model, path, &unknown, &e);
    MUST(got == 0 || e.status);
    for (size_t i = 0; got == 0 && i < m.n_params; i++) {
        if (m.of[i] < 0 || !llm_moments_importance(&m, i, importance)) continue;
        for (int64_t k = 0; k < m.v[m.of[i]].k; k++) MUST(isfinite(importance[k]) && importance[k] >= 0);
    }
    llm_moments_release(&m);
    close(fd);
    return 0;
}
