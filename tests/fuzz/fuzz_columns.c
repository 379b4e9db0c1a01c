/* Logs and tables: every row is an object; the points of scaling laws from it are above 0, and a fit that succeeds is finite. */
#include "fuzz.h"
#include <math.h>
#include "base/log.h"
#include "measure/scaling_points.h"

static int take(void *arg, const char *file, const json_t *row, struct llm_err *e)
{
    double x;
    const char *key;
    json_t *v;
    (void)arg, (void)file;
    MUST(json_is_object(row));
    json_object_foreach((json_t *)(uintptr_t)row, key, v) MUST(!llm_column_number(v, &x) || isfinite(x));
    return llm_column_names_add(arg, row, e);
}

static void fit(const char *path, enum llm_scaling_law law)
{
    struct llm_scaling_reading r = {.law = law, .columns = {"parameters", "tokens", "val_loss", "lr", NULL, 6}};
    struct llm_scaling_fit f = {0};
    struct llm_err e = {0};
    int got = llm_scaling_read(&r, path, &e);
    if (got == 0) got = llm_scaling_finish(&r, &e);
    for (size_t i = 0; got == 0 && i < r.n; i++) MUST(r.x[0][i] > 0 && r.y[i] > 0);
    const struct llm_scaling_points points = {r.n, {r.x[0], r.x[1]}, r.y, {r.chosen[0], r.chosen[1]}};
    const struct llm_scaling_options o = {law, false, 0, 2, 0};
    if (got == 0) got = llm_scaling_fit(&f, &points, &o, &e);
    MUST(got == 0 || e.status);
    for (int i = 0; got == 0 && i < LLM_LAW_PARAMS; i++) MUST(isfinite(f.p[i]));
    llm_scaling_release(&f);
    llm_scaling_reading_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_column_names names = {{0}, 0};
    struct llm_err e = {0};
    char path[40];
    llm_verbosity = -1;
    if (n > 4096) return 0; /* a fit takes time */
    int fd = fuzz_file(data, n, path);
    int got = llm_columns_read(path, take, &names, &e);
    MUST(got == 0 || e.status);
    llm_column_names_release(&names);
    for (int law = LLM_LAW_ND; law <= LLM_LAW_LR; law++) fit(path, (enum llm_scaling_law)law);
    close(fd);
    return 0;
}
