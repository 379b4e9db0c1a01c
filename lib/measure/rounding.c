#include "measure/rounding.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "measure/look.h"

int64_t llm_rounding_types(const struct llm_kv_file *f, enum llm_dtype *types)
{
    int64_t n = 0;
    for (const enum llm_dtype *type = llm_kv_types; *type != LLM_NO_DTYPE; type++) {
        int64_t block = llm_dtypes[*type].block_size;
        bool serves = true;
        for (int64_t l = 0; l < f->n_layers; l++) {
            const struct llm_state_shape *s = &f->layers[l].shape;
            serves &= s->n_kv_heads == 0 || (s->d_k % block == 0 && s->d_v % block == 0);
        }
        if (serves) types[n++] = *type;
    }
    types[n] = LLM_NO_DTYPE;
    return n;
}

struct job {
    const struct llm_kv_file *f;
    const enum llm_dtype *types;
    int64_t n;
    struct llm_rounding *rows;
    bool no_memory;             /* any thread sets it, none resets it */
};

/* The keys and the values of a head in one type, or as they are. */
struct pair { float *k, *v; };

/* x [n, d] as the type stores it; adds squared differences and norms of the first `width` channels. `block`: room for a row in any type. */
static void store(enum llm_dtype type, const float *x, int64_t n, int64_t d, int64_t width, float *out, void *block, double *error, double *size)
{
    for (int64_t r = 0; r < n; r++) {
        llm_dtypes[type].encode(x + r * d, block, (size_t)d);
        llm_dtypes[type].decode(block, out + r * d, (size_t)d);
        for (int64_t i = r * d; i < r * d + width; i++) {
            double a = (double)x[i], b = (double)out[i];
            *error += (a - b) * (a - b);
            *size += a * a;
        }
    }
}

/* out [width] = Σ p[j] · v[j] over all rows. */
static void output(const float *p, const float *v, int64_t rows, int64_t step, int64_t width, double *out)
{
    for (int64_t c = 0; c < width; c++) out[c] = 0;
    for (int64_t j = 0; j < rows; j++) {
        double x = (double)p[j];
        if (x == 0) continue;
        for (int64_t c = 0; c < width; c++) out[c] += x * (double)v[j * step + c];
    }
}

/* One query: its probabilities as the cache is, and with rounded keys. */
static void compare(struct llm_rounding *r, const float *p, const float *q, int64_t rows, const double *a, const double *b, int64_t width)
{
    for (int64_t j = 0; j < rows; j++) {
        double x = (double)p[j], y = (double)q[j];
        if (x != 0) r->kl += x * log(x / (y <= FLT_MIN ? FLT_MIN : y)); /* NaN stays NaN */
    }
    for (int64_t c = 0; c < width; c++) {
        r->error += (a[c] - b[c]) * (a[c] - b[c]);
        r->size += a[c] * a[c];
    }
    r->queries++;
}

static int measure(const struct job *job, struct llm_rounding *rows, const struct pair *pairs, float *p, float *q, double *a, double *b)
{
    const struct llm_kv_file *f = job->f;
    const struct llm_state_shape *s = &f->layers[rows->layer].shape;
    int64_t step = s->d_v > 0 ? s->d_v : s->d_k, width = llm_look_value_width(f, rows->layer);
    for (int64_t first = 0; first < f->n_queries; first += LLM_LOOK) {
        int64_t n = f->n_queries - first < LLM_LOOK ? f->n_queries - first : LLM_LOOK;
        if (llm_look(f, rows->layer, rows->head, pairs[job->n].k, first, n, p) < 0) return -1;
        for (int64_t t = 0; t < job->n; t++) {
            if (llm_look(f, rows->layer, rows->head, pairs[t].k, first, n, q) < 0) return -1;
            for (int64_t i = 0; i < n; i++) {
                output(p + i * f->rows, pairs[job->n].v, f->rows, step, width, a);
                output(q + i * f->rows, pairs[t].v, f->rows, step, width, b);
                compare(&rows[t], p + i * f->rows, q + i * f->rows, f->rows, a, b, width);
            }
        }
    }
    return 0;
}

static void head_piece(void *arg, size_t i, int thread)
{
    struct job *job = arg;
    const struct llm_kv_file *f = job->f;
    struct llm_rounding *rows = job->rows + (int64_t)i * job->n;
    const struct llm_state_shape *s = &f->layers[rows->layer].shape;
    int64_t kv_head = llm_look_kv_head(f, rows->layer, rows->head), d_v = s->d_v > 0 ? s->d_v : s->d_k, widest = s->d_k > d_v ? s->d_k : d_v;
    const int64_t width = llm_look_value_width(f, rows->layer);
    size_t each = (size_t)(f->rows * (s->d_k + d_v)), maps = (size_t)(LLM_LOOK * f->rows);
    double *a = malloc((size_t)widest * 3 * sizeof *a + (each * (size_t)(job->n + 1) + 2 * maps) * sizeof(float));
    double *b = a + widest, *block = b + widest;
    struct pair *pairs = malloc((size_t)(job->n + 1) * sizeof *pairs);
    (void)thread; /* scratch is kept after the piece, and these are large */
    if (a && pairs) {
        float *at = (float *)(block + widest), *p = at + each * (size_t)(job->n + 1), *q = p + maps;
        for (int64_t t = 0; t <= job->n; t++) pairs[t] = (struct pair){at + (size_t)t * each, at + (size_t)t * each + f->rows * s->d_k};
        llm_look_decode(f, 'k', rows->layer, kv_head, pairs[job->n].k);
        llm_look_decode(f, 'v', rows->layer, kv_head, pairs[job->n].v);
        for (int64_t t = 0; t < job->n; t++) {
            rows[t].type = job->types[t];
            store(rows[t].type, pairs[job->n].k, f->rows, s->d_k, s->d_k, pairs[t].k, block, &rows[t].k_error, &rows[t].k_size);
            const enum llm_dtype v_type = s->d_v > 0 ? llm_dtype_unrotated(rows[t].type) : rows[t].type; /* of a latent: the key's */
            store(v_type, pairs[job->n].v, f->rows, d_v, width, pairs[t].v, block, &rows[t].v_error, &rows[t].v_size);
        }
        if (measure(job, rows, pairs, p, q, a, b) < 0) job->no_memory = true;
    } else job->no_memory = true;
    free(a);
    free(pairs);
}

int llm_rounding_of(const struct llm_kv_file *f, const enum llm_dtype *types, int64_t n, struct llm_rounding *rows, struct llm_err *e)
{
    struct job job = {.f = f, .types = types, .n = n, .rows = rows};
    int64_t heads = 0;
    for (int64_t l = 0; l < f->n_layers; l++) {
        if (!llm_look_attends(f, l)) continue;
        if (llm_look_check(f, l, e) < 0) return -1;
        for (int64_t h = 0; h < f->config.num_attention_heads; h++, heads++) {
            for (int64_t t = 0; t < n; t++) rows[heads * n + t] = (struct llm_rounding){.layer = l, .head = h};
        }
    }
    if (heads == 0) return llm_fail(e, EX_DATAERR, "expected keys of attention, found none: the model keeps a state (llm-kvinspect summary)");
    llm_parallel((size_t)heads, head_piece, &job);
    return job.no_memory ? llm_no_memory(e, "keys of a head") : 0;
}
