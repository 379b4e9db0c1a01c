#include "quant/types.h"

#include <strings.h>
#include "model/spec/block.h"

#define WHOLE(ID, name, elements, bytes, number, file, encodes, kind, whole) LLM_ONLY_##whole({#name, LLM_##ID, LLM_MIX_NONE},)
const struct llm_quant_type llm_quant_types[] = {
    {"f32", LLM_F32, LLM_MIX_NONE}, {"f16", LLM_F16, LLM_MIX_NONE}, {"bf16", LLM_BF16, LLM_MIX_NONE},
    LLM_BLOCK_TYPES(WHOLE)
    {"q6_k", LLM_Q6_K, LLM_MIX_Q6_K}, {"q5_k_m", LLM_Q5_K, LLM_MIX_Q5_K_M}, {"q5_k_s", LLM_Q5_K, LLM_MIX_Q5_K_S},
    {"q4_k_m", LLM_Q4_K, LLM_MIX_Q4_K_M}, {"q4_k_s", LLM_Q4_K, LLM_MIX_Q4_K_S}, {"iq4_xs", LLM_IQ4_XS, LLM_MIX_IQ4_XS},
    {"q3_k_l", LLM_Q3_K, LLM_MIX_Q3_K_L},
    {"q3_k_m", LLM_Q3_K, LLM_MIX_Q3_K_M}, {"q3_k_s", LLM_Q3_K, LLM_MIX_Q3_K_S}, {"q2_k", LLM_Q2_K, LLM_MIX_Q2_K},
    {"q2_k_s", LLM_Q2_K, LLM_MIX_Q2_K_S},
    {"iq3_m", LLM_IQ3_S, LLM_MIX_IQ3_M}, {"iq3_s", LLM_IQ3_S, LLM_MIX_IQ3_S}, {"iq3_xs", LLM_IQ3_S, LLM_MIX_IQ3_XS},
    {"iq3_xxs", LLM_IQ3_XXS, LLM_MIX_IQ3_XXS}, {"iq2_m", LLM_IQ2_S, LLM_MIX_IQ2_M}, {"iq2_s", LLM_IQ2_XS, LLM_MIX_IQ2_S},
    {"iq2_xs", LLM_IQ2_XS, LLM_MIX_IQ2_XS},
    {"q5_k", LLM_Q5_K, LLM_MIX_Q5_K_M}, {"q4_k", LLM_Q4_K, LLM_MIX_Q4_K_M}, {"q3_k", LLM_Q3_K, LLM_MIX_Q3_K_M},
    {"keep", LLM_NO_DTYPE, LLM_MIX_NONE}, {"copy", LLM_NO_DTYPE, LLM_MIX_NONE}};

const char *llm_quant_word(int i)
{
    enum { N = sizeof llm_quant_types / sizeof *llm_quant_types };
    return i < N ? llm_quant_types[i].name : NULL;
}

int llm_quant_dtype(const char *name, enum llm_dtype *out)
{
    for (int i = 0; llm_quant_word(i); i++) {
        const struct llm_quant_type *t = &llm_quant_types[i];
        bool one = t->dtype == LLM_NO_DTYPE || strcasecmp(name, llm_dtypes[t->dtype].name) == 0;
        if (!one || (t->dtype == LLM_NO_DTYPE && strcasecmp(name, t->name) != 0)) continue;
        *out = t->dtype;
        return 0;
    }
    return -1;
}

/* ---- mixes ---- */

/* The layers that k-quant mixes give more bits: the first and the last eighth, and every third between. */
static bool more_bits(int i, int n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

struct place { int at, n; };

/* Where p's layer stands among the layers that have a matrix of its kind. */
static struct place place_of(const struct llm_model *m, const struct llm_param *p)
{
    struct place of = {0};
    int last = -1;
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param_spec *s = m->params[i].spec;
        if (s->stem != p->spec->stem || s->piece != LLM_PIECE_WEIGHT || s->layer == last) continue;
        last = s->layer;
        of.at += s->layer < p->spec->layer;
        of.n++;
    }
    return of;
}

/* A layer's place for the rules of feed-forward matrices: in mixtures its own number among all layers. */
static struct place feed_forward_place_of(const struct llm_model *m, const struct llm_param *p)
{
    return m->config.num_experts > 1 ? (struct place){p->spec->layer, (int)m->config.num_hidden_layers} : place_of(m, p);
}

/* A matrix's place for the rules of 2 bits: among all that feed-forward parts end with, in the order of the file, as if each layer had one. */
static struct place down_place_of(const struct llm_model *m, const struct llm_param *p)
{
    struct place of = {0, (int)m->config.num_hidden_layers};
    const bool second = p->spec->stem == LLM_STEM_SHARED_DOWN;
    int last[2] = {-1, -1};
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param_spec *s = m->params[i].spec;
        const bool shared = s->stem == LLM_STEM_SHARED_DOWN, down = shared || s->stem == LLM_STEM_DOWN || s->stem == LLM_STEM_EXPERT_DOWN;
        if (!down || s->piece != LLM_PIECE_WEIGHT || s->layer == last[shared]) continue;
        last[shared] = s->layer;
        of.at += s->layer < p->spec->layer || (s->layer == p->spec->layer && shared < second);
    }
    return of;
}

static enum llm_dtype values_type(const struct llm_quant_type *t, struct place l, int64_t gqa, int64_t experts)
{
    enum llm_dtype type = t->dtype;
    switch (t->mix) {
    case LLM_MIX_Q2_K: type = gqa >= 4 ? LLM_Q4_K : LLM_Q3_K; break;
    case LLM_MIX_Q2_K_S: type = gqa >= 4 ? LLM_Q4_K : type; break;
    case LLM_MIX_Q3_K_M: type = l.at < 2 ? LLM_Q5_K : LLM_Q4_K; break;
    case LLM_MIX_Q3_K_L: type = LLM_Q5_K; break;
    case LLM_MIX_IQ4_XS: type = gqa >= 4 ? LLM_Q5_K : type; break;
    case LLM_MIX_Q4_K_S: type = l.at < 4 ? LLM_Q5_K : type; break;
    case LLM_MIX_Q4_K_M:
    case LLM_MIX_Q5_K_M: type = more_bits(l.at, l.n) ? LLM_Q6_K : type; break;
    default: break;
    }
    return experts == 8 ? LLM_Q8_0 : type;
}

static enum llm_dtype down_type(const struct llm_quant_type *t, bool importances, struct place l)
{
    switch (t->mix) {
    case LLM_MIX_Q2_K: return LLM_Q3_K;
    case LLM_MIX_Q2_K_S: return l.at < l.n / 8 ? LLM_Q4_K : t->dtype;
    case LLM_MIX_Q3_K_M: return l.at < l.n / 16 ? LLM_Q5_K : LLM_Q4_K;
    case LLM_MIX_Q3_K_L: return LLM_Q5_K;
    case LLM_MIX_Q4_K_S: return l.at < l.n / 8 ? LLM_Q5_K : t->dtype;
    case LLM_MIX_Q4_K_M:
    case LLM_MIX_Q5_K_M: return more_bits(l.at, l.n) ? LLM_Q6_K : t->dtype;
    case LLM_MIX_IQ4_XS: return l.at < l.n / 8 && !importances ? LLM_Q5_K : t->dtype;
    default: return t->dtype;
    }
}

static enum llm_dtype out_type(const struct llm_quant_type *t, int64_t experts)
{
    bool small = t->mix == LLM_MIX_Q2_K || t->mix == LLM_MIX_Q3_K_S || t->mix == LLM_MIX_Q3_K_M || t->mix == LLM_MIX_Q4_K_S
        || t->mix == LLM_MIX_Q4_K_M || t->mix == LLM_MIX_IQ4_XS;
    if (experts == 8) return small ? LLM_Q5_K : t->dtype;
    return t->mix == LLM_MIX_Q2_K ? LLM_Q3_K : t->mix == LLM_MIX_Q3_K_M ? LLM_Q4_K : t->mix == LLM_MIX_Q3_K_L ? LLM_Q5_K : t->dtype;
}

static enum llm_dtype fused_type(const struct llm_quant_type *t)
{
    switch (t->mix) {
    case LLM_MIX_Q3_K_M:
    case LLM_MIX_Q3_K_L: return LLM_Q4_K;
    case LLM_MIX_Q4_K_M: return LLM_Q5_K;
    case LLM_MIX_Q5_K_M: return LLM_Q6_K;
    default: return t->dtype;
    }
}

/* The mixes whose main type is a grid type of 2 bits: what they give to matrices that need more. */
static enum llm_dtype two_bits_type(const struct llm_quant_type *t, const struct llm_model *m, const struct llm_param *p, int64_t gqa)
{
    const enum llm_dtype more = t->mix == LLM_MIX_IQ2_XS ? LLM_Q2_K : LLM_IQ3_S;
    const int64_t experts = m->config.num_experts;
    const struct place l = down_place_of(m, p);
    switch (p->spec->stem) {
    case LLM_STEM_EMBED: return more;
    case LLM_STEM_V:
    case LLM_STEM_KV_B: return gqa >= 4 || experts >= 4 ? LLM_Q4_K : more;
    case LLM_STEM_K: return experts == 8 ? LLM_Q4_K : t->dtype;
    case LLM_STEM_OUT: return experts == 8 ? LLM_Q5_K : t->mix == LLM_MIX_IQ2_XS ? t->dtype : more;
    case LLM_STEM_DOWN:
    case LLM_STEM_EXPERT_DOWN:
    case LLM_STEM_SHARED_DOWN: return l.at < l.n / 8 ? more : t->dtype;
    default: return t->dtype;
    }
}

/* Those of 3 bits. */
static enum llm_dtype three_bits_type(const struct llm_quant_type *t, bool importances, const struct llm_model *m, const struct llm_param *p,
                                      int64_t gqa)
{
    const enum llm_quant_mix mix = t->mix;
    const int64_t experts = m->config.num_experts;
    const struct place l = feed_forward_place_of(m, p);
    const enum llm_dtype fewer = mix == LLM_MIX_IQ3_XS ? LLM_IQ3_XXS : mix == LLM_MIX_IQ3_XXS ? LLM_IQ2_S : t->dtype;
    switch (p->spec->stem) {
    case LLM_STEM_EMBED: return LLM_IQ3_S;
    case LLM_STEM_V:
    case LLM_STEM_KV_B:
        if (experts == 8) return LLM_Q8_0;
        return mix == LLM_MIX_IQ3_M || gqa >= 4 ? LLM_Q4_K : mix == LLM_MIX_IQ3_XXS && importances ? LLM_IQ3_XXS : LLM_IQ3_S;
    case LLM_STEM_K: return experts == 8 ? LLM_Q8_0 : fewer;
    case LLM_STEM_Q: return fewer;
    case LLM_STEM_QKV: return mix == LLM_MIX_IQ3_M ? LLM_Q4_K : t->dtype;
    case LLM_STEM_OUT: return experts == 8 ? LLM_Q5_K : mix == LLM_MIX_IQ3_M ? LLM_Q4_K : LLM_IQ3_S;
    case LLM_STEM_DOWN:
    case LLM_STEM_EXPERT_DOWN:
    case LLM_STEM_SHARED_DOWN:
        if (mix == LLM_MIX_IQ3_XXS && !importances) return l.at < l.n / 8 ? LLM_Q4_K : LLM_Q3_K;
        return mix == LLM_MIX_IQ3_M && (l.at < l.n / 8 || (experts == 8 && more_bits(l.at, l.n))) ? LLM_Q4_K : t->dtype;
    case LLM_STEM_GATE:
    case LLM_STEM_UP:
    case LLM_STEM_GATE_UP:
    case LLM_STEM_EXPERT_GATE:
    case LLM_STEM_EXPERT_UP:
    case LLM_STEM_SHARED_GATE:
    case LLM_STEM_SHARED_UP: return mix == LLM_MIX_IQ3_XS && l.at >= l.n / 8 && l.at < 7 * l.n / 8 ? LLM_IQ3_XXS : t->dtype;
    default: return t->dtype;
    }
}

enum llm_dtype llm_mix_type(const struct llm_quant_type *type, bool importances, const struct llm_model *m, const struct llm_param *p)
{
    const struct llm_config *c = &m->config;
    int64_t gqa = c->num_key_value_heads > 0 ? c->num_attention_heads / c->num_key_value_heads : 1;
    if (type->mix == LLM_MIX_NONE) return type->dtype;
    bool head = p == llm_model_head(m);
    const bool two = type->mix == LLM_MIX_IQ2_M || type->mix == LLM_MIX_IQ2_S || type->mix == LLM_MIX_IQ2_XS;
    const bool three = type->mix == LLM_MIX_IQ3_M || type->mix == LLM_MIX_IQ3_S || type->mix == LLM_MIX_IQ3_XS || type->mix == LLM_MIX_IQ3_XXS;
    if (head && p->weight.k % llm_dtypes[type->dtype].block_size) return LLM_Q8_0;
    if (head) return two || type->mix == LLM_MIX_IQ3_XXS ? LLM_Q5_K : LLM_Q6_K;
    if (p->spec->unit == LLM_UNIT_MAMBA || p->spec->unit == LLM_UNIT_MAMBA2) return type->dtype; /* none of the rules is for its matrices */
    if (two) return two_bits_type(type, m, p, gqa);
    if (three) return three_bits_type(type, importances, m, p, gqa);
    switch (p->spec->stem) {
    case LLM_STEM_V:
    case LLM_STEM_KV_B: return values_type(type, place_of(m, p), gqa, c->num_experts);
    case LLM_STEM_K: return c->num_experts == 8 ? LLM_Q8_0 : type->dtype;
    case LLM_STEM_QKV: return fused_type(type);
    case LLM_STEM_OUT: return out_type(type, c->num_experts);
    case LLM_STEM_DOWN:
    case LLM_STEM_EXPERT_DOWN:
    case LLM_STEM_SHARED_DOWN: return down_type(type, importances, feed_forward_place_of(m, p));
    default: return type->dtype;
    }
}

enum llm_dtype llm_quant_fallback(enum llm_dtype type, int64_t k)
{
    if (k % llm_dtypes[type].block_size == 0) return type;
    switch (type) {
    case LLM_Q2_K:
    case LLM_Q3_K: type = LLM_Q4_0; break;
    case LLM_IQ2_XS:
    case LLM_IQ2_S:
    case LLM_IQ3_XXS:
    case LLM_IQ3_S:
    case LLM_IQ4_XS: type = LLM_IQ4_NL; break;
    case LLM_Q4_K: type = LLM_Q5_0; break;
    case LLM_Q5_K: type = LLM_Q5_1; break;
    case LLM_Q6_K: type = LLM_Q8_0; break;
    default: return LLM_F16;
    }
    return k % llm_dtypes[type].block_size == 0 ? type : LLM_F16;
}

enum llm_dtype llm_quant_dense(enum llm_dtype type)
{
    return type == LLM_Q8_0_2OF4 ? LLM_Q8_0 : type == LLM_BF16_2OF4 ? LLM_BF16 : type;
}

bool llm_quant_is_inner(const struct llm_param *p)
{
    return p->n_dims > 1 && p->spec->layer >= 0 && p->role == LLM_ROLE_HIDDEN && !llm_mix_leaves(p);
}

bool llm_mix_leaves(const struct llm_param *p)
{
    const struct llm_param_spec *s = p->spec;
    return s->exact || s->stem == LLM_STEM_ROUTER || s->stem == LLM_STEM_POSITIONS || s->stem == LLM_STEM_TOKEN_TYPES || s->stem == LLM_STEM_DISTANCES
        || s->stem == LLM_STEM_CONV;
}
