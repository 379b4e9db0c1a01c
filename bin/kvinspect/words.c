/* llm-kvinspect: options that other tools have, and where a cache comes from. */
#include "bin/foreign.h"
#include "bin/kvinspect/kvinspect.h"

#define AN_OPERAND "the cache is an operand; without one it is read from standard input"
#define AS_SAVED "llm-infer --cache-type chooses the type when it saves a cache; llm-kvinspect size prints the bytes of every type"
#define A_PICTURE "heads and diff draw heat maps with --png"
#define NUMPY "llm-kvinspect export writes a tensor as a NumPy file"
const struct llm_foreign kv_foreign[] = {
    FOREIGN_DEVICES,
    {"--model", "a saved cache is enough: llm-infer -m MODEL --kv-out FILE saves the cache of a prompt"},
    {"-m", "a saved cache is enough: llm-infer -m MODEL --kv-out FILE saves the cache of a prompt"},
    {"--prompt", "llm-infer -m MODEL --kv-out FILE saves the cache of a prompt"},
    {"-p", "llm-infer -m MODEL --kv-out FILE saves the cache of a prompt"},
    {"--input", AN_OPERAND},
    {"-i", AN_OPERAND},
    {"--file", AN_OPERAND},
    {"-f", AN_OPERAND},
    {"--cache", AN_OPERAND},
    {"--kv-in", AN_OPERAND},
    {"--prompt-cache", AN_OPERAND},
    {"--cache-type", AS_SAVED},
    {"--cache-type-k", AS_SAVED},
    {"--cache-type-v", AS_SAVED},
    {"--kv-cache-dtype", AS_SAVED},
    {"--dtype", AS_SAVED},
    {"--plot", A_PICTURE},
    {"--heatmap", A_PICTURE},
    {"--csv", "--format csv writes tables so"},
    {"--tsv", "--format tsv writes tables so"},
    {"--numpy", NUMPY},
    {"--npy", NUMPY},
    {0}};
