#include "token/chat/find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/suggest.h"
#include "io/checkpoint.h"
#include "io/sniff.h"

enum { MAX_FILE = 32 << 20 };

/* The whole of a small file. 1; 0: it is not there; -1. */
static int read_file(const char *path, struct llm_buf *text, struct llm_err *e)
{
    struct stat s;
    if (stat(path, &s) < 0 && errno == ENOENT) return 0;
    struct llm_file *f = llm_file_open(path, e);
    int64_t got = f ? 1 : -1;
    while (got > 0) {
        if (text->n > MAX_FILE) got = llm_fail(e, EX_DATAERR, "%s: larger than %d bytes", path, MAX_FILE);
        else if (llm_buf_reserve(text, text->n + (1 << 16), e) < 0) got = -1;
        else got = llm_file_read_some(f, text->p + text->n, 1 << 16, e);
        if (got > 0) text->n += (size_t)got;
    }
    llm_file_close(f);
    return got < 0 ? -1 : 1;
}

static int make(struct llm_chat *c, const char *where, const char *text, size_t n, struct llm_err *e)
{
    c->template = llm_chat_template_create(text, n, NULL, e);
    if (!c->template) return llm_in(e, "%s", where);
    c->text = strndup(text, n);
    return c->text ? 0 : llm_no_memory(e, "template");
}

/* "chat_template": a text, or a list of {"name", "template"} of which "default" is taken. */
static const json_t *template_in(const json_t *config)
{
    const json_t *v = json_object_get(config, "chat_template"), *item;
    size_t i;
    if (!json_is_array(v)) return json_is_string(v) ? v : NULL;
    json_array_foreach(v, i, item) {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && strcmp(name, "default") == 0 && json_is_string(json_object_get(item, "template"))) return json_object_get(item, "template");
    }
    return NULL;
}

/* "bos_token": a text, or an object with "content". */
static int copy_token(const json_t *config, const char *key, char **out, struct llm_err *e)
{
    const json_t *v = json_object_get(config, key);
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    if (!text || *out) return 0;
    *out = strdup(text);
    return *out ? 0 : llm_no_memory(e, key);
}

static int from_config(struct llm_chat *c, const char *path, const struct llm_buf *text, struct llm_err *e)
{
    json_t *config = llm_json_parse_python(text->p, text->n, e);
    if (!config) return llm_in(e, "%s", path);
    const json_t *template = template_in(config);
    int status = copy_token(config, "bos_token", &c->bos, e) < 0 ? -1 : copy_token(config, "eos_token", &c->eos, e);
    if (status == 0 && template && !c->template) status = make(c, path, json_string_value(template), json_string_length(template), e);
    json_decref(config);
    return status;
}

/* The files of a folder that know of chats. */
static int from_folder(struct llm_chat *c, const char *folder, size_t n, struct llm_err *e)
{
    static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json"};
    int status = 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        struct llm_buf path = {0}, text = {0};
        int got = llm_buf_printf(&path, e, "%.*s/%s", (int)n, folder, names[i]);
        if (got == 0) got = read_file(path.p, &text, e);
        if (got > 0 && i == 0 && !c->template) status = make(c, path.p, text.p ? text.p : "", text.n, e);
        if (got > 0 && i == 1) status = from_config(c, path.p, &text, e);
        if (got < 0) status = -1;
        llm_buf_release(&path);
        llm_buf_release(&text);
    }
    return status;
}

/* The template that a checkpoint, a safetensors or a GGUF file carries. */
static int from_metadata(struct llm_chat *c, const char *path, struct llm_err *e)
{
    enum llm_content content;
    struct llm_file *f = llm_file_open(path, e);
    if (!f) return -1;
    int status = llm_sniff(f, &content, e);
    llm_file_close(f);
    if (status < 0 || (content != LLM_CONTENT_CHECKPOINT && content != LLM_CONTENT_MESSAGE && content != LLM_CONTENT_GGUF)) return status;
    struct llm_checkpoint *k = llm_checkpoint_open(path, e);
    if (!k) return -1;
    const char *text = llm_header_meta(llm_checkpoint_header(k), "llm.chat_template");
    size_t n = text ? strlen(text) : 0;
    if (llm_checkpoint_gguf(k)) status = llm_gguf_str(llm_checkpoint_gguf(k), "tokenizer.chat_template", &text, &n, e);
    if (status == 0 && text) status = make(c, path, text, n, e);
    llm_checkpoint_close(k);
    return status;
}

static int from_spec(struct llm_chat *c, const char *spec, struct llm_err *e)
{
    struct llm_buf text = {0};
    const char *builtin = llm_chat_builtin(spec);
    if (builtin) return make(c, spec, builtin, strlen(builtin), e);
    int got = read_file(spec, &text, e);
    if (got == 0) {
        struct llm_suggest near;
        const char *name;
        llm_suggest_begin(&near, spec);
        for (int i = 0; (name = llm_chat_builtin_word(i)); i++) llm_suggest_add(&near, name, name);
        llm_fail(e, EX_NOINPUT, "%s: no such file, and no built-in chat template of that name%s", spec, llm_suggest_text(&near, ""));
    } else if (got > 0) {
        size_t at = 0;
        while (at < text.n && strchr(" \t\r\n", text.p[at]) && text.p[at]) at++;
        /* A template may begin with "{" too, but not as JSON objects do. */
        bool is_json = at + 1 < text.n && text.p[at] == '{' && strchr("\" \t\r\n", text.p[at + 1]) && text.p[at + 1];
        if (is_json) got = from_config(c, spec, &text, e);
        else got = make(c, spec, text.p ? text.p : "", text.n, e);
    }
    if (got > 0 || (got == 0 && !c->template && !e->status)) llm_fail(e, EX_DATAERR, "%s: expected a chat template", spec);
    llm_buf_release(&text);
    return c->template ? 0 : -1;
}

static int default_token(const struct llm_tokenizer *t, int32_t id, char **out, struct llm_err *e)
{
    size_t n = 0;
    const char *piece = t && id >= 0 && !*out ? llm_tokenizer_piece(t, id, &n) : NULL;
    if (!piece) return 0;
    *out = strndup(piece, n);
    return *out ? 0 : llm_no_memory(e, "a token's text");
}

int llm_chat_find(struct llm_chat *c, const char *spec, const char *path, const struct llm_tokenizer *t, struct llm_err *e)
{
    struct stat s;
    struct llm_err own;
    int status = 0;
    if (!e) e = &own;
    e->status = 0;
    if (spec) status = from_spec(c, spec, e);
    bool named = path && strcmp(path, "-") != 0 && stat(path, &s) == 0;
    if (status == 0 && named && S_ISREG(s.st_mode) && !spec) status = from_metadata(c, path, e);
    if (status == 0 && named) {
        const char *slash = strrchr(path, '/');
        if (S_ISDIR(s.st_mode)) status = from_folder(c, path, strlen(path), e);
        else status = slash ? from_folder(c, path, (size_t)(slash - path), e) : from_folder(c, ".", 1, e);
    }
    if (status == 0 && !c->template)
        status = llm_fail(e, EX_DATAERR, "%s: it comes without a chat template: name one with --chat-template", path ? path : "standard input");
    if (status == 0 && t) status = default_token(t, llm_tokenizer_bos(t), &c->bos, e);
    if (status == 0 && t) status = default_token(t, llm_tokenizer_eos(t), &c->eos, e);
    return status;
}

void llm_chat_release(struct llm_chat *c)
{
    llm_chat_template_destroy(c->template);
    free(c->text);
    free(c->bos);
    free(c->eos);
    *c = (struct llm_chat){0};
}

size_t llm_chat_turn_ends(const struct llm_chat *c, const struct llm_tokenizer *t, int32_t ids[4])
{
    static const char said[] = "said-by-the-assistant";
    static const char talk[] =
        "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"said-by-the-assistant\"}]";
    struct llm_err e;
    struct llm_buf out = {0};
    const struct llm_chat_options o = {.bos = c->bos, .eos = c->eos};
    json_t *messages = llm_json_parse(talk, sizeof talk - 1, &e);
    int32_t *all = NULL;
    size_t n = 0, found = 0;
    if (messages && llm_chat_render(c->template, messages, NULL, &o, &out, NULL, &e) == 0) {
        const char *at = memmem(out.p, out.n, said, sizeof said - 1), *after = at ? at + sizeof said - 1 : NULL;
        if (after && llm_encode(t, after, out.n - (size_t)(after - out.p), LLM_ENCODE_SPECIAL, &all, &n, &e) < 0) n = 0;
    }
    /* The first special token among the four tokens after it; the others, such as white space, are skipped. */
    for (size_t i = 0; i < n && i < 4 && found == 0; i++)
        if (llm_tokenizer_is_special(t, all[i])) ids[found++] = all[i];
    free(all);
    llm_buf_release(&out);
    json_decref(messages);
    return found;
}
