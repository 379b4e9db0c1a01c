#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/suggest.h"
#include "bin/infer/sight.h"
#include "cpu/profile.h"

/* Token ids separated by white space. */
static int parse_ids(const char *text, size_t n, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    size_t room = 0;
    for (size_t i = 0; i < n;) {
        size_t length = 0;
        char word[24];
        int64_t id;
        while (i < n && strchr(" \t\r\n\f\v", text[i]) && text[i]) i++;
        while (i + length < n && (!strchr(" \t\r\n\f\v", text[i + length]) || !text[i + length])) length++;
        if (length == 0) break;
        if (length < sizeof word) memcpy(word, text + i, length);
        word[length < sizeof word ? length : 0] = 0;
        if (llm_parse_int(word, &id) < 0 || id < 0 || id > INT32_MAX) {
            return llm_fail(e, EX_DATAERR, "byte %zu: expected a token id, found '%.*s'", i, (int)(length < 40 ? length : 40), text + i);
        }
        if (llm_grow((void **)ids, &room, *n_ids + 1, sizeof **ids, e) < 0) return -1;
        (*ids)[(*n_ids)++] = (int32_t)id;
        i += length;
    }
    return 0;
}

int prompt_check_vocab(const struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    int64_t vocab = s->model->config.vocab_size;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= vocab) {
            return llm_fail(e, EX_DATAERR, "token %zu: expected an id below %" PRId64 " (the model's vocabulary), found %" PRId32, i, vocab, ids[i]);
        }
    }
    return 0;
}

/* What comes before a text: that of --embed's prefix, and placeholders of n pictures if the text has none. 0 or -1. */
static int put_before(const struct session *s, const char *placeholder, size_t n, struct llm_buf *whole, struct llm_err *e)
{
    if (llm_buf_put(whole, s->prefix.p, s->prefix.n, e) < 0) return -1;
    for (size_t i = 0; i < n; i++)
        if (llm_buf_printf(whole, e, "%s\n", placeholder) < 0) return -1;
    return 0;
}

int prompt_encode(const struct session *s, const char *text, size_t n, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    return prompt_encode_seeing(s, text, n, 0, ids, n_ids, e);
}

int prompt_encode_seeing(const struct session *s, const char *text, size_t n, size_t n_pictures, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    const struct llm_model *m = s->model;
    struct llm_buf whole = {0};
    const char *mark = s->placeholder.p;
    const bool marked = mark && memmem(text, n, mark, strlen(mark));
    if (marked || !mark) n_pictures = 0;
    int flags = (s->begin.n > 0 ? 0 : LLM_ENCODE_ADD_SPECIAL) | (s->a->special || marked || n_pictures > 0 ? LLM_ENCODE_SPECIAL : 0);
    LLM_PROFILE("tokenize", n);
    *ids = NULL;
    *n_ids = 0;
    if (s->a->ids) {
        if (parse_ids(text, n, ids, n_ids, e) < 0) return -1;
    } else if (!m->tokenizer) {
        return llm_fail(e, EX_DATAERR, "%s: the model carries no tokenizer: name one with -T, or give token ids with --ids", s->a->model);
    } else {
        bool before = s->prefix.n > 0 || n_pictures > 0;
        int status = before && (put_before(s, mark, n_pictures, &whole, e) < 0 || llm_buf_put(&whole, text, n, e) < 0) ? -1 : 0;
        if (status == 0) status = llm_encode(m->tokenizer, before ? whole.p : text, before ? whole.n : n, flags, ids, n_ids, e);
        llm_buf_release(&whole);
        if (status < 0 || llm_model_end_text(m, ids, n_ids, e) < 0) return -1;
    }
    return llm_model_pad_text(m, ids, n_ids, e) < 0 ? -1 : prompt_check_vocab(s, *ids, *n_ids, e);
}

int prompt_take_ids(const struct session *s, const json_t *list, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    int64_t vocab = s->model->config.vocab_size;
    *n_ids = json_array_size(list);
    *ids = llm_alloc(*n_ids, sizeof **ids, "a prompt", e);
    if (!*ids) return -1;
    for (size_t i = 0; i < *n_ids; i++) {
        json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= vocab) {
            return llm_fail(e, EX_DATAERR, "\"ids\": element %zu: expected a token id below %" PRId64, i, vocab);
        }
        (*ids)[i] = (int32_t)json_integer_value(id);
    }
    return llm_model_pad_text(s->model, ids, n_ids, e);
}

/* A line without a prompt: perhaps its name is misspelt. */
static int no_prompt(const json_t *o, struct llm_err *e)
{
    static const char expected[] = "expected \"prompt\" (a string) or \"ids\" (a list)";
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v) {
        struct llm_suggest near;
        llm_suggest_begin(&near, key);
        llm_suggest_add(&near, "prompt", "prompt");
        if (near.n == 0 || json_object_get(o, "prompt")) continue;
        return llm_fail(e, EX_DATAERR, "%s, found \"%.40s\"%s", expected, key, llm_suggest_text(&near, ""));
    }
    return llm_fail(e, EX_DATAERR, "%s", expected);
}

int prompt_of_line(const struct session *s, const json_t *o, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    const json_t *prompt = json_object_get(o, "prompt"), *list = json_object_get(o, "ids");
    if (json_is_null(prompt)) prompt = NULL;
    if (json_is_null(list)) list = NULL;
    if (!prompt && !list && s->a->embed) prompt = json_object_get(o, "text");
    if (json_is_array(list) && !prompt) return prompt_take_ids(s, list, ids, n_ids, e);
    if (!json_is_string(prompt) || list) return no_prompt(o, e);
    return prompt_encode_seeing(s, json_string_value(prompt), json_string_length(prompt), llm_picture_paths_count(o), ids, n_ids, e) < 0
               ? llm_in(e, "\"prompt\"") : 0;
}

/* A token stands for at most MAX_TOKEN_BYTES bytes, unless a normaliser drops text; MARGIN allows for that. */
enum { MAX_TOKEN_BYTES = 256, MAX_ID_BYTES = 16, MARGIN = 1 << 20, MAX_SCORED = 1 << 30 };

size_t prompt_max_bytes(const struct session *s)
{
    const struct llm_tokenizer *t = s->model->tokenizer;
    size_t longest = MAX_TOKEN_BYTES, n;
    if (s->a->score) return MAX_SCORED; /* in windows, whatever the context is */
    for (int32_t id = 0; t && id < llm_tokenizer_vocab_size(t); id++) {
        if (llm_tokenizer_piece(t, id, &n) && n > longest) longest = n;
    }
    if (s->a->ids) longest = MAX_ID_BYTES;
    return (size_t)s->engine.context * longest + MARGIN;
}

int prompt_read_all(const struct session *s, const char *path, struct llm_buf *text, struct llm_err *e)
{
    size_t max = prompt_max_bytes(s);
    struct llm_file *f = llm_file_open(path, e);
    int64_t got = f ? 1 : -1;
    while (got > 0) {
        if (text->n > max) {
            got = llm_fail(e, EX_DATAERR, "%s: expected at most %zu bytes (the context is %" PRId64 " tokens), found more", llm_file_name(f), max,
                           s->engine.context);
        } else if (llm_buf_reserve(text, text->n + (1 << 16), e) < 0) {
            got = -1;
        } else {
            got = llm_file_read_some(f, text->p + text->n, 1 << 16, e);
        }
        if (got > 0) text->n += (size_t)got;
    }
    llm_file_close(f);
    return got < 0 ? -1 : 0;
}

/* The token that begins a text, or, if the model has none, ends one; -1: neither. */
static int32_t beginning(const struct llm_model *m)
{
    int64_t bos = m->tokenizer ? llm_tokenizer_bos(m->tokenizer) : m->config.bos_token_id;
    int64_t eos = m->tokenizer ? llm_tokenizer_eos(m->tokenizer) : m->config.eos_token_id;
    int64_t id = bos >= 0 ? bos : eos;
    return id < m->config.vocab_size ? (int32_t)id : -1;
}

int prompt_read(const struct session *s, const char *operand, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    struct llm_buf text = {0};
    const char *path = s->a->file ? s->a->file : "-";
    int status;
    if (operand) {
        status = prompt_encode_seeing(s, operand, strlen(operand), s->a->images.n, ids, n_ids, e);
        if (status < 0) llm_in(e, "prompt");
    } else if (s->begin.n > 0 && !s->a->file) { /* a cache is prompt enough */
        *ids = NULL;
        *n_ids = 0;
        return 0;
    } else {
        status = prompt_read_all(s, path, &text, e);
        if (status == 0 && (status = prompt_encode_seeing(s, text.p ? text.p : "", text.n, s->a->images.n, ids, n_ids, e)) < 0) {
            llm_in(e, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
        }
    }
    llm_buf_release(&text);
    return status < 0 ? -1 : prompt_begin(s, ids, n_ids, e);
}

int prompt_begin(const struct session *s, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    if (*n_ids > 0 || s->begin.n > 0) return 0;
    int32_t first = beginning(s->model);
    if (first < 0) return llm_fail(e, EX_DATAERR, "the prompt is empty, and the model has no token to begin a text with");
    free(*ids);
    *ids = llm_alloc(1, sizeof **ids, "a prompt", e);
    if (!*ids) return -1;
    (*ids)[(*n_ids)++] = first;
    return 0;
}

int prompt_take(const struct session *s, json_t *o, int64_t line, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    if (prompt_of_line(s, o, ids, n_ids, e) < 0 || sight_refuse(s, o, *ids, *n_ids, e) < 0 || prompt_begin(s, ids, n_ids, e) < 0) return -1;
    json_object_del(o, "prompt");
    json_object_del(o, "ids");
    return json_object_get(o, "id") || json_object_set_new(o, "id", json_integer(line)) == 0 ? 0 : llm_no_memory(e, "an id");
}

int prompt_end(const struct session *s, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    const struct llm_model *m = s->model;
    int64_t eos = m->tokenizer && llm_tokenizer_eos(m->tokenizer) >= 0 ? llm_tokenizer_eos(m->tokenizer) : m->config.eos_token_id;
    if (!s->a->add_eos) return 0;
    if (eos < 0 || eos >= m->config.vocab_size) return llm_fail(e, LLM_EX_USAGE, "--add-eos: expected a model with an end token, found none");
    int32_t *more = llm_alloc(*n_ids + 1, sizeof *more, "a prompt", e);
    if (!more) return -1;
    if (*n_ids > 0) memcpy(more, *ids, *n_ids * sizeof *more);
    more[(*n_ids)++] = (int32_t)eos;
    free(*ids);
    *ids = more;
    return 0;
}

int prompt_check(const struct session *s, size_t n_ids, struct llm_err *e)
{
    int64_t all = s->begin.n + (int64_t)n_ids;
    if (all <= s->engine.context) return 0;
    return llm_engine_too_long(&s->engine, all, e) < 0 ? llm_in(e, "prompt") : 0;
}

void note_full(const struct session *s)
{
    llm_note("stopped: the context of %" PRId64 " tokens is full%s", s->engine.context,
             s->model->rope_context > 0 ? "; rotary positions are scaled for as many: -c N asks for others" : "");
}
