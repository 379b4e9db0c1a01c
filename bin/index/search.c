/* llm-index search. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "bin/index/index.h"
#include "cpu/pool.h"
#include "io/table.h"
#include "search/search.h"
#include "search/words.h"

enum by { BY_WHAT_THERE_IS = -1, BY_VECTORS, BY_WORDS, BY_BOTH }; /* BY_WHAT_THERE_IS: the option was not given */
enum { FORMAT_CONTEXT = 6, USUAL_HITS = 10, DEPTH = 100 }; /* DEPTH: hits of each of two searches that are fused */
struct args {
    struct llm_common common;
    const char *index, *query;
    int64_t k, candidates, ef;
    int by, format, trusted, flat;
    struct llm_strs where;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'x', "index", "INDEX", "the index, in place of the first operand", LLM_INPUT, AT(index), 0, 0, NULL},
    {'k', "k", "N", "hits of a query [10, or all rows if there are fewer]", LLM_INT, AT(k), 1, 1 << 20, NULL},
    {0, "by", "WHAT", "compare vectors, words (BM25), or both and fuse the ranks [vectors; words if the index has none]", LLM_CHOICE,
     AT(by), 0, 0, "vectors|words|both"},
    {0, "query", "TEXT", "search for the words of TEXT, --by words, in place of lines", LLM_STR, AT(query), 0, 0, NULL},
    {0, "where", "KEY=VALUE", "find only rows whose metadata fulfil this (= != < <= > >=); may be given several times", LLM_LIST,
     AT(where), 0, 0, NULL},
    {0, "candidates", "N", "rows that rounded vectors propose to the exact ones [4k + 32]", LLM_INT, AT(candidates), 1, 1 << 20, NULL},
    {0, "ef", "N", "rows that a walk through the graph keeps: more find more, and take longer [2k, at least 64]", LLM_INT, AT(ef), 1, 1 << 20, NULL},
    {0, "flat", NULL, "look at every row, though there is a graph", LLM_FLAG, AT(flat), 0, 0, NULL},
    {0, "format", "FORM", "form of the output: auto (aligned on a terminal, else tsv), tsv, aligned, json, csv, md, context (ids and texts) [auto]",
     LLM_CHOICE, AT(format), 0, 0, LLM_TABLE_FORMS "|context"},
    {0, "trust", NULL, "do not verify the checksum of the index, which reads all of it", LLM_FLAG, AT(trusted), 0, 0, NULL},
    {0}};

const struct llm_cli index_search_cli = {
    .name = "llm-index search",
    .summary = "Find the rows of an index that are nearest to queries.",
    .usage = "[OPTION]... INDEX [FILE]",
    .examples = "llm-infer -m model --embed --jsonl questions.jsonl | llm-index search -k 5 notes.idx\n"
                "llm-index search notes.idx --by words --query 'tea with milk'",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_THREADS | LLM_COMMON_JSON,
    .aliases = index_search_aliases, .foreign = index_foreign,
};

struct run {
    const struct args *a;
    struct llm_index x;
    struct llm_index_rows q;
    uint8_t *allowed;
    struct llm_hit *hits;      /* [q.n, depth] */
    int64_t *n_hits, depth;
};

static int check(const struct run *r, struct llm_err *e)
{
    const struct llm_index *x = &r->x;
    if (r->a->k > x->n - x->n_deleted) {
        return llm_fail(e, LLM_EX_USAGE, "-k: expected at most %" PRId64 " (the rows of %s), found %" PRId64, x->n - x->n_deleted, x->name, r->a->k);
    }
    if (r->a->by == BY_WORDS) return 0;
    if (r->q.dims != x->dims) {
        return llm_fail(e, EX_DATAERR, "expected queries of %" PRId64 " elements (the vectors of %s), found %" PRId64, x->dims, x->name, r->q.dims);
    }
    if (x->fingerprint[0] && r->q.fingerprint[0] && strcmp(x->fingerprint, r->q.fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "expected queries of model %s (that of %s), found those of %s", x->fingerprint, x->name, r->q.fingerprint);
    }
    return 0;
}

static int find(struct run *r, struct llm_err *e)
{
    const struct args *a = r->a;
    struct llm_index *x = &r->x;
    r->depth = a->by == BY_BOTH && a->k < DEPTH ? DEPTH : a->k;
    const struct llm_lookup s = {.k = r->depth, .candidates = a->candidates, .ef = a->ef, .allowed = r->allowed};
    r->hits = llm_alloc((size_t)r->q.n * (size_t)r->depth + 1, sizeof *r->hits, "hits", e);
    r->n_hits = r->hits ? llm_alloc((size_t)r->q.n + 1, sizeof *r->n_hits, "hits", e) : NULL;
    if (!r->n_hits) return -1;
    if (a->by != BY_WORDS && !a->flat && llm_index_expect(x, r->q.n, &s, e) < 0) return -1;
    if (a->by != BY_WORDS && (a->flat ? llm_search_flat : llm_index_search)(x, r->q.vectors, r->q.n, &s, r->hits, r->n_hits, e) < 0) return -1;
    if (a->by == BY_VECTORS) return 0;
    struct llm_hit *found = llm_alloc((size_t)r->depth, 2 * sizeof *found, "hits", e);
    int status = found ? 0 : -1;
    for (int64_t i = 0; i < r->q.n && status == 0; i++) {
        struct llm_hit *to = r->hits + i * r->depth;
        int64_t n = llm_words_search(x, r->q.texts.p + r->q.texts_at[i], r->q.texts_at[i + 1] - r->q.texts_at[i], &s, found, e);
        if (n < 0) status = -1;
        else if (a->by == BY_BOTH) n = r->n_hits[i] = llm_search_fuse(to, r->n_hits[i], found, n, a->k, found + r->depth);
        if (n > 0) memcpy(to, found + (a->by == BY_BOTH ? r->depth : 0), (size_t)n * sizeof *to);
        r->n_hits[i] = n;
    }
    free(found);
    return status;
}

/* ---- output ---- */

static int put_member(struct llm_buf *b, const char *key, const char *s, size_t n, struct llm_err *e)
{
    return llm_buf_printf(b, e, "%s\"%s\":", b->n > 0 && b->p[b->n - 1] != '{' ? "," : "", key) < 0 || llm_json_quote(b, s, n, e) < 0 ? -1 : 0;
}

/* A hit as an object: {"query", "rank", "id", "score", "text", "metadata"}; of a context "id" and "text" alone. */
static int put_object(const struct run *r, int64_t query, int64_t i, bool context, struct llm_buf *b, struct llm_err *e)
{
    const struct llm_index *x = &r->x;
    const struct llm_hit *h = &r->hits[query * r->depth + i];
    const uint64_t *ids = x->ids.at + h->row, *texts = x->texts.at + h->row, *metadata = x->metadata.at + h->row;
    const uint64_t *q = r->q.ids_at + query;
    if (llm_buf_put(b, "{", 1, e) < 0) return -1;
    if (!context && put_member(b, "query", r->q.ids.p + q[0], q[1] - q[0], e) < 0) return -1;
    if (!context && llm_buf_printf(b, e, ",\"rank\":%" PRId64, i + 1) < 0) return -1;
    if (put_member(b, "id", x->ids.bytes + ids[0], ids[1] - ids[0], e) < 0) return -1;
    if (!context && (llm_buf_printf(b, e, ",\"score\":") < 0 || llm_json_number(b, h->score, e) < 0)) return -1;
    if ((context || texts[1] > texts[0]) && put_member(b, "text", x->texts.bytes + texts[0], texts[1] - texts[0], e) < 0) return -1;
    if (!context && metadata[1] > metadata[0]) {
        if (llm_buf_printf(b, e, ",\"metadata\":") < 0) return -1;
        if (llm_buf_put(b, x->metadata.bytes + metadata[0], metadata[1] - metadata[0], e) < 0) return -1;
    }
    return llm_buf_put(b, "}\n", 2, e);
}

/* A text as a cell: without NUL, which ids cannot have. */
static void put_cell(struct llm_table *t, struct llm_buf *b, const char *s, size_t n)
{
    struct llm_err e;
    b->n = 0;
    llm_table_text(t, llm_buf_put(b, s, n, &e) == 0 ? b->p : NULL);
}

static void put_rows(const struct run *r, int64_t from, int64_t to, struct llm_table *t)
{
    struct llm_buf b = {0};
    for (int64_t q = from; q < to; q++) {
        for (int64_t i = 0; i < r->n_hits[q]; i++) {
            const struct llm_hit *h = &r->hits[q * r->depth + i];
            put_cell(t, &b, r->q.ids.p + r->q.ids_at[q], r->q.ids_at[q + 1] - r->q.ids_at[q]);
            llm_table_count(t, (double)(i + 1));
            put_cell(t, &b, r->x.ids.bytes + r->x.ids.at[h->row], r->x.ids.at[h->row + 1] - r->x.ids.at[h->row]);
            llm_table_printed(t, h->score, LLM_NUMBER_GENERAL, 9);
        }
    }
    llm_buf_release(&b);
}

static const char *const columns[] = {"query", "rank", "id", "score", NULL};

/* Lines of a form whose rows do not depend on one another are made by all threads, the hits of SOME queries at a time, and written in order. */
enum { SOME = 64, PARTS = 64 };
struct lines {
    const struct run *r;
    bool objects, context;
    enum llm_table_form form;       /* unless objects */
    int64_t from, to;               /* queries of these parts */
    struct llm_buf text[PARTS];
    struct llm_err err[PARTS];
};

static void make_lines(void *arg, size_t part, int thread)
{
    struct lines *l = arg;
    struct llm_err *e = &l->err[part];
    int64_t from = l->from + (int64_t)part * SOME, to = from + SOME < l->to ? from + SOME : l->to;
    (void)thread;
    *e = (struct llm_err){0};
    l->text[part].n = 0;
    if (!l->objects) {
        struct llm_table t;
        llm_table_init(&t, columns);
        t.no_heading = from > 0;
        put_rows(l->r, from, to, &t);
        (void)!llm_table_show(&t, l->form, &l->text[part], e);
        llm_table_release(&t);
    }
    for (int64_t q = from; l->objects && q < to && !e->status; q++) {
        for (int64_t i = 0; i < l->r->n_hits[q] && !e->status; i++) (void)!put_object(l->r, q, i, l->context, &l->text[part], e);
    }
}

static int write_lines(const struct run *r, enum llm_table_form form, bool objects, bool context, struct llm_err *e)
{
    struct lines *l = llm_calloc(1, sizeof *l, "lines", e);
    struct llm_output *o = l ? llm_output_open(r->a->common.output, false, e) : NULL;
    int status = o ? 0 : -1;
    for (int64_t at = 0; at < r->q.n && status == 0; at = l->to) {
        const int64_t end = at + SOME * PARTS;
        *l = (struct lines){.r = r, .objects = objects, .context = context, .form = form, .from = at, .to = end < r->q.n ? end : r->q.n};
        size_t parts = (size_t)((l->to - at + SOME - 1) / SOME);
        llm_parallel(parts, make_lines, l);
        for (size_t i = 0; i < parts; i++) {
            if (status == 0 && l->err[i].status) {
                *e = l->err[i];
                status = -1;
            }
            if (status == 0) status = llm_output_write(o, l->text[i].p, l->text[i].n, e);
            llm_buf_release(&l->text[i]);
        }
    }
    free(l);
    if (status == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}

static int write_hits(const struct run *r, struct llm_err *e)
{
    struct llm_common common = r->a->common;
    struct llm_table t, *all = &t;
    bool json = common.json || r->a->format == LLM_TABLE_JSON, context = r->a->format == FORMAT_CONTEXT;
    common.format = context ? LLM_TABLE_AUTO : r->a->format;
    enum llm_table_form form = llm_table_form_for(llm_table_form(&common), common.output);
    if (json || context || form == LLM_TABLE_TSV || form == LLM_TABLE_CSV) return write_lines(r, form, json || context, context, e);
    llm_table_init(&t, columns);
    put_rows(r, 0, r->q.n, &t);
    return llm_tables_print(common.output, form, &all, 1, e);
}

static int read_queries(struct run *r, const char *path, struct llm_err *e)
{
    const struct args *a = r->a;
    if (!a->query) return llm_index_rows_read(&r->q, path, a->by == BY_WORDS ? LLM_ROWS_TEXTS : LLM_ROWS_QUERIES, e);
    r->q.ids_at = llm_calloc(2, sizeof *r->q.ids_at, "a query", e);
    r->q.texts_at = r->q.ids_at ? llm_calloc(2, sizeof *r->q.texts_at, "a query", e) : NULL;
    if (!r->q.texts_at || llm_buf_put(&r->q.ids, "1", 1, e) < 0 || llm_buf_put(&r->q.texts, a->query, strlen(a->query), e) < 0) return -1;
    r->q.ids_at[1] = r->q.ids.n;
    r->q.texts_at[1] = r->q.texts.n;
    r->q.n = 1;
    return 0;
}

/* Resolves --by, and refuses what the index or the query does not allow. */
static void choose_by(struct args *a, const struct llm_index *x)
{
    if (a->by == BY_WHAT_THERE_IS) a->by = x->dims > 0 ? BY_VECTORS : BY_WORDS;
    if (a->by != BY_WORDS && x->dims == 0) {
        llm_usage(&index_search_cli, "--by: expected words, as %s has no vectors (--vectors none)", x->name);
    }
    if (!a->query || a->by == BY_WORDS) return;
    llm_usage(&index_search_cli, "--query goes with --by words: vectors come as lines of llm-infer --embed --jsonl");
}

int index_search(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.k = 0, .by = BY_WHAT_THERE_IS}; /* k 0: the option was not given */
    struct run r = {.a = &a};
    int rest = llm_cli_parse(&index_search_cli, &a, argc, argv);
    a.index = take_index(a.index, argc, argv, &rest);
    if (!a.index) llm_usage(&index_search_cli, "expected an index");
    const char *path = rest < argc ? argv[rest] : "-";
    if (argc - rest > (a.query ? 0 : 1)) llm_usage(&index_search_cli, "expected one input of queries");
    if (!a.query && strcmp(a.index, "-") == 0 && strcmp(path, "-") == 0) llm_usage(&index_search_cli, "standard input cannot be two inputs at once");
    int status = llm_pool_start(a.common.threads, e) < 0 ? -1 : llm_index_open(&r.x, a.index, a.trusted, e);
    if (status == 0) choose_by(&a, &r.x);
    if (a.k == 0) a.k = r.x.n - r.x.n_deleted < USUAL_HITS && r.x.n > r.x.n_deleted ? r.x.n - r.x.n_deleted : USUAL_HITS;
    if (status == 0) status = read_queries(&r, path, e);
    if (status == 0 && r.q.n == 0) status = llm_fail(e, EX_DATAERR, "expected queries, found none");
    if (status == 0) status = check(&r, e);
    if (status == 0 && a.where.n > 0) {
        r.allowed = llm_alloc((size_t)r.x.n + 1, 1, "rows", e);
        status = r.allowed ? llm_search_where(&r.x, a.where.v, a.where.n, r.allowed, e) : -1;
    }
    if (status == 0) status = find(&r, e);
    if (status == 0) status = write_hits(&r, e);
    free(r.allowed);
    free(r.hits);
    free(r.n_hits);
    llm_index_rows_release(&r.q);
    llm_index_release(&r.x);
    return status;
}
