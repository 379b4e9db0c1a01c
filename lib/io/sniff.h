/* What a file is, by its first bytes; works on pipes, because nothing is consumed. A new format is a row in sniff.c. */
#ifndef LLM_IO_SNIFF_H
#define LLM_IO_SNIFF_H

#include "io/file.h"

enum llm_content {
    LLM_CONTENT_EMPTY,      /* no bytes */
    LLM_CONTENT_CHECKPOINT, /* `.llm`: the naming frame */
    LLM_CONTENT_MESSAGE,    /* a tensor message or stream, safetensors */
    LLM_CONTENT_GGUF,
    LLM_CONTENT_RWKV_CPP,   /* a model of rwkv.cpp */
    LLM_CONTENT_ARPA,       /* n-grams as text: \data\ */
    LLM_CONTENT_ZSTD,       /* zstd that is no `.llm` */
    LLM_CONTENT_JSON,       /* an object or array */
    LLM_CONTENT_TEXT,       /* UTF-8 without NUL, as far as looked */
    LLM_CONTENT_OTHER
};

int llm_sniff(struct llm_file *f, enum llm_content *content, struct llm_err *e) LLM_MUST_CHECK;
/* For people: "a GGUF file". */
const char *llm_content_name(enum llm_content content);
/* The kind that a message's header names, without consuming it: "tokens", …, or "" when it has none or does not put it first
 * (formats/tensor-message.md). */
int llm_sniff_kind(struct llm_file *f, char kind[32], struct llm_err *e) LLM_MUST_CHECK;
/* EX_DATAERR: "file: expected `what`, found …" with what the file looks like. Returns -1. */
int llm_sniff_refuse(struct llm_file *f, const char *what, struct llm_err *e);

#endif
