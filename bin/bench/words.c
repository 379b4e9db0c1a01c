/* llm-bench: words of options, other names of options, and options that other tools have (llama-bench, llama-perplexity). */
#include "bin/bench/bench.h"
#include "bin/foreign.h"
#include "cpu/matmul.h"
#include "infer/kv.h"
#include "measure/convention.h"
#include "measure/eval/task.h"
#include "model/config/preset.h"
#include "quant/quant.h"
#include "train/options.h"

const struct llm_words bench_speed_words[] = {{"config", llm_preset_word}, {"type", llm_quant_word}, {"cache-type", llm_kv_word},
                                              {"precision", llm_compute_word}, {0}};
const struct llm_words bench_quality_words[] = {{"convention", llm_convention_word}, {"cache-type", llm_kv_word},
                                                {"precision", llm_compute_word}, {0}};
const struct llm_words bench_eval_words[] = {{"cache-type", llm_kv_word}, {"precision", llm_compute_word}, {"task", llm_eval_task_word},
                                             {"chat-template", llm_chat_builtin_word}, {0}};
const struct llm_words bench_train_words[] = {{"config", llm_preset_word}, {"precision", llm_compute_word}, {0}};
const struct llm_words bench_zoo_words[] = {{"precision", llm_compute_word}, {0}};
const struct llm_words bench_dictionary_words[] = {{"precision", llm_compute_word}, {0}};
const struct llm_words bench_cost_words[] = {{NULL, llm_preset_word}, {0}};

const struct llm_alias bench_speed_aliases[] = {{"--n-prompt", "prompt"},     {"--n-gen", "generate"},   {"--n-depth", "depth"},
                                                {"--repetitions", "runs"},    {"--batch-size", "batch"}, {"--parallel", "sequences"}, {0}};
const struct llm_alias bench_quality_aliases[] = {{"--ctx-size", "context"}, {"--batch-size", "batch"}, {"-t", "threads"}, {0}};
const struct llm_alias bench_eval_aliases[] = {{"--tasks", "task"},       {"--num-fewshot", "shots"},      {"--apply-chat-template", "chat"},
                                               {"--temperature", "temp"}, {"--ctx-size", "context"},       {"--batch-size", "batch"},
                                               {0}};
const struct llm_alias bench_train_aliases[] = {{"--batch-size", "batch"}, {"--block-size", "context"}, {"--seq-len", "context"},
                                                {"--gradient-accumulation-steps", "accumulate"}, {"-t", "threads"}, {0}};

#define BATCH "-b is the number of tokens that are computed at once"
#define CACHE "--cache-type=K,V has the types of keys and of values"
#define THREADS "the threads run where the operating system puts them; taskset, nice and numactl change that"
const struct llm_foreign bench_foreign[] = {
    FOREIGN_DEVICES,
    {"--ubatch-size", BATCH}, {"-ub", BATCH}, {"--cache-type-k", CACHE}, {"--cache-type-v", CACHE}, {"-ctk", CACHE}, {"-ctv", CACHE},
    {"-pg", "-p and -n measure apart, and --parts a prompt with its decoding"},
    {"-fa", "attention always works in tiles with an online softmax, as FlashAttention does"},
    {"-mmp", ALWAYS_MAPPED}, {"-dio", ALWAYS_MAPPED},
    {"-sm", ONLY_CPUS}, {"-mg", ONLY_CPUS}, {"-ts", ONLY_CPUS}, {"-nkvo", ONLY_CPUS}, {"-dev", ONLY_CPUS}, {"-ncmoe", ONLY_CPUS},
    {"--n-cpu-moe", ONLY_CPUS}, {"--no-kv-offload", ONLY_CPUS}, {"-ot", ONLY_CPUS}, {"--override-tensor", ONLY_CPUS}, {"-nopo", ONLY_CPUS},
    {"--no-op-offload", ONLY_CPUS}, {"-embd", "llm-infer --embed makes embeddings; their speed is a prompt's"},
    {"--embeddings", "llm-infer --embed makes embeddings; their speed is a prompt's"},
    {"--cpu-mask", THREADS}, {"--cpu-strict", THREADS}, {"--prio", THREADS}, {"--poll", THREADS},
    {"--delay", "nothing waits between measurements"},
    {"--no-warmup", "every measurement begins with a pass that is not counted; --parts times a cold start"},
    {"-oe", "-o and --format write the table once"}, {"--output-err", "-o and --format write the table once"},
    {"--progress", "progress is shown on a terminal"}, {"--list-devices", ONLY_CPUS},
    {"--perplexity", "llm-bench quality measures it"},
    {"--kl-divergence", "llm-bench quality --base=MODEL compares two models"},
    {"--kl-divergence-base", "llm-bench quality --logits writes such a file, --base-logits reads it"},
    {"--ppl-stride", "llm-bench quality --convention=hf-stride --stride=N"},
    {"--chunks", "-n is the number of tokens of each file that are measured"},
    {"--file", "texts are operands"},
    {0}};
