/* llm-infer --chat: one conversation, answered turn by turn. The cache is kept between turns. */
#ifndef LLM_BIN_INFER_TALK_H
#define LLM_BIN_INFER_TALK_H

#include "bin/infer/sight.h"

struct talk {
    struct session *s;
    json_t *messages;          /* what was said so far, as OpenAI's messages */
    json_t *replaced;          /* of /regen: the answer that was there; NULL: none */
    int64_t max_tokens;        /* of an answer */
    struct llm_kv kv;          /* of the turns so far, but for the last token said */
    int32_t *ids;              /* the turn at hand: all of the conversation's tokens, as the template has it now */
    size_t n_ids;
    struct sight pictures;     /* of the conversation */
    bool taken;                /* the generator has the turn at hand */
    struct llm_buf reply;      /* the assistant's words of the last turn */
    bool dims;                 /* thoughts are shown dimmed: on a terminal, unless NO_COLOR is set */
    bool dimmed;               /* what is written is a thought */
    /* of the last answer */
    enum llm_finish finish;
    int64_t kept, read, made;  /* tokens that the cache held, that were read, that were generated */
    double read_seconds, made_seconds;
};
/* With the message of --system. Zero-initialise; release either way. */
int talk_init(struct talk *t, struct session *s, struct llm_err *e) LLM_MUST_CHECK;
void talk_release(struct talk *t);
/* Adds a message, the user's first with the pictures of --image. content: UTF-8, else EX_DATAERR. */
int talk_add(struct talk *t, const char *role, const char *content, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the assistant's answer to the messages so far, and adds it to them. 0; 1 when a signal was caught, t->reply then holds what was said until
 * then and no message was added; -1. */
int talk_answer(struct talk *t, struct llm_err *e) LLM_MUST_CHECK;
/* Adds what t->reply holds as the assistant's message. */
int talk_add_reply(struct talk *t, struct llm_err *e) LLM_MUST_CHECK;
/* With --chat-log: appends the conversation to that file, if it has an answer. 0 or -1. */
int talk_log(const struct talk *t, struct llm_err *e) LLM_MUST_CHECK;
/* The role of the last message; "" when there is none. */
const char *talk_last_role(const struct talk *t);
/* Removes the last message. */
void talk_drop(struct talk *t);

/* A conversation on a terminal (bin/infer/terminal.c): until its person leaves. 0, 1 when a signal was caught, -1. */
int run_terminal(struct talk *t, struct llm_err *e) LLM_MUST_CHECK;

/* Commands (bin/infer/commands.c): a slash, a word of small letters, and perhaps its argument. */
enum command_result { COMMAND_FAILED = -1, COMMAND_DONE, COMMAND_EXIT, COMMAND_ANSWER /* the last message waits for an answer */ };
bool command_is(const char *line, size_t n);
/* Runs the command in `line`: an enum command_result. */
int command_run(struct talk *t, const char *line, struct llm_err *e) LLM_MUST_CHECK;
/* Writes text for the person to standard error. */
void talk_say(const char *fmt, ...) LLM_PRINTF(1, 2);

#endif
