/* llm-train --adapter: which adapter the model gets. */
#include <string.h>
#include "bin/train/train.h"
#include "model/weights/lora.h"

static bool any_detail(const struct args *a)
{
    return a->rank > 0 || a->alpha > 0 || a->rslora || a->dora || a->targets.n > 0 || a->also_train.n > 0 || a->adapter_dropout >= 0
        || a->adapter_init;
}

void llm_run_check_adapter(const struct llm_cli *cli, const struct args *a)
{
    if (a->adapter < 0) {
        if (any_detail(a)) {
            llm_usage(cli, "--rank, --alpha, --rslora, --dora, --targets, --also-train, --adapter-dropout and --adapter-init go with --adapter%s",
                      a->resume ? ", and a run that is resumed keeps its own" : "");
        }
        return;
    }
    if (a->resume) llm_usage(cli, "--adapter: a run that is resumed keeps the adapter that it began with");
    if (!a->init) llm_usage(cli, "--adapter: expected the model that it adapts, --init MODEL");
    if (strcmp(a->init, "-") == 0) llm_usage(cli, "--adapter: expected a file that is found again as --init, not standard input");
    if (a->o.keep_zeros) llm_usage(cli, "--keep-zeros: expected no --adapter, whose matrices begin with zeros");
    if (a->train.n > 0 || a->freeze.n > 0) llm_usage(cli, "--adapter trains the adapter alone: expected --also-train, not --train or --freeze");
    if (a->adapter_init && (a->rank > 0 || a->alpha > 0 || a->rslora || a->dora || a->targets.n > 0 || a->also_train.n > 0)) {
        llm_usage(cli, "--adapter-init: expected no --rank, --alpha, --rslora, --dora, --targets or --also-train: FILE has them");
    }
    const struct { const char *option, *path; int to; } outputs[] = {{"-o", a->common.output, a->to}, {"--keep-best", a->best, -1},
                                                                     {"--ema-output", a->ema_output, -1}};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        if (llm_run_format(outputs[i].path, outputs[i].to) == LLM_FORMAT_LLM) continue;
        llm_usage(cli, "%s: expected FILE.llm for an adapter: llm-quantize makes a folder of PEFT's or GGUF of it", outputs[i].option);
    }
}

static void take(const struct llm_strs *given, struct llm_patterns *p)
{
    p->n = given->n < LLM_MAX_PATTERNS ? given->n : LLM_MAX_PATTERNS;
    for (size_t i = 0; i < p->n; i++) p->v[i] = given->v[i];
}

/* The adapter of --adapter-init, which goes on as this run's own. */
static int take_file(struct llm_model *m, const struct args *a, struct llm_err *e)
{
    if (llm_model_base_fingerprint(m, e) < 0 || llm_lora_load(m, a->adapter_init, 1, e) < 0) return -1;
    if (llm_lora_renew(m, a->init, a->adapter_dropout, a->o.dropout, e) < 0) return -1;
    if (m->lora->model_dropout >= 0) llm_model_set_dropout(m, m->lora->model_dropout);
    return 0;
}

int llm_run_adapt(struct llm_run *r, const struct args *a, const struct llm_model *loaded, struct llm_err *e)
{
    struct llm_lora_options o = {.rank = a->rank > 0 ? a->rank : 8, .rslora = a->rslora, .dora = a->dora,
                                 .dropout = a->adapter_dropout > 0 ? a->adapter_dropout : 0,
                                 .model_dropout = a->o.dropout, .seed = (uint64_t)a->o.seed, .base_path = a->init};
    if (a->targets.n > LLM_MAX_PATTERNS || a->also_train.n > LLM_MAX_PATTERNS) {
        return llm_fail(e, LLM_EX_USAGE, "--targets, --also-train: expected at most %d patterns", LLM_MAX_PATTERNS);
    }
    if (r->model != loaded) {
        return llm_fail(e, EX_DATAERR, "%s: expected a model with the head that --objective %s needs: without --adapter, -n 0 gives it one", a->init,
                        llm_objectives[a->o.objective]->name);
    }
    if (a->adapter_init) return take_file(r->model, a, e);
    o.alpha = a->alpha > 0 ? a->alpha : (double)o.rank;
    take(&a->targets, &o.targets);
    take(&a->also_train, &o.whole);
    return llm_lora_create(r->model, &o, e);
}
