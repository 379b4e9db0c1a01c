/* llm-infer --chat on a terminal: lines that begin with a slash. To add a command: its function and its row in `commands`. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bin/infer/talk.h"

/* The largest file that /load reads. */
#define MAX_TALK ((size_t)64 << 20)

struct command {
    const char *name, *argument, *help; /* argument: NULL: the command takes none; "[…]": optional */
    int (*run)(struct talk *t, const char *argument, struct llm_err *e); /* an enum command_result */
};

void talk_say(const char *fmt, ...)
{
    char text[2000];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n < 0) return;
    ssize_t ignored = write(STDERR_FILENO, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    (void)ignored;
}

static int leave(struct talk *t, const char *argument, struct llm_err *e)
{
    (void)t, (void)argument, (void)e;
    return COMMAND_EXIT;
}

static int reset(struct talk *t, const char *argument, struct llm_err *e)
{
    (void)argument;
    if (talk_log(t, e) < 0) return COMMAND_FAILED;
    while (json_array_size(t->messages) > 0 && strcmp(talk_last_role(t), "system") != 0) talk_drop(t);
    return COMMAND_DONE;
}

static const char *content_of(const json_t *message)
{
    const char *text = json_string_value(json_object_get(message, "content"));
    return text ? text : "";
}

static int set_system(struct talk *t, const char *argument, struct llm_err *e)
{
    json_t *first = json_array_get(t->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    bool has = role && strcmp(role, "system") == 0;
    if (!*argument) {
        talk_say("%s\n", has ? content_of(first) : "There is no system message.");
        return COMMAND_DONE;
    }
    if (has) json_array_remove(t->messages, 0);
    json_t *message = json_pack("{s:s,s:s}", "role", "system", "content", argument);
    if (!message) return llm_fail(e, EX_DATAERR, "/system: expected UTF-8");
    return json_array_insert_new(t->messages, 0, message) < 0 ? llm_no_memory(e, "messages") : COMMAND_DONE;
}

/* The file of /save and /load: standard input and output are the conversation's own. */
static int check_file(const char *command, const char *path, struct llm_err *e)
{
    return strcmp(path, "-") == 0 ? llm_fail(e, LLM_EX_USAGE, "/%s: expected a file, found '-'", command) : 0;
}

static int save(struct talk *t, const char *argument, struct llm_err *e)
{
    if (check_file("save", argument, e) < 0) return -1;
    struct llm_buf b = {0};
    json_t *o = json_pack("{s:O}", "messages", t->messages);
    int status = !o ? llm_no_memory(e, "messages") : llm_json_dump(o, &b, e);
    if (status == 0) status = llm_buf_put(&b, "\n", 1, e);
    struct llm_output *out = status == 0 ? llm_output_open(argument, false, e) : NULL;
    if (out && llm_output_write(out, b.p, b.n, e) == 0) status = llm_output_commit(out, e);
    else if (out) llm_output_abandon(out);
    json_decref(o);
    llm_buf_release(&b);
    if (!out || status < 0) return COMMAND_FAILED;
    talk_say("%zu messages saved in %s\n", json_array_size(t->messages), argument);
    return COMMAND_DONE;
}

static int check_messages(const json_t *messages, struct llm_err *e)
{
    if (!json_is_array(messages)) return llm_fail(e, EX_DATAERR, "expected an object with \"messages\", an array");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *content = json_object_get(m, "content");
        if (json_is_string(json_object_get(m, "role")) && (json_is_string(content) || json_is_array(content))) continue;
        return llm_fail(e, EX_DATAERR, "\"messages\": element %zu: expected an object with \"role\" and \"content\"", i);
    }
    return 0;
}

static int load(struct talk *t, const char *argument, struct llm_err *e)
{
    if (check_file("load", argument, e) < 0) return -1;
    json_t *o = llm_json_load(argument, MAX_TALK, e), *messages = json_object_get(o, "messages");
    if (!o) return COMMAND_FAILED;
    int status = check_messages(messages, e);
    if (status < 0) llm_in(e, "%s", argument);
    if (status == 0) status = talk_log(t, e);
    if (status == 0) {
        json_decref(t->messages);
        t->messages = json_incref(messages);
        talk_say("%zu messages loaded from %s\n", json_array_size(messages), argument);
    }
    json_decref(o);
    return status < 0 ? COMMAND_FAILED : COMMAND_DONE;
}

static int undo(struct talk *t, const char *argument, struct llm_err *e)
{
    (void)argument;
    while (strcmp(talk_last_role(t), "assistant") == 0) talk_drop(t);
    if (strcmp(talk_last_role(t), "user") != 0) return llm_fail(e, EX_DATAERR, "/undo: expected a message to take back, found none");
    talk_drop(t);
    return COMMAND_DONE;
}

static int again(struct talk *t, const char *argument, struct llm_err *e)
{
    (void)argument;
    if (strcmp(talk_last_role(t), "assistant") != 0) return llm_fail(e, EX_DATAERR, "/regen: expected an answer, found none");
    json_decref(t->replaced);
    t->replaced = json_incref(json_array_get(t->messages, json_array_size(t->messages) - 1));
    talk_drop(t);
    t->s->sampling.seed++;
    return COMMAND_ANSWER;
}

static int stats(struct talk *t, const char *argument, struct llm_err *e)
{
    (void)argument, (void)e;
    talk_say("cache: %" PRId64 " tokens, of a context of %" PRId64 "; %zu messages\n", t->kv.n, t->s->engine.context, json_array_size(t->messages));
    talk_say("last answer: %" PRId64 " tokens kept in the cache, %" PRId64 " read in %.2f s, %" PRId64 " made in %.2f s (%.1f a second)\n", t->kept,
             t->read, t->read_seconds, t->made, t->made_seconds, t->made_seconds > 0 ? (double)t->made / t->made_seconds : 0);
    return COMMAND_DONE;
}

/* What /set knows: a number of the sampling, or of the conversation. */
#define SETTING_REAL(type, member, field, standard, name, ...) {name, offsetof(struct llm_sampling, field), true},
#define SETTING_INT(type, member, field, standard, name, ...) {name, offsetof(struct llm_sampling, field), false},
/* The first are always listed; of the others, which are all of sample/table.h, only those that differ from their defaults. */
static const struct setting {
    const char *name;
    size_t at;      /* in struct llm_sampling */
    bool is_real;
} settings[] = {{"temp", offsetof(struct llm_sampling, temperature), true},
                {"top-k", offsetof(struct llm_sampling, top_k), false},
                {"top-p", offsetof(struct llm_sampling, top_p), true},
                {"min-p", offsetof(struct llm_sampling, min_p), true},
                {"typical", offsetof(struct llm_sampling, typical), true},
                {"repeat-penalty", offsetof(struct llm_sampling, repeat_penalty), true},
                {"presence-penalty", offsetof(struct llm_sampling, presence_penalty), true},
                {"frequency-penalty", offsetof(struct llm_sampling, frequency_penalty), true},
                {"repeat-last-n", offsetof(struct llm_sampling, repeat_last_n), false},
                {"seed", offsetof(struct llm_sampling, seed), false},
                LLM_SAMPLE_TABLE(LLM_SAMPLE_NO_STEP, SETTING_REAL, SETTING_INT, , )};
enum { N_SETTINGS = sizeof settings / sizeof *settings, N_LISTED = 10 };

/* Whether the setting is told by `/set`. */
static bool is_listed(const struct talk *t, int i)
{
    const struct setting *one = &settings[i];
    bool standard = memcmp((const char *)&t->s->sampling + one->at, (const char *)&llm_sampling_defaults + one->at, 8) == 0;
    for (int k = 0; k < N_LISTED && i >= N_LISTED; k++) standard |= settings[k].at == one->at;
    return i < N_LISTED || !standard;
}

static void show_settings(const struct talk *t)
{
    for (int i = 0; i < N_SETTINGS; i++) {
        const char *p = (const char *)&t->s->sampling + settings[i].at;
        if (!is_listed(t, i)) continue;
        if (settings[i].is_real) {
            double v;
            memcpy(&v, p, sizeof v);
            talk_say("%s=%g ", settings[i].name, v);
        } else {
            int64_t v;
            memcpy(&v, p, sizeof v);
            talk_say("%s=%" PRId64 " ", settings[i].name, v);
        }
    }
    talk_say("tokens=%" PRId64 "\n", t->max_tokens);
}

static int set_tokens(struct talk *t, const char *value, struct llm_err *e)
{
    int64_t n;
    if (llm_parse_int(value, &n) < 0 || n < -1 || n == 0 || n > INT32_MAX) {
        return llm_fail(e, LLM_EX_USAGE, "/set tokens: expected a number of tokens, or -1, found '%s'", value);
    }
    t->max_tokens = n;
    return COMMAND_DONE;
}

/* The name of the option that n bytes name, by one of its other names perhaps, with '_' for '-'; as it is if there is none. */
static const char *canonical(const char *given, size_t n, char room[64])
{
    snprintf(room, 64, "%.*s", (int)(n < 64 ? n : 63), given);
    const struct llm_opt *o = llm_cli_option(&infer_cli, room);
    return o ? o->name : room;
}

static int set(struct talk *t, const char *argument, struct llm_err *e)
{
    char room[64];
    const char *equals = strchr(argument, '=');
    if (!*argument) {
        show_settings(t);
        return COMMAND_DONE;
    }
    if (!equals) return llm_fail(e, LLM_EX_USAGE, "/set: expected NAME=VALUE, found '%s'", argument);
    const char *name = canonical(argument, (size_t)(equals - argument), room);
    if (strcmp(name, "tokens") == 0) return set_tokens(t, equals + 1, e);
    for (int i = 0; i < N_SETTINGS; i++) {
        const struct setting *one = &settings[i];
        struct llm_sampling changed = t->s->sampling;
        double real;
        int64_t whole;
        if (strcmp(one->name, name) != 0) continue;
        if (one->is_real ? llm_parse_real(equals + 1, &real) < 0 : llm_parse_int(equals + 1, &whole) < 0) {
            return llm_fail(e, LLM_EX_USAGE, "/set %s: expected a number, found '%s'", one->name, equals + 1);
        }
        if (strcmp(name, "seed") == 0 && whole < 0) {
            return llm_fail(e, LLM_EX_USAGE, "/set seed: expected a number of at least 0, found '%s'", equals + 1);
        }
        memcpy((char *)&changed + one->at, one->is_real ? (const void *)&real : (const void *)&whole, 8);
        if (llm_sampling_check(&changed, t->s->model->config.vocab_size, e) < 0) return COMMAND_FAILED;
        t->s->sampling = changed;
        return COMMAND_DONE;
    }
    return llm_fail(e, LLM_EX_USAGE, "/set: no setting of this name: '%.*s'; /set lists them", (int)(equals - argument), argument);
}

static int help(struct talk *t, const char *argument, struct llm_err *e);

static const struct command commands[] = {
    {"help", NULL, "list the commands", help},
    {"exit", NULL, "leave (Ctrl-D on an empty line, too)", leave},
    {"quit", NULL, "leave", leave},
    {"reset", NULL, "begin a new conversation; the system message stays", reset},
    {"system", "[TEXT]", "set the system message, or show it", set_system},
    {"regen", NULL, "answer the last message again, with the next seed", again},
    {"undo", NULL, "take back the last message and its answer", undo},
    {"save", "FILE", "save the conversation as a line of JSON, as --jsonl and llm-tokenize encode --chat read it", save},
    {"load", "FILE", "go on with a conversation that was saved", load},
    {"set", "[NAME=VALUE]", "change how tokens are chosen (temp, top-p, seed, tokens, ...), or list the settings", set},
    {"stats", NULL, "tokens in the cache, and those of the last answer with its times", stats},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int help(struct talk *t, const char *argument, struct llm_err *e)
{
    (void)t, (void)argument, (void)e;
    for (int i = 0; i < N_COMMANDS; i++) {
        char usage[40];
        snprintf(usage, sizeof usage, "/%s %s", commands[i].name, commands[i].argument ? commands[i].argument : "");
        talk_say("%-20s %s\n", usage, commands[i].help);
    }
    talk_say("%-20s %s\n", "//...", "a message that begins with a slash");
    return COMMAND_DONE;
}

bool command_is(const char *line, size_t n)
{
    size_t word = 1;
    if (n < 2 || line[0] != '/') return false;
    while (word < n && ((line[word] >= 'a' && line[word] <= 'z') || line[word] == '?')) word++;
    return word > 1 && (word == n || line[word] == ' ' || line[word] == '\t');
}

int command_run(struct talk *t, const char *line, struct llm_err *e)
{
    const char *name = line + 1, *argument = name + strcspn(name, " \t");
    size_t n = (size_t)(argument - name);
    argument += strspn(argument, " \t");
    for (int i = 0; i < N_COMMANDS; i++) {
        const struct command *c = &commands[i];
        if (strncmp(c->name, name, n) != 0 || c->name[n]) continue;
        if (*argument && !c->argument) return llm_fail(e, LLM_EX_USAGE, "/%s takes no argument, found '%s'", c->name, argument);
        if (!*argument && c->argument && c->argument[0] != '[') {
            return llm_fail(e, LLM_EX_USAGE, "/%s: expected %s", c->name, c->argument);
        }
        return c->run(t, argument, e);
    }
    return llm_fail(e, LLM_EX_USAGE, "/%.*s: no such command; /help lists them, // begins a message with a slash", (int)n, name);
}
