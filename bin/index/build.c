/* llm-index build, add and delete. */
#include <string.h>
#include <sys/stat.h>
#include "base/log.h"
#include "bin/index/index.h"
#include "cpu/pool.h"
#include "search/check.h"
#include "search/graph.h"

static bool is_dash(const char *s)
{
    return s && strcmp(s, "-") == 0;
}

const char *take_index(const char *option, int argc, char **argv, int *rest)
{
    return option ? option : *rest < argc ? argv[(*rest)++] : NULL;
}

/* Before a file that was named without -o is replaced: it must be an index, or empty, or not there. */
static int check_replaced(const char *path, struct llm_err *e)
{
    struct stat st;
    if (is_dash(path) || stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return 0;
    struct llm_err ignored = {0};
    struct llm_checkpoint *f = llm_checkpoint_open(path, &ignored);
    bool index = f && llm_checkpoint_header(f)->kind && strcmp(llm_checkpoint_header(f)->kind, "index") == 0;
    llm_checkpoint_close(f);
    return index ? 0 : llm_fail(e, EX_DATAERR, "%s: expected an index or no file, as -o INDEX alone replaces any; found another file", path);
}

/* How much a search finds is stored where it may miss something. */
static int measure(struct llm_index *x, struct llm_err *e)
{
    struct llm_check c;
    x->has_recall = false;
    if (x->n == x->n_deleted || x->dims == 0 || (x->graph.m == 0 && x->coarse == LLM_COARSE_F32)) return 0;
    if (llm_index_recall(x, &c, e) < 0) return -1;
    x->recall = c.recall;
    x->has_recall = true;
    return 0;
}

int write_index(struct llm_index *x, const char *path, bool plain, struct llm_err *e)
{
    if (measure(x, e) < 0) return -1;
    struct llm_output *o = llm_output_open(path, true, e);
    if (!o) return -1;
    if (llm_index_write(x, o, plain, e) == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}

/* Exits with status 2 if two of the files, or one and the index, are standard input. Without files the rows come from there. */
static void check_stdin(const struct llm_cli *cli, const char *index, char *const *paths, int n)
{
    int from_stdin = is_dash(index) + (n == 0);
    for (int i = 0; i < n; i++) from_stdin += is_dash(paths[i]);
    if (from_stdin > 1) llm_usage(cli, "standard input cannot be two inputs at once");
}

/* Reads the rows of all files; none: standard input. With LLM_COARSE_NONE they need no vectors. 0 or -1. */
static int read_rows(struct llm_index_rows *r, enum llm_coarse coarse, char *const *paths, int n, struct llm_err *e)
{
    const enum llm_rows_as as = coarse == LLM_COARSE_NONE ? LLM_ROWS_WORDS : LLM_ROWS_STORED;
    for (int i = 0; i < (n > 0 ? n : 1); i++) {
        if (llm_index_rows_read(r, n > 0 ? paths[i] : "-", as, e) < 0) return -1;
    }
    return r->n > 0 ? 0 : llm_fail(e, EX_DATAERR, "expected rows, found none");
}

struct build_args {
    struct llm_common common;
    int metric, vectors, plain, kind;
    int64_t neighbours, ef_build;
};
#define AT(field) offsetof(struct build_args, field)
static const struct llm_opt build_options[] = {
    {0, "metric", "M", "how vectors are compared: cosine, dot or l2 [cosine]", LLM_CHOICE, AT(metric), 0, 0, "cosine|dot|l2"},
    {0, "vectors", "TYPE", "what a search reads first: f32, f16 or i8; the best are then ranked by the vectors in f32; none: words alone, "
                           "rows need no vectors [f32]", LLM_CHOICE, AT(vectors), 0, 0, "f32|f16|i8|none"},
    {0, "kind", "KIND", "flat: searches look at every row; hnsw: they walk a graph of near rows [flat]", LLM_CHOICE, AT(kind), 0, 0, "flat|hnsw"},
    {0, "neighbours", "N", "with --kind hnsw: links of a new row [16]", LLM_INT, AT(neighbours), LLM_MIN_NEIGHBOURS, LLM_MAX_NEIGHBOURS, NULL},
    {0, "ef-build", "N", "with --kind hnsw: candidates for these links [200]", LLM_INT, AT(ef_build), 8, 1 << 14, NULL},
    {0, "plain", NULL, "store without compression: searches map the file", LLM_FLAG, AT(plain), 0, 0, NULL},
    {0}};
#undef AT

const struct llm_cli index_build_cli = {
    .name = "llm-index build",
    .summary = "Make an index of texts and their vectors.",
    .usage = "[OPTION]... INDEX [FILE]...",
    .examples = "llm-infer -m model --embed --jsonl passages.jsonl | llm-index build notes.idx\n"
                "llm-index build --metric dot --vectors i8 --plain big.idx a.jsonl b.jsonl\n"
                "llm-tokenize chunk -T model notes.txt | llm-index build --vectors none words.idx",
    .options = build_options, .operands = LLM_OPERANDS_FIRST_INPUT,
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_THREADS | LLM_COMMON_SEED,
    .aliases = index_build_aliases, .foreign = index_foreign,
};

int index_build(int argc, char **argv, struct llm_err *e)
{
    struct build_args a = {.neighbours = 16, .ef_build = 200};
    struct llm_index_rows rows = {0};
    struct llm_index x = {0};
    int rest = llm_cli_parse(&index_build_cli, &a, argc, argv);
    const char *to = take_index(a.common.output, argc, argv, &rest);
    check_stdin(&index_build_cli, NULL, argv + rest, argc - rest);
    if (a.vectors == LLM_COARSE_NONE && a.kind) llm_usage(&index_build_cli, "--kind hnsw is a graph of vectors, of which --vectors none stores none");
    if (a.vectors == LLM_COARSE_NONE && a.metric) llm_usage(&index_build_cli, "--metric compares vectors, of which --vectors none stores none");
    int status = llm_pool_start(a.common.threads, e) < 0 || llm_output_try(to, true, e) < 0 ? -1 : 0;
    if (status == 0 && !a.common.output && to) status = check_replaced(to, e);
    if (status == 0) status = read_rows(&rows, (enum llm_coarse)a.vectors, argv + rest, argc - rest, e);
    x.metric = (enum llm_metric)a.metric;
    x.coarse = (enum llm_coarse)a.vectors;
    x.seed = (uint64_t)a.common.seed;
    x.dims = rows.dims;
    x.graph.m = a.kind ? a.neighbours : 0;
    x.graph.ef_build = a.ef_build > a.neighbours ? a.ef_build : a.neighbours;
    memcpy(x.fingerprint, rows.fingerprint, sizeof x.fingerprint);
    memcpy(x.place, rows.place, sizeof x.place);
    if (status == 0) status = llm_index_merge(&x, NULL, &rows, false, e);
    if (status == 0) status = write_index(&x, to, a.plain, e);
    llm_index_release(&x);
    llm_index_rows_release(&rows);
    return status;
}

struct change_args {
    struct llm_common common;
    const char *index, *ids;
};
#define AT(field) offsetof(struct change_args, field)
static const struct llm_opt add_options[] = {
    {'x', "index", "INDEX", "the index, in place of the first operand; replaced unless -o names another file", LLM_INPUT, AT(index), 0, 0, NULL},
    {0}};
static const struct llm_opt delete_options[] = {
    {'x', "index", "INDEX", "the index, in place of the first operand; replaced unless -o names another file", LLM_INPUT, AT(index), 0, 0, NULL},
    {0, "ids", "FILE", "also delete the ids in FILE, one a line", LLM_INPUT, AT(ids), 0, 0, NULL},
    {0}};

const struct llm_cli index_add_cli = {
    .name = "llm-index add",
    .summary = "Add rows to an index.",
    .usage = "[OPTION]... INDEX [FILE]...",
    .examples = "llm-infer -m model --embed --jsonl new.jsonl | llm-index add notes.idx",
    .options = add_options, .operands = LLM_OPERANDS_FIRST_INPUT, .replaces = "index",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_THREADS, .foreign = index_foreign,
};
const struct llm_cli index_delete_cli = {
    .name = "llm-index delete",
    .summary = "Delete rows of an index by their ids.",
    .usage = "[OPTION]... INDEX [ID]...",
    .examples = "llm-index delete notes.idx 'manual.txt#3' 'manual.txt#4'",
    .options = delete_options, .operands = LLM_OPERANDS_FIRST_TEXT, .replaces = "index",
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_THREADS, .foreign = index_foreign,
};

/* The settings of an index for the one that takes its place. */
static void inherit(struct llm_index *to, const struct llm_index *from)
{
    to->metric = from->metric;
    to->coarse = from->coarse;
    to->seed = from->seed;
    to->dims = from->dims;
    to->graph.m = from->graph.m;
    to->graph.ef_build = from->graph.ef_build;
    memcpy(to->fingerprint, from->fingerprint, sizeof to->fingerprint);
    memcpy(to->place, from->place, sizeof to->place);
}

static int check_fit(const struct llm_index *x, const struct llm_index_rows *r, struct llm_err *e)
{
    if (r->dims != x->dims) {
        return llm_fail(e, EX_DATAERR, "%s: expected vectors of %lld elements, found %lld", x->name, (long long)x->dims, (long long)r->dims);
    }
    if (r->n > 0 && x->n > 0 && strcmp(x->place, r->place) != 0) {
        return llm_fail(e, EX_DATAERR, "%s: expected vectors of %s, found those of %s", x->name, x->place[0] ? x->place : "texts",
                        r->place[0] ? r->place : "texts");
    }
    if (x->fingerprint[0] && r->fingerprint[0] && strcmp(x->fingerprint, r->fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "%s: expected vectors of model %s, found those of %s", x->name, x->fingerprint, r->fingerprint);
    }
    return 0;
}

int index_add(int argc, char **argv, struct llm_err *e)
{
    struct change_args a = {0};
    struct llm_index_rows rows = {0};
    struct llm_index x = {0}, out = {0};
    int rest = llm_cli_parse(&index_add_cli, &a, argc, argv);
    a.index = take_index(a.index, argc, argv, &rest);
    if (!a.index) llm_usage(&index_add_cli, "expected an index");
    check_stdin(&index_add_cli, a.index, argv + rest, argc - rest);
    const char *to = a.common.output ? a.common.output : a.index;
    int status = llm_pool_start(a.common.threads, e) < 0 || llm_output_try(to, true, e) < 0 ? -1 : 0;
    if (status == 0) status = llm_index_open(&x, a.index, false, e);
    if (status == 0) status = read_rows(&rows, x.coarse, argv + rest, argc - rest, e);
    if (status == 0) status = check_fit(&x, &rows, e);
    if (status == 0) inherit(&out, &x);
    if (status == 0 && !out.place[0]) memcpy(out.place, rows.place, sizeof out.place);
    if (status == 0 && !out.fingerprint[0]) memcpy(out.fingerprint, rows.fingerprint, sizeof out.fingerprint);
    if (status == 0) status = llm_index_merge(&out, &x, &rows, false, e);
    if (status == 0) status = write_index(&out, to, x.plain, e);
    llm_index_release(&out);
    llm_index_release(&x);
    llm_index_rows_release(&rows);
    return status;
}

static int mark(struct llm_index *x, uint8_t *deleted, const char *id, size_t n, struct llm_err *e)
{
    int64_t row = llm_index_find(x, id, n);
    if (row < 0 || deleted[row]) {
        return llm_fail(e, EX_DATAERR, "%s: id '%.*s': expected in the index, found none", x->name, (int)(n < 100 ? n : 100), id);
    }
    deleted[row] = 1;
    x->n_deleted++;
    return 0;
}

static int mark_file(struct llm_index *x, uint8_t *deleted, const char *path, struct llm_err *e)
{
    struct llm_buf b = {0};
    struct llm_file *f = llm_file_open(path, e);
    int64_t got = f ? 1 : -1;
    int status = 0;
    while (got > 0) {
        got = llm_buf_reserve(&b, b.n + (1 << 16), e) < 0 ? -1 : llm_file_read_some(f, b.p + b.n, 1 << 16, e);
        if (got > 0) b.n += (size_t)got;
    }
    for (size_t at = 0, n; got == 0 && status == 0 && at < b.n; at += n + 1) {
        const char *end = memchr(b.p + at, '\n', b.n - at);
        n = end ? (size_t)(end - b.p) - at : b.n - at;
        if (n > 0) status = mark(x, deleted, b.p + at, n, e);
    }
    llm_file_close(f);
    llm_buf_release(&b);
    return got < 0 ? -1 : status;
}

int index_delete(int argc, char **argv, struct llm_err *e)
{
    struct change_args a = {0};
    struct llm_index x = {0}, out = {0};
    int rest = llm_cli_parse(&index_delete_cli, &a, argc, argv);
    a.index = take_index(a.index, argc, argv, &rest);
    if (!a.index) llm_usage(&index_delete_cli, "expected an index");
    if (rest == argc && !a.ids) llm_usage(&index_delete_cli, "expected ids");
    if (is_dash(a.index) && is_dash(a.ids)) llm_usage(&index_delete_cli, "standard input cannot be two inputs at once");
    const char *to = a.common.output ? a.common.output : a.index;
    int status = llm_pool_start(a.common.threads, e) < 0 || llm_output_try(to, true, e) < 0 ? -1 : llm_index_open(&x, a.index, false, e);
    uint8_t *deleted = status == 0 ? llm_index_alloc(&x, (size_t)x.n + 1, 1, e) : NULL;
    if (deleted && x.n > 0) memcpy(deleted, x.deleted, (size_t)x.n);
    if (!deleted) status = -1;
    for (int i = rest; i < argc && status == 0; i++) status = mark(&x, deleted, argv[i], strlen(argv[i]), e);
    if (status == 0 && a.ids) status = mark_file(&x, deleted, a.ids, e);
    if (status == 0) x.deleted = deleted;
    /* Beyond a quarter the marked rows are dropped: they cost time, and count in BM25's statistics. */
    bool purge = status == 0 && x.n_deleted * 4 > x.n;
    if (status == 0) inherit(&out, &x);
    if (status == 0 && purge) status = llm_index_merge(&out, &x, NULL, true, e);
    if (status == 0) status = write_index(purge ? &out : &x, to, x.plain, e);
    llm_index_release(&out);
    llm_index_release(&x);
    return status;
}
