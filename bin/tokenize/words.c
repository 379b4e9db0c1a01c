/* llm-tokenize: words of options, other names of options, and options that other tools have, SentencePiece's above all. */
#include "bin/tokenize/tokenize.h"
#include "token/chat/chat.h"
#include "token/split/split.h"
#include "token/train/train.h"

const struct llm_words tokenize_train_words[] = {{"model", llm_train_model_word}, {"pattern", llm_split_word}, {0}};
const struct llm_words tokenize_encode_words[] = {{"pattern", llm_split_word}, {"chat-template", llm_chat_builtin_word}, {0}};

const struct llm_alias tokenize_train_aliases[] = {{"--model-type", "model"}, {"--model-prefix", "output"}, {"--num-threads", "threads"},
                                                   {"--special-tokens", "special"}, {"--user-defined-symbols", "special"},
                                                   {"--control-symbols", "special"}, {"-t", "threads"}, {0}};
const struct llm_alias tokenize_encode_aliases[] = {{"--model", "tokenizer"}, {"--add-bos", "add-special"}, {"--num-threads", "threads"},
                                                    {"-t", "threads"}, {0}};
const struct llm_alias tokenize_decode_aliases[] = {{"--model", "tokenizer"}, {0}};

#define OPERANDS "files are operands, and standard input is read without one"
const struct llm_foreign tokenize_train_foreign[] = {
    {"--input", OPERANDS},
    {"--files", OPERANDS},
    {"--input-format", "--jsonl, --lines and --separator say how files are divided into documents"},
    {"--character-coverage", "every character is covered: what has no token is spelled in bytes, unless --model is char or wordpiece"},
    {"--byte-fallback", "bpe begins with all 256 bytes (--alphabet)"},
    {"--normalization-rule-name", "text is not normalised, but for --model wordpiece, where --cased turns it off"},
    {"--input-sentence-size", "all of the text is counted"},
    {"--shuffle-input-sentence", "all of the text is counted, in any order"},
    {"--hard-vocab-limit", "a text that gives fewer tokens than --vocab-size gives what it has, and that is said"},
    {"--split-digits", "--pattern says where words split"},
    {"--pre-tokenizer", "--pattern says where words split"},
    {"--bos-id", "--special names special tokens, whose ids are in their order"},
    {"--eos-id", "--special names special tokens, whose ids are in their order"},
    {"--pad-id", "--special names special tokens, whose ids are in their order"},
    {"--unk-id", "--special names special tokens, whose ids are in their order"},
    {0}};
const struct llm_foreign tokenize_encode_foreign[] = {
    {"--input", OPERANDS},
    {"--output-format", "--text writes ids as text, --count how many there are; without them a token stream is written"},
    {"--extra-options", "--add-special adds what the tokenizer puts around a text, --append-eos ends each document"},
    {"--nbest-size", "a text has one encoding: the tokenizer's best"},
    {"--alpha", "a text has one encoding: the tokenizer's best"},
    {"--add-eos", "--append-eos ends each document with the end-of-text token"},
    {0}};
const struct llm_foreign tokenize_decode_foreign[] = {
    {"--input", OPERANDS},
    {"--input-format", "ids as text and token streams are told apart by their content"},
    {0}};
const struct llm_foreign tokenize_chunk_foreign[] = {
    {"--input", OPERANDS},
    {"--chunk-size", "--size is the number of tokens of a passage at most"},
    {"--chunk-overlap", "--overlap is the number of tokens that a passage repeats at most"},
    {0}};
