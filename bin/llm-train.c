/* llm-train: trains language models. Options, wiring, messages; the work is lib/train's. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "bin/train/train.h"
#include "measure/profile.h"
#include "model/weights/lora.h"
#include "tensor/sequence.h"
#include "tensor/slices.h"

#define AT(field) offsetof(struct args, teach.field)

static const struct llm_opt options[] = {
    {0, NULL, NULL, "Model:", LLM_HEADING, 0, 0, 0, NULL},
    {'c', "config", "CONFIG", "a new model: a preset (nano, tiny, moe, mamba, lstm, …: see the manual) or a config.json",
     LLM_STR, offsetof(struct args, config), 0, 0, NULL},
    {0, "set", "KEY=VALUE", "set a key of the configuration; may be given several times", LLM_LIST, offsetof(struct args, sets), 0, 0, NULL},
    {0, "init", "MODEL", "start a new run from the weights of MODEL", LLM_INPUT, offsetof(struct args, init), 0, 0, NULL},
    {0, "resume", "FILE", "continue the run saved in FILE, with its options and data unless they are given again",
     LLM_INPUT, offsetof(struct args, resume),
     0, 0, NULL},
    {0, "tower", "MODEL", "a new model of pictures in texts (llava, idefics3): take the weights of its vision tower from MODEL (clip, siglip)",
     LLM_INPUT, offsetof(struct args, tower), 0, 0, NULL},
    {'T', "tokenizer", "FILE", "the tokenizer that encoded the data; it is stored in the model",
     LLM_INPUT, offsetof(struct args, tokenizer), 0, 0, NULL},
    {0, "mup", NULL, "scale initialisation and learning rates by width (muP), so that rates tuned at --base-width fit any width",
     LLM_FLAG, offsetof(struct args, mup), 0, 0,
     NULL},
    {0, "base-width", "N", "hidden size at which --mup equals the standard parametrisation",
     LLM_INT, offsetof(struct args, o.mup_base_width), 1, 1 << 20,
     NULL},
    {0, "base-head-dim", "N", "width of an attention head at --base-width [the model's]",
     LLM_INT, offsetof(struct args, base_head_dim), 1, 1 << 14, NULL},
    {0, "dropout", "P", "dropout probability of embeddings, attention and residuals [the configuration's]",
     LLM_REAL, offsetof(struct args, o.dropout), 0, .999, NULL},
    {0, "train", "PATTERN", "train only parameters whose names match the shell pattern; may be given several times", LLM_LIST,
     offsetof(struct args, train), 0, 0, NULL},
    {0, "freeze", "PATTERN", "do not train parameters whose names match the shell pattern; may be given several times", LLM_LIST,
     offsetof(struct args, freeze), 0, 0, NULL},
    {0, "keep-zeros", NULL, "leave elements that are 0 of the layers' matrices 0: a pruned model stays pruned", LLM_FLAG,
     offsetof(struct args, o.keep_zeros), 0, 0, NULL},
    {0, NULL, NULL, "Adapters:", LLM_HEADING, 0, 0, 0, NULL},
    {0, "adapter", "KIND", "train an adapter of the model of --init, which stays as it is stored, and write it alone: lora", LLM_CHOICE,
     offsetof(struct args, adapter), 0, 0, "lora"},
    {0, "rank", "R", "rank of the adapter's pairs of matrices [8]", LLM_INT, offsetof(struct args, rank), 1, LLM_LORA_MAX_RANK, NULL},
    {0, "alpha", "A", "scale the adapter by A / R [R]", LLM_REAL, offsetof(struct args, alpha), 1e-6, 1e6, NULL},
    {0, "rslora", NULL, "scale the adapter by A / sqrt(R) instead", LLM_FLAG, offsetof(struct args, rslora), 0, 0, NULL},
    {0, "dora", NULL, "learn the lengths of the adapted matrices' rows apart from their directions (DoRA)", LLM_FLAG, offsetof(struct args, dora),
     0, 0, NULL},
    {0, "targets", "PATTERN", "adapt matrices whose names, or last words of names (q_proj), match the shell pattern; may be given several times "
     "[all matrices of the layers but routers]", LLM_LIST, offsetof(struct args, targets), 0, 0, NULL},
    {0, "adapter-dropout", "P", "dropout probability of the inputs of the adapter's matrices [0]", LLM_REAL,
     offsetof(struct args, adapter_dropout), 0, .999, NULL},
    {0, "also-train", "PATTERN", "train parameters whose names match the shell pattern, stored whole in the adapter; may be given several times",
     LLM_LIST, offsetof(struct args, also_train), 0, 0, NULL},
    {0, "adapter-init", "FILE", "start from the adapter in FILE: .llm, GGUF or a folder of PEFT's", LLM_INPUT, offsetof(struct args, adapter_init),
     0, 0, NULL},
    {0, NULL, NULL, "Data:", LLM_HEADING, 0, 0, 0, NULL},
    {0, "val", "FILE|SHARE", "validate on FILE, or on the last SHARE (0 to 1) of the data", LLM_INPUT, offsetof(struct args, val), 0, 0, NULL},
    {0, "order", "ORDER|N", "order of windows: shuffle (epochs), random (any offset) or sequential [shuffle]; n-grams: N, their length [5]", LLM_STR,
     offsetof(struct args, order), 0, 0, NULL},
    {0, "stream", NULL, "train in one pass over the data as it arrives, without a temporary copy of a pipe",
     LLM_FLAG, offsetof(struct args, o.stream), 0, 0,
     NULL},
    {0, "carry-state", NULL, "continue each row, and the state of its recurrent layers, where it ended in the step before", LLM_FLAG,
     offsetof(struct args, o.carry_state), 0, 0, NULL},
    {0, "cross-document", NULL, "let documents packed into one row see each other", LLM_FLAG, offsetof(struct args, o.cross_document), 0, 0, NULL},
    {0, NULL, NULL, "Steps:", LLM_HEADING, 0, 0, 0, NULL},
    {0, "objective", "NAME", "training objective: %w [lm]", LLM_CHOICE, offsetof(struct args, o.objective), 0, 0, NULL},
    {'n', "steps", "N", "total number of steps; 0 saves the initial model [1000]", LLM_INT, offsetof(struct args, o.steps), 0, 1e12, NULL},
    {0, "epochs", "X", "total passes over the data, in place of --steps; rounded up to a whole step", LLM_REAL, offsetof(struct args, o.epochs),
     1e-9, 1e9, NULL},
    {'b', "batch", "N", "rows in one forward and backward pass; with --resume, a divisor of the run's rows per step [8]",
     LLM_INT, offsetof(struct args, o.batch), 1, 1 << 20, NULL},
    {'l', "context", "N", "tokens in a row [the configuration's]", LLM_SIZE, offsetof(struct args, o.context), 1, 1 << 24, NULL},
    {0, "accumulate", "N", "passes whose gradients are summed in one step [1]", LLM_INT, offsetof(struct args, o.accumulate), 1, 1 << 20, NULL},
    {0, "batch-tokens", "N", "tokens in a step, at most, in place of --accumulate: windows, or with --objective sft conversations of like length",
     LLM_SIZE, offsetof(struct args, o.batch_tokens), 1, 1 << 30, NULL},
    {0, "grad-shards", "S", "sum the gradient in a fixed tree over S shards of a step's rows; changes results [1]", LLM_INT,
     offsetof(struct args, o.grad_shards), 1, 1 << 20, NULL},
    {0, "tensor-parts", "P", "cut the layers' matrices into P slices, which ranks may divide (--shard tp=T); changes results [1]",
     LLM_INT, offsetof(struct args, o.tensor_parts), 1, LLM_MAX_SLICES, NULL},
    {0, "seq-parts", "Q", "add gradients apart for Q parts of each row, which ranks may divide (--shard cp=N); changes results [1]",
     LLM_INT, offsetof(struct args, o.seq_parts), 1, LLM_MAX_PARTS_OF_ROW, NULL},
    {0, "gradients", "TYPE", "number type in which the shards' gradients are summed: f32, int8 (one scale for all shards); changes results [f32]",
     LLM_CHOICE, offsetof(struct args, o.gradients), 0, 0, NULL},
    {0, "lr", "RATE", "learning rate [1e-3]", LLM_REAL, offsetof(struct args, o.lr), 0, 1e6, NULL},
    {0, "min-lr", "RATE", "learning rate at the end of the schedule [lr/10]", LLM_REAL, offsetof(struct args, o.min_lr), 0, 1e6, NULL},
    {0, "warmup", "N", "steps of linear learning-rate warm-up [a tenth of the steps, at most 100]",
     LLM_INT, offsetof(struct args, o.warmup), 0, 1e12, NULL},
    {0, "schedule", "NAME", "learning-rate schedule after the warm-up: %w (warm-up, stable, decay) [cosine]", LLM_CHOICE,
     offsetof(struct args, o.schedule), 0, 0, NULL},
    {0, "decay-fraction", "SHARE", "share of the steps, at the end, in which --schedule wsd decays [0.1]",
     LLM_REAL, offsetof(struct args, o.decay_fraction), 0, 1,
     NULL},
    {0, "decay-style", "NAME", "shape of the decay of --schedule wsd: %w [linear]", LLM_CHOICE, offsetof(struct args, o.decay_style), 0, 0, NULL},
    {0, "optimizer", "NAME", "optimizer: %w [adamw]", LLM_CHOICE, offsetof(struct args, o.optimizer), 0, 0, NULL},
    {0, "muon-lr", "RATE", "learning rate of hidden matrices under muon [0.02, or lr with --muon-scale=match-rms-adamw]", LLM_REAL,
     offsetof(struct args, o.muon_lr), 0, 1e6, NULL},
    {0, "muon-scale", "RULE", "how muon scales a step by the shape of the matrix: %w [original]",
     LLM_CHOICE, offsetof(struct args, o.muon_scale), 0, 0, NULL},
    {0, "beta1", "X", "decay of the first moment (adam, adamw, lion) [0.9]", LLM_REAL, offsetof(struct args, o.beta1), 0, .999999999, NULL},
    {0, "beta2", "X", "decay of the second moment (adam, adamw), of the momentum (lion) [0.95; lion 0.99]",
     LLM_REAL, offsetof(struct args, o.beta2), 0, .999999999, NULL},
    {0, "eps", "X", "number added to the root of the second moment (adam, adamw, adagrad) [1e-8; adagrad 1e-10]",
     LLM_REAL, offsetof(struct args, o.eps), 0, 1, NULL},
    {0, "momentum", "X", "momentum of sgd and muon [sgd 0.9, muon 0.95]", LLM_REAL, offsetof(struct args, o.momentum), 0, .999999999, NULL},
    {0, "nesterov", "WHEN", "use Nesterov momentum: no, yes [muon yes, sgd no]", LLM_CHOICE, offsetof(struct args, o.nesterov), 0, 0, LLM_NO_YES},
    {0, "weight-decay", "X", "weight decay of matrices [0.1]", LLM_REAL, offsetof(struct args, o.weight_decay), 0, 1e6, NULL},
    {0, "clip", "NORM", "clip the gradient to this norm; 0: no clipping [1]", LLM_REAL, offsetof(struct args, o.clip), 0, 1e12, NULL},
    {0, "outer", "NAME", "train replicas independently and synchronise them with this outer optimizer: %w [none]", LLM_CHOICE,
     offsetof(struct args, o.outer), 0, 0, NULL},
    {0, "replicas", "M", "number of replicas of --outer, a divisor of the rows of a step; changes results [4]", LLM_INT,
     offsetof(struct args, o.replicas), 1, 1 << 16, NULL},
    {0, "inner-steps", "H", "steps between two steps of the --outer optimizer [50]", LLM_INT,
     offsetof(struct args, o.inner_steps), 1, 1e12, NULL},
    {0, "outer-lr", "RATE", "learning rate of --outer [0.7]", LLM_REAL, offsetof(struct args, o.outer_lr), 0, 1e6, NULL},
    {0, "outer-momentum", "X", "Nesterov momentum of --outer [0.9]", LLM_REAL, offsetof(struct args, o.outer_momentum), 0, .999999999, NULL},
    {0, "ema", "DECAY", "decay of an exponential moving average of the weights; 0: no average [0]", LLM_REAL, offsetof(struct args, o.ema), 0,
     .999999999, NULL},
    {0, "z-loss", "X", "add X·logsumexp(logits)² to each token's loss (PaLM's z-loss) [0]", LLM_REAL,
     offsetof(struct args, o.z_loss), 0, 1e6, NULL},
    {0, "precision", "TYPE", "arithmetic of matrix products: %w; bf16 has f32 master weights [bf16]",
     LLM_CHOICE, offsetof(struct args, o.precision), 0, 0, NULL},
    {0, "activations", "TYPE", "how activations are kept for the backward pass: f32, bf16, int8, top=SHARE (the largest of each row) or rank=R [f32]",
     LLM_STR, offsetof(struct args, activations), 0, 0, NULL},
    {0, "checkpoint-every", "D", "keep only the input of every D-th block and recompute the other activations; 0: keep all [0]", LLM_INT,
     offsetof(struct args, o.checkpoint_every), 0, 10000, NULL},
    {0, NULL, NULL, "Reinforcement in one process:", LLM_HEADING, 0, 0, 0, NULL},
    {0, "prompts", "FILE", "sample completions of the prompts in FILE, JSON Lines as of llm-infer --jsonl, and learn from them", LLM_INPUT,
     AT(prompts), 0, 0, NULL},
    {0, "reward", "COMMAND", "shell command that reads completions as JSON Lines and answers each with its line and \"reward\", or a number",
     LLM_STR, AT(judge.command), 0, 0, NULL},
    {0, "iterations", "N", "number of iterations: sample, judge, learn; those in --rollout-log count", LLM_INT, AT(iterations), 1, 1e12,
     NULL},
    {0, "samples", "G", "completions of each prompt [8]", LLM_INT, AT(samples), 1, 1 << 20, NULL},
    {0, "take", "N", "prompts of an iteration, in shuffled order [all, in the order of the file]", LLM_INT, AT(take), 1, 1e12, NULL},
    {0, "tokens", "N", "maximum number of tokens of a completion; -1: until the context is full [256]", LLM_INT, AT(tokens), -1, 2147483647,
     NULL},
    {0, "parallel", "N", "maximum number of completions sampled at the same time [64]", LLM_INT, AT(parallel), 1, 4096, NULL},
    {0, "lag", "N", "1: sample the next completions before learning from these, so that they are judged meanwhile [0]", LLM_INT, AT(lag), 0, 1, NULL},
    {0, "redraw", "N", "draw prompts whose completions all have the same reward again, at most N times (DAPO) [0]", LLM_INT, AT(redraw), 0, 1000,
     NULL},
    {0, "reward-jobs", "N", "processes of --reward at the same time [1]", LLM_INT, AT(judge.jobs), 1, 30, NULL},
    {0, "reward-timeout", "S", "seconds that --reward may be silent after the end of its input [60]", LLM_REAL, AT(judge.seconds), .001, 1e9, NULL},
    {0, "reward-fallback", "X", "reward of a completion on which --reward hangs, dies or writes nonsense [the run ends]", LLM_REAL,
     AT(judge.fallback), -1e300, 1e300, NULL},
    {0, "rollout-log", "FILE", "append completions with their rewards to FILE; a run that was killed goes on with what it has", LLM_OUTPUT,
     AT(log), 0, 0, NULL},
    {0, "temp", "T", "divide logits by T when sampling; 0: always the most likely token [1]", LLM_REAL, AT(sampling.temperature), 0, 1e6, NULL},
    {0, "top-k", "K", "sample among the K most likely tokens; 0: all [0]", LLM_INT, AT(sampling.top_k), 0, 2147483647, NULL},
    {0, "top-p", "P", "sample among the most likely tokens up to a total probability of P [1]", LLM_REAL, AT(sampling.top_p), 0, 1,
     NULL},
    {0, "min-p", "P", "sample among tokens at least P times as likely as the most likely one [0]", LLM_REAL, AT(sampling.min_p), 0, 1, NULL},
    {0, NULL, NULL, "Counting n-grams:", LLM_HEADING, 0, 0, 0, NULL},
    {'S', "memory", "SIZE", "memory for sorting, in bytes; larger data is sorted on disk [half of the machine's]",
     LLM_SIZE, offsetof(struct args, memory), 1 << 18,
     1e18, NULL},
    {0, "prune", "N,N,...", "omit n-grams of 1, 2, ... tokens that occur N times or fewer [0]", LLM_STR, offsetof(struct args, prune), 0, 0, NULL},
    {0, "ngram-bar", NULL, "before training, report the loss of an n-gram model of --order N on --val [the best order]",
     LLM_FLAG, offsetof(struct args, ngram_bar), 0,
     0, NULL},
    {0, NULL, NULL, "Output:", LLM_HEADING, 0, 0, 0, NULL},
    {0, "to", "FORMAT", "format of -o: %w; safetensors hold the model alone, arpa n-grams [by its suffix]", LLM_CHOICE,
     offsetof(struct args, to), 0, 0, NULL},
    {0, "save-every", "N", "save every N steps and at the end; 0: at the end only [0]", LLM_INT, offsetof(struct args, save_every), 0, 1e12, NULL},
    {0, "keep-best", "FILE", "write the model with the lowest validation loss to FILE", LLM_OUTPUT, offsetof(struct args, best), 0, 0, NULL},
    {0, "eval-every", "N", "validate every N steps and at the end; 0: at the end only [250]",
     LLM_INT, offsetof(struct args, o.eval_every), 0, 1e12, NULL},
    {0, "eval-rows", "N", "validate on the first N rows; 0: on all [0]", LLM_INT, offsetof(struct args, o.eval_rows), 0, 1e12, NULL},
    {0, "eval-ema", NULL, "validate the averaged weights (--ema) instead of the current ones",
     LLM_FLAG, offsetof(struct args, o.eval_ema), 0, 0, NULL},
    {0, "ema-output", "FILE", "also write the averaged weights (--ema) to FILE whenever the run is saved",
     LLM_OUTPUT, offsetof(struct args, ema_output),
     0, 0, NULL},
    {0, "log", "FILE", "write one line of JSON per step to FILE", LLM_OUTPUT, offsetof(struct args, log), 0, 0, NULL},
    {0, "hash-every", "N", "steps from one hash of the weights in the --log to the next; the last one and those that are saved have one, too [1]",
     LLM_INT, offsetof(struct args, hash_every), 1, 1e12, NULL},
    {0, "profile", NULL, "print at the end, on standard error, where the time was spent", LLM_FLAG, offsetof(struct args, profile), 0, 0, NULL},
    {0, NULL, NULL, "Many machines:", LLM_HEADING, 0, 0, 0, NULL},
    {0, "shard", "LAYOUT",
     "divide the run among the ranks of mpirun or srun: dp=RANKS,zero=Z; zero=1 divides the moments, 2 gradients, 3 weights, too; tp=RANKS divides "
     "the --tensor-parts; cp=RANKS the --seq-parts; ep=RANKS divides the experts; pp=STAGES divides the layers, schedule=1f1b, gpipe or interleaved "
     "(vp=CHUNKS a stage); auto chooses by a model of time and memory [all ranks, zero=0]",
     LLM_STR, offsetof(struct args, shard), 0, 0, NULL},
    {0, "snapshot", "FOLDER", "keep a snapshot of the newest step in each machine's FOLDER (/dev/shm): --resume survives the loss of one machine",
     LLM_STR, offsetof(struct args, snapshot), 0, 0, NULL},
    {0, "snapshot-every", "N", "steps from one --snapshot to the next [10]", LLM_INT, offsetof(struct args, snapshot_every), 1, 1e12, NULL},
    {0, "rank-timeout", "S", "end the job if a rank does not answer for S seconds, naming it; 0: wait for ever [1800]", LLM_REAL,
     offsetof(struct args, rank_timeout), 0, 1e9, NULL},
    {0, NULL, NULL, "Instead of training:", LLM_HEADING, 0, 0, 0, NULL},
    {0, "plan", NULL, "print the memory, work and time that the run would take", LLM_FLAG, offsetof(struct args, plan), 0, 0, NULL},
    {0, "show", "N", "print the first N rows as text: what is not learned is dim on a terminal, else in brackets",
     LLM_INT, offsetof(struct args, show), 1, 1e9, NULL},
    {0, "gradcheck", NULL, "compare each tensor's gradient with finite differences of the loss", LLM_FLAG, offsetof(struct args, gradcheck), 0, 0,
     NULL},
    {0, "coordcheck", "WIDTH,...", "print the size of activations in the first steps at each of these widths", LLM_STR,
     offsetof(struct args, coordcheck), 0, 0, NULL},
    {0, "coordcheck-png", "FILE", "write the --coordcheck result to FILE as a heat map (PNG)", LLM_OUTPUT, offsetof(struct args, coordcheck_png),
     0, 0, NULL},
    {0, "sweep", "NAME=V,...", "print a command for each value of an option or key of the configuration, and for each combination of several --sweep",
     LLM_LIST, offsetof(struct args, sweep), 0, 0, NULL},
    {0, "sweep-format", "FORM", "print the commands of --sweep as lines of shell, or as rules of make [shell]", LLM_CHOICE,
     offsetof(struct args, sweep_format), 0, 0, "shell|make"},
    {0, "key", NULL, "print a hash of all that determines the result: options, contents of inputs, instruction set, version", LLM_FLAG,
     offsetof(struct args, key), 0, 0, NULL},
    {0, "overfit-one", NULL, "train on one batch alone, to memorise it; fail if the loss stays above 0.1",
     LLM_FLAG, offsetof(struct args, o.overfit_one), 0, 0,
     NULL},
    {0, NULL, NULL, NULL, LLM_FLAG, 0, 0, 0, NULL},
};

static struct llm_cli cli = {
    .name = "llm-train",
    .summary = "Train a language model on tokens.",
    .usage = "-c CONFIG [-T TOK] [OPTION]... -o OUT.llm DATA...\n"
             "--objective ngram [--order N] [-T TOK] [OPTION]... -o OUT DATA...\n"
             "--init MODEL [--adapter lora] [OPTION]... -o OUT.llm DATA...\n--resume FILE [OPTION]... [DATA...]",
    .examples =
        "llm-tokenize encode -T tok.json corpus.txt | llm-train -c small -T tok.json -o model.llm -\nllm-train --resume model.llm --steps 2000\n"
        "llm-train --objective ngram --order 5 -T tok.json --val .1 -o ngrams.llm corpus.tok\n",
    .usual = "config|set|init|resume|tokenizer|val|stream|objective|steps|batch|context|lr|warmup|schedule|optimizer|precision|save-every|eval-every|"
             "log|plan",
    .neutral = "checkpoint-every|parallel|reward-jobs|memory|ngram-bar|save-every|hash-every|shard|snapshot|snapshot-every|rank-timeout|"
               "profile|sweep|sweep-format|key",
    .operands = LLM_OPERANDS_INPUT, .replaces = "resume",
    .common = LLM_COMMON_ALL | LLM_COMMON_TABLE | LLM_COMMON_CONFIG,
    .words = train_words,
    .aliases = train_aliases,
    .foreign = train_foreign,
};

static void defaults(struct args *a)
{
    *a = (struct args){.to = -1, .adapter = -1, .adapter_dropout = -1};
    a->teach = (struct llm_teach_options){.samples = 8, .tokens = 256, .parallel = 64, .judge = {.jobs = 1, .seconds = 60, .fallback = NAN},
                                          .sampling = llm_sampling_defaults};
    llm_sampling_open(&a->teach.sampling);
    llm_train_options_default(&a->o);
    a->common.seed = a->o.seed;
    a->rank_timeout = 1800;
    a->snapshot_every = 10;
    a->hash_every = 1;
}

static int run_ngram(struct args *a, const char *const *data, size_t n_data)
{
    struct llm_err e = {0};
    if (llm_pool_start(a->common.threads, &e) < 0 || llm_run_ngram(&cli, a, data, n_data, &e) < 0) return llm_report(&e);
    llm_signal_die();
    return 0;
}

static int print_key(struct args *a, const char *const *data, size_t n_data)
{
    struct args empty;
    struct llm_err e = {0};
    defaults(&empty);
    if (!llm_run_is_ngram(a)) {
        llm_run_patterns(&cli, a);
        if (llm_run_check(&cli, a, n_data > 0, &e) < 0) return llm_report(&e);
    }
    if (llm_run_key(&cli, a, &empty, data, n_data, &e) < 0 || llm_close_stdout(&e) < 0) return llm_report(&e);
    return 0;
}

static int begin(struct llm_run *run, const struct args *a, const char *const *data, size_t n_data, struct llm_err *e)
{
    LLM_PROFILE("load", 0);
    return llm_run_begin(run, a, data, n_data, e);
}

int main(int argc, char **argv)
{
    struct args a;
    struct llm_err e = {0};
    struct llm_run run = {0};
    llm_start();
    llm_ranks_hush();
    cli.options = llm_objective_command_line(options, "objective", offsetof(struct args, o.own));
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away must not cost the run: it is saved, and the write fails with 74 */
    defaults(&a);
    int rest = llm_cli_parse(&cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    const char *const *data = (const char *const *)argv + rest;
    if (llm_ranks_start(&cli, &a, data, (size_t)(argc - rest), &run, &e) < 0) return llm_ranks_end(&run, true, &e);
    if (a.sweep.n > 0) return llm_run_sweep(&cli, &a, argv[0], (const char *const *)argv + rest, (size_t)(argc - rest), &e) < 0 ? llm_report(&e) : 0;
    llm_run_order(&cli, &a);
    if (a.key) return print_key(&a, (const char *const *)argv + rest, (size_t)(argc - rest));
    if (llm_run_is_ngram(&a)) return run_ngram(&a, (const char *const *)argv + rest, (size_t)(argc - rest));
    llm_run_patterns(&cli, &a);
    if (llm_run_check(&cli, &a, rest < argc, &e) < 0 || llm_ranks_pool(&run, a.common.threads, &e) < 0) return llm_ranks_end(&run, true, &e);
    if (a.resume) {
        if (a.snapshot && llm_snapshots_recover(run.trainer.comm, a.snapshot, a.resume, &e) < 0) return llm_ranks_end(&run, true, &e);
        /* The run's own options first, then what the command line says anew. */
        struct llm_train_options stored;
        if (llm_run_load(&run, a.resume, llm_option_text(&a.o, "base"), &stored, &e) < 0) return llm_ranks_end(&run, true, &e);
        defaults(&a);
        a.o = stored;
        a.o.batch = a.o.accumulate = 0; /* the command line may give either */
        a.common.seed = stored.seed;
        rest = llm_cli_parse(&cli, &a, argc, argv);
        llm_run_order(&cli, &a);
        if (llm_run_keeps_tokens(&a.o, &stored, &e) < 0 || llm_train_options_divide(&a.o, &stored, &e) < 0) return llm_ranks_end(&run, true, &e);
        if (!a.common.output) a.common.output = a.resume;
    }
    llm_run_unpack(&cli, &a.o);
    llm_ranks_speak();
    if (llm_comm_rank(run.trainer.comm) > 0) llm_verbosity = -1;
    a.o.seed = a.common.seed;
    if (a.teach.lag > 0) llm_option_set_word(&a.o, "off-policy", true);
    if (a.profile) llm_profile_start();
    int failed = begin(&run, &a, (const char *const *)argv + rest, (size_t)(argc - rest), &e) < 0;
    const bool comm_failed = failed && llm_comm_failed(run.trainer.comm);
    failed = comm_failed || llm_comm_agree(run.trainer.comm, failed ? -1 : 0, NULL, &e) < 0 || llm_trainer_same(&run.trainer, &e) < 0;
    bool trains = !a.plan && !a.gradcheck && !a.coordcheck && !a.show;
    if (!failed && trains) llm_signals_catch(); /* until here there is nothing to save */
    llm_signals_hold(run.trainer.comm != NULL); /* a step takes account of what any rank has caught */
    if (!failed && a.coordcheck) failed = llm_run_coordcheck(&run, &a, (const char *const *)argv + rest, (size_t)(argc - rest), &e) < 0;
    else failed = failed || llm_run_go(&run, &a, &e) < 0;
    if (a.profile) failed = failed || llm_profile_print(a.common.json, &e) < 0;
    const int rank = llm_comm_rank(run.trainer.comm), status = llm_ranks_end(&run, failed, &e);
    if (status) return status;
    llm_signal_die();
    if (rank > 0) return 0;
    bool written = !trains || (a.common.output && strcmp(a.common.output, "-") == 0); /* and closed, and checked */
    if (!written && llm_close_stdout(&e) < 0) return llm_report(&e);
    return 0;
}
