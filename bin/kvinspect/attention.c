/* llm-kvinspect attention: where the traced queries of a head look. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/buf.h"
#include "bin/kvinspect/kvinspect.h"
#include "cpu/pool.h"
#include "measure/heatmap_html.h"
#include "measure/heatmap_text.h"
#include "measure/kv.h"
#include "model/config/picture.h"

struct args {
    struct llm_common common;
    int64_t layer, head, query;
    int grid, show;
    const char *html, *image, *model;
    struct picture_args picture;
};
static const struct llm_opt options[] = {
    {'l', "layer", "N", "layer N, from 0 [0]", LLM_INT, offsetof(struct args, layer), 0, 1 << 20, NULL},
    {0, "head", "N", "query head N, from 0 [the mean of all heads of the layer]", LLM_INT, offsetof(struct args, head), 0, 1 << 20, NULL},
    {0, "grid", NULL, "all heads of the layer, each with a map", LLM_FLAG, offsetof(struct args, grid), 0, 0, NULL},
    {0, "show", NULL, "print the map in shades of characters instead of the table", LLM_FLAG, offsetof(struct args, show), 0, 0, NULL},
    PICTURE_OPTIONS(struct args, picture),
    {0, "html", "FILE", "also write a page with the map, which shows both tokens and the number under the pointer", LLM_OUTPUT,
     offsetof(struct args, html), 0, 0, NULL},
    {0, "image", "FILE", "maps of the patches of FILE, the picture (PNG, JPEG) that the model read, laid on it", LLM_INPUT,
     offsetof(struct args, image), 0, 0, NULL},
    {0, "for", "MODEL", "with --image: cut and resize the picture as MODEL's preprocessor_config.json says", LLM_INPUT,
     offsetof(struct args, model), 0, 0, NULL},
    {0, "query", "N", "with --image: map the attention of the token at position N [the mean of the traced queries]", LLM_INT,
     offsetof(struct args, query), 0, INT32_MAX, NULL},
    {0}};
const struct llm_cli kv_attention_cli = {
    .name = "llm-kvinspect attention", .summary = "Show where the traced queries of a head look: a table, a heat map, a page, or text.",
    .usage = "[OPTION]... [FILE]",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect attention -l 11 --image cat.png --for vit --query 0 --grid --png heads.png cat.kv\n"
                "llm-kvinspect attention -l 5 --head 3 -T model.llm --png head.png --html head.html cache.kv\n"
                "llm-kvinspect attention -l 5 --grid -T model.llm --svg heads.svg cache.kv",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG | LLM_COMMON_THREADS};

/* The maps: of one head, of the mean of all, or of each. */
struct maps {
    int64_t n, first;           /* first: the head of the first map, -1: the mean */
    int64_t step_x, step_y, rows, cols; /* of a cell; cells of a map */
    float *cells;               /* [n, rows, cols]; NULL: nothing is drawn */
    struct llm_kv_gaze *gazes;  /* [n, n_queries] */
    struct llm_image picture;   /* --image: as the model read it, grey; rgb NULL: the maps are of tokens */
    struct llm_patches patches; /* of the picture */
};

/* ---- maps over a picture ---- */

/* The upper left side x side pixels of the whole picture among the crops, whose samples are 0 to 255. They are grey, so that all colours are those of
 * the map. */
static int copy_grey(const struct llm_image_processor *p, const struct llm_pixels *px, int64_t side, struct llm_image *out, struct llm_err *e)
{
    const int64_t area = px->width * px->height;
    const float *whole = p->cut == LLM_IMAGE_TILES ? px->v + (px->crops.n - 1) * 3 * area : px->v;
    if (side > px->width || side > px->height) {
        return llm_fail(e, EX_DATAERR, "expected a crop of at least %" PRId64 " x %" PRId64 " pixels, found %" PRId64 " x %" PRId64, side, side,
                        px->width, px->height);
    }
    if (llm_image_alloc(out, side, side, e) < 0) return -1;
    for (int64_t i = 0; i < side * side; i++) {
        const float *from = whole + i / side * px->width + i % side;
        memset(out->rgb + 3 * i, (int)lrint(.299 * (double)from[0] + .587 * (double)from[area] + .114 * (double)from[2 * area]), 3);
    }
    return 0;
}

/* Reads the picture as the model read it, and finds its patches among the tokens. 0 or -1. */
static int open_picture(struct maps *m, const struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    struct llm_image_processor p;
    struct llm_pixels px = {0};
    struct llm_image im = {0};
    struct llm_file *file = NULL;
    int status = llm_image_processor_load(a->model, &p, e);
    if (status == 0 && !(file = llm_file_open(a->image, e))) status = -1;
    if (status == 0) status = llm_image_read(file, &im, e);
    p.rescale = p.normalise = false; /* samples stay 0 to 255 */
    if (status == 0 && llm_image_process(&p, &im, &px, e) < 0) status = llm_in(e, "%s", a->image);
    if (status == 0) status = llm_picture_patches(&f->config, &px.crops, f->ids, f->n, &m->patches, e);
    if (status == 0) status = copy_grey(&p, &px, m->patches.pixels, &m->picture, e);
    m->rows = m->cols = m->patches.side;
    llm_file_close(file);
    llm_image_release(&im);
    llm_pixels_release(&px);
    return status;
}

/* The number of the traced query at a position; -1: all of them. 0 or -1. */
static int find_query(const struct llm_kv_file *f, int64_t position, int64_t *query, struct llm_err *e)
{
    const int64_t first = f->n - f->n_queries;
    for (*query = f->n_queries - 1; *query >= 0 && position >= 0 && f->positions[first + *query] != position;) --*query;
    if (position < 0) *query = -1;
    if (position < 0 || *query >= 0 || f->n_queries == 0) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--query: expected a position that was traced, from %" PRId32 " to %" PRId32 ", found %" PRId64,
                    f->positions[first], f->positions[f->n - 1], position);
}

/* cells [rows * cols] = of the probabilities [n_queries, n], those of the patches: one query's, or the mean of all traced queries; NaN for a patch
 * that none of them sees. */
static void over_patches(const struct llm_kv_file *f, const struct maps *m, int64_t query, const float *p, float *cells)
{
    for (int64_t i = 0; i < m->rows * m->cols; i++) {
        double sum = 0;
        int64_t n = 0;
        for (int64_t r = query < 0 ? 0 : query; r < (query < 0 ? f->n_queries : query + 1); r++) {
            const float x = p[r * f->n + m->patches.token[i]];
            if (isnan(x)) continue;
            sum += (double)x;
            n++;
        }
        cells[i] = n > 0 ? (float)(sum / (double)n) : (float)NAN;
    }
}

/* The map of one head over the picture. 0 or -1. */
static int look_at_picture(const struct llm_kv_file *f, const struct maps *m, const struct args *a, int64_t i, struct llm_err *e)
{
    int64_t query;
    if (find_query(f, a->query, &query, e) < 0) return -1;
    float *p = llm_alloc((size_t)f->n_queries, (size_t)f->n * sizeof *p, "an attention map", e);
    const struct llm_kv_map map = {1, 1, p, m->gazes + i * f->n_queries};
    int status = p ? llm_kv_attention(f, a->layer, m->first < 0 ? -1 : m->first + i, &map, e) : -1;
    if (status == 0) over_patches(f, m, query, p, m->cells + i * m->rows * m->cols);
    free(p);
    return status;
}

/* ---- tables and pictures ---- */

/* The likeliest keys of each query. */
static int print(const struct llm_kv_file *f, const struct maps *m, const struct args *a, struct llm_err *e)
{
    static const char *const columns[] = {"head", "query", "key", "p", "second_key", "second_p", "entropy", NULL};
    struct llm_table t;
    llm_table_init(&t, columns + !a->grid);
    t.as_shown = true;
    for (int64_t i = 0; i < m->n * f->n_queries; i++) {
        const struct llm_kv_gaze *g = &m->gazes[i];
        if (a->grid) llm_table_count(&t, (double)(m->first + i / f->n_queries));
        llm_table_count(&t, (double)f->positions[f->n - f->n_queries + i % f->n_queries]);
        llm_table_count(&t, g->best < 0 ? (double)NAN : (double)f->positions[g->best]);
        llm_table_printed(&t, g->p, LLM_NUMBER_GENERAL, 6);
        llm_table_count(&t, g->second < 0 ? (double)NAN : (double)f->positions[g->second]);
        llm_table_printed(&t, g->second_p, LLM_NUMBER_GENERAL, 6);
        llm_table_printed(&t, g->entropy, LLM_NUMBER_GENERAL, 6);
    }
    return print_table(&t, &a->common, e);
}

static int print_map(const struct llm_heatmap *h, const struct args *a, struct llm_err *e)
{
    struct llm_buf text = {0};
    struct winsize window = {0};
    bool terminal = (!a->common.output || strcmp(a->common.output, "-") == 0) && isatty(1) && ioctl(1, TIOCGWINSZ, &window) == 0;
    struct llm_output *o = llm_output_open(a->common.output, false, e);
    int status = o ? llm_heatmap_text(&text, h, terminal && window.ws_col > 20 ? window.ws_col : 80, e) : -1;
    if (status == 0) status = llm_output_text(o, text.p, text.n, e);
    llm_buf_release(&text);
    if (status == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}

/* Draws the maps, and prints them if that is asked for. */
static int draw(const struct llm_kv_file *f, const struct maps *m, const struct args *a, struct llm_err *e)
{
    static const enum llm_scaling scales[] = {LLM_SCALE_AUTO, LLM_SCALE_LINEAR, LLM_SCALE_LOG};
    struct llm_buf text = {0};
    const char **labels = NULL, **names = llm_calloc((size_t)m->n, sizeof *names, "names of heads", e);
    char (*heads)[32] = llm_calloc((size_t)m->n, sizeof *heads, "names of heads", e), title[120], subtitle[200];
    int64_t first = f->n - f->n_queries;
    int status = names && heads ? 0 : -1;
    if (status == 0 && a->picture.tokenizer && !(labels = token_labels(a->picture.tokenizer, f, f->n, &text, e))) status = -1;
    for (int64_t i = 0; i < m->n && status == 0; i++) {
        snprintf(heads[i], sizeof *heads, "head %" PRId64, i);
        names[i] = heads[i];
    }
    if (a->grid) snprintf(title, sizeof title, "Attention of layer %" PRId64 ", head by head", a->layer);
    else if (a->head < 0) snprintf(title, sizeof title, "Attention of layer %" PRId64 ", mean of its heads", a->layer);
    else snprintf(title, sizeof title, "Attention of layer %" PRId64 ", head %" PRId64, a->layer, a->head);
    snprintf(subtitle, sizeof subtitle, "%s; %" PRId64 " queries, %" PRId64 " keys", f->config.model_type, f->n_queries, f->n);
    struct llm_heatmap h = {
        .title = title, .subtitle = subtitle, .value = "probability", .v = m->cells, .scale = scales[a->picture.scale],
        .n_panels = m->n, .panels = a->grid ? names : NULL,
        .x = {.n = f->n, .step = m->step_x, .name = "key", .labels = labels, .numbers = f->positions, .numbered = labels != NULL},
        .y = {.n = f->n_queries, .step = m->step_y, .name = "query", .labels = labels ? labels + first : NULL, .numbers = f->positions + first}};
    if (m->picture.rgb) {
        h.x = (struct llm_heatmap_axis){.n = m->cols, .name = "patch column"};
        h.y = (struct llm_heatmap_axis){.n = m->rows, .name = "patch row"};
        h.under = &m->picture;
        if (a->query >= 0) snprintf(subtitle, sizeof subtitle, "%s; query %" PRId64, f->config.model_type, a->query);
        else snprintf(subtitle, sizeof subtitle, "%s; mean of %" PRId64 " queries", f->config.model_type, f->n_queries);
    }
    if (status == 0) status = write_pictures(&a->picture, &h, e);
    if (status == 0 && a->html) status = write_picture(a->html, &h, llm_heatmap_html, false, e);
    if (status == 0 && a->show) status = print_map(&h, a, e);
    free(labels);
    free(names);
    free(heads);
    llm_buf_release(&text);
    return status;
}

static int attention(const struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    int64_t heads = f->config.num_attention_heads;
    bool drawn = wants_picture(&a->picture) || a->html || a->show;
    if (check_layer(f, a->layer, e) < 0) return -1;
    if (a->head >= heads) return llm_fail(e, LLM_EX_USAGE, "--head: expected below %" PRId64 ", found %" PRId64, heads, a->head);
    struct maps m = {.n = a->grid ? heads : 1, .first = a->grid ? 0 : a->head};
    int64_t across = llm_heatmap_across(m.n, f->n, f->n_queries > 0 ? f->n_queries : 1);
    m.step_x = f->n > 0 ? llm_heatmap_step(f->n, across) : 1;
    m.step_y = f->n_queries > 0 ? llm_heatmap_step(f->n_queries, (m.n + across - 1) / across) : 1;
    m.rows = (f->n_queries + m.step_y - 1) / m.step_y;
    m.cols = (f->n + m.step_x - 1) / m.step_x;
    int status = a->image ? open_picture(&m, f, a, e) : 0;
    if (status == 0 && drawn) m.cells = llm_calloc((size_t)(m.n * m.rows), (size_t)m.cols * sizeof *m.cells, "an attention map", e);
    m.gazes = llm_calloc((size_t)m.n, (size_t)f->n_queries * sizeof *m.gazes, "an attention map", e);
    if (!m.gazes || (drawn && !m.cells)) status = -1;
    for (int64_t i = 0; i < m.n && status == 0; i++) {
        if (a->image) {
            status = look_at_picture(f, &m, a, i, e);
            continue;
        }
        const struct llm_kv_map map = {m.step_x, m.step_y, drawn ? m.cells + i * m.rows * m.cols : NULL, m.gazes + i * f->n_queries};
        status = llm_kv_attention(f, a->layer, m.first < 0 ? -1 : m.first + i, &map, e);
    }
    if (status == 0 && drawn) status = draw(f, &m, a, e);
    if (status == 0 && !a->show) status = print(f, &m, a, e);
    llm_image_release(&m.picture);
    free(m.patches.token);
    free(m.cells);
    free(m.gazes);
    return status;
}

int kv_attention(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.head = -1, .query = -1};
    struct llm_kv_file f = {0};
    const char *path = one_operand(&kv_attention_cli, llm_cli_parse(&kv_attention_cli, &a, argc, argv), argc, argv);
    llm_config_force(a.common.force_config);
    if (a.grid && a.head >= 0) llm_usage(&kv_attention_cli, "--grid has all heads: it does not go with --head");
    if (a.image && !a.html && !a.show && !wants_picture(&a.picture)) llm_usage(&kv_attention_cli, "--image needs --png, --svg, --html or --show");
    if (!a.image != !a.model) llm_usage(&kv_attention_cli, "--image and --for go together: expected both, found --%s", a.image ? "image" : "for");
    if (a.query >= 0 && !a.image) llm_usage(&kv_attention_cli, "--query goes with --image");
    if (a.image && a.picture.tokenizer) llm_usage(&kv_attention_cli, "--tokenizer labels tokens: it does not go with --image");
    if (a.show && (a.common.json || a.common.format)) {
        llm_usage(&kv_attention_cli, "--show prints a map in place of the table: expected no --json or --format");
    }
    if ((!a.html && !a.show) || wants_picture(&a.picture)) check_picture(&kv_attention_cli, &a.common, &a.picture);
    if (a.html && strcmp(a.html, "-") == 0) {
        const struct picture_args *p = &a.picture;
        bool drawn = (p->png && strcmp(p->png, "-") == 0) || (p->svg && strcmp(p->svg, "-") == 0);
        if (drawn || !a.common.output || strcmp(a.common.output, "-") == 0) {
            llm_usage(&kv_attention_cli, "standard output has one owner: write the %s or the page (--html) to a file",
                      drawn ? "picture (--png, --svg)" : "table (-o)");
        }
    }
    int status = llm_pool_start(a.common.threads, e);
    if (status == 0) status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = attention(&f, &a, e);
    llm_kv_file_release(&f);
    llm_pool_stop();
    return status;
}
