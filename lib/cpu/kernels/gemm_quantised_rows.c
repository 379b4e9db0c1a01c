/* Quantised products for many rows. A tile is four rows of activations by two or three vectors of columns. The weights of a panel are opened to bytes
 * once for all rows; a broadcast word of activations then multiplies every vector of the tile. The rule of each type and its order of summation are
 * those of kernels/gemm_quantised.c, so the bits are the same; few rows are left to the kernels of that file. */
#include "cpu/simd.h"

#if VN >= 8
#define OPENED_GROUPS 16 /* opened panels stay in the first cache */
#include "cpu/kernels/gemm_opened.h"

#define ROWS 4
#define MAX_VECTORS (VN == 16 ? 3 : VECTORS)
#define MAX_PANELS ((MAX_VECTORS * VN + PANEL - 1) / PANEL)

static void (*few_rows[N_KINDS])(const struct llm_gemm_q_job *);

/* Up to how many rows the other kernels are left, which open weights in registers: those of one tile, or of two where opening twice takes less than
 * storing what was opened. */
INLINE int few(const struct kind *k)
{
    if (VN == 16) return PANEL;
    switch (k->type) {
    case LLM_Q4_0:
    case LLM_Q4_1:
    case LLM_Q4_K:
    case LLM_Q8_0:
    case LLM_Q8_K: return SUMS_OF_16 ? 4 : 2;
    default: return 2;
    }
}

/* How the products of a group are computed; one tile function is compiled for each form. */
struct form {
    int parts;   /* as in struct kind */
    int words;   /* words multiplied between two widenings of 16-bit sums to 32 bits */
    bool least;  /* as in struct kind */
    int planes;  /* 2: the lower and the upper halves of the bytes are multiplied separately */
    int vectors; /* vectors of columns in a tile */
};

/* The product of all rows with the groups that are open. `row` is the tile's first row. */
struct step {
    const struct llm_gemm_q_job *g;
    const struct opened *o;            /* [panels] */
    int64_t row, column, from, groups; /* from: the first of the opened groups */
    float *sums;                       /* [rows][vectors][VN] */
};

/* The address in `member` of struct opened for vector v of the tile's columns. */
#define OF_COLUMNS(member, v) (s->o[(v) / VECTORS].member + (v) % VECTORS * VN)

/* Multiplies word i of group `at` with four rows of activations at q and adds to `dots`, which are 16-bit sums if SUMS_OF_16. */
INLINE void add_word(const struct step *s, int64_t at, int plane, int i, const int8_t *q, const struct form *f, VI dots[ROWS][MAX_VECTORS])
{
    VI w[MAX_VECTORS];
    LLM_UNROLL
    for (int v = 0; v < f->vectors; v++) w[v] = vi_load(OF_COLUMNS(w[plane] + (at * GROUP / 4 + i) * PANEL, v));
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++) {
        VI x = four_of(q + r * GROUP + i * 4);
        LLM_UNROLL
        for (int v = 0; v < f->vectors; v++) {
#if SUMS_OF_16
            dots[r][v] = kept(add_16(dots[r][v], products(w[v], x)));
#else
            dots[r][v] = dot4(dots[r][v], w[v], x);
#endif
        }
    }
}

/* The dot products of one part of group `at`, in 32 bits. If SUMS_OF_16 and there are two parts, they are multiplied by the part's integer scale,
 * and the second part's are added to those of the first: below 2^24, so that FP32 has them exactly, as the rule of the types wants.
 * x_at: the index of the first row's group in the activations' arrays. */
INLINE void part_dots(const struct step *s, int64_t at, int part, int64_t x_at, const struct form *f, VI dots[ROWS][MAX_VECTORS])
{
    const int words = GROUP / 4 / f->parts;
    VI sum[ROWS][MAX_VECTORS];
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++) {
        VI start = f->least ? vi_set1(0) : vi_set1(s->g->x.start[part][x_at + r]); /* types with least values have zero = 0 */
        LLM_UNROLL
        for (int v = 0; v < f->vectors; v++) sum[r][v] = start;
    }
    const int8_t *q = s->g->x.q + x_at * GROUP;
    LLM_UNROLL
    for (int i = 0; i < f->planes * words; i++) { /* upper halves first: `start` belongs to them */
        const int plane = f->planes - 1 - i / words;
        if (i == words) __asm__("" : "+r"(q)); /* reload the activations: GCC would keep them in spill slots */
        add_word(s, at, plane, part * words + i % words, q, f, sum);
        if ((i + 1) % f->words != 0) continue;
        LLM_UNROLL
        for (int r = 0; r < ROWS; r++)
            LLM_UNROLL
            for (int v = 0; v < f->vectors; v++) {
#if SUMS_OF_16
                VI wide = f->parts == 2 ? pairs_scaled(sum[r][v], vi_load(OF_COLUMNS(part[at][part], v))) : pairs_of(sum[r][v], plane ? 16 : 1);
                dots[r][v] = kept(part == 0 && i < f->words ? wide : vi_add(dots[r][v], wide));
                sum[r][v] = vi_set1(0);
#else
                dots[r][v] = sum[r][v];
#endif
            }
    }
}

/* Adds group `at` to the FP32 sums of a tile. */
INLINE void add_group(const struct step *s, int64_t at, int64_t x_at, const struct form *f, V sum[ROWS][MAX_VECTORS])
{
    const struct llm_gemm_q_x *x = &s->g->x;
    VI dots[ROWS][MAX_VECTORS];
    V first[ROWS][MAX_VECTORS];
    part_dots(s, at, 0, x_at, f, dots);
#if SUMS_OF_16
    if (f->parts == 2) part_dots(s, at, 1, x_at, f, dots);
#endif
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++)
        LLM_UNROLL
        for (int v = 0; v < f->vectors; v++) first[r][v] = v_from_i32(dots[r][v]);
#if !SUMS_OF_16
    if (f->parts == 2) {
        part_dots(s, at, 1, x_at, f, dots);
        LLM_UNROLL
        for (int r = 0; r < ROWS; r++)
            LLM_UNROLL
            for (int v = 0; v < f->vectors; v++)
                first[r][v] = v_fma(first[r][v], v_load(OF_COLUMNS(part[at][0], v)),
                                    v_mul(v_from_i32(dots[r][v]), v_load(OF_COLUMNS(part[at][1], v))));
    }
#endif
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++) {
        V scale = v_set1(x->scale[x_at + r]);
        LLM_UNROLL
        for (int v = 0; v < f->vectors; v++) sum[r][v] = v_fma(first[r][v], v_mul(v_load(OF_COLUMNS(scale[at], v)), scale), sum[r][v]);
        for (int part = 0; f->least && part < f->parts; part++) {
            V total = v_set1(x->sum[part][x_at + r]);
            LLM_UNROLL
            for (int v = 0; v < f->vectors; v++) sum[r][v] = v_fma(v_load(OF_COLUMNS(least[at][part], v)), total, sum[r][v]);
        }
    }
}

INLINE void four_rows(const struct step *s, const struct form *f)
{
    const struct llm_gemm_q_job *g = s->g;
    int64_t all = g->k / GROUP, x_at = llm_gemm_q_at(all, g->x.step, s->row, s->from);
    V sum[ROWS][MAX_VECTORS];
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++)
        LLM_UNROLL
        for (int v = 0; v < f->vectors; v++) sum[r][v] = s->from ? v_load(s->sums + (r * f->vectors + v) * VN) : v_zero();
    for (int64_t at = 0; at < s->groups; at++, x_at += g->x.step) add_group(s, at, x_at, f, sum);
    if (s->from + s->groups < all) {
        LLM_UNROLL
        for (int r = 0; r < ROWS; r++)
            LLM_UNROLL
            for (int v = 0; v < f->vectors; v++) v_store(s->sums + (r * f->vectors + v) * VN, sum[r][v]);
        return;
    }
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++)
        LLM_UNROLL
        for (int v = 0; v < f->vectors; v++)
            if (s->row + r < g->m && s->column + v * VN < g->n) put_row(g, s->row + r, s->column + v * VN, sum[r][v]);
}

#define VECTORS_OF(parts) (VN == 16 && (parts) == 2 ? 2 : MAX_VECTORS)

/* X(parts, words, least, planes): every form that row_product_of can return. */
#if SUMS_OF_16
#define FORMS(X) X(1, 8, true, 1) X(1, 8, false, 1) X(1, 4, true, 1) X(1, 8, false, 2) X(2, 4, true, 1) X(2, 4, false, 1)
#else
#define FORMS(X) X(1, 8, true, 1) X(1, 8, false, 1) X(2, 4, true, 1) X(2, 4, false, 1)
#endif
#define ALL_ROWS(parts, words, least, planes)                                                                  \
    static void rows_##parts##_##words##_##least##_##planes(struct step *s)                                    \
    {                                                                                                          \
        const struct form f = {parts, words, least, planes, VECTORS_OF(parts)};                                \
        for (s->row = 0; s->row < s->g->m; s->row += ROWS, s->sums += ROWS * f.vectors * VN) four_rows(s, &f); \
    }
#define FORM(parts, words, least, planes) {{parts, words, least, planes, VECTORS_OF(parts)}, rows_##parts##_##words##_##least##_##planes},
FORMS(ALL_ROWS)
static const struct row_product {
    struct form f;
    void (*all_rows)(struct step *s);
} row_products[] = {FORMS(FORM)};

static const struct row_product *row_product_of(const struct kind *k)
{
    const struct row_product *p = row_products;
    int words = GROUP / 4 / k->parts, planes = 1;
#if SUMS_OF_16
    if (words_in_16(k) == 1) planes = 2;
    else if (words_in_16(k) < words) words = words_in_16(k);
#endif
    while (p->f.parts != k->parts || p->f.words != words || p->f.least != k->least || p->f.planes != planes) p++;
    return p;
}

INLINE void multiply(const struct llm_gemm_q_job *g, const int i)
{
    const struct kind *k = &kinds[i];
    const struct row_product *product = row_product_of(k);
    const int columns = product->f.vectors * VN;
    const int64_t groups = g->k / GROUP, blocks = groups / k->groups, block_bytes = k->bytes * PANEL;
    struct opened o[MAX_PANELS];
    _Alignas(64) float sums[OPENED_ROWS * MAX_VECTORS * VN];
    if (g->m <= few(k) || g->m > OPENED_ROWS || g->k == 0) {
        few_rows[i](g);
        return;
    }
    for (int64_t column = 0; column < g->n; column += columns) {
        for (int64_t from = 0; from < groups; from += OPENED_GROUPS) {
            int64_t here = groups - from < OPENED_GROUPS ? groups - from : OPENED_GROUPS;
            struct step s = {.g = g, .o = o, .column = column, .from = from, .groups = here, .sums = sums};
            for (int64_t p = 0; p * PANEL < columns && column + p * PANEL < g->n; p++) { /* results of missing panels are not stored */
                const int64_t block = (column / PANEL + p) * blocks + from / k->groups, step = here / k->groups;
                const int64_t next = from + here < groups ? block + step : block - from / k->groups + columns / PANEL * blocks;
                const unsigned char *panels = g->b;
                open_panel(k, panels + block * block_bytes, step, panels + next * block_bytes, &o[p]);
            }
            product->all_rows(&s);
        }
    }
}

#define KIND(ID, name, ...) static void multiply_##name(const struct llm_gemm_q_job *g) { multiply(g, KIND_##name); }
LLM_QUANTISED_KINDS(KIND)

#define FILL(ID, name, ...)                                       \
    few_rows[KIND_##name] = k->gemm.quantised[LLM_##ID].multiply; \
    k->gemm.quantised[LLM_##ID].multiply = multiply_##name;

void KERNEL(llm_fill_gemm_quantised_rows)(struct llm_kernels *k)
{
    LLM_QUANTISED_KINDS(FILL)
}
#endif
