/* llm-tokenize train: text to a tokenizer. */
#include <string.h>
#include "base/log.h"
#include "cpu/pool.h"
#include "io/output.h"
#include "token/train/train.h"
#include "bin/tokenize/tokenize.h"

struct args {
    struct llm_common common;
    struct document_options documents;
    int64_t vocab_size, min_frequency;
    int model, ties, alphabet, cased;
    const char *pattern;
    struct llm_strs specials;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {0, "vocab-size", "N", "number of vocabulary entries, special tokens included [32768; char: all characters of the text]",
     LLM_INT, AT(vocab_size), 1,
     16777216, NULL},
    {0, "model", "TYPE", "kind of the vocabulary: %w [bpe]", LLM_CHOICE, AT(model), 0, 0, NULL},
    {0, "pattern", "NAME|REGEX", "pattern that splits text into words: %w or a regular expression [gpt2]", LLM_STR, AT(pattern), 0,
     0, NULL},
    {0, "min-frequency", "N", "ignore pairs, words or characters that occur fewer than N times [bpe: 2; char: 1]",
     LLM_INT, AT(min_frequency), 1, 9e18, NULL},
    {0, "special", "TOKEN", "add TOKEN as a special token; may be given several times", LLM_LIST, AT(specials), 0, 0, NULL},
    {0, "ties", "ORDER", "which of equally frequent pairs to merge first: lower ids (hf) or greater bytes (lexical) [hf]", LLM_CHOICE, AT(ties), 0, 0,
     "hf|lexical"},
    {0, "alphabet", "SET", "initial alphabet: all 256 bytes (bytes) or those in the text (seen) [bytes]",
     LLM_CHOICE, AT(alphabet), 0, 0, "bytes|seen"},
    {0, "cased", NULL, "wordpiece: keep the case and accents of letters", LLM_FLAG, AT(cased), 0, 0, NULL},
    DOCUMENT_OPTIONS(struct args, documents),
    {0}};

const struct llm_cli tokenize_train_cli = {
    .name = "llm-tokenize train",
    .summary = "Train a tokenizer on text; write it as tokenizer.json.",
    .usage = "[OPTION]... [FILE]...",
    .examples = "llm-tokenize train --vocab-size 4096 corpus.txt > tok.json\n"
                "llm-tokenize train --vocab-size 8192 --pattern llama3 --special '<|endoftext|>' -o tok.json corpus.txt\n"
                "llm-tokenize train --model char corpus.txt > chars.json\n"
                "llm-tokenize train --model unigram --vocab-size 8000 --lines corpus.txt > unigram.json",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT,
    .words = tokenize_train_words,
    .aliases = tokenize_train_aliases,
    .foreign = tokenize_train_foreign,
};

struct job {
    struct llm_trainer *trainer;
    uint64_t bytes; /* of text */
};

static int part(void *arg, const char *text, size_t n, struct llm_err *e)
{
    struct job *j = arg;
    j->bytes += n;
    return llm_trainer_put(j->trainer, text, n, e);
}

static int end(void *arg, struct llm_err *e)
{
    return llm_trainer_end_document(((struct job *)arg)->trainer, e);
}

static void begin(void *arg, const char *name, const char *what, uint64_t number)
{
    llm_trainer_label(((struct job *)arg)->trainer, name, what, number);
}

static int write_json(const struct llm_tokenizer *t, struct llm_output *o, struct llm_err *e)
{
    struct llm_buf json = {0};
    int bad = llm_tokenizer_to_json(t, &json, e) < 0 || llm_output_write(o, json.p, json.n, e) < 0 ? -1 : 0;
    llm_buf_release(&json);
    return bad;
}

static int train(const struct args *a, char *const *paths, int n_paths, struct llm_err *e)
{
    const struct llm_train_options o = {.model = (enum llm_train_model)a->model, .vocab_size = a->vocab_size, .pattern = a->pattern,
                                        .min_frequency = a->min_frequency, .ties = (enum llm_train_ties)a->ties,
                                        .cased = a->cased, .seen_bytes_only = a->alphabet == 1, .specials = &a->specials};
    struct llm_tokenizer *t = NULL;
    struct job j = {.trainer = llm_trainer_create(&o, e)};
    if (!j.trainer && e->status == EX_DATAERR) { /* the pattern, which is no data here */
        e->status = LLM_EX_USAGE;
        llm_in(e, "--pattern");
    }
    struct llm_output *out = j.trainer ? llm_output_open(a->common.output, false, e) : NULL;
    const struct document_sink sink = {&j, part, end, begin};
    double start = llm_now(), counted = start;
    int read = !out ? -1 : o.model == LLM_TRAIN_BYTE ? 0 : read_documents(&a->documents, paths, n_paths, &sink, e); /* bytes need no text */
    if (read == 0 && o.model != LLM_TRAIN_BYTE && j.bytes == 0)
        read = llm_fail(e, EX_DATAERR, "%s: expected text to train on, found none", n_paths == 0 ? "standard input" : paths[n_paths - 1]);
    if (read == 0) {
        counted = llm_now();
        t = llm_trainer_finish(j.trainer, e);
    }
    int bad = t ? write_json(t, out, e) : -1;
    if (t)
        llm_verbose("%d tokens; %.2f s to count words, %.2f s to merge", llm_tokenizer_vocab_size(t), counted - start, llm_now() - counted);
    if (t && (o.model == LLM_TRAIN_BPE || o.model == LLM_TRAIN_WORDPIECE) && llm_tokenizer_vocab_size(t) < o.vocab_size)
        llm_note("the text gives only %d of %lld tokens", llm_tokenizer_vocab_size(t), (long long)o.vocab_size);
    llm_trainer_destroy(j.trainer);
    llm_tokenizer_destroy(t);
    if (bad < 0) {
        llm_output_abandon(out);
        return -1;
    }
    return llm_output_commit(out, e);
}

int tokenize_train(int argc, char **argv)
{
    struct args a = {.pattern = "gpt2"};
    struct llm_err e = {0};
    int rest = llm_cli_parse(&tokenize_train_cli, &a, argc, argv);
    check_documents(&tokenize_train_cli, &a.documents);
    if (a.cased && a.model != LLM_TRAIN_WORDPIECE)
        llm_usage(&tokenize_train_cli, "--cased is for --model wordpiece");
    if (!a.vocab_size && (a.model == LLM_TRAIN_BPE || a.model == LLM_TRAIN_UNIGRAM || a.model == LLM_TRAIN_WORDPIECE))
        a.vocab_size = 32768;
    if (!a.min_frequency)
        a.min_frequency = a.model == LLM_TRAIN_BPE ? 2 : 1;
    check_inputs(&tokenize_train_cli, NULL, argv + rest, argc - rest);
    if (llm_pool_start(a.common.threads, &e) < 0)
        return llm_report(&e);
    int bad = train(&a, argv + rest, argc - rest, &e);
    llm_pool_stop();
    return bad < 0 ? llm_report(&e) : 0;
}
