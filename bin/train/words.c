/* llm-train: words of options, other names of options, and options that other trainers have. */
#include "bin/foreign.h"
#include "bin/train/train.h"
#include "cpu/matmul.h"
#include "model/config/preset.h"
#include "model/weights/format.h"

const struct llm_words train_words[] = {
    {"config", llm_preset_word},       {"objective", llm_objective_word}, {"optimizer", llm_optim_word},
    {"schedule", llm_schedule_word},   {"decay-style", llm_decay_word},   {"muon-scale", llm_muon_word},
    {"precision", llm_compute_word},   {"order", llm_order_word},         {"to", llm_trained_format_word},
    {"outer", llm_outer_word},         {"gradients", llm_gradients_word},
    {0}};

const struct llm_alias train_aliases[] = {
    {"--learning-rate", "lr"},
    {"--min-learning-rate", "min-lr"},
    {"--num-train-epochs", "epochs"},
    {"--num-epochs", "epochs"},
    {"--max-steps", "steps"},
    {"--max-iters", "steps"},
    {"--batch-size", "batch"},
    {"--per-device-train-batch-size", "batch"},
    {"--gradient-accumulation-steps", "accumulate"},
    {"--grad-accum", "accumulate"},
    {"--block-size", "context"},
    {"--seq-len", "context"},
    {"--sequence-length", "context"},
    {"--max-seq-length", "context"},
    {"--max-length", "context"},
    {"--ctx-size", "context"},
    {"--warmup-steps", "warmup"},
    {"--warmup-iters", "warmup"},
    {"--lr-scheduler-type", "schedule"},
    {"--optim", "optimizer"},
    {"--grad-clip", "clip"},
    {"--max-grad-norm", "clip"},
    {"--adam-beta1", "beta1"},
    {"--adam-beta2", "beta2"},
    {"--adam-epsilon", "eps"},
    {"--wd", "weight-decay"},
    {"--eval-interval", "eval-every"},
    {"--eval-steps", "eval-every"},
    {"--save-interval", "save-every"},
    {"--save-steps", "save-every"},
    {"--validation-file", "val"},
    {"--lora-r", "rank"},
    {"--lora-rank", "rank"},
    {"--lora-alpha", "alpha"},
    {"--lora-dropout", "adapter-dropout"},
    {"--target-modules", "targets"},
    {"--modules-to-save", "also-train"},
    {"--model-name-or-path", "init"},
    {"--init-from", "init"},
    {"--resume-from-checkpoint", "resume"},
    {"--output-dir", "output"},
    {"--out-dir", "output"},
    {"-t", "threads"},
    {0}};

#define OPERANDS "data are operands: llm-train -c CONFIG -T TOK -o OUT.llm DATA..., token streams that llm-tokenize encode writes"
#define ADAPTERS "--adapter=lora trains an adapter of the model of --init; --rank and --alpha say its size and scale"
#define BY_SET "the configuration says it: -c CONFIG --set KEY=VALUE, keys as in config.json"
#define ONE_PROCESS "a run is one process with -j threads"
#define RANKS "mpirun -n RANKS llm-train --grad-shards S --shard dp=RANKS,zero=Z divides a run among processes"
#define LOG "--log FILE writes a JSON line for each step"
const struct llm_foreign train_foreign[] = {
    FOREIGN_DEVICES,
    {"--train-file", OPERANDS},
    {"--train-data", OPERANDS},
    {"--data-dir", OPERANDS},
    {"--dataset", OPERANDS},
    {"--model", "-c CONFIG begins a new model, --init MODEL begins with the weights of another, --resume FILE continues a run"},
    {"--vocab-size", BY_SET},
    {"--n-layer", BY_SET},
    {"--n-head", BY_SET},
    {"--n-embd", BY_SET},
    {"--num-layers", BY_SET},
    {"--hidden-size", BY_SET},
    {"--lora", ADAPTERS},
    {"--use-peft", ADAPTERS},
    {"--fsdp", RANKS},
    {"--deepspeed", RANKS},
    {"--zero-stage", RANKS},
    {"--nproc-per-node", RANKS},
    {"--num-workers", ONE_PROCESS},
    {"--fp16", "--precision=bf16 is the default"},
    {"--bf16", "--precision=bf16 is the default"},
    {"--fp32", "--precision=f32 computes in F32"},
    {"--dtype", "--precision says what products are computed in"},
    {"--gradient-checkpointing", "--checkpoint-every=1 keeps the input of each block only and computes the rest again"},
    {"--shuffle", "--order=shuffle is the default"},
    {"--warmup-ratio", "--warmup is a number of steps, by default a tenth of them"},
    {"--decay-lr", "--schedule says how the learning rate changes"},
    {"--compile", "nothing is compiled at run time"},
    {"--logging-steps", LOG},
    {"--log-interval", LOG},
    {"--report-to", LOG},
    {"--wandb", LOG},
    {"--save-total-limit", "the output is one file, which each save replaces"},
    {"--overwrite-output-dir", "an output is replaced when the new one is whole"},
    {0}};
