#include "train/log_place.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 1 << 16 };

struct reading {
    FILE *file;
    const char *path;
    char *line;              /* [MAX_LINE] */
    int64_t number, begin, end; /* of the line: from 1; its bytes in the file */
    int64_t first_step, last_step; /* -1: none yet */
};

/* The next line that is complete, as JSON. 0: none. A last line without its end was being written when the run was killed. */
static int next_line(struct reading *r, json_t **v, struct llm_err *e)
{
    errno = 0;
    if (!fgets(r->line, MAX_LINE, r->file)) return ferror(r->file) ? llm_fail_errno(e, EX_IOERR, "%s", r->path) : 0;
    size_t n = strlen(r->line);
    r->number++;
    r->begin = r->end;
    if (n == 0 || r->line[n - 1] != '\n') {
        if (feof(r->file)) return 0;
        return llm_fail(e, EX_DATAERR, "%s: line %" PRId64 ": expected a log of llm-train, found a line of more than %d bytes, or a NUL", r->path,
                        r->number, MAX_LINE - 2);
    }
    r->end += (int64_t)n;
    *v = llm_json_parse(r->line, n, e);
    return *v ? 1 : llm_in(e, "%s: line %" PRId64, r->path, r->number);
}

/* Looks at a line; 1: it is of a later step than `step`. */
static int take_line(struct reading *r, json_t *v, int64_t step, uint64_t hash, struct llm_log_place *place, struct llm_err *e)
{
    const json_t *s = json_object_get(v, "step");
    const char *said = json_string_value(json_object_get(v, "hash"));
    char wanted[17];
    if (!json_is_integer(s)) return llm_fail(e, EX_DATAERR, "%s: line %" PRId64 ": expected \"step\", an integer, found none", r->path, r->number);
    int64_t at = json_integer_value(s);
    if (r->first_step < 0) r->first_step = at;
    if (at > step) return 1;
    r->last_step = at;
    place->end = r->end;
    if (at < step) return 0;
    snprintf(wanted, sizeof wanted, "%016" PRIx64, hash);
    if (said && strcmp(said, wanted) != 0) {
        return llm_fail(e, EX_DATAERR, "%s: line %" PRId64 ": step %" PRId64 ": expected the hash %s of the run that is resumed, found %s",
                        r->path, r->number, step, wanted, said);
    }
    json_decref(place->late);
    bool evaluated = json_object_get(v, "val_loss") != NULL;
    place->late = evaluated ? NULL : json_incref(v);
    place->late_at = evaluated ? -1 : r->begin;
    return 0;
}

static int find(struct reading *r, int64_t step, uint64_t hash, struct llm_log_place *place, struct llm_err *e)
{
    for (int got = 0; got == 0;) {
        json_t *v;
        int more = next_line(r, &v, e);
        if (more < 0) return -1;
        if (more == 0) break;
        got = take_line(r, v, step, hash, place, e);
        json_decref(v);
        if (got < 0) return -1;
    }
    bool begins_after = r->last_step < 0 && (r->first_step < 0 || r->first_step == step + 1);
    if (r->last_step == step || begins_after) return 0;
    return llm_fail(e, EX_DATAERR, "%s: expected a log with step %" PRId64 ", where the run is resumed, found none; another --log begins anew",
                    r->path, step);
}

int llm_log_find(const char *path, int64_t step, uint64_t hash, struct llm_log_place *place, struct llm_err *e)
{
    *place = (struct llm_log_place){.late_at = -1};
    struct reading r = {.path = path, .line = llm_alloc(MAX_LINE, 1, "a log", e), .first_step = -1, .last_step = -1};
    if (!r.line) return -1;
    r.file = fopen(path, "re");
    int got = r.file ? find(&r, step, hash, place, e) : llm_fail_errno(e, EX_NOINPUT, "%s", path);
    if (r.file) fclose(r.file);
    free(r.line);
    if (got == 0) return 0;
    json_decref(place->late);
    *place = (struct llm_log_place){.late_at = -1};
    return -1;
}
