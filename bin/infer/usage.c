/* llm-infer: which options go together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "bin/infer/infer.h"

bool infer_is_dash(const char *s)
{
    return s && strcmp(s, "-") == 0;
}

/* Whether an operand is meant as a model: a folder, or the name of a file of weights. */
static bool names_model(const char *s)
{
    static const char *const ends[] = {".llm", ".gguf", ".safetensors", ".arpa"};
    struct stat st;
    for (size_t i = 0, n = strlen(s); i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(s + n - strlen(ends[i]), ends[i]) == 0) return true;
    return stat(s, &st) == 0 && S_ISDIR(st.st_mode);
}

void infer_check_operands(const struct args *a, int n, char **operands)
{
    for (int i = 0; !a->model && i < n; i++)
        if (names_model(operands[i])) llm_usage(&infer_cli, "expected -m before the model: llm-infer -m %s", operands[i]);
    struct llm_err e = {0};
    if (llm_kv_types_check(a->cache_type, &e) < 0) llm_usage(&infer_cli, "--cache-type: %s", e.text);
    if (!a->model) llm_usage(&infer_cli, "expected a model (-m MODEL)");
    if (a->prompt && n > 0) llm_usage(&infer_cli, "expected one prompt, found -p and an operand '%s'", operands[0]);
    if (a->prompt && a->jsonl) llm_usage(&infer_cli, "--jsonl reads prompts from a file: expected no -p");
    if (n > 1) llm_usage(&infer_cli, "expected one prompt, found another operand '%s' (quote a prompt of several words)", operands[1]);
}

/* "I/N": the Ith of N parts. */
static void parse_part(struct args *a)
{
    char first[24];
    int64_t i = 0, n = 0;
    const char *slash = a->part ? strchr(a->part, '/') : NULL;
    a->parts = 1;
    if (!a->part) return;
    if (slash && slash - a->part < (int)sizeof first) {
        snprintf(first, sizeof first, "%.*s", (int)(slash - a->part), a->part);
        if (llm_parse_int(first, &i) < 0 || llm_parse_int(slash + 1, &n) < 0) i = 0;
    }
    if (i < 1 || i > n) llm_usage(&infer_cli, "--part: expected I/N with 1 <= I <= N, found '%s'", a->part);
    a->part_number = i - 1;
    a->parts = n;
}

/* Options of beams and contrastive search. */
static void check_search(const struct args *a, int owners)
{
    bool guided = a->cfg_scale != 1;
    if (a->negative_prompt && !guided && !a->jsonl) llm_usage(&infer_cli, "--negative-prompt goes with --cfg-scale");
    if (guided && (owners > 0 || a->rollout || (a->chat && !a->jsonl))) {
        llm_usage(&infer_cli, "--cfg-scale is of generated text: not with a conversation, --rollout or other output");
    }
    bool contrasts = a->penalty_alpha > 0, searches = a->beams > 1 || contrasts;
    if (a->beams > 1 && contrasts) llm_usage(&infer_cli, "expected one search: --beams or --penalty-alpha");
    if (contrasts && a->sampling.top_k == 0) llm_usage(&infer_cli, "--penalty-alpha computes each of the --top-k tokens: expected a --top-k above 0");
    if (a->beams == 1 && (a->beam_groups > 1 || a->length_penalty != 1 || a->early_stopping)) {
        llm_usage(&infer_cli, "--beam-groups, --length-penalty and --early-stopping go with --beams");
    }
    if (a->beam_groups == 1 && a->diversity_penalty > 0) llm_usage(&infer_cli, "--diversity-penalty goes with --beam-groups");
    if (a->beams % a->beam_groups != 0) llm_usage(&infer_cli, "--beam-groups: expected a divisor of the beams");
    if (!searches) return;
    if (a->samples > a->beams) llm_usage(&infer_cli, "--samples: expected at most as many as --beams, and one of contrastive search");
    if (a->beams > a->batch) llm_usage(&infer_cli, "--beams: expected at most as many as -b, the tokens of a pass");
    if (a->draft > 0 || a->draft_ngram || a->draft_model) {
        llm_usage(&infer_cli, "a search has no drafts: expected no --draft, --draft-ngram or --draft-max");
    }
    if (guided) llm_usage(&infer_cli, "a search is not guided: expected no --cfg-scale");
    if (a->memory > 0 || a->latency_target > 0) llm_usage(&infer_cli, "a search runs prompt after prompt: expected no --memory, --latency-target");
    if (a->grammar || a->regex || a->choices || a->json_schema || a->json_object) llm_usage(&infer_cli, "a search cannot follow a grammar yet");
    if (owners > 0 || a->rollout || a->logprobs >= 0 || a->kv_out || (a->chat && !a->jsonl)) {
        llm_usage(&infer_cli, "a search generates text: it does not go with a conversation, --rollout, --logprobs, --kv-out or other output");
    }
}

/* Options of batches of lines. */
static void check_batch(struct args *a, bool to_stdout, int owners)
{
    parse_part(a);
    if ((a->resume || a->part || a->limit > 0) && !a->jsonl) llm_usage(&infer_cli, "--resume, --part and --limit go with --jsonl");
    if (a->resume && (to_stdout || owners > 0 || a->rollout)) {
        llm_usage(&infer_cli, "--resume goes with -o FILE, and not with --rollout, --score, --embed or other output");
    }
    if ((a->unordered || a->no_sharing) && (!a->jsonl || owners > 0)) {
        llm_usage(&infer_cli, "--unordered and --no-sharing go with --jsonl, and not with --score, --embed or other output");
    }
    if (a->logprobs >= 0 && (!a->jsonl || owners > 0 || a->rollout)) {
        llm_usage(&infer_cli, "--logprobs goes with --jsonl, and not with --rollout (which has them), --score or other output");
    }
    bool changes = a->steer.n + a->patch.n + a->splice.n + a->ablate.n + a->adapters.n > 0;
    if (a->prefix_cache && (!a->jsonl || owners > 0 || a->no_sharing || a->kv_in || a->rollout || changes)) {
        llm_usage(&infer_cli, "--prefix-cache goes with --jsonl, and not with --no-sharing, --kv-in, --rollout, adapters or changes inside");
    }
    if (a->accept && !a->draft_model) llm_usage(&infer_cli, "--accept is of drafts of a model: expected --draft");
    if (a->accept == 1 && a->resume) llm_usage(&infer_cli, "--resume: expected --accept exact: with maximal, tokens depend on what runs beside them");
    if ((a->memory > 0 || a->latency_target > 0) && (owners > 0 || (a->chat && !a->jsonl))) {
        llm_usage(&infer_cli, "--memory and --latency-target are of generated text: not with --score, --embed or other output, or a conversation");
    }
    if (a->retries > 0 && !a->resume) llm_usage(&infer_cli, "--retries goes with --resume");
    if ((a->part || a->limit > 0) && a->rollout) llm_usage(&infer_cli, "--rollout numbers all prompts: it does not go with --part or --limit");
}

static void check_vectors(const struct args *a)
{
    if (!a->embed && (a->pooling >= 0 || a->embd_normalize != INFER_UNSET)) llm_usage(&infer_cli, "--pooling and --embd-normalize go with --embed");
    if (!a->embed && (a->normalize || a->dims > 0 || a->embed_prefix || a->embed_as >= 0)) {
        llm_usage(&infer_cli, "--normalize, --dims, --embed-prefix and --embed-as go with --embed");
    }
    if (a->normalize && a->embd_normalize != INFER_UNSET && a->embd_normalize != 2) {
        llm_usage(&infer_cli, "--normalize is --embd-normalize 2: expected one");
    }
    if (a->embed_prefix && a->embed_as >= 0) llm_usage(&infer_cli, "expected one prefix, found --embed-prefix and --embed-as");
    if ((a->embed_prefix || a->embed_as >= 0) && a->ids) llm_usage(&infer_cli, "a prefix is of texts: expected no --ids");
    if (a->rerank && !a->jsonl) llm_usage(&infer_cli, "--rerank goes with --jsonl");
    if (a->rerank && a->n > 0) llm_usage(&infer_cli, "--rerank scores texts: expected no -n");
}

static void check_conversation(const struct args *a, int owners)
{
    if (!a->chat && ((a->chat_template && !a->score_reward && !a->ref_logprobs) || a->system))
        llm_usage(&infer_cli, "--chat-template and --system go with --chat");
    if (!a->chat && a->no_think) llm_usage(&infer_cli, "--no-think goes with --chat");
    if ((a->shift || a->chat_log) && (!a->chat || a->jsonl)) llm_usage(&infer_cli, "--shift and --chat-log go with --chat, and not with --jsonl");
    if (a->context_from && (!a->chat || a->rollout)) llm_usage(&infer_cli, "--context-from goes with --chat, and not with --rollout");
    if (infer_is_dash(a->chat_log)) llm_usage(&infer_cli, "--chat-log: expected a file, found '-'");
    if (a->chat && !a->jsonl && a->samples > 1) llm_usage(&infer_cli, "--chat answers once: expected no --samples");
    if (a->chat && (owners > 0 || a->kv_out || a->kv_in || a->ids || a->echo)) {
        llm_usage(&infer_cli, "--chat does not go with --ids, --echo, a cache or other output");
    }
}

/* What standard input is asked for: one thing at most. */
static void check_stdin(const struct args *a, const char *operand, bool fills_in, bool for_vectors)
{
    const char *const files[] = {a->model, a->mmproj, a->kv_in, a->tokenizer, a->fim_prefix, a->fim_suffix, a->context_from, a->knn.index,
                                 a->grammar, a->choices, a->json_schema, a->labels.n > 0 ? operand ? operand : a->file : NULL};
    const bool reads_prompt = !operand && !fills_in && !for_vectors && (a->jsonl || a->file || !a->kv_in) && !a->plan;
    const bool reads_lines = infer_is_dash(operand) || infer_is_dash(a->file) || (!operand && !a->file);
    int from_stdin = a->jsonl ? reads_lines : reads_prompt && (!a->file || infer_is_dash(a->file));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) from_stdin += infer_is_dash(files[i]);
    for (size_t i = 0; i < a->images.n; i++) from_stdin += infer_is_dash(a->images.v[i]);
    if (from_stdin > 1) llm_usage(&infer_cli, "standard input cannot be two inputs at once");
}

static void check_inside(const struct args *a, bool looks, bool to_stdout)
{
    if (looks && (a->jsonl || a->chat || a->kv_out || a->n > 0)) {
        llm_usage(&infer_cli, "--export, --lens, --attribute and --neurons take a prompt alone");
    }
    if (a->png && (!a->lens || (infer_is_dash(a->png) && to_stdout))) {
        llm_usage(&infer_cli, "--png goes with --lens, and the table or the picture to a file");
    }
    if (a->which_tokens && (!looks || a->neurons)) llm_usage(&infer_cli, "--which-tokens goes with --export, --lens and --attribute");
    if (a->neurons && a->kv_in) llm_usage(&infer_cli, "--neurons reads whole texts: expected no --kv-in");
    if (!a->neurons && a->neurons_top != 5) llm_usage(&infer_cli, "--neurons-top goes with --neurons");
}

static void check_pictures(const struct args *a, const char *operand, bool fills_in, bool for_vectors, int owners)
{
    if (a->labels.n > 0 && !(a->classify && a->images.n > 0)) llm_usage(&infer_cli, "--labels goes with --classify and --image");
    if (a->labels.n > 0 && !operand && !a->file) llm_usage(&infer_cli, "--labels: expected a file of labels, one a line");
    for (size_t i = 0; i < a->labels.n; i++) {
        if (!template_fits(a->labels.v[i])) {
            llm_usage(&infer_cli, "--labels: expected a template with {} in it, imagenet-80 or imagenet-7, found '%s'", a->labels.v[i]);
        }
    }
    const bool prompted = (operand || a->file) && a->labels.n == 0;
    if (for_vectors && (prompted || a->jsonl || fills_in || a->kv_in || a->kv_out || a->n > 0)) {
        llm_usage(&infer_cli, "--image is the prompt of --embed or --classify: expected no other, no cache and no -n");
    }
    if (a->images.n > 0 && !for_vectors && (owners > a->logits || a->top > 0 || a->jsonl || fills_in || a->kv_in || a->echo)) {
        llm_usage(&infer_cli, "--image goes with --embed or --classify, or with text, --chat or --logits: expected no other output, no --kv-in "
                              "and no --echo; lines of --jsonl name their own pictures");
    }
}

static void check_score(const struct args *a)
{
    if ((a->add_eos && !a->score && a->top == 0) || (a->per_token && !a->score)) {
        llm_usage(&infer_cli, "--per-token goes with --score, --add-eos with --score and --top");
    }
    if (a->entropy && !a->score) llm_usage(&infer_cli, "--entropy goes with --score");
    if (a->per_token && !a->jsonl) llm_usage(&infer_cli, "--per-token goes with --jsonl: --score alone always lists the tokens");
    if (a->add_eos && a->n > 0) llm_usage(&infer_cli, "--add-eos ends the text: expected no -n");
}

/* What cannot go together: status 2. */
void infer_check_options(struct args *a, const char *operand)
{
    bool to_stdout = !a->common.output || infer_is_dash(a->common.output);
    bool looks = a->export.n > 0 || a->lens || a->attribute.n > 0 || a->neurons;
    int owners = a->score + a->logits + a->embed + a->classify + a->score_reward + (a->rerank != NULL)
                 + a->ref_logprobs + (a->export.n > 0) + (a->lens != NULL)
                 + (a->attribute.n > 0) + (a->neurons != NULL);
    bool fills_in = a->fim_prefix || a->fim_suffix, for_vectors = a->images.n > 0 && (a->embed || a->classify);
    if (operand && a->file) llm_usage(&infer_cli, "expected one prompt, found an operand and -f");
    check_stdin(a, operand, fills_in, for_vectors);
    if (owners > 1 || (infer_is_dash(a->kv_out) && to_stdout && owners > 0)) {
        llm_usage(&infer_cli, "standard output has one owner: expected one of --score, --logits, --embed, --export, --lens, --attribute, --neurons, "
                               "--classify, --score-reward, --rerank, --ref-logprobs, --kv-out -");
    }
    if (a->top > 0 && (!a->logits || a->kv_in || a->kv_out || a->n > 0)) {
        llm_usage(&infer_cli, "--top goes with --logits, and not with a cache or -n");
    }
    if (a->jsonl && ((a->logits && a->top == 0) || a->kv_out || a->echo))
        llm_usage(&infer_cli, "--jsonl does not go with --logits without --top, --kv-out or --echo");
    if (a->jsonl && (a->embed || a->classify || a->score || a->score_reward || a->rerank || a->logits) && (a->chat || a->kv_in)) {
        llm_usage(&infer_cli, "--embed, --classify, --score, --score-reward, --rerank and --logits of lines do not go with --chat or --kv-in");
    }
    check_inside(a, looks, to_stdout);
    if (a->rollout && (!a->jsonl || owners > 0)) llm_usage(&infer_cli, "--rollout goes with --jsonl, and not with --score, --embed or --classify");
    if (a->rollout && (a->kv_in || a->ids)) llm_usage(&infer_cli, "--rollout writes all tokens of a prompt: it does not go with --kv-in or --ids");
    if (a->jsonl && a->score && a->n != INFER_UNSET && a->n != 0) llm_usage(&infer_cli, "--score of lines scores what they hold: expected no -n");
    if (a->common.format && (a->jsonl || !(a->score || a->classify || a->plan || a->attribute.n > 0 || a->neurons))) {
        llm_usage(&infer_cli, "--format is of tables: it goes with --score, --classify, --attribute, --neurons or --plan, and not with --jsonl");
    }
    check_score(a);
    if ((a->classify || a->score_reward) && (a->kv_in || a->kv_out || a->n > 0)) {
        llm_usage(&infer_cli, "--%s takes a text alone: not with a cache or -n", a->classify ? "classify" : "score-reward");
    }
    check_vectors(a);
    if (a->ref_logprobs && (a->kv_in || a->kv_out || a->n > 0 || a->chat)) {
        llm_usage(&infer_cli, "--ref-logprobs reads lines of pairs: not with --chat, a cache or -n");
    }
    if (a->knn.index && (a->rollout || looks || a->embed || a->classify || a->score_reward || a->rerank || a->ref_logprobs || a->plan)) {
        llm_usage(&infer_cli, "--knn changes predictions: it goes with text, --score and --logits");
    }
    check_conversation(a, owners);
    if (a->lines && (!(a->chat || a->neurons) || a->jsonl || operand)) {
        llm_usage(&infer_cli, "--lines goes with --chat or --neurons, and -f or standard input");
    }
    check_pictures(a, operand, fills_in, for_vectors, owners);
    if (fills_in && (operand || a->file || a->jsonl || a->chat || a->ids || a->kv_in || owners > 0)) {
        llm_usage(&infer_cli, "--fim-prefix and --fim-suffix are the prompt, and the text is the output: expected no other");
    }
    if (a->fim_spm && !fills_in && !a->jsonl) llm_usage(&infer_cli, "--fim-spm goes with --fim-prefix, --fim-suffix or --jsonl");
    if (a->samples > 1 && (owners > 0 || a->kv_out)) llm_usage(&infer_cli, "--samples goes with text and --jsonl only");
    if (a->trace_queries > 0 && !a->kv_out) llm_usage(&infer_cli, "--trace-queries goes with --kv-out");
    if (a->kv_keep > 0 && !a->kv_in) llm_usage(&infer_cli, "--kv-keep goes with --kv-in");
    for (size_t i = 0; i < a->stop.n; i++) {
        if (!a->stop.v[i][0]) llm_usage(&infer_cli, "--stop: expected a text that is not empty");
    }
    for (size_t i = 0; i < a->dry_breakers.n; i++) {
        if (!a->dry_breakers.v[i][0]) llm_usage(&infer_cli, "--dry-sequence-breaker: expected a text that is not empty");
    }
    check_batch(a, to_stdout, owners);
    check_search(a, owners);
    if ((a->grammar != NULL) + (a->regex != NULL) + (a->choices != NULL) + (a->json_schema != NULL) + a->json_object > 1) {
        llm_usage(&infer_cli, "expected one of --grammar, --json-schema, --json-object, --regex, --choices");
    }
    if (a->n == INFER_UNSET) a->n = owners > 0 || (infer_is_dash(a->kv_out) && to_stdout) ? 0 : 256;
}
