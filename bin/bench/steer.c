/* llm-bench steer: a direction that tells two sets of prompts apart. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bin/bench/bench.h"
#include "infer/activations.h"

struct args {
    struct llm_common common;
    int normalize;
};

static const struct llm_opt options[] = {
    {0, "normalize", NULL, "give the direction of each layer the length 1", LLM_FLAG, offsetof(struct args, normalize), 0, 0, NULL}, {0}};

const struct llm_cli bench_steer_cli = {
    .name = "llm-bench steer",
    .summary = "Make a control vector: per layer, the mean of one set of activations minus that of another.",
    .usage = "-o VECTOR.gguf TOWARDS AWAY",
    .examples = "llm-bench steer -o polite.gguf polite.act rude.act\n"
                "llm-infer -m model.gguf --steer polite.gguf:1.5@8-20 \"Dear\"",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_OUTPUT,
};

/* The rows of a file at the residual after a layer; NULL: it has none. */
static const struct llm_activation_rows *after_layer(const struct llm_activations *a, int64_t layer)
{
    char name[LLM_PLACE_TEXT];
    llm_place_print((struct llm_place){LLM_PLACE_RESIDUAL_AFTER, LLM_STACK_MAIN, layer}, name, sizeof name);
    return llm_activations_find(a, name);
}

static double mean(const struct llm_activation_rows *a, int64_t column)
{
    double sum = 0;
    for (int64_t r = 0; r < a->rows; r++) sum += a->x[r * a->cols + column];
    return sum / (double)a->rows;
}

/* For each layer, the mean of the first set minus that of the second: the direction points towards the first. 0 or -1. */
static int make(struct llm_directions *d, const struct llm_activations sets[2], bool normalize, struct llm_err *e)
{
    d->v = llm_calloc(LLM_MAX_LAYERS, sizeof *d->v, "directions", e);
    if (!d->v) return -1;
    for (int64_t l = 0; l < LLM_MAX_LAYERS; l++) {
        const struct llm_activation_rows *to = after_layer(&sets[0], l), *from = after_layer(&sets[1], l);
        double squares = 0;
        if (!to || !from) continue;
        if (to->cols != from->cols || (d->width > 0 && to->cols != d->width)) {
            return llm_fail(e, EX_DATAERR, "%s: expected a width of %" PRId64 ", found %" PRId64, to->name, to->cols, from->cols);
        }
        d->width = to->cols;
        d->n_layers = l + 1;
        d->v[l] = llm_alloc((size_t)d->width, sizeof **d->v, "a direction", e);
        if (!d->v[l]) return -1;
        for (int64_t i = 0; i < d->width; i++) {
            d->v[l][i] = (float)(mean(to, i) - mean(from, i));
            squares += (double)d->v[l][i] * d->v[l][i];
        }
        for (int64_t i = 0; i < d->width && normalize && squares > 0; i++) d->v[l][i] = (float)(d->v[l][i] / sqrt(squares));
    }
    if (d->n_layers > 1) return 0;
    return llm_fail(e, EX_DATAERR, "expected the residual after layers in both (--export 'layers.*.residual.after'), found none");
}

int bench_steer(int argc, char **argv, struct llm_err *e)
{
    struct args a = {0};
    struct llm_activations sets[2] = {0};
    struct llm_directions d = {0};
    int rest = llm_cli_parse(&bench_steer_cli, &a, argc, argv);
    if (argc - rest != 2) llm_usage(&bench_steer_cli, "expected two files of activations, found %d", argc - rest);
    int status = llm_output_try(a.common.output, true, e);
    for (int i = 0; i < 2 && status == 0; i++) status = llm_activations_read(&sets[i], argv[rest + i], e);
    if (status == 0 && strcmp(sets[0].fingerprint, sets[1].fingerprint) != 0) {
        status = llm_fail(e, EX_DATAERR, "%s, %s: expected activations of one model, found %s and %s", argv[rest], argv[rest + 1],
                          sets[0].fingerprint, sets[1].fingerprint);
    }
    if (status == 0 && (status = make(&d, sets, a.normalize, e)) < 0) llm_in(e, "%s, %s", argv[rest], argv[rest + 1]);
    struct llm_output *o = status == 0 ? llm_output_open(a.common.output, true, e) : NULL;
    if (!o) status = -1;
    if (o && (status = llm_directions_write(&d, "", o, e)) == 0) status = llm_output_commit(o, e);
    else llm_output_abandon(o);
    llm_directions_release(&d);
    for (int i = 0; i < 2; i++) llm_activations_release(&sets[i]);
    return status;
}
