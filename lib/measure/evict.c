#include "measure/evict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "measure/kv.h"
#include "measure/look.h"

const char *llm_evict_word(int i)
{
    static const char *const words[] = {"window", "sinks", "h2o", "snapkv"};
    return i < LLM_N_EVICT ? words[i] : NULL;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct llm_evict llm_evict_of(enum llm_evict_method method, int64_t keep)
{
    int64_t half = keep > 1 ? keep / 2 : 1, recent = method == LLM_EVICT_SNAPKV ? smaller(half, LLM_EVICT_OBSERVED) : half;
    return (struct llm_evict){method, keep, smaller(LLM_EVICT_SINK_TOKENS, keep - 1), recent};
}

/* ---- which rows stay ---- */

struct candidate { double score; int64_t token; };

static int best_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* A work item: the heads of queries, of all layers, that read one head of keys. */
struct group {
    const struct llm_kv_file *f;
    int64_t source, kv_head;    /* the layer that makes the keys */
    float *keys, *values, *p;   /* [rows, d_k], [rows, width], [LLM_LOOK, rows] */
    int64_t width, value_step;  /* channels of a value, and from one value to the next */
    double *last;               /* [rows]: SnapKV: attention from the last queries that may be looked at */
    struct candidate *sorted;   /* [rows] */
    double *output, *kept_output; /* [width] */
};

static size_t group_bytes(const struct llm_kv_file *f, int64_t layer)
{
    const struct llm_state_shape *s = &f->layers[layer].shape;
    int64_t width = s->d_k > s->d_v ? s->d_k : s->d_v;
    return (size_t)f->rows * (sizeof(double) + sizeof(struct candidate)) + (size_t)width * 2 * sizeof(double)
           + (size_t)(f->rows * (s->d_k + width + LLM_LOOK)) * sizeof(float);
}

static void group_init(struct group *g, const struct llm_kv_file *f, int64_t source, int64_t kv_head, void *memory)
{
    const struct llm_state_shape *s = &f->layers[source].shape;
    *g = (struct group){.f = f, .source = source, .kv_head = kv_head, .width = llm_look_value_width(f, source),
                        .value_step = s->d_v > 0 ? s->d_v : s->d_k};
    g->sorted = memory;
    g->last = (double *)(g->sorted + f->rows);
    g->output = g->last + f->rows;
    g->kept_output = g->output + g->width;
    g->keys = (float *)(g->kept_output + g->width);
    g->values = g->keys + f->rows * s->d_k;
    g->p = g->values + f->rows * g->value_step;
    llm_look_decode(f, 'k', source, kv_head, g->keys);
    llm_look_decode(f, 'v', source, kv_head, g->values);
}

/* How many heads of queries, of all layers, read the group's head of keys. */
static int64_t group_heads(const struct group *g)
{
    const struct llm_kv_file *f = g->f;
    int64_t n = 0, n_rep = f->config.num_attention_heads / f->layers[g->source].shape.n_kv_heads;
    for (int64_t l = g->source; l < f->n_layers; l++) {
        n += f->layers[l].shape.n_kv_heads > 0 && f->layers[l].shape.source == g->source ? n_rep : 0;
    }
    return n;
}

/* Attention of n ≤ LLM_LOOK traced queries of all these heads, from query `first` on: p [heads, n, rows]. 0, or -1 when memory is short. */
static int look(const struct group *g, int64_t first, int64_t n, float *p)
{
    const struct llm_kv_file *f = g->f;
    int64_t n_rep = f->config.num_attention_heads / f->layers[g->source].shape.n_kv_heads;
    for (int64_t l = g->source; l < f->n_layers; l++) {
        if (f->layers[l].shape.n_kv_heads == 0 || f->layers[l].shape.source != g->source) continue;
        for (int64_t h = g->kv_head * n_rep; h < (g->kv_head + 1) * n_rep; h++, p += n * f->rows) {
            if (llm_look(f, l, h, g->keys, first, n, p) < 0) return -1;
        }
    }
    return 0;
}

/* SnapKV: what each token before `end` gets from the last traced queries before `end`. 0, or -1 when memory is short. */
static int score(struct group *g, int64_t end)
{
    const struct llm_kv_file *f = g->f;
    int64_t traced = f->n_queries - (f->n - end), n = smaller(traced, LLM_EVICT_OBSERVED), heads = group_heads(g);
    float *p = calloc((size_t)(heads * n * f->rows), sizeof *p);
    int status = p ? look(g, traced - n, n, p) : -1;
    for (int64_t j = 0; j < f->rows; j++) g->last[j] = 0;
    for (int64_t i = 0; i < heads * n && status == 0; i++) {
        for (int64_t j = 0; j < end; j++) g->last[j] += (double)p[i * f->rows + j];
    }
    free(p);
    return status;
}

/* H2O with one budget, between two queries. */
struct heavy {
    int64_t keep, recent;
    int32_t *set;               /* [n] of [rows]: the tokens that are left, ascending */
    double *got;                /* [rows]: the attention that each got since the first traced query, when others had gone already */
    int64_t n;
};

/* Adds token t and the attention of its queries p [heads, rows], `step` floats apart, over what is left; then the least attended tokens before the
 * last `recent` go. */
static void heavy_step(struct heavy *s, int64_t t, const float *p, int64_t heads, int64_t step)
{
    s->set[s->n++] = (int32_t)t;
    for (int64_t h = 0; h < heads; h++, p += step) {
        double sum = 0;
        for (int64_t i = 0; i < s->n; i++) sum += (double)p[s->set[i]];
        for (int64_t i = 0; i < s->n && sum > 0; i++) s->got[s->set[i]] += (double)p[s->set[i]] / sum;
    }
    while (s->n > s->keep) {
        int64_t least = 0;
        for (int64_t i = 1; i < s->n && s->set[i] <= t - s->recent; i++) {
            if (s->got[s->set[i]] < s->got[s->set[least]]) least = i;
        }
        memmove(s->set + least, s->set + least + 1, (size_t)(s->n - least - 1) * sizeof *s->set);
        s->n--;
    }
}

/* The tokens before `end` that H2O keeps with each of n budgets, as decoding would have kept them: kept[i] [m[i].keep], n_kept[i] of them. Those of
 * other methods are left alone. 0, or -1 when memory is short. */
static int heavy_hitters(const struct group *g, const struct llm_evict *m, int64_t n, int64_t end, int32_t *const *kept, int64_t *n_kept)
{
    const struct llm_kv_file *f = g->f;
    int64_t traced = f->n_queries - (f->n - end), heads = group_heads(g), rows = f->rows, first_token = end - traced;
    size_t state = (size_t)(rows + rows % 2) * (sizeof(double) + sizeof(int32_t)); /* a multiple of a double */
    struct heavy *s = calloc((size_t)n, sizeof *s);
    char *memory = calloc((size_t)n, state);
    float *p = calloc((size_t)(heads * LLM_LOOK * rows), sizeof *p);
    int status = s && memory && p ? 0 : -1;
    for (int64_t i = 0; i < n && status == 0; i++) {
        double *got = (double *)(memory + (size_t)i * state);
        s[i] = (struct heavy){m[i].keep, smaller(m[i].recent, m[i].keep), (int32_t *)(got + rows), got, first_token};
        for (int64_t j = 0; j < first_token; j++) s[i].set[j] = (int32_t)j;
    }
    for (int64_t first = 0; first < traced && status == 0; first += LLM_LOOK) {
        int64_t k = smaller(traced - first, LLM_LOOK);
        status = look(g, first, k, p);
        for (int64_t q = 0; q < k && status == 0; q++) {
            for (int64_t i = 0; i < n; i++) {
                if (m[i].method == LLM_EVICT_H2O) heavy_step(&s[i], first_token + first + q, p + q * rows, heads, k * rows);
            }
        }
    }
    for (int64_t i = 0; i < n && status == 0; i++) {
        if (m[i].method != LLM_EVICT_H2O) continue;
        memcpy(kept[i], s[i].set, (size_t)s[i].n * sizeof *kept[i]);
        n_kept[i] = s[i].n;
    }
    free(s);
    free(memory);
    free(p);
    return status;
}

static bool scores(const struct llm_evict *m)
{
    return m->method == LLM_EVICT_H2O || m->method == LLM_EVICT_SNAPKV;
}

/* The largest of the scores around j, of tokens before `end`. */
static double pooled(const double *x, int64_t j, int64_t end)
{
    double best = 0;
    for (int64_t i = j - LLM_EVICT_POOL / 2; i <= j + LLM_EVICT_POOL / 2; i++) {
        if (i >= 0 && i < end && x[i] > best) best = x[i];
    }
    return best;
}

/* The tokens before `end` that a method other than H2O keeps, ascending: kept [keep]. Returns how many. SnapKV: after score(). */
static int64_t choose(struct group *g, const struct llm_evict *m, int64_t end, int32_t *kept)
{
    int64_t keep = smaller(m->keep, end), recent = keep, n = 0;
    bool scored = m->method == LLM_EVICT_SNAPKV;
    if (m->method == LLM_EVICT_SINKS) recent = keep - smaller(m->sinks, keep - 1);
    if (scored) recent = smaller(m->recent, keep);
    int64_t older = end - recent;
    if (scored) {
        for (int64_t j = 0; j < older; j++) g->sorted[j] = (struct candidate){pooled(g->last, j, older), j};
        qsort(g->sorted, (size_t)older, sizeof *g->sorted, best_first);
    }
    for (; n < keep - recent; n++) kept[n] = (int32_t)(scored ? g->sorted[n].token : n);
    qsort(kept, (size_t)n, sizeof *kept, ascending);
    for (int64_t j = older; j < end; j++) kept[n++] = (int32_t)j;
    return n;
}

/* The tokens before `end` that each of n methods keeps, ascending: kept[i] [m[i].keep], n_kept[i] of them. 0, or -1 when memory is short. */
static int choose_all(struct group *g, const struct llm_evict *m, int64_t n, int64_t end, int32_t *const *kept, int64_t *n_kept)
{
    bool heavy = false, snap = false;
    for (int64_t i = 0; i < n; i++) {
        heavy |= m[i].method == LLM_EVICT_H2O;
        snap |= m[i].method == LLM_EVICT_SNAPKV;
    }
    if ((heavy && heavy_hitters(g, m, n, end, kept, n_kept) < 0) || (snap && score(g, end) < 0)) return -1;
    for (int64_t i = 0; i < n; i++) {
        if (m[i].method != LLM_EVICT_H2O) n_kept[i] = choose(g, &m[i], end, kept[i]);
    }
    return 0;
}

/* ---- what is lost ---- */

struct job {
    const struct llm_kv_file *f;
    struct llm_kv_file *to;     /* llm_evict */
    const struct llm_evict *m;
    int64_t n, end;
    struct llm_evict_loss *losses;
    int64_t *first_row;         /* [n_layers]: of the losses */
    int64_t *groups;            /* [n_groups][2]: the layer that makes the keys, and the head of keys */
    bool no_memory;             /* any thread sets it, none resets it */
};

/* out [width] = Σ p[j] · value j over the tokens `kept` and those in [from, to); returns Σ p[j]. */
static double gather(const struct group *g, const float *p, const int32_t *kept, int64_t n, int64_t from, int64_t to, double *out)
{
    double sum = 0;
    for (int64_t c = 0; c < g->width; c++) out[c] = 0;
    for (int64_t i = 0; i < n + to - from; i++) {
        int64_t j = i < n ? kept[i] : from + i - n;
        double x = (double)p[j];
        const float *v = g->values + j * g->value_step;
        if (x == 0) continue;
        sum += x;
        for (int64_t c = 0; c < g->width; c++) out[c] += x * (double)v[c];
    }
    return sum;
}

static void compare(const struct group *g, const float *p, const int32_t *kept, int64_t n, int64_t end, int64_t t, struct llm_evict_loss *loss)
{
    double sum = gather(g, p, kept, n, end, t + 1, g->kept_output);
    for (int64_t c = 0; c < g->width; c++) {
        double d = g->kept_output[c] / sum - g->output[c];
        loss->error += d * d;
        loss->size += g->output[c] * g->output[c];
    }
    loss->lost += sum >= 1 ? 0 : 1 - sum; /* NaN stays NaN */
    loss->kl += sum >= 1 ? 0 : -log(sum);
    loss->queries++;
}

/* Losses of one head of queries. kept [n methods]: the tokens and how many. */
static int measure(struct group *g, const struct job *job, int64_t layer, int64_t head, int32_t *const *kept, const int64_t *n_kept)
{
    const struct llm_kv_file *f = g->f;
    struct llm_evict_loss *losses = job->losses + (job->first_row[layer] + head) * job->n;
    for (int64_t m = 0; m < job->n; m++) losses[m] = (struct llm_evict_loss){.layer = layer, .head = head};
    for (int64_t first = f->n_queries - (f->n - job->end); first < f->n_queries; first += LLM_LOOK) {
        int64_t n = smaller(f->n_queries - first, LLM_LOOK);
        if (llm_look(f, layer, head, g->keys, first, n, g->p) < 0) return -1;
        for (int64_t i = 0; i < n; i++) {
            int64_t t = f->n - f->n_queries + first + i;
            const float *p = g->p + i * f->rows;
            gather(g, p, NULL, 0, 0, t + 1, g->output);
            for (int64_t m = 0; m < job->n; m++) compare(g, p, kept[m], n_kept[m], job->end, t, &losses[m]);
        }
    }
    return 0;
}

static void lose(struct job *job, struct group *g)
{
    const struct llm_kv_file *f = job->f;
    int64_t n_rep = f->config.num_attention_heads / f->layers[g->source].shape.n_kv_heads;
    int32_t **kept = calloc((size_t)job->n, sizeof *kept);
    int64_t *n_kept = calloc((size_t)job->n, sizeof *n_kept);
    bool bad = !kept || !n_kept;
    for (int64_t m = 0; m < job->n && !bad; m++) {
        kept[m] = malloc((size_t)job->m[m].keep * sizeof **kept);
        bad = !kept[m];
    }
    bad = bad || choose_all(g, job->m, job->n, job->end, kept, n_kept) < 0;
    for (int64_t l = g->source; l < f->n_layers && !bad; l++) {
        if (f->layers[l].shape.n_kv_heads == 0 || f->layers[l].shape.source != g->source) continue;
        for (int64_t h = g->kv_head * n_rep; h < (g->kv_head + 1) * n_rep && !bad; h++) bad = measure(g, job, l, h, kept, n_kept) < 0;
    }
    for (int64_t m = 0; kept && m < job->n; m++) free(kept[m]);
    free(kept);
    free(n_kept);
    if (bad) job->no_memory = true;
}

/* ---- the cache that is left ---- */

/* Moves the rows of one head that stay into new arrays. */
static void move(struct job *job, struct group *g)
{
    const struct llm_kv_file_layer *from = &job->f->layers[g->source];
    struct llm_kv_file_layer *to = &job->to->layers[g->source];
    int64_t heads = from->shape.n_kv_heads;
    size_t k_bytes = llm_dtype_bytes(from->types.k, (uint64_t)from->shape.d_k), v_bytes = llm_dtype_bytes(from->types.v, (uint64_t)from->shape.d_v);
    int32_t *kept = malloc((size_t)job->m->keep * sizeof *kept);
    int64_t n;
    if (!kept || choose_all(g, job->m, 1, job->end, &kept, &n) < 0) {
        job->no_memory = true;
        free(kept);
        return;
    }
    for (int64_t r = 0; r < n; r++) {
        size_t a = (size_t)(kept[r] * heads + g->kv_head), b = (size_t)(r * heads + g->kv_head);
        to->kept[b] = kept[r];
        memcpy((char *)to->k + b * k_bytes, (const char *)from->k + a * k_bytes, k_bytes);
        if (from->v) memcpy((char *)to->v + b * v_bytes, (const char *)from->v + a * v_bytes, v_bytes);
    }
    free(kept);
}

/* ---- both ---- */

static void group_piece(void *arg, size_t i, int thread)
{
    struct job *job = arg;
    struct group g;
    int64_t source = job->groups[2 * i], kv_head = job->groups[2 * i + 1];
    void *memory = malloc(group_bytes(job->f, source));
    (void)thread; /* scratch is kept after the piece, and these are large */
    if (!memory) {
        job->no_memory = true;
        return;
    }
    group_init(&g, job->f, source, kv_head, memory);
    if (job->to) move(job, &g);
    else lose(job, &g);
    free(memory);
}

/* Runs all groups. */
static int run(struct job *job, struct llm_err *e)
{
    const struct llm_kv_file *f = job->f;
    int64_t n = 0, row = 0;
    for (int64_t l = 0; l < f->n_layers; l++) n += f->layers[l].k ? f->layers[l].shape.n_kv_heads : 0;
    job->groups = llm_calloc((size_t)n, 2 * sizeof *job->groups, "heads", e);
    job->first_row = llm_calloc((size_t)f->n_layers, sizeof *job->first_row, "heads", e);
    n = 0;
    for (int64_t l = 0; job->groups && job->first_row && l < f->n_layers; l++) {
        job->first_row[l] = row;
        row += f->layers[l].shape.n_kv_heads > 0 ? f->config.num_attention_heads : 0;
        for (int64_t h = 0; f->layers[l].k && h < f->layers[l].shape.n_kv_heads; h++, n++) {
            job->groups[2 * n] = l;
            job->groups[2 * n + 1] = h;
        }
    }
    int status = job->groups && job->first_row ? 0 : -1;
    if (status == 0) llm_parallel((size_t)n, group_piece, job);
    free(job->groups);
    free(job->first_row);
    return status < 0 ? -1 : job->no_memory ? llm_no_memory(e, "keys of a head") : 0;
}

/* Refuses caches that cannot be evicted. `looks`: queries are needed. */
static int check(const struct llm_kv_file *f, bool looks, struct llm_err *e)
{
    const char *why = llm_kv_file_unevictable(&f->config);
    bool any = false;
    if (why) return llm_fail(e, EX_DATAERR, "expected a model whose keys can be evicted, found %s: %s", f->config.model_type, why);
    if (f->evicted) return llm_fail(e, EX_DATAERR, "expected a cache with the keys of all tokens, found an evicted one");
    for (int64_t l = 0; l < f->n_layers; l++) {
        if (f->layers[l].shape.n_kv_heads == 0) continue;
        any = true;
        if (looks && llm_look_check(f, l, e) < 0) return -1;
    }
    if (any && f->n > 0) return 0;
    return llm_fail(e, EX_DATAERR, "expected keys of %s, found none", any ? "some tokens" : "attention (the model keeps a state)");
}

int llm_evict_losses(const struct llm_kv_file *f, const struct llm_evict *m, int64_t n, int64_t hold, struct llm_evict_loss *losses,
                     struct llm_err *e)
{
    struct job job = {.f = f, .m = m, .n = n, .end = f->n - hold, .losses = losses};
    if (check(f, true, e) < 0) return -1;
    if (hold >= f->n_queries || hold >= f->n) {
        return llm_fail(e, EX_DATAERR, "expected traced queries of more than the %lld tokens that are held out, found %lld", (long long)hold,
                        (long long)f->n_queries);
    }
    return run(&job, e);
}

int llm_evict(struct llm_kv_file *f, const struct llm_evict *m, struct llm_err *e)
{
    struct llm_kv_file to = *f;
    struct job job = {.f = f, .to = &to, .m = m, .n = 1, .end = f->n};
    if (check(f, scores(m), e) < 0) return -1;
    to.rows = smaller(m->keep, f->n);
    to.evicted = true;
    to.layers = llm_calloc((size_t)f->n_layers, sizeof *to.layers, "an evicted cache", e);
    int status = to.layers ? 0 : -1;
    for (int64_t l = 0; l < f->n_layers && status == 0; l++) {
        const struct llm_state_shape *s = &f->layers[l].shape;
        struct llm_kv_file_layer *layer = &to.layers[l];
        size_t n = (size_t)(to.rows * s->n_kv_heads);
        *layer = f->layers[l];
        layer->k = layer->v = NULL;
        if (f->layers[l].k) layer->k = llm_alloc(n, llm_dtype_bytes(layer->types.k, (uint64_t)s->d_k), "an evicted cache", e);
        if (f->layers[l].v) layer->v = llm_alloc(n, llm_dtype_bytes(layer->types.v, (uint64_t)s->d_v), "an evicted cache", e);
        if (f->layers[l].k) layer->kept = llm_alloc(n, sizeof *layer->kept, "an evicted cache", e);
        if (f->layers[l].k && (!layer->k || !layer->kept || (f->layers[l].v && !layer->v))) status = -1;
    }
    if (status == 0) status = run(&job, e);
    for (int64_t l = 0; to.layers && l < f->n_layers; l++) { /* the new arrays replace the old ones, or are freed */
        struct llm_kv_file_layer *old = status == 0 ? &f->layers[l] : &to.layers[l];
        free(old->k);
        free(old->v);
        if (status < 0) free(old->kept);
    }
    if (status < 0) {
        free(to.layers);
        return -1;
    }
    free(f->layers);
    *f = to;
    return 0;
}
