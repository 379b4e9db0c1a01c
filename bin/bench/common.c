#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "bin/bench/bench.h"
#include "infer/kvtypes.h"
#include "base/json.h"
#include "cpu/pool.h"
#include "model/config/files.h"

/* GGUF has no config.json: the configuration is read from the model's metadata. */
static int config_of_loaded(struct llm_config *c, const char *path, struct llm_err *e)
{
    struct llm_model *m = llm_pool_start(1, e) < 0 ? NULL : llm_model_load(path, e);
    if (!m) return -1;
    *c = m->config;
    llm_model_destroy(m);
    return 0;
}

/* Reads the configuration that a model's file contains, without its weights. */
static int config_of_model(struct llm_config *c, const char *path, struct llm_err *e)
{
    struct llm_checkpoint *f = llm_checkpoint_open(path, e);
    int status = -1;
    if (!f) return -1;
    const char *text = llm_header_meta(llm_checkpoint_header(f), "llm.config");
    json_t *o = NULL;
    if (text) o = llm_json_parse(text, strlen(text), e);
    if (o) status = llm_config_from_json(c, o, e);
    if (status < 0 && text) llm_in(e, "%s: llm.config", path);
    json_decref(o);
    llm_checkpoint_close(f);
    return text ? status : config_of_loaded(c, path, e);
}

int bench_config(struct llm_config *c, const char *what, const struct llm_strs *sets, struct llm_err *e)
{
    struct stat st;
    char path[4096];
    unsigned char first = 0;
    FILE *f;
    for (const char *const *p = llm_config_presets(); *p; p++) {
        if (strcmp(*p, what) == 0) return llm_config_load(c, what, sets->v, sets->n, e);
    }
    if (stat(what, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (snprintf(path, sizeof path, "%s/config.json", what) >= (int)sizeof path) {
            return llm_fail(e, EX_NOINPUT, "%s: the name is too long", what);
        }
        return stat(path, &st) == 0 ? llm_config_load(c, path, sets->v, sets->n, e) : llm_model_no_folder(what, e);
    }
    /* A JSON text begins with a brace or white space; a model's file begins with neither. */
    f = fopen(what, "rb");
    if (f) {
        if (fread(&first, 1, 1, f) != 1) first = 0;
        fclose(f);
    }
    if (!f || first == '{' || first == ' ' || first == '\n' || first == '\r' || first == '\t') {
        return llm_config_load(c, what, sets->v, sets->n, e);
    }
    return config_of_model(c, what, e);
}

void bench_check_cache(const struct llm_cli *cli, const char *types)
{
    struct llm_err e = {0};
    if (llm_kv_types_check(types, &e) < 0) llm_usage(cli, "--cache-type: %s", e.text);
}

int bench_begin(const struct llm_common *common, struct llm_err *e)
{
    return llm_output_try(common->output, false, e) < 0 ? -1 : llm_pool_start(common->threads, e);
}

int bench_print(const struct llm_common *common, struct llm_table *const *tables, size_t n, struct llm_err *e)
{
    return llm_tables_print(common->output, llm_table_form(common), tables, n, e);
}
