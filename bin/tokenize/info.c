/* llm-tokenize info: describes a tokenizer. */
#include <string.h>
#include "io/output.h"
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
    .common = LLM_COMMON_JSON | LLM_COMMON_OUTPUT,
};

static int put_text(struct llm_buf *b, const struct llm_tokenizer *t, int32_t id, struct llm_err *e)
{
    size_t n;
    const char *text = llm_tokenizer_piece(t, id, &n);
    return text ? llm_json_quote(b, text, n, e) : llm_buf_printf(b, e, "null");
}

/* bos and eos: id, or nothing */
static int put_id(struct llm_buf *b, bool json, const char *name, int32_t id, struct llm_err *e)
{
    if (json)
        return id < 0 ? llm_buf_printf(b, e, ", \"%s\": null", name) : llm_buf_printf(b, e, ", \"%s\": %d", name, id);
    return id < 0 ? llm_buf_printf(b, e, "%s\t-\n", name) : llm_buf_printf(b, e, "%s\t%d\n", name, id);
}

static int put_specials(struct llm_buf *b, const struct llm_tokenizer *t, bool json, struct llm_err *e)
{
    const char *comma = "";
    if (json && llm_buf_printf(b, e, ", \"special\": {") < 0)
        return -1;
    for (int32_t id = 0; id < llm_tokenizer_vocab_size(t); id++) {
        if (!llm_tokenizer_is_special(t, id))
            continue;
        if (json ? llm_buf_printf(b, e, "%s", comma) < 0 || put_text(b, t, id, e) < 0 || llm_buf_printf(b, e, ": %d", id) < 0
                 : llm_buf_printf(b, e, "special\t%d\t", id) < 0 || put_text(b, t, id, e) < 0 || llm_buf_printf(b, e, "\n") < 0)
            return -1;
        comma = ", ";
    }
    return json ? llm_buf_printf(b, e, "}}\n") : 0;
}

static int describe(struct llm_buf *b, const struct llm_tokenizer *t, bool json, struct llm_err *e)
{
    const char *id = llm_tokenizer_id(t), *type = llm_tokenizer_type(t);
    int32_t size = llm_tokenizer_vocab_size(t);
    if (!*id)
        return llm_no_memory(e, "a tokenizer's identity");
    if (json ? llm_buf_printf(b, e, "{\"type\": \"%s\", \"vocab_size\": %d, \"id\": \"%s\"", type, size, id) < 0
             : llm_buf_printf(b, e, "type\t%s\nvocab_size\t%d\nid\t%s\n", type, size, id) < 0)
        return -1;
    if (put_id(b, json, "bos", llm_tokenizer_bos(t), e) < 0 || put_id(b, json, "eos", llm_tokenizer_eos(t), e) < 0)
        return -1;
    return put_specials(b, t, json, e);
}

static int list(struct llm_buf *b, const struct llm_tokenizer *t, struct llm_err *e)
{
    for (int32_t id = 0; id < llm_tokenizer_vocab_size(t); id++) {
        size_t n;
        if (!llm_tokenizer_piece(t, id, &n))
            continue;
        if (llm_buf_printf(b, e, "%d\t%s\t", id, llm_tokenizer_is_special(t, id) ? "special" : "token") < 0 || put_text(b, t, id, e) < 0
            || llm_buf_printf(b, e, "\n") < 0)
            return -1;
    }
    return 0;
}

int tokenize_info(int argc, char **argv)
{
    struct args a = {0};
    struct llm_err e = {0};
    struct llm_buf b = {0};
    int rest = llm_cli_parse(&tokenize_info_cli, &a, argc, argv), bad = -1;
    if (!a.tokenizer)
        llm_usage(&tokenize_info_cli, "expected -T TOK");
    if (a.vocab + a.export + a.common.json > 1)
        llm_usage(&tokenize_info_cli, "--vocab, --export and --json: only one of them");
    if (rest < argc)
        llm_usage(&tokenize_info_cli, "unexpected operand '%s'", argv[rest]);
    struct llm_tokenizer *t = llm_tokenizer_load(a.tokenizer, a.pattern, &e);
    struct llm_output *o = NULL;
    int made = !t ? -1 : a.vocab ? list(&b, t, &e) : a.export ? llm_tokenizer_to_json(t, &b, &e) : describe(&b, t, a.common.json, &e);
    if (made == 0 && (o = llm_output_open(a.common.output, false, &e)))
        bad = llm_output_write(o, b.p ? b.p : "", b.n, &e) < 0 ? (llm_output_abandon(o), -1) : llm_output_commit(o, &e);
    llm_buf_release(&b);
    llm_tokenizer_destroy(t);
    return bad < 0 ? llm_report(&e) : 0;
}
