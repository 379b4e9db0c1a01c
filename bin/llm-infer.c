/* llm-infer: continues texts, scores them, shows what the model makes of them. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "bin/infer/infer.h"
#include "bin/infer/resume.h"
#include "bin/infer/sight.h"
#include "bin/infer/sources.h"
#include "infer/classify.h"
#include "infer/embed.h"
#include "infer/sample/draw.h"
#include "measure/profile.h"
#include "tensor/divergence.h"

#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {.type = LLM_HEADING, .help = "Input"},
    {'m', "model", "FILE", "the model: .llm, .gguf, .safetensors or a Hugging Face folder; - is standard input", LLM_INPUT, AT(model), 0, 0, NULL},
    {0, "adapter", "FILE[:SCALE]", "add an adapter, its effect times SCALE [1]: .llm, GGUF or a folder of PEFT's; may be given several times",
     LLM_LIST, AT(adapters), 0, 0, NULL},
    {0, "mmproj", "FILE", "the vision tower and projector of a GGUF model that reads pictures in texts, as llama.cpp has them", LLM_INPUT,
     AT(mmproj), 0, 0, NULL},
    {'T', "tokenizer", "FILE", "the tokenizer: a file, a folder or a model [the model's own]", LLM_INPUT, AT(tokenizer), 0, 0, NULL},
    {'p', "prompt", "TEXT", "the prompt, in place of the operand", LLM_STR, AT(prompt), 0, 0, NULL},
    {'f', "file", "FILE", "read the prompt from FILE [standard input]", LLM_INPUT, AT(file), 0, 0, NULL},
    {0, "image", "FILE", "a picture (PNG, JPEG) for the prompt, --embed or --classify, or the output of llm-tokenize image; repeatable",
     LLM_INPUTS, AT(images), 0, 0, NULL},
    {0, "jsonl", NULL, "read one JSON object per line, {\"id\": ..., \"prompt\": ...}; write one per completion", LLM_FLAG, AT(jsonl), 0, 0, NULL},
    {0, "chat", NULL, "answer a message, or hold a conversation on a terminal; with --jsonl {\"messages\": [...]}", LLM_FLAG, AT(chat), 0, 0, NULL},
    {0, "lines", NULL, "each line of the input is a message of --chat, or a text of --neurons", LLM_FLAG, AT(lines), 0, 0, NULL},
    {0, "chat-template", "FILE|NAME", "the template of --chat: a file, or one of %w [the model's own]", LLM_STR, AT(chat_template), 0, 0,
     NULL},
    {0, "system", "TEXT", "system message before the first turn of --chat", LLM_STR, AT(system), 0, 0, NULL},
    {0, "shift", NULL, "with --chat: forget the oldest turns when the context is full", LLM_FLAG, AT(shift), 0, 0, NULL},
    {0, "no-think", NULL, "with --chat: tell the template that the model is not to think first (enable_thinking=false)", LLM_FLAG, AT(no_think), 0,
     0, NULL},
    {0, "chat-log", "FILE", "with --chat: append the conversation to FILE as a line of JSON, {\"messages\": [...]}", LLM_OUTPUT, AT(chat_log), 0, 0,
     NULL},
    {0, "context-from", "FILE", "with --chat: answer from the sources in FILE, lines of llm-index search --format context, and cite them",
     LLM_INPUT, AT(context_from), 0, 0, NULL},
    {0, "fim-prefix", "FILE", "fill in the middle: FILE has the text before it", LLM_INPUT, AT(fim_prefix), 0, 0, NULL},
    {0, "fim-suffix", "FILE", "fill in the middle: FILE has the text after it", LLM_INPUT, AT(fim_suffix), 0, 0, NULL},
    {0, "fim-spm", NULL, "fill in the middle: give the model the suffix before the prefix", LLM_FLAG, AT(fim_spm), 0, 0, NULL},
    {0, "ids", NULL, "read the prompt and write the completion as token ids", LLM_FLAG, AT(ids), 0, 0, NULL},
    {0, "special", NULL, "encode special tokens that are written in the prompt as such, not as text", LLM_FLAG, AT(special), 0, 0, NULL},
    {0, "kv-in", "FILE", "start from the saved key-value cache in FILE; the prompt continues it", LLM_INPUT, AT(kv_in), 0, 0, NULL},
    {0, "kv-keep", "N", "use only the first N tokens of --kv-in [all]", LLM_INT, AT(kv_keep), 1, 2147483647, NULL},
    {.type = LLM_HEADING, .help = "Output: one of these owns standard output instead of the text"},
    {0, "score", NULL, "each token of the prompt: id, text, log-probability; with --jsonl their sum and mean per text",
     LLM_FLAG, AT(score), 0, 0, NULL},
    {0, "add-eos", NULL, "with --score and --top: also the end token after the text", LLM_FLAG, AT(add_eos), 0, 0, NULL},
    {0, "per-token", NULL, "with --score --jsonl: list the tokens and their log-probabilities", LLM_FLAG, AT(per_token), 0, 0, NULL},
    {0, "entropy", NULL, "with --score: the entropy of each prediction too, in nats; with --jsonl its mean per text",
     LLM_FLAG, AT(entropy), 0, 0, NULL},
    {0, "logits", NULL, "the logits of the prompt's tokens, as a tensor stream", LLM_FLAG, AT(logits), 0, 0, NULL},
    {0, "top", "K", "with --logits: the K most likely tokens, their log-probabilities and that of all others, as JSON Lines", LLM_INT, AT(top), 1,
     LLM_TOP_MAX, NULL},
    {0, "embed", NULL, "a vector for the prompt, as a tensor stream; with --jsonl one per text", LLM_FLAG, AT(embed), 0, 0, NULL},
    {0, "score-reward", NULL, "the score that a reward model gives the prompt; with --jsonl each line again, with \"reward\"", LLM_FLAG,
     AT(score_reward), 0, 0, NULL},
    {0, "ref-logprobs", NULL, "log-probabilities of the replies of lines of pairs, as llm-train --objective dpo reads them", LLM_FLAG,
     AT(ref_logprobs), 0, 0, NULL},
    {0, "export", "PLACE", "values at a place of the pass (layers.*.residual.after, layers.3.mlp.hidden) as tensors; may be given several times",
     LLM_LIST, AT(export), 0, 0, NULL},
    {0, "lens", "KIND", "what the model would say after each layer: most likely token, its probability, entropy, KL to the last: logit, tuned:FILE",
     LLM_STR, AT(lens), 0, 0, NULL},
    {0, "png", "FILE", "with --lens: also draw how far each layer is from the last: a row for each layer, a column for each token", LLM_OUTPUT,
     AT(png), 0, 0, NULL},
    {0, "attribute", "TOKEN", "what each head, MLP and bias adds to the logit of a token: its text (its id with --ids), or top, the most likely one",
     LLM_LIST, AT(attribute), 0, 0, NULL},
    {0, "neurons", "LAYER[:UNITS]", "hidden units of an MLP: tokens that each favours, tokens of the prompt (--lines: texts) that excite it",
     LLM_STR, AT(neurons), 0, 0, NULL},
    {0, "neurons-top", "N", "tokens that --neurons lists of each kind [5]", LLM_INT, AT(neurons_top), 1, 1000, NULL},
    {0, "which-tokens", "WHICH", "tokens of --export, --lens and --attribute: all, last, or a pattern of their texts (\" cat*\") [all]", LLM_STR,
     AT(which_tokens), 0, 0, NULL},
    {0, "classify", NULL, "the prompt's classes with their probabilities; with --jsonl one object per text", LLM_FLAG, AT(classify), 0, 0, NULL},
    {0, "labels", "TEMPLATE", "with --classify --image: classes are lines of FILE, put into TEMPLATE for {}, or into the templates that imagenet-80 "
     "or imagenet-7 stand for; repeatable: mean of the templates", LLM_LIST, AT(labels), 0, 0, NULL},
    {0, "pooling", "KIND", "how --embed reduces the final hidden states to a vector: mean, cls or last [the model's setting, else mean]",
     LLM_CHOICE, AT(pooling),
     0, 0, "mean|cls|last"},
    {0, "embd-normalize", "P", "norm that --embed divides vectors by: -1 none, 0 maximum (scaled to 32760), P p-norm [the model's setting, else -1]",
     LLM_INT, AT(embd_normalize), -1, 1000, NULL},
    {0, "normalize", NULL, "divide the vectors of --embed by their length: --embd-normalize 2", LLM_FLAG, AT(normalize), 0, 0, NULL},
    {0, "dims", "N", "keep the first N elements of the vectors of --embed, before normalizing (Matryoshka) [all]", LLM_INT, AT(dims), 1, 1 << 24,
     NULL},
    {0, "embed-prefix", "TEXT", "put TEXT before each text of --embed", LLM_STR, AT(embed_prefix), 0, 0, NULL},
    {0, "embed-as", "WHAT", "put before each text of --embed what the model's folder names as the prefix of a query or a passage", LLM_CHOICE,
     AT(embed_as), 0, 0, "query|passage"},
    {0, "rerank", "QUERY", "with --jsonl: score each text beside QUERY with a cross-encoder; write the lines from the best score down", LLM_STR,
     AT(rerank), 0, 0, NULL},
    {0, "kv-out", "FILE", "write the key-value cache to FILE; - is standard output", LLM_OUTPUT, AT(kv_out), 0, 0, NULL},
    {0, "trace-queries", "N", "also write the queries of the last N tokens to --kv-out [0]", LLM_INT, AT(trace_queries), 0, 1 << 20, NULL},
    {0, "echo", NULL, "print the prompt before its completion", LLM_FLAG, AT(echo), 0, 0, NULL},
    {0, "rollout", NULL, "with --jsonl: also write ids and log-probabilities, for llm-train to learn from; draws from the plain softmax",
     LLM_FLAG, AT(rollout), 0, 0, NULL},
    {0, "logprobs", "K", "with --jsonl: the log-probability of each token that is generated, and of the K most likely ones", LLM_INT, AT(logprobs), 0,
     LLM_MAX_TOP_LOG_PROBS, NULL},
    {0, "no-timings", NULL, "omit timings from --jsonl, so that equal runs print equal bytes", LLM_FLAG, AT(no_timings), 0, 0, NULL},
    {.type = LLM_HEADING, .help = "Batches of --jsonl"},
    {0, "resume", NULL, "keep the answers that the file of -o has, and append those that are missing", LLM_FLAG, AT(resume), 0, 0, NULL},
    {0, "retries", "N", "with --resume: try lines that were answered by an error again, N times at most [0]", LLM_INT, AT(retries), 0, 1 << 20, NULL},
    {0, "limit", "N", "take at most N lines of the input [all]", LLM_INT, AT(limit), 1, 9007199254740992, NULL},
    {0, "part", "I/N", "take every Nth line of the input, from the Ith on; all N parts together are the whole", LLM_STR, AT(part), 0, 0, NULL},
    {0, "unordered", NULL, "write answers as they are ready, not in the order of the lines", LLM_FLAG, AT(unordered), 0, 0, NULL},
    {0, "no-sharing", NULL, "compute each prompt alone, also where prompts begin alike; does not change the output", LLM_FLAG, AT(no_sharing), 0, 0,
     NULL},
    {0, "prefix-cache", "FOLDER", "keep caches of beginnings that prompts share in FOLDER, as .kv files, for other runs", LLM_STR, AT(prefix_cache),
     0, 0,
     NULL},
    {0, "prefix-cache-size", "N", "bytes of the files of --prefix-cache; those not used for longest leave [1G]", LLM_SIZE, AT(prefix_cache_size), 1,
     9007199254740992, NULL},
    {.type = LLM_HEADING, .help = "Generation"},
    {'n', "tokens", "N", "generate at most N tokens; -1: until the context is full [256]", LLM_INT, AT(n), -1, 2147483647, NULL},
    {'c', "context", "N", "maximum number of tokens of prompt and completion together [the model's]", LLM_SIZE, AT(context), 1, 1 << 24, NULL},
    {0, "samples", "K", "number of completions of each prompt [1]", LLM_INT, AT(samples), 1, 1 << 20, NULL},
    {0, "stop", "TEXT", "stop before TEXT; may be given several times", LLM_LIST, AT(stop), 0, 0, NULL},
    {0, "dry-sequence-breaker", "TEXT", "TEXT ends a repetition of DRY; none: nothing does; may be given several times [new line, :, \", *]",
     LLM_LIST, AT(dry_breakers), 0, 0, NULL},
    {0, "ignore-eos", NULL, "never choose the end token", LLM_FLAG, AT(ignore_eos), 0, 0, NULL},
    {0, "cfg-scale", "X", "classifier-free guidance: move log-probabilities by X from those after --negative-prompt [1: off]", LLM_REAL,
     AT(cfg_scale), .01, 1000, NULL},
    {0, "negative-prompt", "TEXT", "prompt of what --cfg-scale leads away from [the last token of the prompt]", LLM_STR, AT(negative_prompt), 0, 0,
     NULL},
    {.type = LLM_HEADING, .help = "What the text must be"},
    {0, "grammar", "FILE", "write a text that the grammar in FILE (GBNF or Lark) describes", LLM_INPUT, AT(grammar), 0, 0, NULL},
    {0, "json-schema", "FILE", "write JSON that the JSON Schema in FILE allows", LLM_INPUT, AT(json_schema), 0, 0, NULL},
    {0, "json-object", NULL, "write a JSON object", LLM_FLAG, AT(json_object), 0, 0, NULL},
    {0, "regex", "PATTERN", "write a text that matches PATTERN from begin to end", LLM_STR, AT(regex), 0, 0, NULL},
    {0, "choices", "FILE", "write one of the lines of FILE", LLM_INPUT, AT(choices), 0, 0, NULL},
    {.type = LLM_HEADING, .help = "Nearest neighbours"},
    LLM_KNN_OPTIONS(struct args, knn)
    {.type = LLM_HEADING, .help = "Choosing tokens, in the order in which they are applied"},
    {0, "logit-bias", "ID+X", "add X to the logit of token ID (ID-X, ID-inf: never); may be given several times", LLM_LIST, AT(logit_bias), 0, 0,
     NULL},
    LLM_SAMPLING_OPTIONS(struct args, sampling)
    {.type = LLM_HEADING, .help = "Searching for a text, in place of drawing tokens"},
    {0, "beams", "N", "beam search: keep the N most likely texts, write the best, or the best --samples [1: off]", LLM_INT, AT(beams), 1, 512, NULL},
    {0, "beam-groups", "G", "diverse beams: G groups, of which the later avoid the tokens of the earlier [1]", LLM_INT, AT(beam_groups), 1, 512,
     NULL},
    {0, "diversity-penalty", "X", "subtract X from a token for each beam of an earlier group that took it [0]", LLM_REAL, AT(diversity_penalty), 0,
     1e6, NULL},
    {0, "length-penalty", "X", "compare texts by the sum of log-probabilities over length^X [1]", LLM_REAL, AT(length_penalty), -100, 100, NULL},
    {0, "early-stopping", "WHEN", "beam search ends when N texts have ended (yes), can hardly be better (no), cannot be better (never) [no]",
     LLM_CHOICE, AT(early_stopping), 0, 0, "no|yes|never"},
    {0, "penalty-alpha", "A", "contrastive search among --top-k tokens: (1 - A) probability - A largest cosine of hidden states [0: off]", LLM_REAL,
     AT(penalty_alpha), 0, 1, NULL},
    {.type = LLM_HEADING, .help = "Changing what happens inside"},
    {0, "steer", "FILE:STRENGTH[@LAYERS]", "add STRENGTH times a direction to the residual after each layer: a control vector (GGUF) or activations",
     LLM_LIST, AT(steer), 0, 0, NULL},
    {0, "patch", "FILE@PLACE", "overwrite values at PLACE by those of the same positions that --export wrote", LLM_LIST, AT(patch), 0, 0, NULL},
    {0, "splice", "FILE", "replace the values at a dictionary's place by what it makes of them (llm-train --objective sae, transcoder)", LLM_LIST,
     AT(splice), 0, 0, NULL},
    {0, "ablate", "PLACE[:HEAD]", "set the values at a place to 0, or those of one attention head", LLM_LIST, AT(ablate), 0, 0, NULL},
    {.type = LLM_HEADING, .help = "Computing"},
    {0, "precision", "TYPE", "arithmetic: %w [bf16]", LLM_CHOICE, AT(precision), 0, 0, NULL},
    {0, "cache-type", "TYPES", "types in which the cache stores keys and values: K[,V] of %w, also by layers: q8_0,q4_0/0-1:bf16 [as --precision]",
     LLM_STR, AT(cache_type), 0, 0, NULL},
    {'b', "batch", "N", "maximum number of tokens in one forward pass [512]", LLM_INT, AT(batch), 1, 1 << 20, NULL},
    {0, "draft", "MODEL", "a smaller model of the same tokens drafts; does not change the output", LLM_INPUT, AT(draft_model), 0, 0, NULL},
    {0, "draft-ngram", NULL, "draft what repeats the prompt or the text; does not change the output", LLM_FLAG, AT(draft_ngram), 0, 0, NULL},
    {0, "draft-max", "N", "tokens drafted at a time; without the two options before, by the model's next-token layers [none; 8, 12]",
     LLM_INT, AT(draft), 0, 64, NULL},
    {0, "accept", "HOW", "drafts of --draft: exact leaves every token as it is without, maximal accepts more and keeps the distribution [exact]",
     LLM_CHOICE, AT(accept), 0, 0, "exact|maximal"},
    {0, "parallel", "N", "maximum number of completions generated at the same time [16]", LLM_INT, AT(parallel), 1, 4096, NULL},
    {0, "memory", "SIZE", "bytes (4G) that weights, activations and caches may take together; prompts wait, caches are computed again [no bound]",
     LLM_SIZE, AT(memory), 1, 9007199254740992, NULL},
    {0, "latency-target", "MS", "read prompts in parts so small that running completions have a token every MS milliseconds [0: off]", LLM_REAL,
     AT(latency_target), 0, 1e6, NULL},
    {0, "profile", NULL, "print at the end, on standard error, where the time was spent", LLM_FLAG, AT(profile), 0, 0, NULL},
    {0, "plan", NULL, "print the memory and compute that the run needs, and exit", LLM_FLAG, AT(plan), 0, 0, NULL},
    {0}};

const struct llm_cli infer_cli = {
    .name = "llm-infer",
    .summary = "Continue texts with a language model, score them, look at what it makes of them.",
    .usage = "-m MODEL [OPTION]... [PROMPT]\n-m MODEL --chat [OPTION]... [MESSAGE]\n-m MODEL --jsonl [OPTION]... [FILE]",
    .examples = "llm-infer -m model.llm -n 200 \"Once upon a time\"\n"
                "llm-infer -m model.llm --score -f held-out.txt | awk '{s += $NF} END {print exp(-s / NR)}'\n"
                "llm-infer -m model.llm --kv-out - < prompt.txt | llm-kvinspect heads -\n"
                "llm-infer -m model.llm --jsonl --samples 4 < prompts.jsonl",
    .usual = "model|tokenizer|file|jsonl|chat|system|kv-in|score|logits|embed|kv-out|tokens|context|samples|stop|top-k|top-p|"
             "min-p|temp|precision|plan",
    .options = options,
    .neutral = "file|jsonl|batch|parallel|draft|draft-ngram|draft-max|profile|plan|resume|retries|limit|part|unordered|"
               "no-sharing|prefix-cache|prefix-cache-size|no-timings|memory|latency-target",
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_SEED | LLM_COMMON_CONFIG | LLM_COMMON_TABLE,
    .words = infer_words,
    .aliases = infer_aliases,
    .foreign = infer_foreign,
};

const struct args infer_defaults = {.n = INFER_UNSET, .draft = -1, .batch = 512, .parallel = 16, .samples = 1, .precision = 1, .pooling = -1,
                                    .embd_normalize = INFER_UNSET, .embed_as = -1, .neurons_top = 5, .logprobs = -1,
                                    .cfg_scale = 1, .beams = 1, .beam_groups = 1, .length_penalty = 1, .prefix_cache_size = (int64_t)1 << 30};

/* "ID+X", "ID-X", "ID-inf" */
static struct llm_logit_bias *parse_biases(const struct llm_strs *list)
{
    struct llm_err e;
    struct llm_logit_bias *v = llm_calloc(list->n + 1, sizeof *v, "logit biases", &e);
    if (!v) exit(llm_report(&e));
    for (size_t i = 0; i < list->n; i++) {
        if (llm_logit_bias_parse(list->v[i], &v[i]) < 0) llm_usage(&infer_cli, "--logit-bias: expected ID+X or ID-X, found '%s'", list->v[i]);
    }
    return v;
}

static int load_cache(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    struct llm_kv_file f = {0};
    int64_t keep = 0;
    int status = llm_kv_file_read(&f, a->kv_in, e);
    if (status == 0) {
        keep = a->kv_keep ? a->kv_keep : f.n;
        if (keep > f.n) status = llm_fail(e, EX_DATAERR, "--kv-keep: expected at most %" PRId64 " (the tokens in it), found %" PRId64, f.n, keep);
        else status = llm_kv_file_restore(&f, keep, s->model, &s->begin, e);
        if (status < 0) llm_in(e, "%s", infer_is_dash(a->kv_in) ? "standard input" : a->kv_in);
    }
    llm_kv_file_release(&f);
    return status;
}

/* What ends a repetition of DRY, by the option. */
static int find_breakers(struct session *s, struct llm_err *e)
{
    static const char *standard[] = {"\n", ":", "\"", "*"};
    const struct llm_strs usual = {standard, sizeof standard / sizeof *standard}, *texts = s->a->dry_breakers.n > 0 ? &s->a->dry_breakers : &usual;
    if (!s->a->jsonl && !s->a->chat && s->a->sampling.dry_multiplier == 0) return 0;
    if (llm_dry_breakers_init(&s->dry_breakers, s->model->tokenizer, s->model->config.vocab_size, texts->v, texts->n, e) < 0) return -1;
    s->sampling.dry_breakers = &s->dry_breakers;
    return 0;
}

static int load(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    LLM_PROFILE("load", 0);
    struct llm_engine_options o = {.compute = (enum llm_compute)a->precision, .context = a->context, .batch = a->batch,
                                   .cache = a->cache_type, .draft = a->draft_ngram || a->draft_model || a->draft < 0 ? 0 : a->draft};
    s->model = llm_model_load_seeing(a->model, a->mmproj, e);
    if (!s->model) return -1;
    if (adapters_load(s, e) < 0) return -1;
    if (a->classify && (a->labels.n > 0 ? llm_zero_shot_check : llm_classify_check)(s->model, e) < 0) return llm_in(e, "%s", a->model);
    if ((a->score_reward || a->rerank) && llm_score_reward_check(s->model, e) < 0) return llm_in(e, "%s", a->model);
    const char *type = s->model->config.model_type;
    struct llm_config eyes;
    const bool sees = s->model->config.patch_size > 0;
    if (a->images.n > 0 && !llm_config_sees(&s->model->config, &eyes)) {
        return llm_fail(e, EX_UNAVAILABLE, "%s: expected a model that reads pictures (vit, dinov2, clip, siglip, llava, idefics3), found %s",
                        a->model, type);
    }
    if (a->images.n > 0 && a->classify && sight_is(s)) {
        return llm_fail(e, EX_UNAVAILABLE, "%s: expected a model that tells classes of pictures apart (vit, clip, siglip), found %s", a->model, type);
    }
    if (sees && a->images.n == 0) return llm_fail(e, EX_UNAVAILABLE, "%s: %s reads pictures: expected --image", a->model, type);
    if (sees && a->plan) return llm_fail(e, EX_UNAVAILABLE, "%s: --plan is of models that read text, found %s", a->model, type);
    const bool keeps = sees && a->kv_out && !a->chat && !a->logits; /* the keys of a picture */
    bool generates = !keeps && !a->plan && !a->embed && !a->classify && !a->score_reward && !a->rerank && !a->logits && !a->ref_logprobs
                     && a->export.n == 0;
    if (generates && llm_model_must_generate(s->model, e) < 0) return llm_in(e, "%s", a->model);
    bool continues = !keeps && (a->score || a->ref_logprobs || a->chat || a->kv_in || a->kv_out || a->top > 0
                                || (a->logits && s->model->config.num_encoder_layers > 0));
    if (continues && llm_model_must_continue(s->model, e) < 0) return llm_in(e, "%s", a->model);
    const struct llm_predictor *predictor = llm_predictor_of(s->model);
    if (!predictor->has_states && (a->embed || a->kv_out || a->kv_in)) {
        return llm_fail(e, EX_DATAERR, "%s: %s has neither hidden states nor a cache", a->model, predictor->name);
    }
    if (a->tokenizer) {
        llm_tokenizer_destroy(s->model->tokenizer);
        s->model->tokenizer = llm_tokenizer_load(a->tokenizer, NULL, e);
        if (!s->model->tokenizer) return -1;
    }
    if (sight_open(s, e) < 0) return -1;
    s->sampling = a->sampling;
    s->sampling.bias = s->bias;
    s->sampling.n_bias = a->logit_bias.n;
    s->sampling.seed = (uint64_t)a->common.seed;
    s->sampling.prompt = llm_draw_prompt("1", 1); /* of a first line without an id */
    if (find_breakers(s, e) < 0) return -1;
    if (a->knn.index && (!predictor->has_states || llm_model_must_generate(s->model, e) < 0)) {
        return llm_fail(e, EX_UNAVAILABLE, "%s: --knn: expected a decoder", a->model);
    }
    if (a->knn.index && llm_knn_open(&s->knn, &a->knn, s->model, e) < 0) return -1;
    if (llm_sampling_check(&s->sampling, s->model->config.vocab_size, e) < 0 || llm_engine_init(&s->engine, s->model, &o, e) < 0) return -1;
    s->engine.knn = a->knn.index ? &s->knn : NULL;
    llm_kv_init(&s->begin, &s->engine.pool);
    if (!a->plan && drafts_open(s, e) < 0) return -1;
    if (inside_attach(s, e) < 0) return -1;
    if (a->chat && (chat_open(s, e) < 0 || sources_open(s, e) < 0)) return -1;
    if (constraints_open(s, e) < 0) return -1;
    if (a->kv_in && load_cache(s, e) < 0) return -1;
    const char *negative = a->negative_prompt;
    if (negative && prompt_encode(s, negative, strlen(negative), &s->negative, &s->n_negative, e) < 0) return llm_in(e, "--negative-prompt");
    return a->plan ? 0 : memory_open(s, e);
}

/* How --embed makes a vector: as told, else as the model asks. */
static int choose_pooling(struct session *s, struct llm_err *e)
{
    static const enum llm_pool_kind kinds[] = {LLM_POOL_MEAN, LLM_POOL_CLS, LLM_POOL_LAST};
    const struct args *a = s->a;
    if (a->classify || a->score_reward || a->rerank) s->pool = llm_config_pooling(&s->model->config);
    else if (a->pooling >= 0) s->pool = kinds[a->pooling];
    else if (llm_embed_pooling(&s->model->config, &s->pool, e) < 0) return llm_in(e, "%s", a->model);
    if (a->embed && !s->model->config.bidirectional && !s->model->config.contrastive && s->model->config.num_encoder_layers == 0
        && s->model->config.pooling == LLM_POOL_UNSET) {
        llm_warn("%s: a decoder that does not say how it embeds texts: its vectors compare texts worse than an embedding model's", a->model);
    }
    s->normalize = a->normalize ? 2 : a->embd_normalize != INFER_UNSET ? a->embd_normalize : s->model->config.normalize_embeddings ? 2 : -1;
    if (a->dims > llm_config_vector(&s->model->config)) {
        return llm_fail(e, LLM_EX_USAGE, "--dims: expected at most %" PRId64 " (the width of the model's vectors), found %" PRId64,
                        llm_config_vector(&s->model->config), a->dims);
    }
    return embed_prefix_open(s, e);
}

static int run_prompt(struct session *s, const char *operand, struct llm_err *e)
{
    const struct args *a = s->a;
    int32_t *ids = NULL, *all = NULL;
    size_t n = 0, n_all = 0;
    struct sight held = {0};
    int status = a->fim_prefix || a->fim_suffix ? fim_read(s, &ids, &n, e) : prompt_read(s, operand, &ids, &n, e);
    if (status == 0) status = sight_put(s, &a->images, &held, &ids, &n, e);
    bool windows = a->export.n > 0 && s->begin.n == 0 && s->model->rope_context <= 0 && !s->model->config.bidirectional
                   && !s->model->config.prefix_lm;
    if (status == 0 && (a->score || a->top > 0)) status = prompt_end(s, &ids, &n, e);
    else if (status == 0 && !windows) status = prompt_check(s, n, e);
    if (status == 0 && (a->export.n > 0 || a->lens || a->attribute.n > 0)) {
        status = (a->lens ? run_lens : a->attribute.n > 0 ? run_attribute : run_export)(s, ids, n, e);
    } else if (status == 0 && !a->score && !a->logits && !a->embed && !a->classify && !a->score_reward) {
        status = run_text(s, ids, n, e);
    } else if (status == 0 && a->score_reward) {
        status = run_reward(s, ids, n, e);
    } else if (status == 0 && a->classify) {
        status = run_classify(s, ids, n, e);
    } else if (status == 0 && a->top > 0) {
        status = run_top(s, ids, n, e);
    } else if (status == 0) {
        bool extended = a->n != 0 || a->kv_out;
        if (extended) status = extend(s, ids, n, &all, &n_all, e);
        if (status == 0) status = (a->score ? run_score : run_tensors)(s, extended ? all : ids, extended ? n_all : n, e);
    }
    sight_release(&held);
    free(ids);
    free(all);
    return status;
}

/* A batch that a signal ends keeps the lines that are answered; one that can be resumed always does. */
static bool keeps_lines(const struct args *a, const struct llm_output *o)
{
    return a->resume || (a->jsonl && llm_signal_caught() && llm_output_offset(o) > 0);
}

static int run(struct session *s, const char *operand, struct llm_err *e)
{
    const struct args *a = s->a;
    bool binary = (a->logits && a->top == 0) || a->export.n > 0 || (a->embed && !a->jsonl);
    bool to_stdout = !a->common.output || infer_is_dash(a->common.output);
    if (!a->plan && llm_output_try(a->kv_out, true, e) < 0) return -1;
    if (load(s, e) < 0) return -1;
    if (a->plan) return run_plan(s, e);
    const bool of_texts = a->images.n > 0 && sight_is(s); /* pictures whose embeddings are not pooled */
    if ((a->embed || a->classify || a->score_reward || a->rerank) && !of_texts && choose_pooling(s, e) < 0) return -1;
    const int opened = a->labels.n > 0 ? zero_shot_open(s, operand ? operand : a->file, e) : 0;
    if (opened != 0) return opened;
    if (!(infer_is_dash(a->kv_out) && to_stdout)) {
        s->out = a->resume ? resume_open(s, &s->resume, e) : llm_output_open(a->common.output, binary, e);
        if (!s->out) return -1;
    }
    int (*lines)(struct session *, const char *, struct llm_err *) = a->score ? run_score_lines : a->score_reward ? run_reward_lines
                                                                     : a->ref_logprobs ? run_references : a->top > 0 ? run_top_lines : run_jsonl;
    int (*texts)(struct session *, const char *, struct llm_err *) = a->chat ? run_chat : a->neurons ? run_neurons : run_prompt;
    if (a->jsonl) texts = a->embed || a->classify || a->rerank ? run_embed_lines : lines;
    const bool of_pictures = a->images.n > 0 && (a->embed || !sight_is(s));
    int status = !of_pictures ? texts(s, operand, e) : sight_is(s) ? sight_write(s, e) : run_pictures(s, e);
    struct llm_output *o = s->out;
    s->out = NULL;
    if (!o) return status;
    if (status == 0 || !a->common.output || infer_is_dash(a->common.output) || keeps_lines(a, o)) {
        struct llm_err late = {0};
        if (llm_output_commit(o, &late) < 0 && status == 0) {
            *e = late;
            return -1;
        }
        if (status == 0 && (s->refused.status || s->sources.unknown.status)) {
            *e = s->refused.status ? s->refused : s->sources.unknown;
            return -1;
        }
        return status;
    }
    llm_output_abandon(o);
    return status;
}

/* Parses the command line. Rollouts are drawn from the model's own distribution unless options say otherwise. */
static int parse(struct args *a, int argc, char **argv)
{
    *a = infer_defaults;
    a->knn = llm_knn_defaults;
    a->sampling = llm_sampling_defaults;
    int rest = llm_cli_parse(&infer_cli, a, argc, argv);
    if (!a->rollout) return rest;
    *a = infer_defaults;
    a->knn = llm_knn_defaults;
    a->sampling = llm_sampling_defaults;
    llm_sampling_open(&a->sampling);
    return llm_cli_parse(&infer_cli, a, argc, argv);
}

int main(int argc, char **argv)
{
    struct args a;
    struct llm_err e = {0};
    llm_start();
    llm_free_at_once();
    int rest = parse(&a, argc, argv);
    llm_config_force(a.common.force_config);
    infer_check_operands(&a, argc - rest, argv + rest);
    const char *operand = a.prompt ? a.prompt : rest < argc ? argv[rest] : NULL;
    if (a.ref_logprobs) a.jsonl = 1;
    infer_check_options(&a, operand);
    struct session s = {.a = &a, .bias = parse_biases(&a.logit_bias)};
    int status = llm_pool_start(a.common.threads, &e);
    llm_signals_catch();
    if (a.profile) llm_profile_start();
    if (status == 0) status = run(&s, operand, &e);
    if (a.profile && status == 0) status = llm_profile_print(false, &e);
    if (s.begin.pool) llm_kv_release(&s.begin);
    resume_destroy(s.resume);
    chat_release(&s);
    sources_release(&s);
    constraints_release(&s);
    inside_release(&s);
    llm_buf_release(&s.around[0]);
    llm_buf_release(&s.around[1]);
    llm_buf_release(&s.prefix);
    llm_buf_release(&s.placeholder);
    drafts_release(&s);
    llm_zero_shot_release(&s.zero_shot);
    llm_engine_release(&s.engine);
    llm_knn_release(&s.knn);
    llm_model_destroy(s.model);
    free(s.bias);
    llm_dry_breakers_release(&s.dry_breakers);
    free(s.negative);
    llm_pool_stop();
    llm_signal_die();
    return status < 0 ? llm_report(&e) : 0;
}
