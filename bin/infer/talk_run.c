/* llm-infer --chat: where a conversation's messages come from: the operand, a file, its lines, or a person at a terminal. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "bin/infer/lines.h"
#include "bin/infer/talk.h"

static int answer_text(struct talk *t, const char *message, size_t n, struct llm_err *e)
{
    return talk_add(t, "user", message, n, e) < 0 ? -1 : talk_answer(t, e);
}

/* All of the input is one message; newlines at its end are none of it. */
static int answer_file(struct talk *t, const char *path, struct llm_err *e)
{
    struct llm_buf message = {0};
    int status = prompt_read_all(t->s, path, &message, e);
    if (status == 0) {
        while (message.n > 0 && strchr("\r\n", message.p[message.n - 1])) message.n--;
        status = message.n > 0 ? answer_text(t, message.p, message.n, e) : llm_fail(e, EX_DATAERR, "expected a message, found nothing");
        if (status < 0 && e->status == EX_DATAERR) llm_in(e, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    }
    llm_buf_release(&message);
    return status;
}

/* Each line of the input is a turn. */
static int answer_lines(struct talk *t, const char *path, struct llm_err *e)
{
    struct lines in = {0};
    const char *line;
    size_t n;
    int got = lines_open(&in, path, prompt_max_bytes(t->s), e), status = 0;
    while (got >= 0 && status == 0 && (got = lines_next(&in, &line, &n, e)) > 0) {
        while (n > 0 && line[n - 1] == '\r') n--;
        status = line ? answer_text(t, line, n, e) : lines_too_long(&in, e);
        if (status < 0 && e->status == EX_DATAERR) llm_in(e, "%s: line %" PRId64, llm_file_name(in.file), in.number);
    }
    lines_close(&in);
    return got < 0 ? -1 : status;
}

int run_chat(struct session *s, const char *operand, struct llm_err *e)
{
    struct talk t = {0};
    const char *path = s->a->file ? s->a->file : "-";
    int status = talk_init(&t, s, e);
    if (status == 0 && operand) {
        status = answer_text(&t, operand, strlen(operand), e);
    } else if (status == 0 && strcmp(path, "-") == 0 && isatty(STDIN_FILENO)) {
        status = run_terminal(&t, e);
    } else if (status == 0) {
        status = s->a->lines ? answer_lines(&t, path, e) : answer_file(&t, path, e);
    }
    struct llm_err late = {0};
    if (talk_log(&t, &late) < 0 && status >= 0) {
        *e = late;
        status = -1;
    }
    talk_release(&t);
    return status;
}
