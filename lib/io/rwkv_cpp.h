/* Models as rwkv.cpp keeps them (versions 100 and 101, little-endian): a header of six numbers, then tensors one after another, each with its
 * description before its data. Source: docs/FILE_FORMAT.md of github.com/RWKV/rwkv.cpp. */
#ifndef LLM_IO_RWKV_CPP_H
#define LLM_IO_RWKV_CPP_H

#include "io/message.h"

struct llm_rwkv_cpp { int64_t vocab, width, layers; };

/* Whether the first n bytes of a file are those of such a model. */
bool llm_is_rwkv_cpp(const unsigned char *p, size_t n);
/* Parses and checks a whole file of `n` bytes at `p`. Every length is bounded by the bytes that remain; names are unique. Shapes come out in C order,
 * without dimensions of 1. On failure nothing is left to release. */
int llm_rwkv_cpp_parse(struct llm_rwkv_cpp *f, struct llm_header *h, const unsigned char *p, uint64_t n, const char *where, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
