#include "bin/infer/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "bin/infer/lines.h"
#include "cpu/detect.h"
#include "io/key.h"

/* What the file holds of a line of input. Lines with one id follow each other in the table. */
struct answer {
    uint64_t id, key;        /* hashes */
    int64_t lines, wanted;   /* lines that are there, and those of a complete answer: its samples */
    int64_t attempts;        /* how often the line failed */
    bool used, failed;
};

struct resume {
    char options[17];        /* key of the options */
    struct answer *table;    /* [room] open addressing by id; room is a power of two */
    size_t n, room;
    int64_t answers, dropped;
};

void resume_destroy(struct resume *r)
{
    if (!r) return;
    free(r->table);
    free(r);
}

int64_t resume_answers(const struct resume *r)
{
    return r->answers;
}

static uint64_t parse_key(const char *hex)
{
    return strtoull(hex, NULL, 16);
}

static struct answer *slot(const struct resume *r, uint64_t id, uint64_t key)
{
    size_t i = id & (r->room - 1);
    while (r->table[i].used && (r->table[i].id != id || r->table[i].key != key)) i = (i + 1) & (r->room - 1);
    return &r->table[i];
}

static int grow(struct resume *r, struct llm_err *e)
{
    if (r->room > 2 * r->n) return 0;
    struct resume wider = {.room = r->room > 0 ? 2 * r->room : 1024};
    wider.table = llm_calloc(wider.room, sizeof *wider.table, "answers", e);
    if (!wider.table) return -1;
    for (size_t i = 0; i < r->room; i++)
        if (r->table[i].used) *slot(&wider, r->table[i].id, r->table[i].key) = r->table[i];
    free(r->table);
    r->table = wider.table;
    r->room = wider.room;
    return 0;
}

/* The options count by their values, files by their contents. Results are the same bits on one instruction set only, so that it counts, too. */
static int take_options(struct resume *r, const struct session *s, struct llm_err *e)
{
    struct llm_key *k = llm_key_create(&infer_cli, e);
    int status = k ? llm_key_options(k, &infer_cli, s->a, &infer_defaults, NULL, e) : -1;
    if (status == 0) {
        llm_key_text(k, "isa", llm_isa_name());
        llm_key_hex(k, r->options);
    }
    llm_key_destroy(k);
    return status;
}

int resume_key(const struct resume *r, const json_t *object, const char *text, size_t n, char key[17], struct llm_err *e)
{
    char *sorted = object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII | JSON_ENCODE_ANY) : NULL;
    if (object && !sorted) return llm_no_memory(e, "a line");
    uint64_t seed = parse_key(r->options);
    snprintf(key, 17, "%016" PRIx64, sorted ? llm_xxh64(sorted, strlen(sorted), seed) : llm_xxh64(text ? text : "", n, seed));
    free(sorted);
    return 0;
}

/* An answer's id as compact JSON: "id", of OpenAI's lines "custom_id". */
static int id_of(const json_t *o, struct llm_buf *id, struct llm_err *e)
{
    const json_t *custom = json_object_get(o, "custom_id");
    id->n = 0;
    return llm_json_dump(custom ? custom : json_object_get(o, "id"), id, e);
}

static int bad_line(const char *path, int64_t number, struct llm_err *e)
{
    return llm_fail(e, EX_DATAERR, "%s: line %" PRId64 ": expected an answer with \"id\" and \"key\", as --resume writes them", path, number);
}

/* Notes one line of the file. *drop: it is an error whose line of input is tried again, or a sample after a missing one: the samples from
 * the first missing one on are generated again, so that the number of samples in the file is that of the next one. */
static int note(struct resume *r, const struct session *s, const char *text, size_t n, int64_t number, bool *drop, struct llm_err *e)
{
    const char *path = s->a->common.output, *key = NULL;
    struct llm_buf id = {0};
    int64_t wanted = 1, attempts = 1, sample = 0;
    json_t *o = llm_json_parse(text, n, e);
    if (!o) return bad_line(path, number, e);
    const json_t *error = json_object_get(o, "error");
    bool failed = error && !json_is_null(error);
    int status = llm_json_str(o, "key", &key, e) < 0 || !key || strlen(key) != 16 || !json_object_get(o, "id") ? bad_line(path, number, e) : 0;
    if (status == 0 && (llm_json_int(o, "samples", 1, INT64_MAX, &wanted, e) < 0 || llm_json_int(o, "attempts", 1, INT64_MAX, &attempts, e) < 0
                        || (wanted > 1 && llm_json_int(o, "sample", 0, wanted - 1, &sample, e) < 0))) {
        status = bad_line(path, number, e);
    }
    if (status == 0) status = id_of(o, &id, e) < 0 || grow(r, e) < 0 ? -1 : 0;
    if (status == 0) {
        struct answer *a = slot(r, llm_xxh64(id.p, id.n, 0), parse_key(key));
        *drop = (failed && attempts <= s->a->retries) || sample != a->lines % wanted;
        r->n += !a->used;
        r->answers += !*drop;
        r->dropped += *drop;
        *a = (struct answer){llm_xxh64(id.p, id.n, 0), parse_key(key), a->lines + !*drop, wanted, failed ? attempts : a->attempts, true,
                             a->failed || (failed && !*drop)};
    }
    llm_buf_release(&id);
    json_decref(o);
    return status;
}

/* The bytes after the last newline: an answer that was being written when the process or the machine died; on some file systems NULs. */
static bool is_torn(const char *text, size_t n)
{
    static const char begin[] = "{\"id\":";
    size_t k = n < sizeof begin - 1 ? n : sizeof begin - 1;
    return memcmp(text, begin, k) == 0 || memcmp(text, "\0\0\0\0\0\0", k) == 0;
}

/* Reads the answers. *whole: the bytes up to the last newline. `kept`, unless NULL, gets the lines that are not dropped. */
static int read_answers(struct resume *r, const struct session *s, const struct llm_map *m, uint64_t *whole, struct llm_output *kept,
                        struct llm_err *e)
{
    const char *text = (const char *)m->p, *end = text + m->n;
    int64_t number = 0;
    for (*whole = 0; *whole < m->n;) {
        const char *line = text + *whole, *newline = memchr(line, '\n', (size_t)(end - line));
        bool drop = false;
        number++;
        if (!newline) return is_torn(line, (size_t)(end - line)) ? 0 : bad_line(s->a->common.output, number, e);
        if (note(r, s, line, (size_t)(newline - line), number, &drop, e) < 0) return -1;
        if (kept && !drop && llm_output_write(kept, line, (size_t)(newline - line) + 1, e) < 0) return -1;
        *whole += (uint64_t)(newline - line) + 1;
    }
    return 0;
}

static int begin(struct resume **r, const struct session *s, struct llm_err *e)
{
    resume_destroy(*r);
    *r = llm_calloc(1, sizeof **r, "answers", e);
    return *r && grow(*r, e) == 0 ? take_options(*r, s, e) : -1;
}

/* Writes the file again without the lines that note drops. 0 or -1. */
static int drop_lines(struct resume *r, const struct session *s, const struct llm_map *m, struct llm_err *e)
{
    uint64_t whole;
    struct llm_output *kept = llm_output_open(s->a->common.output, false, e);
    if (!kept) return -1;
    struct resume again = {.room = r->room}; /* the answers are known already */
    again.table = llm_calloc(again.room, sizeof *again.table, "answers", e);
    int status = again.table ? read_answers(&again, s, m, &whole, kept, e) : -1;
    free(again.table);
    if (status == 0) return llm_output_commit(kept, e);
    llm_output_abandon(kept);
    return -1;
}

struct llm_output *resume_open(const struct session *s, struct resume **r, struct llm_err *e)
{
    struct llm_map before;
    uint64_t whole;
    const char *path = s->a->common.output;
    if (begin(r, s, e) < 0) return NULL;
    struct llm_output *o = llm_output_append(path, &before, e);
    if (!o) return NULL;
    int status = read_answers(*r, s, &before, &whole, NULL, e);
    bool rewrite = status == 0 && (*r)->dropped > 0;
    if (rewrite) status = drop_lines(*r, s, &before, e);
    llm_map_close(&before);
    if (rewrite && status == 0) { /* the file has another inode now */
        llm_output_abandon(o);
        o = llm_output_append(path, &before, e);
        if (o) whole = before.n;
        if (o) llm_map_close(&before);
    }
    if (o && status == 0) status = llm_output_cut(o, whole, e);
    if (status == 0) return o;
    llm_output_abandon(o);
    return NULL;
}

enum resume_found resume_take(struct resume *r, const char *id, size_t n_id, const char key[17], int64_t *samples, int64_t *attempts)
{
    uint64_t id_hash = llm_xxh64(id, n_id, 0), key_hash = parse_key(key);
    bool others = false;
    *samples = *attempts = 0;
    for (size_t i = id_hash & (r->room - 1); r->table[i].used; i = (i + 1) & (r->room - 1)) {
        struct answer *a = &r->table[i];
        if (a->id != id_hash) continue;
        if (a->key != key_hash) others |= a->lines > 0;
        if (a->key != key_hash || (a->lines == 0 && a->attempts == 0)) continue;
        if (a->lines >= a->wanted) {
            a->lines -= a->wanted;
            return a->failed ? RESUME_FAILED : RESUME_ANSWERED;
        }
        *samples = a->lines;
        *attempts = a->attempts;
        a->lines = a->attempts = 0;
        return RESUME_NEW;
    }
    return others ? RESUME_CHANGED : RESUME_NEW;
}
