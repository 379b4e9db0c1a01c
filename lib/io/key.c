#include "io/key.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/buf.h"
#include "base/hash.h"
#include "io/file.h"

struct llm_key { struct llm_xxh *hash; };

/* Fields end with NUL, so that neighbours cannot be mistaken for each other. */
static void field(struct llm_key *k, const char *text) { llm_xxh_update(k->hash, text, strlen(text) + 1); }

void llm_key_text(struct llm_key *k, const char *name, const char *text)
{
    field(k, name);
    field(k, text);
}

struct llm_key *llm_key_create(const struct llm_cli *cli, struct llm_err *e)
{
    struct llm_key *k = llm_calloc(1, sizeof *k, "a key", e);
    if (!k || !(k->hash = llm_xxh_create(e))) {
        llm_key_destroy(k);
        return NULL;
    }
    llm_key_text(k, cli->name, LLM_VERSION);
    return k;
}

void llm_key_destroy(struct llm_key *k)
{
    if (k) llm_xxh_destroy(k->hash);
    free(k);
}

void llm_key_hex(const struct llm_key *k, char hex[17]) { snprintf(hex, 17, "%016" PRIx64, llm_xxh_digest(k->hash)); }

/* ---- files ---- */

/* The length of the contents follows them, for the same reason as the NUL of texts. */
static int contents(struct llm_key *k, const char *path, struct llm_err *e)
{
    enum { STEP = 1 << 16 };
    char *room = llm_alloc(STEP, 1, "a key", e), length[24];
    struct llm_file *f = room ? llm_file_open(path, e) : NULL;
    int64_t got = f ? 1 : -1;
    while (got > 0 && (got = llm_file_read_some(f, room, STEP, e)) > 0) llm_xxh_update(k->hash, room, (size_t)got);
    if (got == 0) snprintf(length, sizeof length, "%" PRIu64, llm_file_offset(f));
    if (got == 0) field(k, length);
    llm_file_close(f);
    free(room);
    return got < 0 ? -1 : 0;
}

static int folder(struct llm_key *k, const char *path, struct llm_err *e)
{
    struct dirent **entries;
    struct stat st;
    int n = scandir(path, &entries, NULL, alphasort), status = n < 0 ? llm_fail_errno(e, EX_NOINPUT, "%s", path) : 0;
    for (int i = 0; i < n; i++) {
        struct llm_buf file = {0};
        if (status == 0) status = llm_buf_printf(&file, e, "%s/%s", path, entries[i]->d_name);
        if (status == 0 && stat(file.p, &st) == 0 && S_ISREG(st.st_mode)) {
            field(k, entries[i]->d_name);
            status = contents(k, file.p, e);
        }
        llm_buf_release(&file);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return status;
}

/* "…-00001-of-00003.gguf": how many parts there are; 0 for other names. */
static int64_t parts_of(const char *path)
{
    int64_t count;
    char digits[6];
    static const char shape[] = "-00000-of-00000.gguf"; /* 0: any digit */
    size_t n = strlen(path);
    if (n < sizeof shape) return 0;
    const char *end = path + n - (sizeof shape - 1);
    for (size_t i = 0; shape[i]; i++)
        if (shape[i] == '0' ? end[i] < '0' || end[i] > '9' : end[i] != shape[i]) return 0;
    snprintf(digits, sizeof digits, "%.5s", end + 10);
    return llm_parse_int(digits, &count) == 0 ? count : 0;
}

static int parts(struct llm_key *k, const char *path, int64_t n, struct llm_err *e)
{
    int status = 0;
    for (int64_t i = 1; i <= n && status == 0; i++) {
        struct llm_buf part = {0};
        status = llm_buf_printf(&part, e, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int)strlen(path) - 20, path, i, n);
        if (status == 0) status = contents(k, part.p, e);
        llm_buf_release(&part);
    }
    return status;
}

int llm_key_file(struct llm_key *k, const char *name, const char *path, struct llm_err *e)
{
    struct stat st;
    field(k, name);
    if (strcmp(path, "-") == 0)
        return llm_fail(e, LLM_EX_USAGE, "%s: expected a file, whose contents are part of the key; found standard input", name);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return folder(k, path, e);
    int64_t n = parts_of(path);
    return n > 0 ? parts(k, path, n, e) : contents(k, path, e);
}

/* ---- options ---- */

static int list(struct llm_key *k, const char *name, const struct llm_strs *now)
{
    for (size_t i = 0; i < now->n; i++) llm_key_text(k, name, now->v[i]);
    return 0;
}

static int option(struct llm_key *k, const struct llm_cli *cli, const struct llm_opt *o, const void *value, const void *fallback, struct llm_err *e)
{
    struct stat st;
    char number[64];
    const char *text = NULL;
    switch (o->type) {
    case LLM_FLAG:
    case LLM_CHOICE:
        if (*(const int *)value == *(const int *)fallback) return 0;
        text = o->type == LLM_FLAG ? "yes" : llm_cli_word(cli, o, *(const int *)value, number);
        break;
    case LLM_INT:
    case LLM_SIZE:
        if (*(const int64_t *)value == *(const int64_t *)fallback) return 0;
        snprintf(number, sizeof number, "%" PRId64, *(const int64_t *)value);
        break;
    case LLM_REAL:
        if (memcmp(value, fallback, sizeof(double)) == 0) return 0; /* NaN: not given */
        snprintf(number, sizeof number, "%.17g", *(const double *)value);
        break;
    case LLM_INPUTS:
    case LLM_LIST: return list(k, o->name, value);
    case LLM_STR:
    case LLM_INPUT:
    case LLM_OUTPUT:
        text = *(const char *const *)value;
        const char *before = *(const char *const *)fallback;
        if (!text || (before && strcmp(text, before) == 0)) return 0;
        if (o->type == LLM_INPUT && (strcmp(text, "-") == 0 || stat(text, &st) == 0)) return llm_key_file(k, o->name, text, e);
        break;
    case LLM_HEADING: return 0;
    }
    llm_key_text(k, o->name, text ? text : number);
    return 0;
}

int llm_key_options(struct llm_key *k, const struct llm_cli *cli, const void *args, const void *defaults, const char *apart, struct llm_err *e)
{
    static const char common[] = "threads|quiet|verbose|help|version";
    const struct llm_opt *rows[LLM_MAX_OPTIONS];
    size_t n = llm_cli_options(cli, rows);
    for (size_t i = 0; i < n; i++) {
        const struct llm_opt *o = rows[i];
        if (o->type == LLM_OUTPUT || llm_cli_listed(common, o->name) || llm_cli_listed(cli->neutral, o->name)) continue;
        if (llm_cli_listed(apart, o->name)) continue;
        if (option(k, cli, o, (const char *)args + o->offset, (const char *)defaults + o->offset, e) < 0) return -1;
    }
    return 0;
}
