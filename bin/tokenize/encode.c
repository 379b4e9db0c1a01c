/* llm-tokenize encode: documents to token streams. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/json_long.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cpu/pool.h"
#include "data/tokens.h"
#include "token/chat/conversation.h"
#include "token/stream.h"
#include "bin/tokenize/tokenize.h"

struct args {
    struct llm_common common;
    const char *tokenizer, *pattern;
    struct document_options documents;
    const char *chat_template, *date, *pair, *label;
    int tsv, text, count, special, add_special, append_eos, strict, chat, generation_prompt;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'T', "tokenizer", "TOK", "the tokenizer: tokenizer.json, tiktoken ranks, a vocabulary, a folder, a model", LLM_INPUT, AT(tokenizer), 0, 0, NULL},
    {0, "pattern", "NAME|REGEX", "split pattern to use with a file of tiktoken ranks that is not a known one", LLM_STR, AT(pattern), 0, 0, NULL},
    DOCUMENT_OPTIONS(struct args, documents),
    {0, "pair", "SOURCE,TARGET", "each line is a JSON object with two texts that form a document; only the target counts in the loss",
     LLM_STR, AT(pair), 0, 0, NULL},
    {0, "label", "FIELD", "each line is a JSON object with a document's class in FIELD", LLM_STR, AT(label), 0, 0, NULL},
    {0, "tsv", NULL, "lines of --pair and --label are tab-separated fields 1, 2, ... instead of JSON", LLM_FLAG, AT(tsv), 0, 0, NULL},
    {0, "chat", NULL, "each line is a JSON object with \"messages\"; only the assistant's count in the loss", LLM_FLAG, AT(chat), 0, 0, NULL},
    {0, "chat-template", "FILE|NAME", "the template of --chat: a file, or one of %w [the tokenizer's own]", LLM_STR, AT(chat_template), 0, 0,
     NULL},
    {0, "date", "DAY", "date that strftime_now in the template of --chat returns: YYYY-MM-DD or today", LLM_STR, AT(date), 0, 0, NULL},
    {0, "add-generation-prompt", NULL, "end each conversation with the template's start of an assistant turn",
     LLM_FLAG, AT(generation_prompt), 0, 0, NULL},
    {0, "text", NULL, "write ids in decimal, one line per document", LLM_FLAG, AT(text), 0, 0, NULL},
    {0, "count", NULL, "write only the number of tokens", LLM_FLAG, AT(count), 0, 0, NULL},
    {0, "special", NULL, "encode special tokens that are written in the text as such, not as text", LLM_FLAG, AT(special), 0, 0, NULL},
    {0, "add-special", NULL, "add the special tokens of the tokenizer's post-processor (BOS, EOS)", LLM_FLAG, AT(add_special), 0, 0, NULL},
    {0, "append-eos", NULL, "end each document with the end-of-text token", LLM_FLAG, AT(append_eos), 0, 0, NULL},
    {0, "strict", NULL, "refuse text that is not UTF-8", LLM_FLAG, AT(strict), 0, 0, NULL},
    {0}};

const struct llm_cli tokenize_encode_cli = {
    .name = "llm-tokenize encode",
    .summary = "Turn text into token ids.",
    .usage = "-T TOK [OPTION]... [FILE]...",
    .examples = "llm-tokenize encode -T tok.json corpus.txt > corpus.tok\n"
                "llm-tokenize encode -T tok.json --text < prompt.txt\n"
                "llm-tokenize encode -T tok.json --jsonl --field text --append-eos data.jsonl > data.tok",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT,
    .words = tokenize_encode_words,
    .aliases = tokenize_encode_aliases,
    .foreign = tokenize_encode_foreign,
};

struct job {
    const struct args *a;
    struct llm_encode_stream *stream;
    struct llm_output *out;
    struct llm_tokens_writer *writer; /* neither --text nor --count */
    int32_t eos;                      /* appended; -1: not wanted */
    uint64_t tokens, documents;
    bool in_line;
    const struct llm_tokenizer *tokenizer;
    struct llm_chat chat;
    struct llm_conversation conversation;
    struct tm day;                    /* of --date */
    struct llm_buf line;              /* of --chat, --pair and --label, as far as it was read */
    size_t line_end;                  /* of --tsv: the line without its new line */
    struct llm_json_long json;        /* of --pair and --label */
    bool in_target;                   /* whether what j->stream encodes is the target of --pair */
    const char *name;
    uint64_t number;
};

static int put_line(struct job *j, const int32_t *ids, size_t n, bool ends, struct llm_err *e)
{
    char line[16 * 256];
    for (size_t i = 0; i < n;) {
        size_t used = 0;
        for (size_t k = 0; k < 256 && i < n; k++, i++) {
            if (j->in_line)
                line[used++] = ' ';
            j->in_line = true;
            char digits[12];
            size_t d = sizeof digits;
            for (uint32_t v = (uint32_t)ids[i]; d == sizeof digits || v; v /= 10)
                digits[--d] = (char)('0' + v % 10);
            memcpy(line + used, digits + d, sizeof digits - d);
            used += sizeof digits - d;
        }
        if (llm_output_write(j->out, line, used, e) < 0)
            return -1;
    }
    if (!ends)
        return 0;
    j->in_line = false;
    return llm_output_write(j->out, "\n", 1, e);
}

static int put_ids(struct job *j, const int32_t *ids, size_t n, bool ends, struct llm_err *e)
{
    j->tokens += n;
    if (j->a->count)
        return 0;
    if (j->a->text)
        return put_line(j, ids, n, ends, e);
    return llm_tokens_put(j->writer, ids, NULL, n, e) < 0 || (ends && llm_tokens_end_document(j->writer, e) < 0) ? -1 : 0;
}

static int take_ids(void *arg, const int32_t *ids, size_t n, bool document_ends, struct llm_err *e)
{
    struct job *j = arg;
    bool eos = document_ends && j->eos >= 0;
    j->documents += document_ends;
    if (put_ids(j, ids, n, document_ends && !eos, e) < 0)
        return -1;
    return eos ? put_ids(j, &j->eos, 1, true, e) : 0;
}

static void begin(void *arg, const char *name, const char *what, uint64_t number)
{
    llm_encode_stream_label(((struct job *)arg)->stream, name, what, number);
}

static int part(void *arg, const char *text, size_t n, struct llm_err *e)
{
    return llm_encode_stream_put(((struct job *)arg)->stream, text, n, e);
}

static int end(void *arg, struct llm_err *e)
{
    return llm_encode_stream_end_document(((struct job *)arg)->stream, e);
}

static void begin_line(void *arg, const char *name, const char *what, uint64_t number)
{
    struct job *j = arg;
    (void)what;
    j->name = name;
    j->number = number;
    j->line.n = 0;
}

static int line_part(void *arg, const char *text, size_t n, struct llm_err *e)
{
    return llm_buf_put(&((struct job *)arg)->line, text, n, e);
}

/* Field `number` (from 1) of the line, which ends before byte `end`; NULL if the line has fewer fields. */
static const char *tsv_field(const struct llm_buf *line, size_t end, size_t number, size_t *n)
{
    for (size_t at = 0; at <= end; number--) {
        const char *tab = memchr(line->p + at, '\t', end - at);
        size_t stop = tab ? (size_t)(tab - line->p) : end;
        *n = stop - at;
        if (number == 1) return line->p + at;
        at = stop + 1;
    }
    return NULL;
}

/* Reads the line: *object is its JSON (a new reference), or NULL for --tsv, whose fields are only checked. */
static int parse_line(struct job *j, json_t **object, struct llm_err *e)
{
    *object = NULL;
    if (!j->a->tsv) return (*object = llm_json_long_parse(&j->json, j->line.p, j->line.n, e)) ? 0 : -1;
    j->line_end = j->line.n;
    while (j->line_end > 0 && (j->line.p[j->line_end - 1] == '\n' || j->line.p[j->line_end - 1] == '\r')) j->line_end--;
    size_t bad = llm_utf8_invalid((const unsigned char *)j->line.p, j->line_end), number = 1;
    for (size_t i = 0; i < bad && bad < j->line_end; i++) number += j->line.p[i] == '\t';
    return bad == j->line_end ? 0 : llm_fail(e, EX_DATAERR, "field '%zu': expected UTF-8", number);
}

/* The text of a field of the line, n bytes; NULL if the line has no such field. */
static const char *field_text(const struct job *j, const json_t *o, const char *name, size_t *n)
{
    int64_t number;
    if (!j->a->tsv) return llm_json_long_string(&j->json, json_object_get(o, name), n);
    return llm_parse_int(name, &number) < 0 || number < 1 ? NULL : tsv_field(&j->line, j->line_end, (size_t)number, n);
}

/* The class of a line: a string, a number or a boolean. */
static int take_label(struct job *j, const json_t *o, struct llm_err *e)
{
    enum { CLASS_MAX = 4095 }; /* bytes */
    const json_t *v = json_object_get(o, j->a->label);
    char class[CLASS_MAX + 1] = "";
    size_t n = 0;
    const char *text = field_text(j, o, j->a->label, &n);
    if (text && n > CLASS_MAX)
        return llm_fail(e, EX_DATAERR, "field '%s': expected a class of at most %d bytes, found %zu", j->a->label, CLASS_MAX, n);
    if (text) memcpy(class, text, n);
    else if (json_is_integer(v)) snprintf(class, sizeof class, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_boolean(v)) snprintf(class, sizeof class, "%s", json_is_true(v) ? "true" : "false");
    if (!*class) return llm_fail(e, EX_DATAERR, "field '%s': expected a class: a text or an integer", j->a->label);
    return j->writer ? llm_tokens_label(j->writer, class, e) : 0;
}

static int take_conversation(void *arg, const int32_t *ids, const uint8_t *mask, size_t n, struct llm_err *e)
{
    struct job *j = arg;
    if (!j->writer) return put_ids(j, ids, n, false, e);
    j->tokens += n;
    return llm_tokens_put(j->writer, ids, mask, n, e);
}

/* Writes the tokens of the line that have been kept. */
static int put_conversation(struct job *j, struct llm_err *e)
{
    struct llm_conversation *c = &j->conversation;
    size_t n = c->n;
    c->n = 0;
    return take_conversation(j, c->ids, j->a->pair || j->a->chat ? c->mask : NULL, n, e);
}

static int put_long_ids(void *arg, const int32_t *ids, size_t n, bool document_ends, struct llm_err *e)
{
    struct job *j = arg;
    (void)document_ends;
    return llm_conversation_add(&j->conversation, ids, n, j->in_target, e) < 0 ? -1 : put_conversation(j, e);
}

/* The tokens of a long text are written as they are made: an array of all of them would take several times the bytes of the text. */
static int encode_long(struct job *j, const char *text, size_t n, int flags, bool target, struct llm_err *e)
{
    enum { STEP = 1 << 16 }; /* bytes */
    if (!j->stream && !(j->stream = llm_encode_stream_create(j->tokenizer, flags, put_long_ids, j, e))) return -1;
    if (put_conversation(j, e) < 0) return -1;
    j->in_target = target;
    for (size_t at = 0; at < n; at += STEP)
        if (llm_encode_stream_put(j->stream, text + at, n - at < STEP ? n - at : STEP, e) < 0) return -1;
    return llm_encode_stream_finish(j->stream, e);
}

/* Encodes one of the texts of a line. */
static int take_text(struct job *j, const json_t *o, const char *field, size_t n_field, bool target, struct llm_err *e)
{
    enum { LONG_TEXT = 1 << 20 }; /* bytes */
    const struct args *a = j->a;
    int flags = (a->special ? LLM_ENCODE_SPECIAL : 0) | (a->add_special ? LLM_ENCODE_ADD_SPECIAL : 0) | (a->strict ? LLM_ENCODE_STRICT : 0), bad;
    char name[256];
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    snprintf(name, sizeof name, "%.*s", (int)n_field, field);
    const char *text = field_text(j, o, name, &n);
    if (!text) return llm_fail(e, EX_DATAERR, "field '%s': expected a string", name);
    if (n >= LONG_TEXT) {
        bad = encode_long(j, text, n, flags, target, e);
    } else {
        bad = llm_encode(j->tokenizer, text, n, flags, &ids, &n_ids, e);
        if (bad == 0) bad = llm_conversation_add(&j->conversation, ids, n_ids, target, e);
    }
    if (bad == 0 && target && j->eos >= 0) bad = llm_conversation_add(&j->conversation, &j->eos, 1, true, e);
    free(ids);
    return bad;
}

/* Encodes the text of a line, or its two texts, and records its class. */
static int take_fields(struct job *j, struct llm_err *e)
{
    const char *pair = j->a->pair, *comma = pair ? strchr(pair, ',') : NULL;
    const char *field = j->a->documents.field ? j->a->documents.field : j->a->tsv ? "1" : "text";
    uint64_t before = j->tokens;
    json_t *o;
    if (parse_line(j, &o, e) < 0) return -1;
    j->conversation.n = 0;
    int bad = j->a->label ? take_label(j, o, e) : 0;
    if (bad == 0) bad = comma ? take_text(j, o, pair, (size_t)(comma - pair), false, e) : take_text(j, o, field, strlen(field), true, e);
    if (bad == 0 && comma) bad = take_text(j, o, comma + 1, strlen(comma + 1), true, e);
    if (bad == 0 && j->a->label && j->tokens + j->conversation.n == before) bad = llm_fail(e, EX_DATAERR, "expected a text, found no token");
    json_decref(o);
    return bad;
}

/* Called when a whole line has been read. Lines of white space are skipped. */
static int end_line(void *arg, struct llm_err *e)
{
    struct job *j = arg;
    size_t blank = 0;
    while (blank < j->line.n && strchr(" \t\r\n", j->line.p[blank]) && j->line.p[blank]) blank++;
    if (blank == j->line.n) return 0;
    const struct tm *day = j->a->date ? &j->day : NULL;
    if (j->a->pair || j->a->label
            ? take_fields(j, e) < 0
            : llm_conversation_line(&j->conversation, &j->chat, j->tokenizer, &j->line, j->a->generation_prompt, day, e) < 0)
        return llm_in(e, "%s: line %" PRIu64, j->name, j->number);
    if (put_conversation(j, e) < 0) return -1;
    j->documents++;
    return j->writer ? llm_tokens_end_document(j->writer, e) : put_ids(j, NULL, 0, true, e);
}

static int encode(struct job *j, const struct llm_tokenizer *t, char *const *paths, int n_paths, struct llm_err *e)
{
    const struct args *a = j->a;
    const struct document_sink sink = {j, part, end, begin}, lines = {j, line_part, end_line, begin_line};
    int flags = (a->special ? LLM_ENCODE_SPECIAL : 0) | (a->add_special ? LLM_ENCODE_ADD_SPECIAL : 0) | (a->strict ? LLM_ENCODE_STRICT : 0);
    j->eos = a->append_eos ? llm_tokenizer_eos(t) : -1;
    if (a->append_eos && j->eos < 0)
        return llm_fail(e, EX_DATAERR, "%s: --append-eos: this tokenizer has no end-of-text token", a->tokenizer);
    bool by_line = a->chat || a->pair || a->label;
    j->tokenizer = t;
    if (a->chat && llm_chat_find(&j->chat, a->chat_template, a->tokenizer, t, e) < 0)
        return -1;
    j->out = llm_output_open(a->common.output, !a->text && !a->count, e);
    if (!j->out)
        return -1;
    if (!a->text && !a->count
        && !(j->writer = llm_tokens_writer_create(j->out, llm_tokenizer_id(t), llm_tokenizer_vocab_size(t), a->chat || a->pair, e)))
        return -1;
    j->conversation.sink = take_conversation;
    j->conversation.sink_arg = j;
    j->stream = by_line ? NULL : llm_encode_stream_create(t, flags, take_ids, j, e);
    if (!by_line && !j->stream)
        return -1;
    if (read_documents(&a->documents, paths, n_paths, by_line ? &lines : &sink, e) < 0 || (!by_line && llm_encode_stream_finish(j->stream, e) < 0))
        return -1;
    if (j->writer && llm_tokens_finish(j->writer, e) < 0)
        return -1;
    if (a->count && llm_output_printf(j->out, e, "%" PRIu64 "\n", j->tokens) < 0)
        return -1;
    struct llm_output *done = j->out;
    j->out = NULL;
    return llm_output_commit(done, e);
}

/* --date. Without it the result depends on the data alone, and strftime_now is not defined. */
static void read_date(struct job *j)
{
    const char *text = j->a->date;
    time_t seconds = time(NULL);
    if (text && strcmp(text, "today") == 0) {
        localtime_r(&seconds, &j->day);
    } else if (text) {
        const char *end = strptime(text, "%Y-%m-%d", &j->day);
        if (!end || *end)
            llm_usage(&tokenize_encode_cli, "--date: expected YYYY-MM-DD or today, found '%s'", text);
    }
}

int tokenize_encode(int argc, char **argv)
{
    struct args a = {0};
    struct llm_err e = {0};
    int rest = llm_cli_parse(&tokenize_encode_cli, &a, argc, argv);
    struct job j = {.a = &a};
    if (!a.tokenizer)
        llm_usage(&tokenize_encode_cli, "expected -T TOK");
    if (a.text && a.count)
        llm_usage(&tokenize_encode_cli, "--text and --count: only one of them");
    if (!a.chat && (a.chat_template || a.generation_prompt || a.date))
        llm_usage(&tokenize_encode_cli, "--chat-template, --date and --add-generation-prompt need --chat");
    read_date(&j);
    if (a.chat && (a.documents.jsonl || a.documents.lines || a.documents.separator || a.add_special || a.append_eos || a.special || a.strict))
        llm_usage(&tokenize_encode_cli, "--chat does not go with options that say what a document is or what is added to it");
    if (a.label && (a.chat || a.documents.lines || a.documents.separator))
        llm_usage(&tokenize_encode_cli, "--label goes with lines of JSON, or with --tsv");
    if (a.tsv && ((!a.pair && !a.label) || a.documents.jsonl))
        llm_usage(&tokenize_encode_cli, "--tsv goes with --pair and --label, and not with --jsonl");
    if (a.pair && (a.chat || a.documents.jsonl || a.documents.lines || a.documents.separator))
        llm_usage(&tokenize_encode_cli, "--pair does not go with other options that say what a document is");
    if (a.pair && (!strchr(a.pair, ',') || strchr(a.pair, ',') == a.pair || !strchr(a.pair, ',')[1]))
        llm_usage(&tokenize_encode_cli, "--pair: expected SOURCE,TARGET, found '%s'", a.pair);
    if (a.label) /* its lines are JSON all the same */
        a.documents.jsonl = true;
    check_documents(&tokenize_encode_cli, &a.documents);
    if (a.label)
        a.documents.jsonl = false;
    a.documents.lines |= a.chat || a.pair || a.label;
    check_inputs(&tokenize_encode_cli, a.tokenizer, argv + rest, argc - rest);
    if (llm_pool_start(a.common.threads, &e) < 0)
        return llm_report(&e);
    double start = llm_now();
    struct llm_tokenizer *t = llm_tokenizer_load(a.tokenizer, a.pattern, &e);
    double loaded = llm_now();
    int bad = t ? encode(&j, t, argv + rest, argc - rest, &e) : -1;
    double done = llm_now();
    llm_encode_stream_destroy(j.stream);
    llm_tokens_writer_destroy(j.writer);
    llm_output_abandon(j.out);
    llm_chat_release(&j.chat);
    llm_conversation_release(&j.conversation);
    llm_buf_release(&j.line);
    llm_json_long_release(&j.json);
    llm_tokenizer_destroy(t);
    llm_pool_stop();
    if (bad < 0)
        return llm_report(&e);
    llm_verbose("%" PRIu64 " tokens in %" PRIu64 " documents; %.3f s to load, %.3f s to encode", j.tokens, j.documents, loaded - start,
                done - loaded);
    return 0;
}
