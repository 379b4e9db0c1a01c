#include "model/config/rope_scaling.h"

#include <math.h>
#include <string.h>

static const char *const names[LLM_N_ROPE_SCALINGS] = {"default", "linear", "dynamic", "yarn", "llama3", "longrope"};

static int find_kind(const char *name, enum llm_rope_scaling_kind *kind, struct llm_err *e)
{
    if (strcmp(name, "su") == 0) name = "longrope"; /* its name in Phi-3's first files */
    for (int i = 0; i < LLM_N_ROPE_SCALINGS; i++) {
        if (strcmp(name, names[i]) == 0) {
            *kind = i;
            return 0;
        }
    }
    return llm_fail(e, EX_DATAERR, "rope_type: expected default, linear, dynamic, yarn, llama3 or longrope; found '%s'", name);
}

static int read_factors(const json_t *o, const char *key, float *out, int *n, struct llm_err *e)
{
    const json_t *list = json_object_get(o, key);
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count < 1 || count > LLM_MAX_ROTARY_PAIRS) {
        return llm_fail(e, EX_DATAERR, "%s: expected 1 to %d numbers", key, LLM_MAX_ROTARY_PAIRS);
    }
    if (*n && (int)count != *n) return llm_fail(e, EX_DATAERR, "%s: expected %d numbers, found %zu", key, *n, count);
    *n = (int)count;
    for (size_t i = 0; i < count; i++) {
        double v = json_number_value(json_array_get(list, i));
        if (!(v > 0 && v < 1e6)) return llm_fail(e, EX_DATAERR, "%s: expected numbers above 0", key);
        out[i] = (float)v;
    }
    return 0;
}

static int check(const struct llm_rope_scaling *s, struct llm_err *e)
{
    bool scaled = s->kind != LLM_ROPE_PLAIN && s->kind != LLM_ROPE_LONGROPE;
    const struct { const char *name; double value, least; } rows[] = {
        {"factor", s->factor, scaled ? 1e-6 : 0}, {"low_freq_factor", s->low_freq_factor, 1e-6}, {"high_freq_factor", s->high_freq_factor, 1e-6},
        {"beta_fast", s->beta_fast, 1e-6}, {"beta_slow", s->beta_slow, 1e-6}, {"attention_factor", s->attention_factor, 0},
        {"mscale", s->mscale, 0}, {"mscale_all_dim", s->mscale_all_dim, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!(rows[i].value >= rows[i].least && rows[i].value <= 1e6)) {
            return llm_fail(e, EX_DATAERR, "%s: expected %g to 1e6, found %g", rows[i].name, rows[i].least, rows[i].value);
        }
    }
    if (s->kind == LLM_ROPE_LLAMA3 && !(s->high_freq_factor > s->low_freq_factor)) {
        return llm_fail(e, EX_DATAERR, "high_freq_factor: expected above low_freq_factor (%g), found %g", s->low_freq_factor, s->high_freq_factor);
    }
    return 0;
}

const char *llm_rope_type(const json_t *o)
{
    const char *type = json_string_value(json_object_get(o, "rope_type"));
    return type ? type : json_string_value(json_object_get(o, "type"));
}

int llm_rope_scaling_from_json(struct llm_rope_scaling *s, double *theta, const json_t *o, const char *key, struct llm_err *e)
{
    const char *type = "default";
    *s = (struct llm_rope_scaling){.low_freq_factor = 1, .high_freq_factor = 4, .beta_fast = 32, .beta_slow = 1, .truncate = true};
    if (!json_is_object(o)) return llm_fail(e, EX_DATAERR, "%s: expected an object", key);
    const struct { const char *name; double *out; } reals[] = {
        {"rope_theta", theta}, {"factor", &s->factor}, {"low_freq_factor", &s->low_freq_factor}, {"high_freq_factor", &s->high_freq_factor},
        {"beta_fast", &s->beta_fast}, {"beta_slow", &s->beta_slow}, {"attention_factor", &s->attention_factor}, {"mscale", &s->mscale},
        {"mscale_all_dim", &s->mscale_all_dim}};
    int r = llm_json_str(o, "type", &type, e);
    if (r == 0) r = llm_json_str(o, "rope_type", &type, e);
    if (r == 0) r = find_kind(type, &s->kind, e);
    for (size_t i = 0; r == 0 && i < sizeof reals / sizeof *reals; i++) {
        if (!json_is_null(json_object_get(o, reals[i].name))) r = llm_json_real(o, reals[i].name, reals[i].out, e);
    }
    if (r == 0) r = llm_json_int(o, "original_max_position_embeddings", 1, 1 << 24, &s->original_context, e);
    if (r == 0) r = llm_json_bool(o, "truncate", &s->truncate, e);
    if (r == 0 && s->kind == LLM_ROPE_LONGROPE) r = read_factors(o, "short_factor", s->short_factors, &s->n_factors, e);
    if (r == 0 && s->kind == LLM_ROPE_LONGROPE) r = read_factors(o, "long_factor", s->long_factors, &s->n_factors, e);
    if (r == 0) r = check(s, e);
    if (s->kind == LLM_ROPE_PLAIN) *s = (struct llm_rope_scaling){.kind = LLM_ROPE_PLAIN}; /* no other field means anything */
    return r < 0 ? llm_in(e, "%s", key) : 0;
}

static int set_real(json_t *o, const char *key, double value)
{
    return json_object_set_new(o, key, json_real(value));
}

static int set_factors(json_t *o, const char *key, const float *v, int n)
{
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; i < n && !failed; i++) failed = json_array_append_new(list, json_real((double)v[i]));
    return json_object_set_new(o, key, list) | failed;
}

json_t *llm_rope_scaling_to_json(const struct llm_rope_scaling *s)
{
    json_t *o = json_pack("{s:s}", "rope_type", names[s->kind]);
    int failed = !o;
    if (o && s->factor > 0) failed |= set_real(o, "factor", s->factor);
    if (o && s->original_context) failed |= json_object_set_new(o, "original_max_position_embeddings", json_integer(s->original_context));
    if (o && s->attention_factor > 0) failed |= set_real(o, "attention_factor", s->attention_factor);
    if (o && s->kind == LLM_ROPE_LLAMA3) {
        failed |= set_real(o, "low_freq_factor", s->low_freq_factor) | set_real(o, "high_freq_factor", s->high_freq_factor);
    }
    if (o && s->kind == LLM_ROPE_YARN) {
        failed |= set_real(o, "beta_fast", s->beta_fast) | set_real(o, "beta_slow", s->beta_slow);
        failed |= json_object_set_new(o, "truncate", json_boolean(s->truncate));
        if (s->mscale > 0) failed |= set_real(o, "mscale", s->mscale);
        if (s->mscale_all_dim > 0) failed |= set_real(o, "mscale_all_dim", s->mscale_all_dim);
    }
    if (o && s->kind == LLM_ROPE_LONGROPE) {
        failed |= set_factors(o, "short_factor", s->short_factors, s->n_factors) | set_factors(o, "long_factor", s->long_factors, s->n_factors);
    }
    if (!failed) return o;
    json_decref(o);
    return NULL;
}

/* The (fractional) index of the channel pair that rotates `turns` times within `context` tokens (Peng et al. 2023, section 3.2). */
static double pair_of(double turns, double theta, int64_t rotary_dim, int64_t context)
{
    return (double)rotary_dim * log((double)context / (turns * 2 * 3.14159265358979323846)) / (2 * log(theta));
}

static double yarn_magnitude(double factor, double mscale)
{
    return factor <= 1 ? 1 : .1 * mscale * log(factor) + 1;
}

/* YaRN: frequencies of channels that rotate fewer than beta_slow times in the original context are divided by the factor, those that rotate more than
 * beta_fast times are kept, with a linear ramp between. */
static void yarn(const struct llm_rope_scaling *s, double theta, int64_t dim, int64_t original, float *inv_freq, float *magnitude)
{
    double low = pair_of(s->beta_fast, theta, dim, original), high = pair_of(s->beta_slow, theta, dim, original);
    if (s->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)dim - 1);
    if (low == high) high += .001;
    for (int64_t i = 0; i < dim / 2; i++) {
        double plain = pow(theta, -2.0 * (double)i / (double)dim), ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
        inv_freq[i] = (float)(plain / s->factor * ramp + plain * (1 - ramp));
    }
    if (s->attention_factor > 0) *magnitude = (float)s->attention_factor;
    else if (s->mscale > 0 && s->mscale_all_dim > 0) {
        *magnitude = (float)(yarn_magnitude(s->factor, s->mscale) / yarn_magnitude(s->factor, s->mscale_all_dim));
    } else *magnitude = (float)yarn_magnitude(s->factor, 1);
}

static double llama3(const struct llm_rope_scaling *s, double plain, int64_t original)
{
    double wave = 2 * 3.14159265358979323846 / plain, length = (double)original;
    if (wave > length / s->low_freq_factor) return plain / s->factor;
    if (wave < length / s->high_freq_factor) return plain;
    double smooth = (length / wave - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * plain / s->factor + smooth * plain;
}

void llm_rope_frequencies(const struct llm_rope_scaling *s, double theta, int64_t rotary_dim, int64_t context, int64_t max_context, float *inv_freq,
                          float *magnitude)
{
    int64_t original = s->original_context ? s->original_context : max_context;
    double dim = (double)rotary_dim;
    *magnitude = 1;
    if (s->kind == LLM_ROPE_YARN) {
        yarn(s, theta, rotary_dim, original, inv_freq, magnitude);
        return;
    }
    if (s->kind == LLM_ROPE_DYNAMIC && context > max_context) {
        theta *= pow(s->factor * (double)context / (double)max_context - (s->factor - 1), dim / (dim - 2));
    }
    for (int64_t i = 0; i < rotary_dim / 2; i++) {
        double plain = pow(theta, -2.0 * (double)i / dim);
        if (s->kind == LLM_ROPE_LINEAR) plain /= s->factor;
        if (s->kind == LLM_ROPE_LLAMA3) plain = llama3(s, plain, original);
        if (s->kind == LLM_ROPE_LONGROPE && i < s->n_factors) {
            plain /= (double)(context > original ? s->long_factors[i] : s->short_factors[i]);
        }
        inv_freq[i] = (float)plain;
    }
    if (s->kind != LLM_ROPE_LONGROPE) return;
    double factor = s->factor > 0 ? s->factor : (double)max_context / (double)original;
    if (s->attention_factor > 0) *magnitude = (float)s->attention_factor;
    else if (factor > 1) *magnitude = (float)sqrt(1 + log(factor) / log((double)original));
}

bool llm_rope_follows_context(const struct llm_rope_scaling *s)
{
    /* The one list of factors that GGUF files have for llama3 is read as longrope with twice the same list. */
    return s->kind == LLM_ROPE_DYNAMIC
           || (s->kind == LLM_ROPE_LONGROPE && memcmp(s->short_factors, s->long_factors, (size_t)s->n_factors * sizeof *s->short_factors) != 0);
}

int64_t llm_rope_default_context(const struct llm_rope_scaling *s, int64_t max_context)
{
    bool shorter = s->kind == LLM_ROPE_LONGROPE && llm_rope_follows_context(s) && s->original_context > 0 && s->original_context < max_context;
    return shorter ? s->original_context : max_context;
}

bool llm_rope_same_context(const struct llm_rope_scaling *s, int64_t a, int64_t b, int64_t max_context)
{
    int64_t original = s->original_context ? s->original_context : max_context;
    if (!llm_rope_follows_context(s)) return true;
    if (s->kind == LLM_ROPE_LONGROPE) return (a > original) == (b > original);
    return a == b || (a <= max_context && b <= max_context);
}
