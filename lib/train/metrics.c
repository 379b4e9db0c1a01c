#include "train/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"

double llm_measured_peak(enum llm_compute compute)
{
    enum { N = 1024 };
    struct llm_err e;
    float *memory = aligned_alloc(64, 3 * sizeof(float) * N * N);
    double best = 0;
    if (!memory) return 0;
    for (size_t i = 0; i < 3 * (size_t)N * N; i++) memory[i] = (float)(i % 17) - 8;
    struct llm_weight w = {.data = memory, .dtype = LLM_F32, .n = N, .k = N};
    const struct llm_matmul a = {.m = N, .x = memory + N * N, .ldx = N, .y = memory + 2 * N * N, .ldy = N, .compute = compute};
    if (llm_weight_pack(&w, compute, false, &e) == 0) {
        for (int i = 0; i < 6; i++) {
            double started = llm_now();
            if (llm_matmul(&a, &w, &e) < 0) break;
            double rate = 2.0 * N * N * N / (llm_now() - started);
            if (rate > best) best = rate;
        }
    }
    llm_weight_release(&w);
    free(memory);
    return best;
}

int llm_metrics_open(struct llm_metrics *m, const char *path, bool append, const struct llm_trainer *t, struct llm_err *e)
{
    *m = (struct llm_metrics){.name = path && strcmp(path, "-") == 0 ? "standard output" : path,
                              .flops_per_token = 6 * llm_model_active_params(&t->model->config)};
    if (!path) return 0;
    m->file = strcmp(path, "-") == 0 ? stdout : fopen(path, append ? "a" : "w");
    if (!m->file) return llm_fail_errno(e, EX_CANTCREAT, "%s", path);
    m->peak = llm_measured_peak((enum llm_compute)t->o.precision);
    return 0;
}

static int number(struct llm_metrics *m, const char *key, double v, struct llm_err *e)
{
    if (isnan(v)) return 0;
    if (llm_buf_printf(&m->line, e, "%s\"%s\": ", m->line.n > 1 ? ", " : "", key) < 0) return -1;
    return v == floor(v) && fabs(v) < 1e15 ? llm_buf_printf(&m->line, e, "%.0f", v) : llm_json_number(&m->line, v, e);
}

int llm_metrics_step(struct llm_metrics *m, const struct llm_trainer *t, const struct llm_step_report *r, double val_loss, double val_bits_per_byte,
                     struct llm_err *e)
{
    if (!m->file) return 0;
    char val_judged[48];
    snprintf(val_judged, sizeof val_judged, "val_%s", t->objective->judged ? t->objective->judged : "");
    double rate = r->seconds > 0 ? (double)r->tokens / r->seconds : NAN;
    const struct { const char *key; double v; } fields[] = {
        {"step", (double)r->step}, {"loss", r->loss}, {"nats_per_byte", r->bits_per_byte * log(2)}, {"bits_per_byte", r->bits_per_byte},
        {"val_loss", val_loss}, {"val_nats_per_byte", val_bits_per_byte * log(2)}, {"val_bits_per_byte", val_bits_per_byte},
        {val_judged, isnan(val_loss) ? NAN : t->val_share_right},
        {"lr", r->lr},
        {"grad_norm", r->grad_norm},
        {"mtp_loss", r->next_loss}, {"router_balance", r->router_balance}, {"router_peak_load", r->router_peak}, {"router_z", r->router_z},
        {"router_dropped", r->router_dropped},
        {"tokens", (double)t->tokens}, {"tokens_per_second", rate},
        {"peak_share", m->peak > 0 ? rate * m->flops_per_token / m->peak : NAN}, {"seconds", r->seconds > 0 ? r->seconds : NAN},
        {"activation_bytes", r->activation_bytes},
    };
    m->line.n = 0;
    if (llm_buf_put(&m->line, "{", 1, e) < 0) return -1;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (number(m, fields[i].key, fields[i].v, e) < 0) return -1;
    }
    if (llm_buf_printf(&m->line, e, ", \"hash\": \"%016llx\"}\n", (unsigned long long)llm_trainer_hash(t)) < 0) return -1;
    if (fwrite(m->line.p, 1, m->line.n, m->file) == m->line.n && fflush(m->file) == 0) return 0;
    return llm_fail_errno(e, EX_IOERR, "%s", m->name);
}

int llm_metrics_close(struct llm_metrics *m, struct llm_err *e)
{
    llm_buf_release(&m->line);
    if (m->file && m->file != stdout && fclose(m->file) != 0) return llm_fail_errno(e, EX_IOERR, "%s", m->name);
    m->file = NULL;
    return 0;
}
