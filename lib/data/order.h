/* The order in which windows of a corpus are seen: sample number → place, a pure function, so that a run can continue from any sample. */
#ifndef LLM_DATA_ORDER_H
#define LLM_DATA_ORDER_H

#include <stdint.h>

enum llm_order_kind {
    LLM_ORDER_SHUFFLE,     /* epochs: windows that do not overlap, in a new order and from a new offset each epoch */
    LLM_ORDER_RANDOM,      /* each window begins anywhere */
    LLM_ORDER_SEQUENTIAL,  /* from the beginning, over and over */
    LLM_ORDER_STREAMS      /* each row of a step continues, step by step, through its own part of the corpus */
};
struct llm_order {
    enum llm_order_kind kind;
    uint64_t seed;
    uint64_t first, n;     /* the tokens [first, first + n) of a corpus; n > context */
    uint64_t rows;         /* streams: rows of a step */
    int64_t context;       /* a window is context + 1 tokens: inputs and, one later, targets */
};
/* The number of windows that do not overlap, except for the one token that is the last target of one and the first input of the next. */
uint64_t llm_order_windows(const struct llm_order *o);
/* Streams: windows of a row, until it begins again. */
uint64_t llm_order_stream_windows(const struct llm_order *o);
/* Where the window of a sample begins. */
uint64_t llm_order_at(const struct llm_order *o, uint64_t sample);

#endif
