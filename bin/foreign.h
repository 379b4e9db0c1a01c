/* Options that people know from other tools and that no program here has, with what there is instead (struct llm_foreign). */
#ifndef BIN_FOREIGN_H
#define BIN_FOREIGN_H

#include "base/cli.h"

#define ONLY_CPUS "computing is done on CPUs, and -j sets the number of threads"
#define ALWAYS_MAPPED "files are mapped into memory, and the operating system decides which pages stay there"
/* Which devices compute, and how memory is held. */
#define FOREIGN_DEVICES                                                                                                                          \
    {"--n-gpu-layers", ONLY_CPUS}, {"--gpu-layers", ONLY_CPUS}, {"-ngl", ONLY_CPUS}, {"--num-gpu", ONLY_CPUS}, {"--main-gpu", ONLY_CPUS},        \
    {"--split-mode", ONLY_CPUS}, {"--tensor-split", ONLY_CPUS}, {"--device", ONLY_CPUS}, {"--gpu", ONLY_CPUS}, {"--gpus", ONLY_CPUS},            \
    {"--cuda", ONLY_CPUS}, {"--tensor-parallel-size", ONLY_CPUS}, {"--gpu-memory-utilization", ONLY_CPUS},                                       \
    {"--threads-batch", "-j sets the threads of prompts and of decoding alike"},                                                                 \
    {"--numa", "the threads run where the operating system puts them; numactl and taskset change that"},                                         \
    {"--mlock", ALWAYS_MAPPED}, {"--mmap", ALWAYS_MAPPED}, {"--no-mmap", ALWAYS_MAPPED}, {"--direct-io", ALWAYS_MAPPED},                         \
    {"--flash-attn", "attention always works in tiles with an online softmax, as FlashAttention does"},                                          \
    {"--trust-remote-code", "code that comes with a model is never run"},                                                                        \
    {"--hf-repo", "nothing is downloaded: a model is a file or a folder"},                                                                       \
    {"--config-file", "options are taken from the command line alone"}

#endif
