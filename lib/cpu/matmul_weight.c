/* Packed forms of weights. */
#include <stdatomic.h>
#include <string.h>
#include "cpu/detect.h"
#include "cpu/form_memory.h"
#include "cpu/matmul_internal.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "cpu/scratch.h"

/* Stands before the panels. */
struct form { size_t bytes; bool valid; };
enum { HEAD = 64, FEW_ROWS = 8, MANY_ROWS = 256, PIECE_BYTES = 128 << 10, AGAIN = 3, DECODED_ROWS = 256 /* a multiple of every k_unit */ };
_Static_assert(sizeof(struct form) <= HEAD, "the head fits");

void llm_weight_decode(const struct llm_weight *w, int64_t from, int64_t n, float *out)
{
    enum { RUN = 1024 };
    const char *in = (const char *)w->data + llm_dtype_bytes(w->dtype, (uint64_t)from);
    if (w->dtype == LLM_BF16) {
        llm_k.elementwise.from_bf16(out, (const uint16_t *)(const void *)in, (size_t)n);
        return;
    }
    llm_dtypes[w->dtype].decode(in, out, (size_t)n);
    for (int64_t at = 0; w->rounded && at < n; at += RUN) {
        uint16_t run[RUN];
        size_t count = (size_t)(n - at < RUN ? n - at : RUN);
        llm_k.elementwise.to_bf16(run, out + at, count);
        llm_k.elementwise.from_bf16(out + at, run, count);
    }
}

/* For products in FP32 and BF16X3: what those in BF16 do while they pack. */
static bool pack_rounded(const struct llm_weight *w, const struct llm_gemm *g, bool backward, int64_t first, int64_t columns, int thread, void *out)
{
    float *rows = llm_scratch_slot(thread, LLM_SCRATCH_DECODED, (size_t)(columns * (backward ? w->n : w->k)) * sizeof *rows);
    if (!rows) return false;
    if (!backward) {
        llm_weight_decode(w, first * w->k, columns * w->k, rows);
        g->pack_b(rows, w->k, columns, w->k, out);
        return true;
    }
    for (int64_t r = 0; r < w->n; r++) llm_weight_decode(w, r * w->k + first, columns, rows + r * columns);
    g->pack_b_transposed(rows, columns, columns, w->n, out);
    return true;
}

/* Panels for dX of data that are decoded in whole blocks: `DECODED_ROWS` rows of the weight at a time. */
static bool pack_decoded(const struct llm_weight *w, const struct llm_gemm *g, int64_t first, int64_t count, int thread, char *out)
{
    const int64_t together = panels_decoded(w), end = first + count;
    const size_t panel = panel_bytes(g, w->n);
    float *run = llm_scratch_slot(thread, LLM_SCRATCH_DECODED, (size_t)(DECODED_ROWS * together * LLM_GEMM_PANEL) * sizeof *run);
    if (!run) return false;
    for (int64_t at = first / together * together; at < end; at += together) {
        int64_t column = at * LLM_GEMM_PANEL, left = w->k - column, width = left < together * LLM_GEMM_PANEL ? left : together * LLM_GEMM_PANEL;
        for (int64_t row = 0; row < w->n; row += DECODED_ROWS) {
            int64_t rows = w->n - row < DECODED_ROWS ? w->n - row : DECODED_ROWS;
            for (int64_t r = 0; r < rows; r++) llm_weight_decode(w, (row + r) * w->k + column, width, run + r * width);
            for (int64_t p = at > first ? at : first; p < at + together && p < end; p++) {
                int64_t skip = (p - at) * LLM_GEMM_PANEL, lines = width - skip < LLM_GEMM_PANEL ? width - skip : LLM_GEMM_PANEL;
                g->pack_b_transposed(run + skip, width, lines, rows, out + (size_t)(p - first) * panel + panel_bytes(g, row));
            }
        }
    }
    return true;
}

static bool pack_panel(const struct llm_weight *w, const struct llm_gemm *g, bool backward, int64_t panel, int thread, void *out)
{
    int64_t first = panel * LLM_GEMM_PANEL, of = backward ? w->k : w->n;
    int64_t columns = of - first < LLM_GEMM_PANEL ? of - first : LLM_GEMM_PANEL;
    int64_t skip = backward ? first : first * w->k, depth = backward ? w->n : w->k;
    if (w->dtype == LLM_BF16) {
        const uint16_t *in = (const uint16_t *)w->data + skip;
        (backward ? g->pack_b_bf16_transposed : g->pack_b_bf16)(in, w->k, columns, depth, out);
    } else if (w->rounded && g != &llm_k.gemm.bf16) {
        return pack_rounded(w, g, backward, first, columns, thread, out);
    } else if (w->dtype == LLM_F32) {
        const float *in = (const float *)w->data + skip;
        (backward ? g->pack_b_transposed : g->pack_b)(in, w->k, columns, depth, out);
    } else {
        size_t row_bytes = llm_dtype_bytes(w->dtype, (uint64_t)w->k);
        float *rows = llm_scratch_slot(thread, LLM_SCRATCH_DECODED, (size_t)(columns * w->k) * sizeof *rows);
        if (!rows) return false;
        for (int64_t r = 0; r < columns; r++) {
            const char *in = (const char *)w->data + (size_t)(first + r) * row_bytes;
            if (w->dtype == LLM_F16) llm_k.elementwise.from_f16(rows + r * w->k, (const uint16_t *)(const void *)in, (size_t)w->k);
            else llm_dtypes[w->dtype].decode(in, rows + r * w->k, (size_t)w->k);
        }
        g->pack_b(rows, w->k, columns, w->k, out);
    }
    return true;
}

bool llm_weight_pack_panels(const struct llm_weight *w, const struct llm_gemm *g, bool backward, int64_t first, int64_t count, int thread, char *out)
{
    bool packed = true;
    if (backward && w->dtype != LLM_F32 && w->dtype != LLM_BF16) return pack_decoded(w, g, first, count, thread, out);
    for (int64_t i = 0; packed && i < count; i++) {
        packed = pack_panel(w, g, backward, first + i, thread, out + (size_t)i * panel_bytes(g, backward ? w->n : w->k));
    }
    return packed;
}

struct packing {
    const struct llm_weight *w;
    const struct llm_gemm *g;
    void (*pack)(const void *w, size_t ldw, int64_t n, int64_t k, void *panel); /* from the data as they are; NULL: as `g` does */
    bool backward;
    size_t panel, panels, together; /* bytes; how many there are, and in a piece */
    char *out;
    atomic_bool failed;
};

static void pack_piece(void *arg, size_t i, int thread)
{
    struct packing *p = arg;
    const struct llm_weight *w = p->w;
    const size_t row_bytes = llm_dtype_bytes(w->dtype, (uint64_t)w->k), first = i * p->together;
    const size_t end = p->panels - first < p->together ? p->panels : first + p->together;
    for (size_t panel = first; p->pack && panel < end; panel++) {
        int64_t row = (int64_t)panel * LLM_GEMM_PANEL, rows = w->n - row < LLM_GEMM_PANEL ? w->n - row : LLM_GEMM_PANEL;
        p->pack((const char *)w->data + (size_t)row * row_bytes, row_bytes, rows, w->k, p->out + panel * p->panel);
    }
    if (!p->pack && !llm_weight_pack_panels(w, p->g, p->backward, (int64_t)first, (int64_t)(end - first), thread, p->out + first * p->panel)) {
        atomic_store(&p->failed, true);
    }
    /* With the pieces before it, whose last pages it shares and has brought along. */
    const size_t from = (i < AGAIN ? 0 : i - AGAIN) * p->together;
    if (!p->backward) llm_weight_release_pages(w, from * LLM_GEMM_PANEL * row_bytes, (end - from) * LLM_GEMM_PANEL * row_bytes);
}

static int make(struct llm_weight *w, enum llm_compute compute, bool backward, int slot, struct llm_err *e)
{
    const struct llm_gemm_q *q = slot == PACKED_BF16 ? gemm_q_of(w->dtype) : NULL;
    struct packing p = {.w = w, .g = gemm_of(compute), .backward = backward,
                        .pack = q ? q->pack : slot == PACKED_FOURS ? llm_k.gemm.pack_fours : NULL};
    size_t bytes;
    LLM_PROFILE_PART("packing of weights");
    p.panels = (size_t)panels_of(backward ? w->k : w->n);
    p.panel = q ? panel_bytes_q(q, w) : p.pack ? panel_bytes_fours(w) : panel_bytes(p.g, backward ? w->n : w->k);
    if (__builtin_mul_overflow(p.panels, p.panel, &bytes) || bytes > SIZE_MAX / 2) return llm_no_memory(e, "a packed weight");
    struct form *form = w->packed[slot];
    if (!form) {
        form = llm_form_memory_create(HEAD + bytes);
        if (!form) return llm_no_memory(e, "a packed weight");
        *form = (struct form){.bytes = bytes};
        w->packed[slot] = form;
        w->packed_bytes += bytes;
    }
    p.out = (char *)form + HEAD;
    p.together = p.panel < PIECE_BYTES ? PIECE_BYTES / (p.panel + 1) + 1 : 1;
    size_t decoded = backward ? (size_t)panels_decoded(w) : 1;
    p.together = (p.together + decoded - 1) / decoded * decoded;
    llm_parallel((p.panels + p.together - 1) / p.together, pack_piece, &p);
    if (atomic_load(&p.failed)) return llm_no_memory(e, "packing a weight");
    if (!backward) llm_weight_release_pages(w, 0, llm_dtype_bytes(w->dtype, (uint64_t)(w->n * w->k)));
    form->valid = true;
    return 0;
}

static int slot_of(enum llm_compute compute, bool backward)
{
    const struct llm_gemm *g = gemm_of(compute);
    if (g == &llm_k.gemm.bf16) return backward ? PACKED_BF16_DX : PACKED_BF16;
    if (g == &llm_k.gemm.f32) return backward ? PACKED_F32_DX : PACKED_F32;
    return backward ? PACKED_X3_DX : PACKED_X3;
}

/* Counts a product up to `enough`; returns whether it is number `enough`. */
static bool is_number(int *products, int enough)
{
    return *products < enough && ++*products == enough;
}

/* A weight that products keep coming to is worth packing, which costs about three products of one row, when memory is plenty. Asked by the second
 * product of few rows, and by the third of more rows: a no stays one. Quantised weights are not packed for a prompt's passes, to which packing costs
 * little. */
static bool worth_packing(struct llm_weight *w, enum llm_compute compute, bool inference, int64_t m)
{
    const bool quantised = compute == LLM_COMPUTE_BF16 && gemm_q_of(w->dtype), few = m <= FEW_ROWS;
    const bool never = !inference || (quantised && m >= MANY_ROWS);
    if (llm_pool_inside() || !(few ? is_number(&w->few_rows, 2) : is_number(&w->many_rows, never ? 2 : 3)) || never) return false;
    double elements = (double)w->n * (double)w->k, bytes = gemm_of(compute)->element * elements;
    if (quantised || by_fours(w, compute, m)) { /* as many as the data */
        bytes = elements / llm_dtypes[w->dtype].block_size * llm_dtypes[w->dtype].block_bytes;
    }
    return bytes < llm_memory_available() / 2;
}

int llm_weight_form(struct llm_weight *w, enum llm_compute compute, bool backward, bool inference, int64_t m, const void **out,
                    struct llm_err *e)
{
    int slot = !backward && by_fours(w, compute, m) ? PACKED_FOURS : slot_of(compute, backward);
    *out = NULL;
    if (!w->packed[slot]) {
        if (backward || !worth_packing(w, compute, inference, m)) return 0;
        if (make(w, compute, backward, slot, &(struct llm_err){0}) < 0) return 0; /* then without */
    }
    struct form *form = w->packed[slot];
    if (!form->valid && make(w, compute, backward, slot, e) < 0) return -1;
    *out = (const char *)form + HEAD;
    return 0;
}

static int pack(struct llm_weight *w, enum llm_compute compute, bool backward, struct llm_err *e)
{
    int slot = slot_of(compute, backward);
    struct form *form = w->packed[slot];
    return form && form->valid ? 0 : make(w, compute, backward, slot, e);
}

int llm_weight_pack_dx(struct llm_weight *w, enum llm_compute compute, struct llm_err *e)
{
    return pack(w, compute, true, e);
}

int llm_weight_pack(struct llm_weight *w, enum llm_compute compute, bool backward, struct llm_err *e)
{
    return pack(w, compute, false, e) < 0 || (backward && llm_weight_pack_dx(w, compute, e) < 0) ? -1 : 0;
}

void llm_weight_changed(struct llm_weight *w)
{
    for (int i = 0; i < N_PACKED; i++)
        if (w->packed[i]) ((struct form *)w->packed[i])->valid = false;
}

void llm_weight_release(struct llm_weight *w)
{
    for (int i = 0; i < N_PACKED; i++) {
        llm_form_memory_destroy(w->packed[i]);
        w->packed[i] = NULL;
    }
    w->packed_bytes = 0;
    w->few_rows = w->many_rows = 0;
}
