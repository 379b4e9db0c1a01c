/* llm-infer --chat on a terminal: messages are typed, answers follow them. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include "base/log.h"
#include "base/signals.h"
#include "bin/infer/edit.h"
#include "bin/infer/talk.h"

static const char quotes[] = "\"\"\""; /* around a message of several lines */
enum { QUOTES = sizeof quotes - 1 };

static void banner(const struct talk *t, const struct edit *ed)
{
    const struct session *s = t->s;
    if (llm_verbosity < 0) return;
    llm_note("%s (%s), a context of %" PRId64 " tokens", s->a->model, s->model->config.model_type, s->engine.context);
    talk_say("Type a message and Enter. A line that ends in \\ goes on in the next; %s begins and ends a text of several lines.\n", quotes);
    talk_say("/help lists the commands; Ctrl-C stops an answer; /exit%s leaves.\n", edit_is_rich(ed) ? " or Ctrl-D" : ", Ctrl-D or Ctrl-C");
}

/* What one line adds to the message. True: the message goes on in the next line. */
static bool take_line(struct llm_buf *message, const struct llm_buf *line, bool pasted, bool *quoted, int *status, struct llm_err *e)
{
    const char *text = line->p ? line->p : "";
    size_t n = line->n;
    bool more = pasted;
    if (!*quoted && message->n == 0 && n >= QUOTES && memcmp(text, quotes, QUOTES) == 0) {
        *quoted = true;
        text += QUOTES;
        n -= QUOTES;
    }
    if (*quoted) {
        more = n < QUOTES || memcmp(text + n - QUOTES, quotes, QUOTES) != 0;
        if (!more) n -= QUOTES;
    } else if (n > 0 && text[n - 1] == '\\') {
        more = true;
        n--;
    }
    *status = llm_buf_put(message, text, n, e);
    if (*status == 0 && more && !(*quoted && message->n == 0)) *status = llm_buf_put(message, "\n", 1, e);
    return more;
}

/* A message of one or more lines. */
static enum edit_result read_message(struct edit *ed, struct llm_buf *message, bool *command, struct llm_err *e)
{
    struct llm_buf line = {0};
    bool quoted = false, more = true, pasted = false;
    enum edit_result got = EDIT_LINE;
    int status = 0;
    message->n = 0;
    *command = false;
    for (bool first = true; more && got == EDIT_LINE && status == 0; first = false) {
        got = edit_line(ed, first ? "> " : "... ", &line, &pasted, e);
        if (got == EDIT_INTERRUPTED && !first) got = EDIT_DISCARDED;
        if (got != EDIT_LINE) break;
        *command = first && !pasted && command_is(line.p ? line.p : "", line.n);
        more = take_line(message, &line, pasted, &quoted, &status, e);
    }
    llm_buf_release(&line);
    return status < 0 ? EDIT_FAILED : got;
}

/* Removes a message that got no answer; one that had an answer before /regen has it again. */
static void take_back(struct talk *t)
{
    if (t->replaced && json_array_append(t->messages, t->replaced) == 0) return;
    if (strcmp(talk_last_role(t), "user") == 0) talk_drop(t);
}

/* Ctrl-C ends the answer: what was said stays said; a message without an answer is taken back. */
static int interrupted(struct talk *t, struct llm_err *e)
{
    talk_say("\n");
    if (t->reply.n > 0) return talk_add_reply(t, e);
    take_back(t);
    return 0;
}

/* What is wrong with a message or a command does not end the conversation; what is wrong with the program or its output does. */
static bool goes_on(const struct llm_err *e)
{
    return e->status == EX_DATAERR || e->status == EX_NOINPUT || e->status == EX_CANTCREAT || e->status == LLM_EX_USAGE;
}

static int answer(struct talk *t, struct llm_err *e)
{
    int status = talk_answer(t, e);
    if (status == 1 && llm_signal_take(SIGINT)) return interrupted(t, e);
    if (status < 0 && goes_on(e)) {
        llm_report(e);
        take_back(t);
        return 0;
    }
    if (status == 0 && t->finish == LLM_FINISH_LENGTH) llm_note("stopped after %" PRId64 " tokens; /set tokens=N allows more", t->made);
    return status;
}

/* A command or a message. */
static int react(struct talk *t, struct llm_buf *text, bool command, bool *leave, struct llm_err *e)
{
    if (!command) {
        /* A second slash, or a space, makes a text of what would be a command. */
        size_t skip = text->n > 1 && text->p[0] == '/' && text->p[1] == '/';
        int status = talk_add(t, "user", text->p + skip, text->n - skip, e);
        if (status == 0) return answer(t, e);
        llm_report(e);
        return goes_on(e) ? 0 : -1;
    }
    while (text->n > 0 && strchr(" \t\n", text->p[text->n - 1])) text->p[--text->n] = 0;
    switch (command_run(t, text->p, e)) {
    case COMMAND_EXIT: *leave = true; return 0;
    case COMMAND_ANSWER: {
        int status = answer(t, e);
        json_decref(t->replaced);
        t->replaced = NULL;
        return status;
    }
    case COMMAND_DONE: return 0;
    default: break;
    }
    if (!goes_on(e)) return -1;
    llm_report(e);
    return 0;
}

static bool is_blank(const struct llm_buf *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (!strchr(" \t\r\n", b->p[i])) return false;
    return true;
}

int run_terminal(struct talk *t, struct llm_err *e)
{
    struct llm_buf message = {0};
    struct edit *ed = edit_open(e);
    int status = ed ? 0 : -1;
    bool leave = false, command;
    if (ed) banner(t, ed);
    while (status == 0 && !leave) {
        enum edit_result got = read_message(ed, &message, &command, e);
        if (got == EDIT_FAILED) status = -1;
        else if (got == EDIT_INTERRUPTED) status = 1;
        else if (got == EDIT_DISCARDED) status = llm_signal_take(SIGINT) ? 0 : 1;
        else if (got == EDIT_END) leave = true;
        else if (!is_blank(&message)) status = react(t, &message, command, &leave, e);
    }
    llm_buf_release(&message);
    edit_close(ed);
    return status;
}
