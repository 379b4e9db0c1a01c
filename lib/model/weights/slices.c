#include "model/weights/slices.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

/* Whether the matrix is the last of its block, or of the first half of Mamba's: it is cut by columns. */
static bool is_last(const struct llm_param_spec *s)
{
    return s->stem == LLM_STEM_OUT || s->stem == LLM_STEM_DOWN || s->stem == LLM_STEM_EXPERT_DOWN || s->stem == LLM_STEM_SHARED_DOWN
        || s->stem == LLM_STEM_STATES;
}

/* The tables of the vocabulary. */
static bool is_table(const struct llm_param_spec *s)
{
    return s->stem == LLM_STEM_EMBED || s->stem == LLM_STEM_HEAD || s->stem == LLM_STEM_HEAD_BIAS;
}

bool llm_param_spec_sliced(const struct llm_param_spec *s)
{
    if (s->stack == LLM_STACK_MAIN && is_table(s)) return true;
    const bool block = s->unit == LLM_UNIT_ATTENTION || s->unit == LLM_UNIT_MLP || s->unit == LLM_UNIT_EXPERTS || s->unit == LLM_UNIT_MAMBA
        || s->unit == LLM_UNIT_MAMBA2;
    if (s->stack != LLM_STACK_MAIN || !block) return false;
    static const enum llm_stem whole[] = {LLM_STEM_ROUTER, LLM_STEM_ROUTER_BIAS, LLM_STEM_Q_A, LLM_STEM_Q_A_NORM, LLM_STEM_KV_A, LLM_STEM_KV_A_NORM};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        if (s->stem == whole[i]) return false;
    }
    return !is_last(s) || s->n_dims > 1; /* its bias is whole */
}

static bool attends(const struct llm_module_kind *mixer) { return mixer == &llm_module_attention || mixer == &llm_module_mla; }

static bool scans(const struct llm_module_kind *mixer) { return mixer == &llm_module_mamba || mixer == &llm_module_mamba2; }

/* Whether the mixer has a state per row that a rank can send to the next one. Hyena's long convolutions need the whole row. */
static bool passes_state(const struct llm_module_kind *mixer) { return !attends(mixer) && mixer != &llm_module_hyena; }

/* What of a model is not computed slice by slice, or part by part of the rows; NULL: nothing. */
static const char *obstacle(const struct llm_config *c, bool by_parts)
{
    struct llm_config sees;
    if (c->num_encoder_layers > 0) return "an encoder";
    if (c->num_nextn_predict_layers > 0) return "layers that predict further";
    if (llm_config_sees(c, &sees)) return "pictures";
    if (c->num_latents > 0) return "latents";
    if (c->qk_norm != LLM_QK_NORM_NONE) return "norms of queries and keys";
    if (c->attention_sinks) return "attention sinks";
    if (c->position == LLM_POSITION_BUCKETS) return "biases of distances";
    if (c->dual_chunk_size > 0) return "dual chunk attention";
    if (c->kv_sharing > 1) return "keys that layers share";
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        const struct llm_module_kind *mixer = llm_decoder_mixer(c, l), *ffn = llm_decoder_ffn(c, l);
        if (!attends(mixer) && !(by_parts ? passes_state(mixer) : scans(mixer))) {
            return by_parts ? "long convolutions" : "layers that are neither attention nor Mamba";
        }
        if (ffn && ffn != &llm_module_mlp && ffn != &llm_module_moe && !(by_parts && ffn == &llm_module_rwkv_channels)) {
            return "other feed-forward parts";
        }
    }
    return NULL;
}

/* The tokens before a token that some layer's convolution or window sees. */
static int64_t seen(const struct llm_config *c)
{
    int64_t n = 0;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        const struct llm_module_kind *mixer = llm_decoder_mixer(c, l);
        if (scans(mixer)) n = c->conv_kernel - 1;
        if (mixer == &llm_module_window) n = c->context_window - 1;
    }
    return n;
}

/* Whether some layer has that mixer or feed-forward part. */
static bool has(const struct llm_config *c, const struct llm_module_kind *kind)
{
    int64_t l = 0;
    while (l < c->num_hidden_layers && llm_decoder_mixer(c, l) != kind && llm_decoder_ffn(c, l) != kind) l++;
    return l < c->num_hidden_layers;
}

int llm_model_check_slices(const struct llm_config *c, int64_t n, struct llm_err *e)
{
    const char *with = obstacle(c, false);
    const bool attention = has(c, &llm_module_attention) || has(c, &llm_module_mla), mamba2 = has(c, &llm_module_mamba2);
    const struct { int64_t size; const char *what; } sizes[] = {
        {attention ? c->num_attention_heads : 0, "attention heads"}, {attention ? c->num_key_value_heads : 0, "key/value heads"},
        {has(c, &llm_module_mamba) ? c->intermediate_size : 0, "channels of Mamba"},
        {mamba2 ? c->ssm_heads : 0, "heads of Mamba 2"}, {mamba2 ? c->ssm_groups * c->state_size : 0, "inputs of Mamba 2's states"},
        {has(c, &llm_module_mlp) ? c->intermediate_size : 0, "channels of the feed-forward parts"},
        {has(c, &llm_module_moe) ? c->moe_intermediate_size : 0, "channels of an expert"}};
    if (n == 1) return 0;
    if (c->vocab_size < n) return llm_fail(e, LLM_EX_USAGE, "--tensor-parts: expected at most the vocabulary, %lld, found %lld",
                                           (long long)c->vocab_size, (long long)n);
    if (with) {
        return llm_fail(e, LLM_EX_USAGE, "--tensor-parts: expected a model of attention, Mamba and feed-forward parts, found one with %s (%s)",
                        with, c->model_type);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].size % n == 0) continue;
        return llm_fail(e, LLM_EX_USAGE, "--tensor-parts: expected a divisor of the model's %lld %s, found %lld", (long long)sizes[i].size,
                        sizes[i].what, (long long)n);
    }
    if (!mamba2 || !llm_mamba2_divides_groups(c, n) || n % c->ssm_groups == 0) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--tensor-parts: expected a divisor or a multiple of the model's %lld groups of Mamba 2's heads (n_groups), "
                    "found %lld", (long long)c->ssm_groups, (long long)n);
}

int llm_model_check_sequence(const struct llm_config *c, int64_t parts, int64_t ranks, int64_t context, struct llm_err *e)
{
    struct llm_config whole = *c;
    if (c->qk_norm != LLM_QK_NORM_EACH) whole.qk_norm = LLM_QK_NORM_NONE; /* a token has all heads while they are normalised */
    const char *with = obstacle(&whole, true);
    if (parts == 1) return 0;
    const int64_t before = seen(c);
    if (!with && c->norm != LLM_NORM_RMS && c->norm != LLM_NORM_LAYER) with = "norms over groups or batches";
    for (int64_t l = 0; l < c->num_hidden_layers && !with; l++) {
        if (llm_config_block(c, l) > 0) with = "attention within blocks";
    }
    if (with) {
        return llm_fail(e, LLM_EX_USAGE, "--seq-parts: expected a model whose rows can be cut, found one with %s (%s)", with,
                        c->model_type);
    }
    if (ranks > 1 && context / ranks < before) {
        return llm_fail(e, LLM_EX_USAGE,
                        "--shard: cp=%lld: expected at least %lld tokens of a row for each rank, as a convolution or a window sees, found %lld",
                        (long long)ranks, (long long)before, (long long)(context / ranks));
    }
    return 0;
}

static int slice(struct llm_param *p, bool by_columns, int n, int first, int end, struct llm_err *e)
{
    struct llm_slices *s = p->slices = llm_calloc(1, sizeof *s, "slices", e);
    if (!s) return -1;
    *s = (struct llm_slices){.by_columns = by_columns, .n = n, .first = first, .end = end, .whole = p};
    if (!(s->of = llm_calloc((size_t)n, sizeof *s->of, "slices", e))) return -1;
    if (!by_columns) memcpy(s->fused, p->spec->fused, sizeof s->fused);
    for (int j = 0; j < n; j++) {
        struct llm_param *q = &s->of[j];
        *q = (struct llm_param){.name = p->name, .spec = p->spec, .n_dims = p->n_dims, .role = p->role, .decay = p->decay, .slice_of = s};
        memcpy(q->shape, p->shape, sizeof q->shape);
        q->shape[by_columns] = llm_slices_row(s, j + 1, p->shape[by_columns]) - llm_slices_row(s, j, p->shape[by_columns]);
        for (int i = 0; i < LLM_MAX_PARTS; i++) q->parts[i] = by_columns ? p->parts[i] : p->parts[i] / n;
        q->weight = (struct llm_weight){.n = q->shape[0], .k = q->n_dims > 1 ? llm_param_count(q) / q->shape[0] : p->weight.k};
    }
    return 0;
}

int llm_model_slice(struct llm_model *m, int n, int first, int end, struct llm_err *e)
{
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param_spec *s = &m->specs[i];
        if (!llm_param_spec_sliced(s)) continue;
        if (slice(&m->params[i], is_last(s), n, first, end, e) < 0) return -1;
    }
    return 0;
}
