/* llm-tokenize info: describes a tokenizer. */
#include <string.h>
#include "io/table.h"
#include "bin/tokenize/tokenize.h"

struct args {
    struct llm_common common;
    const char *tokenizer, *pattern;
    int vocab, export;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'T', "tokenizer", "TOK", "the tokenizer: tokenizer.json, tiktoken ranks, a vocabulary, a folder, a model", LLM_INPUT, AT(tokenizer), 0, 0, NULL},
    {0, "pattern", "NAME|REGEX", "split pattern to use with a file of tiktoken ranks that is not a known one", LLM_STR, AT(pattern), 0, 0, NULL},
    {0, "vocab", NULL, "list every token: id, kind (token or special), text as a JSON string", LLM_FLAG, AT(vocab), 0, 0, NULL},
    {0, "export", NULL, "write the tokenizer as tokenizer.json", LLM_FLAG, AT(export), 0, 0, NULL},
    {0}};

const struct llm_cli tokenize_info_cli = {
    .name = "llm-tokenize info",
    .summary = "Describe a tokenizer: type, sizes, special tokens, identity.",
    .usage = "-T TOK [OPTION]...",
    .examples = "llm-tokenize info -T tok.json\n"
                "llm-tokenize info -T tok.json --json\n"
                "llm-tokenize info -T tok.json --vocab | head\n"
                "llm-tokenize info -T cl100k_base.tiktoken --export > tokenizer.json",
    .options = options,
    .common = LLM_COMMON_JSON | LLM_COMMON_OUTPUT | LLM_COMMON_TABLE,
};

static int put_text(struct llm_buf *b, const struct llm_tokenizer *t, int32_t id, struct llm_err *e)
{
    size_t n;
    const char *text = llm_tokenizer_piece(t, id, &n);
    return text ? llm_json_quote(b, text, n, e) : llm_buf_printf(b, e, "null");
}

/* A row: the token's id, a word and its text as a JSON string, the word first if `word_first`. */
static int add_token(struct llm_table *table, const struct llm_tokenizer *t, int32_t id, const char *word, bool word_first, struct llm_err *e)
{
    struct llm_buf text = {0};
    int status = put_text(&text, t, id, e) < 0 || llm_buf_put(&text, "", 1, e) < 0 ? -1 : 0;
    if (word_first) llm_table_text(table, word);
    llm_table_printed(table, id, LLM_NUMBER_INTEGER, 0);
    if (!word_first) llm_table_text(table, word);
    if (status == 0) llm_table_raw(table, text.p, text.p);
    llm_buf_release(&text);
    return status;
}

/* ---- the description ---- */

static int put_json_id(struct llm_buf *b, const char *name, int32_t id, struct llm_err *e)
{
    return id < 0 ? llm_buf_printf(b, e, ", \"%s\": null", name) : llm_buf_printf(b, e, ", \"%s\": %d", name, id);
}

/* One object; "special" has the ids of special tokens by their texts. */
static int describe_json(struct llm_buf *b, const struct llm_tokenizer *t, struct llm_err *e)
{
    const char *comma = "";
    if (llm_buf_printf(b, e, "{\"type\": \"%s\", \"vocab_size\": %d, \"id\": \"%s\"", llm_tokenizer_type(t), llm_tokenizer_vocab_size(t),
                       llm_tokenizer_id(t)) < 0
        || put_json_id(b, "bos", llm_tokenizer_bos(t), e) < 0 || put_json_id(b, "eos", llm_tokenizer_eos(t), e) < 0
        || llm_buf_printf(b, e, ", \"special\": {") < 0) return -1;
    for (int32_t id = 0; id < llm_tokenizer_vocab_size(t); id++) {
        if (!llm_tokenizer_is_special(t, id)) continue;
        if (llm_buf_printf(b, e, "%s", comma) < 0 || put_text(b, t, id, e) < 0 || llm_buf_printf(b, e, ": %d", id) < 0) return -1;
        comma = ", ";
    }
    return llm_buf_printf(b, e, "}}\n");
}

static void add_id(struct llm_table *table, int32_t id)
{
    if (id < 0) llm_table_text(table, NULL);
    else llm_table_printed(table, id, LLM_NUMBER_INTEGER, 0);
}

/* Two tables: what the tokenizer is, and its special tokens. TSV has them without headings, as one list of lines. */
static int describe(struct llm_buf *b, const struct llm_tokenizer *t, enum llm_table_form form, struct llm_err *e)
{
    static const char *const keys[] = {"type", "vocab_size", "id", "bos", "eos", NULL}, *const columns[] = {"kind", "id", "text", NULL};
    struct llm_table facts, special;
    int status = 0;
    llm_table_init(&facts, keys);
    llm_table_init(&special, columns);
    facts.record = true;
    facts.no_heading = special.no_heading = form == LLM_TABLE_TSV;
    llm_table_text(&facts, llm_tokenizer_type(t));
    llm_table_printed(&facts, llm_tokenizer_vocab_size(t), LLM_NUMBER_INTEGER, 0);
    llm_table_text(&facts, llm_tokenizer_id(t));
    add_id(&facts, llm_tokenizer_bos(t));
    add_id(&facts, llm_tokenizer_eos(t));
    for (int32_t id = 0; id < llm_tokenizer_vocab_size(t) && status == 0; id++) {
        if (llm_tokenizer_is_special(t, id)) status = add_token(&special, t, id, "special", true, e);
    }
    if (status == 0) status = llm_table_show(&facts, form, b, e);
    if (status == 0 && special.n_cells > 0 && form != LLM_TABLE_TSV) status = llm_buf_put(b, "\n", 1, e);
    if (status == 0 && special.n_cells > 0) status = llm_table_show(&special, form, b, e);
    llm_table_release(&facts);
    llm_table_release(&special);
    return status;
}

static int list(struct llm_buf *b, const struct llm_tokenizer *t, enum llm_table_form form, struct llm_err *e)
{
    static const char *const columns[] = {"id", "kind", "text", NULL};
    struct llm_table table;
    int status = 0;
    llm_table_init(&table, columns);
    table.no_heading = form == LLM_TABLE_TSV;
    for (int32_t id = 0; id < llm_tokenizer_vocab_size(t) && status == 0; id++) {
        size_t n;
        if (llm_tokenizer_piece(t, id, &n)) status = add_token(&table, t, id, llm_tokenizer_is_special(t, id) ? "special" : "token", false, e);
    }
    if (status == 0) status = llm_table_show(&table, form, b, e);
    llm_table_release(&table);
    return status;
}

static int make(struct llm_buf *b, const struct llm_tokenizer *t, const struct args *a, struct llm_err *e)
{
    enum llm_table_form form = llm_table_form_for(llm_table_form(&a->common), a->common.output);
    if (a->export) return llm_tokenizer_to_json(t, b, e);
    if (!*llm_tokenizer_id(t)) return llm_no_memory(e, "a tokenizer's identity");
    if (a->vocab) return list(b, t, form, e);
    return form == LLM_TABLE_JSON ? describe_json(b, t, e) : describe(b, t, form, e);
}

int tokenize_info(int argc, char **argv)
{
    struct args a = {0};
    struct llm_err e = {0};
    struct llm_buf b = {0};
    int rest = llm_cli_parse(&tokenize_info_cli, &a, argc, argv), bad = -1;
    if (!a.tokenizer)
        llm_usage(&tokenize_info_cli, "expected -T TOK");
    if (a.vocab + a.export > 1)
        llm_usage(&tokenize_info_cli, "--vocab and --export: only one of them");
    if (a.export && (a.common.json || a.common.format))
        llm_usage(&tokenize_info_cli, "--export writes a tokenizer.json: expected neither --json nor --format");
    if (rest < argc)
        llm_usage(&tokenize_info_cli, "unexpected operand '%s'", argv[rest]);
    struct llm_tokenizer *t = llm_tokenizer_load(a.tokenizer, a.pattern, &e);
    struct llm_output *o = NULL;
    int made = t ? make(&b, t, &a, &e) : -1;
    if (made == 0 && (o = llm_output_open(a.common.output, false, &e)))
        bad = llm_output_write(o, b.p ? b.p : "", b.n, &e) < 0 ? (llm_output_abandon(o), -1) : llm_output_commit(o, &e);
    llm_buf_release(&b);
    llm_tokenizer_destroy(t);
    return bad < 0 ? llm_report(&e) : 0;
}
