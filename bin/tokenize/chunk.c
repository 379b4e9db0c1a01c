/* llm-tokenize chunk: documents to passages, a JSON line each. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "io/output.h"
#include "token/chunk.h"
#include "bin/tokenize/tokenize.h"

struct args {
    struct llm_common common;
    const char *tokenizer, *pattern;
    struct document_options documents;
    int64_t size, overlap;
    int kind;                      /* 0: by the file's name; else 1 + enum llm_chunk_kind */
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'T', "tokenizer", "TOK", "the tokenizer that counts: tokenizer.json, tiktoken ranks, a vocabulary, a folder, a model", LLM_INPUT, AT(tokenizer),
     0, 0, NULL},
    {0, "pattern", "NAME|REGEX", "split pattern to use with a file of tiktoken ranks that is not a known one", LLM_STR, AT(pattern), 0, 0, NULL},
    {0, "size", "N", "tokens of a passage at most [256]", LLM_INT, AT(size), 1, 1 << 20, NULL},
    {0, "overlap", "N", "tokens of the passage before that one repeats at most [0]", LLM_INT, AT(overlap), 0, 1 << 20, NULL},
    {0, "kind", "KIND", "what pauses the text has; auto: by the file's name [auto]", LLM_CHOICE, AT(kind), 0, 0, "auto|text|markdown|code"},
    DOCUMENT_OPTIONS(struct args, documents),
    {0}};

const struct llm_cli tokenize_chunk_cli = {
    .name = "llm-tokenize chunk",
    .summary = "Cut documents into passages for retrieval, where the text pauses; write a JSON line for each.",
    .usage = "-T TOK [OPTION]... [FILE]...",
    .examples = "llm-tokenize chunk -T tok.json --size 200 --overlap 40 notes.md manual.txt > passages.jsonl\n"
                "llm-tokenize chunk -T model.llm --jsonl --field body articles.jsonl > passages.jsonl",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_OUTPUT,
    .words = tokenize_encode_words,
    .aliases = tokenize_decode_aliases,
    .foreign = tokenize_chunk_foreign,
};

struct job {
    const struct args *a;
    struct llm_chunking chunking;
    struct llm_output *out;
    struct llm_buf document, line;
    const char *name, *what;       /* of the document: a file, and what its number counts or NULL */
    uint64_t number, passages;     /* of the document in its file; of the document's passages so far */
    uint64_t all_passages, documents;
};

static void begin(void *arg, const char *name, const char *what, uint64_t number)
{
    struct job *j = arg;
    j->name = name;
    j->what = what;
    j->number = number;
    j->document.n = 0;
}

static int part(void *arg, const char *text, size_t n, struct llm_err *e)
{
    return llm_buf_put(&((struct job *)arg)->document, text, n, e);
}

/* The file and the number of the passage, joined by "#"; before that ":" and the number of a document that is a part of the file. */
static json_t *id_of(const struct job *j)
{
    char tail[64];
    struct llm_buf id = {0};
    struct llm_err e = {0};
    if (j->what) snprintf(tail, sizeof tail, ":%" PRIu64 "#%" PRIu64, j->number, j->passages);
    else snprintf(tail, sizeof tail, "#%" PRIu64, j->passages);
    json_t *o = llm_buf_printf(&id, &e, "%s%s", j->name, tail) < 0 ? NULL : llm_json_text(id.p, id.n);
    llm_buf_release(&id);
    return o;
}

/* Texts of the headings that the passage stands under, from the outermost on. */
static json_t *headings_of(const struct job *j, const struct llm_chunk *c)
{
    json_t *list = json_array();
    for (int i = 0; i < LLM_CHUNK_HEADINGS && list; i++) {
        size_t at = c->headings[i].begin;
        if (c->headings[i].end > at && json_array_append_new(list, llm_json_text(j->document.p + at, c->headings[i].end - at)) < 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static int take(void *arg, const struct llm_chunk *c, struct llm_err *e)
{
    struct job *j = arg;
    json_t *o = json_object();
    int bad = !o || json_object_set_new(o, "id", id_of(j)) < 0 || json_object_set_new(o, "source", llm_json_text(j->name, strlen(j->name))) < 0;
    if (j->what) bad |= json_object_set_new(o, j->what, json_integer((json_int_t)j->number));
    bad |= json_object_set_new(o, "begin", json_integer((json_int_t)c->begin));
    bad |= json_object_set_new(o, "end", json_integer((json_int_t)c->end));
    bad |= json_object_set_new(o, "tokens", json_integer(c->tokens));
    if (j->chunking.kind == LLM_CHUNK_MARKDOWN) bad |= json_object_set_new(o, "headings", headings_of(j, c));
    bad |= json_object_set_new(o, "text", llm_json_text(j->document.p + c->begin, c->end - c->begin));
    j->line.n = 0;
    int status = bad ? llm_no_memory(e, "a passage") : llm_json_dump(o, &j->line, e);
    json_decref(o);
    if (status == 0) status = llm_buf_put(&j->line, "\n", 1, e);
    if (status == 0) status = llm_output_write(j->out, j->line.p, j->line.n, e);
    j->passages++;
    j->all_passages++;
    return status;
}

static int end(void *arg, struct llm_err *e)
{
    struct job *j = arg;
    j->passages = 0;
    j->documents++;
    j->chunking.kind = j->a->kind > 0 ? (enum llm_chunk_kind)(j->a->kind - 1) : j->what ? LLM_CHUNK_TEXT : llm_chunk_kind_of(j->name);
    if (llm_chunk(&j->chunking, j->document.p ? j->document.p : "", j->document.n, e) == 0) return 0;
    if (!j->what || e->status != EX_DATAERR) return llm_in(e, "%s", j->name);
    return llm_in(e, "%s: %s %" PRIu64, j->name, j->what, j->number);
}

int tokenize_chunk(int argc, char **argv)
{
    struct args a = {.size = 256};
    struct llm_err e = {0};
    int rest = llm_cli_parse(&tokenize_chunk_cli, &a, argc, argv);
    if (!a.tokenizer)
        llm_usage(&tokenize_chunk_cli, "expected -T TOK");
    if (a.overlap >= a.size)
        llm_usage(&tokenize_chunk_cli, "--overlap: expected less than --size (%" PRId64 "), found %" PRId64, a.size, a.overlap);
    check_documents(&tokenize_chunk_cli, &a.documents);
    check_inputs(&tokenize_chunk_cli, a.tokenizer, argv + rest, argc - rest);
    struct job j = {.a = &a, .chunking = {.size = a.size, .overlap = a.overlap, .take = take, .arg = &j}};
    const struct document_sink sink = {&j, part, end, begin};
    struct llm_tokenizer *t = llm_tokenizer_load(a.tokenizer, a.pattern, &e);
    j.chunking.tokenizer = t;
    j.out = t ? llm_output_open(a.common.output, false, &e) : NULL;
    int bad = j.out ? read_documents(&a.documents, argv + rest, argc - rest, &sink, &e) : -1;
    if (bad == 0) bad = llm_output_commit(j.out, &e);
    else llm_output_abandon(j.out);
    llm_buf_release(&j.document);
    llm_buf_release(&j.line);
    llm_tokenizer_destroy(t);
    if (bad < 0)
        return llm_report(&e);
    llm_verbose("%" PRIu64 " passages of %" PRIu64 " documents", j.all_passages, j.documents);
    return 0;
}
