#include "train/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/log.h"
#include "cpu/pool.h"
#include "train/log_place.h"

/* Operations a second of the fastest of at most ten products of n x n by n x n: three in a row that are no faster than those before end it, as every
 * run that writes a log waits for this. 0 when there is no memory. */
static double product_rate(int64_t n, enum llm_compute compute)
{
    struct llm_err e;
    size_t area = (size_t)(n * n);
    float *memory = aligned_alloc(64, 3 * sizeof(float) * area);
    double best = 0;
    int no_faster = 0;
    if (!memory) return 0;
    for (size_t i = 0; i < 3 * area; i++) memory[i] = (float)(i % 17) - 8;
    struct llm_weight w = {.data = memory, .dtype = LLM_F32, .n = n, .k = n};
    const struct llm_matmul a = {.m = n, .x = memory + area, .ldx = n, .y = memory + 2 * area, .ldy = n, .compute = compute};
    if (llm_weight_pack(&w, compute, false, &e) == 0) {
        for (int i = 0; i < 10 && no_faster < 3; i++) {
            double started = llm_now();
            if (llm_matmul(&a, &w, &e) < 0) break;
            double rate = 2.0 * (double)n * (double)n * (double)n / (llm_now() - started);
            no_faster = rate > 1.01 * best ? 0 : no_faster + 1;
            if (rate > best) best = rate;
        }
    }
    llm_weight_release(&w);
    free(memory);
    return best;
}

double llm_measured_peak(enum llm_compute compute)
{
    const double seconds = llm_pool_threads() > 1 ? .001 : .0003; /* that a product takes at least: in less, starting the threads counts */
    const double most = 1e15; /* of any machine: more is told by the clock of a simulated one, which stands still */
    int64_t n = 256;
    double best = product_rate(n, compute);
    while (n < 4096 && best < most && 2.0 * (double)n * (double)n * (double)n < best * seconds) {
        n *= 2;
        best = product_rate(n, compute);
    }
    return best;
}

int llm_metrics_open(struct llm_metrics *m, const char *path, bool resumed, const struct llm_trainer *t, struct llm_err *e)
{
    struct stat st;
    struct llm_log_place place = {.late_at = -1};
    *m = (struct llm_metrics){.late_at = -1, .name = path && strcmp(path, "-") == 0 ? "standard output" : path,
                              .flops_per_token = llm_trainer_flops_per_token(t)};
    if (!path || t->share.rank > 0) return 0;
    bool continues = resumed && strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    if (continues && llm_log_find(path, t->step, llm_trainer_hash(t), &place, e) < 0) return -1;
    m->fd = strcmp(path, "-") == 0 ? STDOUT_FILENO : open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (continues ? 0 : O_TRUNC), 0666);
    m->on = m->fd >= 0;
    m->late_at = place.late_at;
    m->late = place.late;
    if (!m->on) return llm_fail_errno(e, EX_CANTCREAT, "%s", path);
    if (continues && (ftruncate(m->fd, place.end) < 0 || lseek(m->fd, place.end, SEEK_SET) < 0)) {
        return llm_fail_errno(e, EX_IOERR, "%s", path);
    }
    m->peak = llm_measured_peak((enum llm_compute)t->o.precision);
    return 0;
}

/* `late`: NULL, or the line that this one replaces, which has numbers that this step cannot give. */
static int number(struct llm_metrics *m, const json_t *late, const char *key, double v, struct llm_err *e)
{
    const json_t *before = isnan(v) ? json_object_get(late, key) : NULL;
    if (json_is_number(before)) v = json_number_value(before);
    if (isnan(v)) return 0;
    if (llm_buf_printf(&m->line, e, "%s\"%s\": ", m->line.n > 1 ? ", " : "", key) < 0) return -1;
    return v == floor(v) && fabs(v) < 1e15 ? llm_buf_printf(&m->line, e, "%.0f", v) : llm_json_number(&m->line, v, e);
}

static int put_line(struct llm_metrics *m, struct llm_err *e)
{
    const char *p = m->line.p;
    for (size_t left = m->line.n; left > 0;) {
        ssize_t got = write(m->fd, p, left);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return llm_fail_errno(e, EX_IOERR, "%s", m->name);
        p += got;
        left -= (size_t)got;
    }
    return 0;
}

struct field { const char *key; double v; };
#define COUNT(fields) (sizeof(fields) / sizeof *(fields))

static int numbers(struct llm_metrics *m, const json_t *late, const struct field *fields, size_t n, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (number(m, late, fields[i].key, fields[i].v, e) < 0) return -1;
    }
    return 0;
}

/* What the objective says of itself. */
static int means(struct llm_metrics *m, const json_t *late, const struct llm_objective *o, const char *prefix, const double *v, struct llm_err *e)
{
    char key[64];
    for (int i = 0; i < LLM_MAX_MEANS && o->means[i]; i++) {
        snprintf(key, sizeof key, "%s%s", prefix, o->means[i]);
        if (number(m, late, key, v[i], e) < 0) return -1;
    }
    return 0;
}

/* The members of m->beside. */
static int beside(struct llm_metrics *m, struct llm_err *e)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)m->beside, key, v) {
        if (llm_buf_printf(&m->line, e, ", \"%s\": ", key) < 0 || llm_json_dump(v, &m->line, e) < 0) return -1;
    }
    m->beside = NULL;
    return 0;
}

int llm_metrics_step(struct llm_metrics *m, const struct llm_trainer *t, const struct llm_step_report *r, double val_loss, double val_bits_per_byte,
                     struct llm_err *e)
{
    if (!m->on) return 0;
    double rate = r->seconds > 0 ? (double)r->tokens / r->seconds : NAN;
    const struct field before[] = {
        {"step", (double)r->step}, {"loss", r->loss}, {"nats_per_byte", r->bits_per_byte * log(2)}, {"bits_per_byte", r->bits_per_byte},
        {"val_loss", val_loss}, {"val_nats_per_byte", val_bits_per_byte * log(2)}, {"val_bits_per_byte", val_bits_per_byte},
    };
    const struct field between[] = {{"lr", r->lr}, {"grad_norm", r->grad_norm}};
    const struct field after[] = {
        {"router_balance", r->router_balance}, {"router_peak_load", r->router_peak}, {"router_z", r->router_z}, {"router_dropped", r->router_dropped},
        {"trained_parameters", llm_trainer_trains_all(t) ? NAN : llm_trainer_trained(t)},
        {"parameters", llm_model_params(&t->model->config)}, {"tokens", (double)t->tokens},
        {"flops", (double)t->tokens * m->flops_per_token}, {"tokens_per_second", rate},
        {"peak_share", m->peak > 0 ? rate * m->flops_per_token / m->peak : NAN}, {"seconds", r->seconds > 0 ? r->seconds : NAN},
        {"activation_bytes", r->activation_bytes}, {"ranks", t->comm ? (double)t->share.n : NAN}, {"comm_seconds", r->comm_seconds},
        {"comm_bytes", r->comm_bytes}, {"comm_hidden", r->comm_hidden},
    };
    bool completes = m->late && isnan(r->loss) && !isnan(val_loss);
    const json_t *late = completes ? m->late : NULL;
    m->line.n = 0;
    if (llm_buf_put(&m->line, "{", 1, e) < 0 || numbers(m, late, before, COUNT(before), e) < 0) return -1;
    if (!isnan(val_loss) && means(m, late, t->objective, "val_", t->val_means, e) < 0) return -1;
    if (numbers(m, late, between, COUNT(between), e) < 0 || means(m, late, t->objective, "", r->means, e) < 0
        || numbers(m, late, after, COUNT(after), e) < 0 || beside(m, e) < 0) {
        return -1;
    }
    if (t->hashes_step && llm_buf_printf(&m->line, e, ", \"hash\": \"%016llx\"", (unsigned long long)llm_trainer_hash(t)) < 0) return -1;
    if (llm_buf_put(&m->line, "}\n", 2, e) < 0) return -1;
    if (completes && lseek(m->fd, m->late_at, SEEK_SET) < 0) return llm_fail_errno(e, EX_IOERR, "%s", m->name);
    json_decref(m->late);
    m->late = NULL;
    if (put_line(m, e) < 0) return -1;
    return completes && ftruncate(m->fd, m->late_at + (off_t)m->line.n) < 0 ? llm_fail_errno(e, EX_IOERR, "%s", m->name) : 0;
}

int llm_metrics_close(struct llm_metrics *m, struct llm_err *e)
{
    llm_buf_release(&m->line);
    json_decref(m->late);
    m->late = NULL;
    bool open = m->on && m->fd != STDOUT_FILENO;
    m->on = false;
    return open && close(m->fd) < 0 && errno != EINTR ? llm_fail_errno(e, EX_IOERR, "%s", m->name) : 0;
}
