#include "train/pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "tensor/tape.h"

/* How many messages two conversations begin with together. */
static size_t common(const json_t *a, const json_t *b)
{
    size_t n = 0, max = json_array_size(a) < json_array_size(b) ? json_array_size(a) : json_array_size(b);
    while (n < max && json_equal(json_array_get(a, n), json_array_get(b, n))) n++;
    return n;
}

/* Tokens of the two texts of a line, one after the other. */
struct two { struct llm_conversation c; int64_t second; };

static int append(struct two *t, const struct llm_conversation *from, int turns, struct llm_err *e)
{
    for (size_t i = 0; i < from->n; i++) {
        if (llm_conversation_add(&t->c, &from->ids[i], 1, from->mask[i] > turns, e) < 0) return -1;
    }
    return 0;
}

/* A conversation, which is consumed, of which the first n_prompt messages are the prompt. 1, 0: skipped, -1. */
static int encode_messages(struct llm_lines *l, struct two *t, json_t *all, size_t n_prompt, const json_t *tools, struct llm_err *e)
{
    json_t *made = NULL, *line = json_pack("{s:o}", "messages", all);
    int got = line ? llm_lines_messages(l, line, &made, e) : llm_no_memory(e, "a conversation");
    json_decref(line);
    if (got == 1 && llm_conversation_encode(&l->scratch, &l->chat, l->tokenizer, made, tools, false, NULL, e) < 0) got = -1;
    if (got == 1 && append(t, &l->scratch, llm_lines_turns(made, n_prompt), e) < 0) got = -1;
    json_decref(made);
    return got;
}

/* Plain texts. `together`: both replies begin where the first of them does, so that they follow the same tokens. */
static int encode_plain(struct llm_lines *l, struct two *t, const json_t *prompt, const json_t *const reply[2], bool together, struct llm_err *e)
{
    size_t first[2];
    if (llm_conversation_plain(&t->c, l->tokenizer, prompt, reply[0], &first[0], e) < 0) return -1;
    t->second = (int64_t)t->c.n;
    if (llm_conversation_plain(&t->c, l->tokenizer, prompt, reply[1], &first[1], e) < 0) return -1;
    if (together) first[0] = first[1] = first[0] < first[1] ? first[0] : first[1];
    memset(t->c.mask + first[0], 1, (size_t)t->second - first[0]);
    memset(t->c.mask + t->second + first[1], 1, t->c.n - (size_t)t->second - first[1]);
    return 1;
}

/* 1, 0: skipped, -1. */
static int encode(struct llm_lines *l, struct two *t, const json_t *prompt, const json_t *const reply[2], bool together, const json_t *tools,
                  struct llm_err *e)
{
    if (json_is_string(prompt) && json_is_string(reply[0]) && json_is_string(reply[1])) return encode_plain(l, t, prompt, reply, together, e);
    if (llm_lines_chat(l, e) < 0) return -1;
    json_t *a = llm_lines_join(prompt, reply[0], e), *b = a ? llm_lines_join(prompt, reply[1], e) : NULL;
    size_t n_prompt = !prompt || json_is_null(prompt) ? common(a, b) : json_is_array(prompt) ? json_array_size(prompt) : 1;
    int got = b ? encode_messages(l, t, a, n_prompt, tools, e) : -1;
    if (!b) json_decref(a);
    t->second = (int64_t)t->c.n;
    if (got == 1) got = encode_messages(l, t, b, n_prompt, tools, e);
    else json_decref(b);
    return got;
}

/* Numbers of the line, in the order of the objective's columns. */
static int take_columns(const struct llm_lines *l, const json_t *line, struct llm_record *r, float v[LLM_MAX_COLUMNS], struct llm_err *e)
{
    const struct llm_column *columns = l->objective->columns;
    for (int i = 0; columns && columns[i].name; i++) {
        char name[64];
        bool low = llm_ends_with(columns[i].name, LLM_PAIRS_LOW);
        snprintf(name, sizeof name, "%.*s", (int)(strlen(columns[i].name) - (low ? strlen(LLM_PAIRS_LOW) : 0)), columns[i].name);
        const json_t *x = json_object_get(line, name);
        if (!x) continue;
        if (!json_is_number(x) && !json_is_boolean(x)) return llm_fail(e, EX_DATAERR, "'%s': expected a number", name);
        double number = json_is_boolean(x) ? json_is_true(x) : json_number_value(x);
        v[i] = low ? (float)(number - (double)(float)number) : (float)number;
        r->column[i] = &v[i];
    }
    return 0;
}

static bool has_reply(const struct two *t, int64_t from, int64_t to)
{
    for (int64_t i = from + 1; i < to; i++) {
        if (t->c.mask[i]) return true;
    }
    return false;
}

static int add(struct llm_lines *l, const struct two *t, const json_t *line, struct llm_err *e)
{
    float numbers[LLM_MAX_COLUMNS];
    int64_t n = (int64_t)t->c.n, longer = t->second > n - t->second ? t->second : n - t->second;
    struct llm_record r = {.ids = t->c.ids, .mask = t->c.mask, .n = n, .second = t->second};
    if (!has_reply(t, 0, t->second) || !has_reply(t, t->second, n)) {
        return llm_lines_skip(l, LLM_SKIP_MASKED, e, "expected tokens in both replies, found an empty one");
    }
    if (longer > l->context) {
        return llm_lines_skip(l, LLM_SKIP_LONG, e, "expected at most %lld tokens (--context), found %lld", (long long)l->context, (long long)longer);
    }
    return take_columns(l, line, &r, numbers, e) < 0 ? -1 : llm_records_add(l->records, &r, e);
}

double llm_pairs_kept(double sum)
{
    return isfinite(sum) ? (double)(float)sum + (double)(float)(sum - (double)(float)sum) : sum;
}

/* Whether a reply, a text or messages, says nothing: its only token would be the end of the turn. */
static bool says_nothing(const json_t *reply)
{
    const json_t *last = json_is_array(reply) ? json_array_get(reply, json_array_size(reply) - 1) : reply;
    const json_t *text = json_is_object(last) ? json_object_get(last, "content") : last;
    return json_is_string(text) && json_string_length(text) == 0 && !json_object_get(last, "tool_calls");
}

/* Adds the record of a prompt and two replies. 0, also if the line is skipped, or -1. */
static int add_pair(struct llm_lines *l, const json_t *prompt, const json_t *const reply[2], bool together, const json_t *line, struct llm_err *e)
{
    struct two t = {.second = 0};
    if (says_nothing(reply[0]) || says_nothing(reply[1])) {
        return llm_lines_skip(l, LLM_SKIP_MASKED, e, "expected text in both replies, found an empty one");
    }
    int got = encode(l, &t, prompt, reply, together, json_object_get(line, "tools"), e);
    if (got == 1) got = add(l, &t, line, e);
    llm_conversation_release(&t.c);
    return got < 0 ? -1 : 0;
}

/* Bytes of the prompt of two texts without one: what both begin with, without a space at its end, which is the replies' (as TRL divides them). Each
 * reply has a character at least. */
static size_t shared(const json_t *a, const json_t *b)
{
    const char *p = json_string_value(a), *q = json_string_value(b);
    size_t n = 0, max = json_string_length(a) < json_string_length(b) ? json_string_length(a) : json_string_length(b);
    while (n < max && p[n] == q[n]) n++;
    const bool differ = n < max;
    n -= !differ && n > 0;
    while (n > 0 && ((unsigned char)p[n] & 0xC0) == 0x80) n--; /* not within a character */
    return n > 0 && differ && p[n - 1] == ' ' ? n - 1 : n;
}

/* A pair of texts without a prompt. 0 or -1. */
static int divide(struct llm_lines *l, const json_t *const text[2], const json_t *line, struct llm_err *e)
{
    const size_t n = shared(text[0], text[1]);
    if (n == 0) return llm_fail(e, EX_DATAERR, "expected 'prompt', or texts that begin alike, found neither");
    json_t *prompt = json_stringn(json_string_value(text[0]), n), *reply[2];
    for (int i = 0; i < 2; i++) reply[i] = json_stringn(json_string_value(text[i]) + n, json_string_length(text[i]) - n);
    const json_t *const parts[2] = {reply[0], reply[1]};
    int status = prompt && reply[0] && reply[1] ? add_pair(l, prompt, parts, true, line, e) : llm_no_memory(e, "a pair");
    json_decref(prompt);
    json_decref(reply[0]);
    json_decref(reply[1]);
    return status;
}

int llm_pairs_record(struct llm_lines *l, const json_t *line, struct llm_err *e)
{
    static const char *const names[2][2] = {{"chosen", "rejected"}, {"chosen_messages", "rejected_messages"}};
    const json_t *reply[2], *prompt = json_object_get(line, "prompt");
    for (int i = 0; i < 2; i++) {
        reply[i] = json_object_get(line, names[0][i]);
        if (!reply[i]) reply[i] = json_object_get(line, names[1][i]);
        if (!reply[i]) return llm_fail(e, EX_DATAERR, "expected '%s', found none", names[0][i]);
    }
    if (!prompt && json_is_string(reply[0]) && json_is_string(reply[1])) return divide(l, reply, line, e);
    if (!prompt && (json_is_string(reply[0]) || json_is_string(reply[1]))) return llm_fail(e, EX_DATAERR, "expected 'prompt', found none");
    return add_pair(l, prompt, reply, true, line, e);
}

int llm_singles_keep(json_t *lines, const json_t *line, struct llm_err *e)
{
    if (!json_object_get(line, "completion")) return llm_fail(e, EX_DATAERR, "expected 'completion', found none");
    if (!json_object_get(line, "prompt")) return llm_fail(e, EX_DATAERR, "expected 'prompt', found none");
    return json_array_append(lines, (json_t *)(uintptr_t)line) < 0 ? llm_no_memory(e, "lines") : 0;
}

int llm_singles_check(const json_t *lines, struct llm_err *e)
{
    if (json_array_size(lines) != 1) return 0;
    return llm_fail(e, EX_DATAERR, "expected at least two lines, found one: the divergence is that of replies to other prompts");
}

int llm_singles_add(struct llm_lines *l, const json_t *lines, size_t i, struct llm_err *e)
{
    size_t n = json_array_size(lines);
    const json_t *line = json_array_get(lines, i), *before = json_array_get(lines, (i + n - 1) % n);
    const json_t *const replies[2] = {json_object_get(line, "completion"), json_object_get(before, "completion")};
    return add_pair(l, json_object_get(line, "prompt"), replies, false, line, e);
}

/* A text into a row: ids and mask, the rest of the row is padding. */
static void put(int32_t *ids, uint8_t *own, int32_t *length, int64_t room, const int32_t *text, const uint8_t *mask, int64_t n)
{
    memcpy(ids, text, (size_t)n * sizeof *ids);
    memset(ids + n, 0, (size_t)(room - n) * sizeof *ids);
    memcpy(own, mask, (size_t)n);
    memset(own + n, 0, (size_t)(room - n));
    *length = (int32_t)n;
}

int llm_pairs_document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    int64_t room = rows->row_len, at = row * room, first = d->second, second = d->n - d->second;
    if (first < 1 || second < 1) {
        return llm_fail(e, EX_DATAERR, "expected two texts, found %lld and %lld tokens", (long long)first, (long long)second);
    }
    if (first > room || second > room) {
        return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld and %lld", (long long)room, (long long)first,
                        (long long)second);
    }
    put(rows->ids + at, rows->own + at, &rows->lengths[row], room, d->ids, d->mask, first);
    put(rows->source + at, rows->source_own + at, &rows->source_len[row], room, d->ids + first, d->mask + first, second);
    for (int64_t i = 0; i < room; i++) {
        rows->positions[at + i] = (int32_t)i;
        rows->doc_start[at + i] = 0;
        rows->targets[at + i] = i == 0 ? 0 : -1;
    }
    const struct llm_column *columns = t->objective->columns;
    for (int k = 0; columns && columns[k].name; k++) rows->column[k][row] = d->column && d->column[k] ? d->column[k][0] : NAN;
    return 0;
}

int llm_pairs_rows(struct llm_ctx *c, const struct llm_rows *pairs, struct llm_rows *out, struct llm_err *e)
{
    int64_t n = pairs->n_rows, len = pairs->row_len;
    int32_t *p = llm_op_alloc(c, 6 * n * len, sizeof *p);
    *out = (struct llm_rows){.n_rows = 2 * n, .row_len = len, .ids = p, .targets = p + 2 * n * len, .positions = p + 4 * n * len};
    if (!p) {
        *e = c->err;
        return -1;
    }
    for (int64_t r = 0; r < 2 * n; r++) {
        bool rejected = r % 2;
        int64_t from = r / 2 * len, to = r * len, length = rejected ? pairs->source_len[r / 2] : pairs->lengths[r / 2];
        const int32_t *ids = (rejected ? pairs->source : pairs->ids) + from;
        const uint8_t *own = (rejected ? pairs->source_own : pairs->own) + from;
        for (int64_t i = 0; i < len; i++) {
            out->ids[to + i] = ids[i];
            out->positions[to + i] = (int32_t)i;
            out->targets[to + i] = i + 1 < length && own[i + 1] ? ids[i + 1] : -1;
        }
    }
    return 0;
}
