#include "measure/scaling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/rng.h"
#include "cpu/pool.h"
#include "measure/stats.h"

enum {
    P = LLM_LAW_PARAMS,
    GRID = 24,          /* exponents of a term that are tried */
    STARTS = 4,         /* of the best of them Gauss-Newton begins */
    MAX_STEPS = 500
};
#define MIN_EXPONENT 1e-3 /* of losses; beyond these the term is a constant, or one point's */
#define MAX_EXPONENT 8.0
#define MIN_SHARE 1e-7    /* of a term in the losses, of which less is rounding */
#define MIN_HUBER 1e-9    /* keeps weights finite if the points lie on a law exactly */

/* A fit at work: the points with centred logarithms, and where free parameters stand. */
struct problem {
    const struct llm_scaling_fit *f;
    const double *u[2];   /* [n]: log x - centre */
    const double *y;      /* [n] */
    size_t n;
    double huber;
    bool log_residual;
    int n_free, free[P];  /* indices of parameters that are fitted */
};

static double law_at(const struct llm_scaling_fit *f, const double *p, const double *u, double term[2])
{
    double sum = p[LLM_LAW_E];
    for (int j = 0; j < f->terms; j++) sum += term[j] = exp(p[LLM_LAW_A + 2 * j] - p[LLM_LAW_ALPHA + 2 * j] * u[j]);
    return sum;
}

static double residual(const struct problem *q, const double *p, size_t i, double term[2], double *value)
{
    const double u[2] = {q->u[0][i], q->f->terms > 1 ? q->u[1][i] : 0};
    *value = law_at(q->f, p, u, term);
    return q->log_residual ? log(*value / q->y[i]) : *value / q->y[i] - 1;
}

static double huber_of(double r, double delta)
{
    double size = fabs(r);
    return size <= delta ? r * r / 2 : delta * (size - delta / 2);
}

static double weight_of(double r, double delta) { return fabs(r) <= delta ? 1 : delta / fabs(r); }

static double objective(const struct problem *q, const double *p)
{
    double sum = 0, term[2], value;
    for (size_t i = 0; i < q->n; i++) sum += huber_of(residual(q, p, i, term, &value), q->huber);
    return sum;
}

/* Solves g x = b [n] by Cholesky, g scaled to a unit diagonal and then damped by `damping`. Returns the smallest pivot, 0 if there is no solution. */
static double solve(int n, const double g[P][P], const double *b, double damping, double *x)
{
    double l[P][P], scale[P], least = INFINITY;
    for (int i = 0; i < n; i++) {
        if (!(g[i][i] > 0)) return 0;
        scale[i] = 1 / sqrt(g[i][i]);
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = g[i][j] * scale[i] * scale[j] + (i == j ? damping : 0);
            for (int k = 0; k < j; k++) sum -= l[i][k] * l[j][k];
            if (i == j) least = fmin(least, sum);
            if (i == j && !(sum > 0)) return 0;
            l[i][j] = i == j ? sqrt(sum) : sum / l[j][j];
        }
    }
    for (int i = 0; i < n; i++) {
        x[i] = b[i] * scale[i];
        for (int k = 0; k < i; k++) x[i] -= l[i][k] * x[k];
        x[i] /= l[i][i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++) x[i] -= l[k][i] * x[k];
        x[i] /= l[i][i];
    }
    for (int i = 0; i < n; i++) x[i] *= scale[i];
    return least;
}

/* ---- starts: for fixed exponents the rest is linear ---- */

/* Weighted least squares of c·x ≈ 1 over k ≤ 3 columns with x ≥ 0, by trying every set of positive columns. g: columns' products, b: their sums. */
static void solve_positive(int k, const double g[P][P], const double *b, double *best)
{
    double lowest = 0; /* of xᵀgx - 2bᵀx; 0 is that of x = 0 */
    memset(best, 0, (size_t)k * sizeof *best);
    for (int set = 1; set < 1 << k; set++) {
        int at[3], n = 0;
        double part[P][P], right[P], x[P], value = 0;
        for (int i = 0; i < k; i++)
            if (set >> i & 1) at[n++] = i;
        for (int i = 0; i < n; i++) {
            right[i] = b[at[i]];
            for (int j = 0; j < n; j++) part[i][j] = g[at[i]][at[j]];
        }
        if (solve(n, (const double (*)[P])part, right, 0, x) <= 0) continue;
        bool positive = true;
        for (int i = 0; i < n; i++) {
            positive &= x[i] >= 0;
            value -= right[i] * x[i];
        }
        if (!positive || value >= lowest) continue;
        lowest = value;
        memset(best, 0, (size_t)k * sizeof *best);
        for (int i = 0; i < n; i++) best[at[i]] = x[i];
    }
}

/* The best E, A and B under the exponents that p has, by a few rounds of Huber's weights. Returns the objective; infinite if a term vanishes. */
static double project(const struct problem *q, double *p)
{
    enum { ROUNDS = 6 };
    const int terms = q->f->terms;
    const bool floor = q->free[0] == LLM_LAW_E;
    double x[3] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        double g[P][P] = {{0}}, b[P] = {0};
        for (size_t i = 0; i < q->n; i++) {
            double c[3], fit = 0;
            int k = 0;
            for (int j = 0; j < terms; j++) c[k++] = exp(-p[LLM_LAW_ALPHA + 2 * j] * q->u[j][i]) / q->y[i];
            if (floor) c[k++] = 1 / q->y[i];
            for (int j = 0; j < k; j++) fit += c[j] * x[j];
            double w = round ? weight_of(fit - 1, q->huber) : 1;
            for (int j = 0; j < k; j++) {
                b[j] += w * c[j];
                for (int l = 0; l < k; l++) g[j][l] += w * c[j] * c[l];
            }
        }
        solve_positive(terms + floor, (const double (*)[P])g, b, x);
    }
    for (int j = 0; j < terms; j++) {
        if (!(x[j] > 0)) return INFINITY;
        p[LLM_LAW_A + 2 * j] = log(x[j]);
    }
    p[LLM_LAW_E] = floor ? x[terms] : 0;
    return objective(q, p);
}

static double grid_exponent(const struct problem *q, int i)
{
    if (q->log_residual) return -2 + 4 * (double)i / (GRID - 1);
    return .02 * pow(100, (double)i / (GRID - 1)); /* .02 to 2 */
}

/* The STARTS best of the grid, ascending; how many there are. */
static int find_starts(const struct problem *q, double starts[STARTS][P])
{
    double values[STARTS];
    int n = 0;
    for (int i = 0; i < GRID; i++) {
        for (int j = 0; j < (q->f->terms > 1 ? GRID : 1); j++) {
            double p[P] = {0};
            p[LLM_LAW_ALPHA] = grid_exponent(q, i);
            p[LLM_LAW_BETA] = q->f->terms > 1 ? grid_exponent(q, j) : 0;
            double value = project(q, p);
            if (!isfinite(value) || (n == STARTS && value >= values[n - 1])) continue;
            int at = n < STARTS ? n++ : n - 1;
            for (; at > 0 && values[at - 1] > value; at--) {
                values[at] = values[at - 1];
                memcpy(starts[at], starts[at - 1], sizeof starts[at]);
            }
            values[at] = value;
            memcpy(starts[at], p, sizeof p);
        }
    }
    return n;
}

/* ---- Gauss-Newton over all parameters ---- */

/* Products of the weighted Jacobian's columns, and the gradient, both over the free parameters. */
static void linearise(const struct problem *q, const double *p, double g[P][P], double *gradient)
{
    memset(g, 0, sizeof(double) * P * P);
    memset(gradient, 0, sizeof(double) * P);
    for (size_t i = 0; i < q->n; i++) {
        double term[2], value, full[P], row[P];
        double r = residual(q, p, i, term, &value), w = weight_of(r, q->huber), by = q->log_residual ? value : q->y[i];
        full[LLM_LAW_E] = 1 / by;
        for (int j = 0; j < q->f->terms; j++) {
            full[LLM_LAW_A + 2 * j] = term[j] / by;
            full[LLM_LAW_ALPHA + 2 * j] = -q->u[j][i] * term[j] / by;
        }
        for (int a = 0; a < q->n_free; a++) row[a] = full[q->free[a]];
        for (int a = 0; a < q->n_free; a++) {
            gradient[a] += w * r * row[a];
            for (int b = 0; b <= a; b++) g[a][b] += w * row[a] * row[b];
        }
    }
}

/* E does not fall below 0; exponents stay within bounds. */
static double bounded(const struct problem *q, int parameter, double v)
{
    if (parameter == LLM_LAW_E) return fmax(v, 0);
    if (parameter != LLM_LAW_ALPHA && parameter != LLM_LAW_BETA) return v;
    return fmin(fmax(v, q->log_residual ? -MAX_EXPONENT : MIN_EXPONENT), MAX_EXPONENT);
}

/* Improves p until steps no longer change it. Returns the objective; *pivot: the smallest of the scaled normal equations there, near 0 if the points
 * do not determine the parameters. */
static double descend(const struct problem *q, double *p, double *pivot)
{
    double value = objective(q, p), damping = 0;
    *pivot = 0;
    for (int step = 0; step < MAX_STEPS; step++) {
        double g[P][P], gradient[P], delta[P], next[P], change = 0;
        struct problem part = *q;
        linearise(q, p, g, gradient);
        *pivot = solve(q->n_free, (const double (*)[P])g, gradient, 0, delta);
        if (q->free[0] == LLM_LAW_E && p[LLM_LAW_E] == 0 && gradient[0] > 0) { /* E would become negative: it stays where it is */
            part.n_free--;
            memmove(part.free, q->free + 1, (size_t)part.n_free * sizeof *part.free);
            linearise(&part, p, g, gradient);
        }
        memcpy(next, p, sizeof next);
        if (solve(part.n_free, (const double (*)[P])g, gradient, damping, delta) > 0) {
            for (int a = 0; a < part.n_free; a++) {
                int i = part.free[a];
                next[i] = bounded(q, i, p[i] - delta[a]);
                change = fmax(change, fabs(next[i] - p[i]) / (1 + fabs(p[i])));
            }
        }
        double after = objective(q, next);
        bool better = after < value;
        if (better) memcpy(p, next, sizeof next), value = after;
        if (change < 1e-12 || (!better && damping > 1e8)) return value;
        damping = better ? (damping > 1e-9 ? damping / 10 : 0) : damping > 0 ? damping * 10 : 1e-8;
    }
    return value;
}

/* ---- the fit ---- */

static int double_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t distinct(const double *x, size_t n, double *room)
{
    size_t count = n > 0;
    memcpy(room, x, n * sizeof *x);
    qsort(room, n, sizeof *room, double_order);
    for (size_t i = 1; i < n; i++) count += room[i] != room[i - 1];
    return count;
}

static int check_points(const struct llm_scaling_points *s, const struct problem *q, double *room, struct llm_err *e)
{
    static const char *const exponents[] = {"alpha", "beta"};
    const size_t need = q->free[0] == LLM_LAW_E ? 3 : 2;
    if (s->n <= (size_t)q->n_free) {
        return llm_fail(e, EX_DATAERR, "expected at least %d points (the law has %d parameters), found %zu", q->n_free + 1, q->n_free, s->n);
    }
    for (int j = 0; j < q->f->terms; j++) {
        size_t found = distinct(s->x[j], s->n, room);
        if (found < need) {
            return llm_fail(e, EX_DATAERR, "%s: expected at least %zu different values, which determine the exponent %s; found %zu", s->name[j], need,
                            q->log_residual ? "b" : exponents[j], found);
        }
    }
    return 0;
}

/* The deviation of the residuals by their median size, which single runs that failed do not move. room: [n] */
static double deviation_of(const struct problem *q, const double *p, double *room)
{
    double term[2], value;
    for (size_t i = 0; i < q->n; i++) room[i] = fabs(residual(q, p, i, term, &value));
    return 1.4826 * llm_median(room, q->n);
}

/* The largest share that a term has of a loss. */
static double share_of(const struct problem *q, const double *p, int j)
{
    double most = 0, term[2], value;
    for (size_t i = 0; i < q->n; i++) {
        residual(q, p, i, term, &value);
        most = fmax(most, term[j] / q->y[i]);
    }
    return most;
}

static double rms_of(const struct problem *q, const double *p)
{
    double sum = 0, term[2], value;
    for (size_t i = 0; i < q->n; i++) sum += pow(residual(q, p, i, term, &value), 2);
    return sqrt(sum / (double)q->n);
}

static int fit_points(struct llm_scaling_fit *f, struct problem *q, const struct llm_scaling_options *o, double *room, struct llm_err *e)
{
    double starts[STARTS][P], pivot = 0, lowest = INFINITY;
    q->huber = o->huber > 0 ? o->huber : 1e-3; /* Hoffmann's, until the residuals are known */
    int n = find_starts(q, starts);
    for (int s = 0; s < n; s++) {
        double at, value = descend(q, starts[s], &at);
        if (value < lowest) memcpy(f->p, starts[s], sizeof f->p), lowest = value, pivot = at;
    }
    for (int round = 0; round < 2 && n > 0 && o->huber <= 0; round++) {
        q->huber = fmax(1.345 * deviation_of(q, f->p, room), MIN_HUBER);
        descend(q, f->p, &pivot);
    }
    f->huber = q->huber;
    f->rms = rms_of(q, f->p);
    const double deviation = deviation_of(q, f->p, room);
    for (int j = 0; j < f->terms; j++) {
        double exponent = f->p[LLM_LAW_ALPHA + 2 * j];
        bool bound = !q->log_residual && (exponent <= MIN_EXPONENT || exponent >= MAX_EXPONENT
                                          || share_of(q, f->p, j) < fmax(deviation, MIN_SHARE));
        if (n > 0 && !bound) continue;
        return llm_fail(e, EX_DATAERR, "the points do not determine the exponents: the loss does not fall with %s as a power law does",
                        n > 0 ? j ? "D" : f->terms > 1 ? "N" : "C" : f->terms > 1 ? "N and D" : "C");
    }
    if (pivot > 1e-13) return 0;
    return llm_fail(e, EX_DATAERR, "the points do not determine the exponents%s", f->terms > 1 ? ": N and D must change independently" : "");
}

/* ---- the bootstrap ---- */

struct bootstrap {
    const struct problem *q;
    struct llm_scaling_fit *f;
    const double *value, *error; /* [n]: the law at the points; factors that multiply it, their mean 1 */
    double *y;                   /* [threads][n] */
    uint64_t seed;
};

static void replicate(void *arg, size_t r, int thread)
{
    const struct bootstrap *b = arg;
    struct problem q = *b->q;
    double *y = b->y + (size_t)thread * q.n, *p = b->f->replicates + r * P, pivot;
    struct llm_rng rng = llm_rng_of_item(b->seed, 0, r, LLM_RNG_ORDER, 2, 0);
    for (size_t i = 0; i < q.n; i++) y[i] = b->value[i] * b->error[llm_rng_below(&rng, (uint32_t)i, q.n)];
    q.y = y;
    memcpy(p, b->f->p, P * sizeof *p);
    descend(&q, p, &pivot);
}

static int bootstrap(struct llm_scaling_fit *f, const struct problem *q, const struct llm_scaling_options *o, struct llm_err *e)
{
    const size_t n = q->n;
    double *room = llm_alloc(n * (2 + (size_t)llm_pool_threads()), sizeof *room, "replicates", e), term[2], mean = 0;
    f->replicates = llm_alloc((size_t)o->replicates * P, sizeof *f->replicates, "replicates", e);
    if (!room || !f->replicates) {
        free(room);
        return -1;
    }
    f->n_replicates = o->replicates;
    struct bootstrap b = {.q = q, .f = f, .value = room, .error = room + n, .y = room + 2 * n, .seed = o->seed};
    double *factor = room + n;
    for (size_t i = 0; i < n; i++) {
        double r = residual(q, f->p, i, term, &room[i]);
        factor[i] = q->log_residual ? -r : q->y[i] / room[i] - 1;
        mean += factor[i] / (double)n;
    }
    double scale = sqrt((double)n / (double)(n - (size_t)f->free_params));
    for (size_t i = 0; i < n; i++) {
        double error = scale * (factor[i] - mean);
        factor[i] = q->log_residual ? exp(error) : fmax(1 + error, 1e-6); /* a loss is above 0 */
    }
    llm_parallel((size_t)o->replicates, replicate, &b);
    free(room);
    return 0;
}

int llm_scaling_fit(struct llm_scaling_fit *f, const struct llm_scaling_points *s, const struct llm_scaling_options *o, struct llm_err *e)
{
    struct problem q = {.f = f, .y = s->y, .n = s->n, .log_residual = o->law == LLM_LAW_LR};
    *f = (struct llm_scaling_fit){.law = o->law, .terms = o->law == LLM_LAW_ND ? 2 : 1, .n = s->n};
    if (!o->zero_floor && o->law != LLM_LAW_LR) q.free[q.n_free++] = LLM_LAW_E;
    for (int i = LLM_LAW_A; i < LLM_LAW_A + 2 * f->terms; i++) q.free[q.n_free++] = i;
    f->free_params = q.n_free;
    double *room = llm_alloc(3 * s->n + 1, sizeof *room, "points", e);
    if (!room) return -1;
    int status = check_points(s, &q, room, e);
    for (int j = 0; j < f->terms && status == 0; j++) {
        double *u = room + (size_t)j * s->n;
        for (size_t i = 0; i < s->n; i++) u[i] = log(s->x[j][i]), f->centre[j] += u[i] / (double)s->n;
        for (size_t i = 0; i < s->n; i++) u[i] -= f->centre[j];
        q.u[j] = u;
    }
    if (status == 0) status = fit_points(f, &q, o, room + 2 * s->n, e);
    if (status == 0) status = bootstrap(f, &q, o, e);
    free(room);
    return status;
}

void llm_scaling_release(struct llm_scaling_fit *f)
{
    free(f->replicates);
    f->replicates = NULL;
}

/* ---- what follows ---- */

double llm_scaling_at(const struct llm_scaling_fit *f, const double *p, const double x[2])
{
    double term[2], u[2] = {log(x[0]) - f->centre[0], f->terms > 1 ? log(x[1]) - f->centre[1] : 0};
    return law_at(f, p, u, term);
}

/* log A, or log B */
static double log_coefficient(const struct llm_scaling_fit *f, const double *p, int j)
{
    return p[LLM_LAW_A + 2 * j] + p[LLM_LAW_ALPHA + 2 * j] * f->centre[j];
}

double llm_scaling_coefficient(const struct llm_scaling_fit *f, const double *p, const double x[2]) { return exp(log_coefficient(f, p, x[0] == 1)); }

double llm_scaling_parameter(const struct llm_scaling_fit *f, const double *p, const double x[2])
{
    (void)f;
    return p[(int)x[0]];
}

double llm_scaling_params_exponent(const struct llm_scaling_fit *f, const double *p, const double x[2])
{
    (void)f, (void)x;
    return p[LLM_LAW_BETA] / (p[LLM_LAW_ALPHA] + p[LLM_LAW_BETA]);
}

double llm_scaling_tokens_exponent(const struct llm_scaling_fit *f, const double *p, const double x[2])
{
    return 1 - llm_scaling_params_exponent(f, p, x);
}

double llm_scaling_rate_exponent(const struct llm_scaling_fit *f, const double *p, const double x[2])
{
    (void)f, (void)x;
    return -p[LLM_LAW_ALPHA];
}

/* Where the derivative along N·D = C / factor vanishes: alpha·A / N^alpha = beta·B / D^beta. */
double llm_scaling_best_params(const struct llm_scaling_fit *f, const double *p, const double x[2])
{
    double alpha = p[LLM_LAW_ALPHA], beta = p[LLM_LAW_BETA];
    double ratio = log(alpha / beta) + log_coefficient(f, p, 0) - log_coefficient(f, p, 1);
    return exp((ratio + beta * log(x[0] / x[1])) / (alpha + beta));
}

double llm_scaling_best_tokens(const struct llm_scaling_fit *f, const double *p, const double x[2])
{
    return x[0] / x[1] / llm_scaling_best_params(f, p, x);
}

double llm_scaling_best_loss(const struct llm_scaling_fit *f, const double *p, const double x[2])
{
    const double at[2] = {llm_scaling_best_params(f, p, x), llm_scaling_best_tokens(f, p, x)};
    return llm_scaling_at(f, p, at);
}

int llm_scaling_interval(const struct llm_scaling_fit *f, llm_scaling_value value, const double x[2], double low_high[2], struct llm_err *e)
{
    size_t n = (size_t)f->n_replicates;
    double *v = llm_alloc(n, sizeof *v, "replicates", e);
    if (!v) return -1;
    for (size_t r = 0; r < n; r++) v[r] = value(f, f->replicates + r * P, x);
    llm_interval(v, n, llm_tail95(f->n - (size_t)f->free_params), low_high);
    free(v);
    return 0;
}
