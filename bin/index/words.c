/* llm-index: other names of options, and options that other tools have. */
#include "bin/foreign.h"
#include "bin/index/index.h"

const struct llm_alias index_build_aliases[] = {{"--space", "metric"}, {"--distance", "metric"}, {"--ef-construction", "ef-build"}, {0}};
const struct llm_alias index_search_aliases[] = {{"--ef-search", "ef"}, {"--top-k", "k"}, {"--filter", "where"}, {0}};
#define VECTORS_COME "vectors come as lines: llm-infer -m MODEL --embed --jsonl makes them"
const struct llm_foreign index_foreign[] = {
    FOREIGN_DEVICES,
    {"--model", VECTORS_COME},
    {"-m", VECTORS_COME},
    {"--nlist", "an index is searched whole: there are no lists of an inverted file"},
    {"--nprobe", "an index is searched whole: there are no lists of an inverted file"},
    {0}};
