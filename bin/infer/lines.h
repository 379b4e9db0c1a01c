/* llm-infer: input a line at a time. */
#ifndef LLM_BIN_INFER_LINES_H
#define LLM_BIN_INFER_LINES_H

#include "base/buf.h"
#include "base/json.h"
#include "io/file.h"

struct lines {
    struct llm_file *file;
    struct llm_buf text;     /* bytes that were read; those from `at` on have not been used */
    size_t at;
    size_t limit;            /* maximum bytes of a line */
    bool skipping;           /* the rest of a line that is too long is being discarded */
    int64_t number;          /* number of the current line, from 1 */
    int64_t part, parts;     /* --part: of every `parts` lines that are not blank, the one with this number, from 0 */
    int64_t max;             /* --limit: lines of this part at most */
    int64_t seen;            /* lines that were not blank, of all parts */
    int64_t used, refused;   /* how many lines of this part were not blank; how many of these lines_refuse was called for */
    struct llm_err first;    /* why the first was refused */
};
/* Zero-initialise; close either way. prompt_bytes: of the longest prompt that can be used; a line may also carry escapes and other members. */
int lines_open(struct lines *l, const char *path, size_t prompt_bytes, struct llm_err *e) LLM_MUST_CHECK;
/* Before the first line: takes only the lines of --part and --limit. */
struct args;
void lines_choose(struct lines *l, const struct args *a);
/* 1: a line that is not blank, without its newline, until the next call; 0: no more; -1. Of a line that is too long *line is NULL: the caller refuses
 * it by lines_too_long. */
int lines_next(struct lines *l, const char **line, size_t *n, struct llm_err *e) LLM_MUST_CHECK;
/* Whether a further line that is not blank has been read whole, so that lines_next does not wait for it. */
bool lines_waiting(const struct lines *l);
/* Reads the whole input, before the first line is taken, and counts the lines that are not blank. At most 1 GiB. 0 or -1. */
int lines_read_all(struct lines *l, int64_t *n, struct llm_err *e) LLM_MUST_CHECK;
void lines_close(struct lines *l);
/* Fills `why` for a line without a text. Returns -1. */
int lines_too_long(const struct lines *l, struct llm_err *why);

/* A line whose content cannot be used (why->status is EX_DATAERR) is answered by {"id": ..., "error": ...}, and the input goes on.
 * `object`: the line's JSON if it could be parsed, for its "id"; NULL: the id is the line's number.
 * The caller owns the answer. NULL: `e` says why. */
json_t *lines_refuse(struct lines *l, const json_t *object, const struct llm_err *why, struct llm_err *e) LLM_MUST_CHECK;
/* Members of a line that ask for the search of the run leave the object. One that asks for another is refused: a search is one of the whole run, and
 * the line would be answered without. 0 or -1 (65). */
int lines_take_search(const struct args *a, json_t *line, struct llm_err *e) LLM_MUST_CHECK;
/* The current line was answered by an error in an earlier run (--resume): it counts as refused. */
void lines_failed_before(struct lines *l);
/* After the last line: fills `e` if lines were refused, with the number of them and the reason of the first. e->status stays 0 if none was. */
void lines_summarise(const struct lines *l, struct llm_err *e);

#endif
