/* llm-infer --jsonl --resume: the answers of an earlier run stay in the file of -o, and only lines without an answer are worked on.
 *
 * Each answer has a "key", a hash of the line of input and of the options that determine results. If a line's id has an answer with another key, the
 * prompt or the options have changed, which is an error. */
#ifndef LLM_BIN_INFER_RESUME_H
#define LLM_BIN_INFER_RESUME_H

#include "bin/infer/infer.h"

struct resume;
/* Opens the file of -o to append, reads its answers, and cuts a last line that is torn. With --retries errors leave the file if their lines may be
 * tried again; samples behind one that is missing leave it, too. NULL: see `e`. *r is to be destroyed, also after a failure. The output is the
 * caller's. */
struct llm_output *resume_open(const struct session *s, struct resume **r, struct llm_err *e) LLM_MUST_CHECK;
void resume_destroy(struct resume *r);
/* The key of a line of input: its JSON, or its bytes if it is none. 0 or -1. */
int resume_key(const struct resume *r, const json_t *object, const char *text, size_t n, char key[17], struct llm_err *e) LLM_MUST_CHECK;

enum resume_found {
    RESUME_NEW,
    RESUME_ANSWERED,
    RESUME_FAILED,           /* its answer is an error */
    RESUME_CHANGED           /* its id has an answer to another line */
};
/* What the file holds of a line, whose id is given as compact JSON. *samples: so many of its completions are there (RESUME_NEW); *attempts: how often
 * the line failed. What was found does not count again for a later line with this id. */
enum resume_found resume_take(struct resume *r, const char *id, size_t n_id, const char key[17], int64_t *samples, int64_t *attempts);
/* How many answers the file holds. */
int64_t resume_answers(const struct resume *r);

#endif
