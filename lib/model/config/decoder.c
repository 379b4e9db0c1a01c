/* What configurations of decoders have in common beyond their tables of keys: rotary positions, and which layers are local. */
#include <string.h>
#include "model/config/arch.h"

const struct llm_names llm_gguf_names = {
    .prefix = "", .embed = "token_embd", .positions = "position_embd", .layer = "blk.", .final_norm = "output_norm", .head = "output",
    .stem = {[LLM_STEM_Q] = "attn_q", [LLM_STEM_K] = "attn_k", [LLM_STEM_V] = "attn_v", [LLM_STEM_QKV] = "attn_qkv",
             [LLM_STEM_OUT] = "attn_output", [LLM_STEM_GATE] = "ffn_gate", [LLM_STEM_UP] = "ffn_up", [LLM_STEM_DOWN] = "ffn_down",
             [LLM_STEM_NORM_1] = "attn_norm", [LLM_STEM_NORM_2] = "ffn_norm", [LLM_STEM_POST_1] = "post_attention_norm",
             [LLM_STEM_POST_2] = "post_ffw_norm", [LLM_STEM_Q_NORM] = "attn_q_norm", [LLM_STEM_K_NORM] = "attn_k_norm",
             [LLM_STEM_GATE_UP] = "ffn_up", [LLM_STEM_ROUTER] = "ffn_gate_inp", [LLM_STEM_ROUTER_BIAS] = "exp_probs_b.bias",
             [LLM_STEM_EXPERT_GATE] = "ffn_gate_exps", [LLM_STEM_EXPERT_UP] = "ffn_up_exps", [LLM_STEM_EXPERT_DOWN] = "ffn_down_exps",
             [LLM_STEM_SHARED_GATE] = "ffn_gate_shexp", [LLM_STEM_SHARED_UP] = "ffn_up_shexp", [LLM_STEM_SHARED_DOWN] = "ffn_down_shexp",
             [LLM_STEM_Q_A] = "attn_q_a", [LLM_STEM_Q_A_NORM] = "attn_q_a_norm", [LLM_STEM_Q_B] = "attn_q_b", [LLM_STEM_KV_A] = "attn_kv_a_mqa",
             [LLM_STEM_KV_A_NORM] = "attn_kv_a_norm", [LLM_STEM_KV_B] = "attn_kv_b",
             [LLM_STEM_K_B] = "attn_k_b", [LLM_STEM_V_B] = "attn_v_b"}};

static void put_layer(llm_layer_set s, int64_t layer)
{
    s[layer / 64] |= (uint64_t)1 << layer % 64;
}

/* The object that says how RoPE is scaled, as transformers finds it; an empty one if none says anything. New reference; NULL: out of memory.
 * "rope_scaling" that says anything goes before all of "rope_parameters", base included. Only where local layers have a base of their own has
 * "rope_parameters" an object for each kind of layer; there flat ones say nothing, and "rope_scaling" changes members of that of global layers. */
static json_t *find_rope(const struct llm_config *c, const json_t *o)
{
    json_t *now = json_object_get(o, "rope_parameters"), *old = json_object_get(o, "rope_scaling");
    json_t *global = json_object_get(now, "full_attention"), *out;
    if (c->rope_local_theta == 0) return json_object_size(old) > 0 ? json_copy(old) : json_is_object(now) ? json_copy(now) : json_object();
    out = json_is_object(global) ? json_copy(global) : json_is_object(now) || json_is_object(old) ? json_pack("{s:s}", "rope_type", "default")
          : json_object();
    if (!out || (json_is_object(old) && json_object_update(out, old) < 0)) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* Reads what local layers have of their own: another base. */
static int read_local_rope(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const json_t *local = json_object_get(json_object_get(o, "rope_parameters"), "sliding_attention");
    struct llm_rope_scaling unused;
    if (c->rope_local_theta == 0 || !local || json_is_null(local)) return 0;
    if (llm_rope_scaling_from_json(&unused, &c->rope_local_theta, local, "rope_parameters.sliding_attention", e) < 0) return -1;
    if (unused.kind == LLM_ROPE_PLAIN) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "rope_parameters.sliding_attention: scaling of local layers is not supported");
}

/* Reads RoPE's base and scaling, which are in the object that find_rope finds, or else keys of `o`. */
static int read_rope(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *const names[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = json_object_get(o, names[i]);
        if (v && !json_is_null(v) && !json_is_object(v)) return llm_fail(e, EX_DATAERR, "%s: expected an object", names[i]);
    }
    json_t *r = find_rope(c, o);
    if (!r) return llm_no_memory(e, "configuration");
    const char *name = names[json_object_size(json_object_get(o, names[0])) == 0];
    int status = json_object_size(r) > 0 ? llm_rope_scaling_from_json(&c->rope_scaling, &c->rope_theta, r, name, e) : 0;
    if (status == 0 && !llm_config_ignores(llm_arch_find(c->model_type), "rope_parameters.partial_rotary_factor")) {
        status = llm_json_real(r, "partial_rotary_factor", &c->partial_rotary_factor, e);
    }
    json_decref(r);
    if (status < 0 || read_local_rope(c, o, e) < 0) return -1;
    if (c->rope_scaling.kind != LLM_ROPE_PLAIN && c->rope_local_theta == 0 /* what stands outside goes first, as in transformers */
        && llm_json_int(o, "original_max_position_embeddings", 1, 1 << 24, &c->rope_scaling.original_context, e) < 0) return -1;
    if (!(c->rope_theta >= 1 && c->rope_theta <= 1e12)) {
        return llm_fail(e, EX_DATAERR, "rope_theta: expected 1 to 1e12, found %g", c->rope_theta);
    }
    if (!(c->partial_rotary_factor > 0 && c->partial_rotary_factor <= 1)) {
        return llm_fail(e, EX_DATAERR, "partial_rotary_factor: expected above 0, at most 1, found %g", c->partial_rotary_factor);
    }
    if (c->rotary_dim == 0) c->rotary_dim = (int64_t)((double)c->head_dim * c->partial_rotary_factor);
    c->partial_rotary_factor = (double)c->rotary_dim / (double)c->head_dim;
    return 0;
}

/* Reads the sizes of dual chunk attention from Qwen2.5-1M's object "dual_chunk_attention_config", if there is one, and checks them. The toolkit's own
 * keys for them are in the table of keys. */
static int read_chunks(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const json_t *d = json_object_get(o, "dual_chunk_attention_config");
    if (json_is_object(d) && (llm_json_int(d, "chunk_size", 1, 1 << 24, &c->dual_chunk_size, e) < 0
                              || llm_json_int(d, "local_size", 0, 1 << 24, &c->dual_chunk_local, e) < 0)) {
        return llm_in(e, "dual_chunk_attention_config");
    }
    if (c->dual_chunk_size == 0) return 0;
    if (c->dual_chunk_local * 2 > c->dual_chunk_size) {
        return llm_fail(e, EX_DATAERR, "dual_chunk_local: expected at most half of dual_chunk_size (%lld), found %lld", (long long)c->dual_chunk_size,
                        (long long)c->dual_chunk_local);
    }
    if (c->kv_sharing == 1 && !c->attention_sinks && c->position == LLM_POSITION_ROPE) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "dual_chunk_size: expected rotary positions, keys of each layer's own and no sinks beside it");
}

static int read_no_rope(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const json_t *list = json_object_get(o, "no_rope_layers"); /* an entry per layer; despite the key's name 1 is a layer with positions */
    int64_t n = c->num_hidden_layers, every = c->no_rope_layer_interval;
    if (list && !json_is_null(list) && (!json_is_array(list) || (int64_t)json_array_size(list) != n)) {
        return llm_fail(e, EX_DATAERR, "no_rope_layers: expected %lld numbers, one a layer", (long long)n);
    }
    for (int64_t l = 0; l < n; l++) {
        const json_t *v = json_array_get(list, (size_t)l);
        if (v && !json_is_integer(v)) return llm_fail(e, EX_DATAERR, "no_rope_layers: expected 0 or 1");
        if (v ? json_integer_value(v) == 0 : every > 0 && (l + 1) % every == 0) put_layer(c->no_rope_layers, l);
    }
    return 0;
}

/* Whether a layer is local if the configuration has no list. */
static bool local_by_rule(const struct llm_config *c, int64_t layer)
{
    if (c->no_rope_layer_interval > 0) return llm_layer_in(c->no_rope_layers, layer);
    return c->sliding_window_pattern > 0 ? (layer + 1) % c->sliding_window_pattern != 0 : layer >= c->max_window_layers;
}

static int read_local(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const json_t *list = json_object_get(o, "layer_types");
    int64_t n = c->num_hidden_layers;
    bool any = false;
    if (!c->use_sliding_window) c->sliding_window = 0;
    if (list && !json_is_null(list) && (!json_is_array(list) || (int64_t)json_array_size(list) != n)) {
        return llm_fail(e, EX_DATAERR, "layer_types: expected %lld words, one a layer", (long long)n);
    }
    for (int64_t l = 0; l < n; l++) {
        const char *word = json_string_value(json_array_get(list, (size_t)l));
        bool local = local_by_rule(c, l);
        if (json_is_array(list)) {
            if (!word || (strcmp(word, "sliding_attention") != 0 && strcmp(word, "full_attention") != 0)) {
                return llm_fail(e, EX_DATAERR, "layer_types: expected sliding_attention or full_attention, found '%s'", word ? word : "no word");
            }
            local = word[0] == 's';
        }
        if (!local || c->sliding_window == 0) continue;
        put_layer(c->local_layers, l);
        any = true;
    }
    if (!any) c->sliding_window = 0;
    return 0;
}

int llm_decoder_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    if (c->num_key_value_heads == 0) c->num_key_value_heads = c->num_attention_heads;
    if (c->head_dim == 0) {
        if (c->hidden_size % c->num_attention_heads != 0) {
            return llm_fail(e, EX_DATAERR, "hidden_size: expected a multiple of num_attention_heads (%lld), found %lld",
                            (long long)c->num_attention_heads, (long long)c->hidden_size);
        }
        c->head_dim = c->hidden_size / c->num_attention_heads;
    }
    if (c->position == LLM_POSITION_ROPE && read_rope(c, o, e) < 0) return -1;
    if (read_chunks(c, o, e) < 0 || read_no_rope(c, o, e) < 0) return -1;
    return read_local(c, o, e);
}

/* Sets key `key` of `o` to a list with one entry per layer. */
static int set_list(json_t *o, const char *key, const struct llm_config *c, const llm_layer_set s, json_t *in, json_t *out)
{
    json_t *list = json_array();
    int failed = !list || !in || !out;
    for (int64_t l = 0; l < c->num_hidden_layers && !failed; l++) failed = json_array_append(list, llm_layer_in(s, l) ? in : out);
    json_decref(in);
    json_decref(out);
    return json_object_set_new(o, key, list) | failed;
}

int llm_decoder_extra(const struct llm_config *c, json_t *o)
{
    int failed = 0;
    int64_t n_local = 0, n_plain = 0;
    bool ruled = true;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        n_local += llm_layer_in(c->local_layers, l);
        ruled = ruled && llm_layer_in(c->local_layers, l) == local_by_rule(c, l);
        n_plain += llm_layer_in(c->no_rope_layers, l);
    }
    if (n_local > 0 && (!ruled || n_local < c->num_hidden_layers)) {
        failed |= set_list(o, "layer_types", c, c->local_layers, json_string("sliding_attention"), json_string("full_attention"));
    }
    if (n_plain > 0) failed |= set_list(o, "no_rope_layers", c, c->no_rope_layers, json_integer(0), json_integer(1));
    if (c->position == LLM_POSITION_ROPE && c->rope_scaling.kind != LLM_ROPE_PLAIN) {
        failed |= json_object_set_new(o, "rope_scaling", llm_rope_scaling_to_json(&c->rope_scaling));
        /* Where transformers looks for it: of Phi-3 nowhere else, and without it takes 4096. */
        bool outside = c->rope_scaling.kind == LLM_ROPE_LONGROPE && c->rope_scaling.original_context > 0;
        if (outside) failed |= json_object_set_new(o, "original_max_position_embeddings", json_integer(c->rope_scaling.original_context));
    }
    return failed ? -1 : 0;
}
