/* llm-infer --chat: lines that a person types at a terminal. With libedit (found by the build) they can be edited and recalled; without it, or where
 * the terminal cannot, the terminal's own line discipline reads them. Prompts and echoes go to standard error: standard output has answers alone. */
#ifndef LLM_BIN_INFER_EDIT_H
#define LLM_BIN_INFER_EDIT_H

#include <stdbool.h>
#include "base/buf.h"

struct edit; /* opaque; there may be one, it reads standard input */

enum edit_result {
    EDIT_FAILED = -1,
    EDIT_END,          /* end of the input: Ctrl-D on an empty line */
    EDIT_LINE,
    EDIT_INTERRUPTED,  /* a signal was caught while nothing was typed on the line */
    EDIT_DISCARDED     /* a signal was caught: what was typed on the line is dropped */
};

struct edit *edit_open(struct llm_err *e) LLM_MUST_CHECK;
void edit_close(struct edit *ed); /* NULL is fine */
/* Whether libedit edits the lines. */
bool edit_is_rich(const struct edit *ed);
/* Shows `prompt` and puts a line, as UTF-8 without its newline, into *line (emptied first). *pasted: the newline was pasted, so the text goes on. */
enum edit_result edit_line(struct edit *ed, const char *prompt, struct llm_buf *line, bool *pasted, struct llm_err *e) LLM_MUST_CHECK;

#endif
