/* llama.cpp's mmproj files: the vision tower and the projector of a model whose language model is in a GGUF file of its own. */
#include <stdio.h>
#include <string.h>
#include "model/config/gguf.h"

#define TOWER(fc1, fc2, ...) \
    {.prefix = "v.", .embed = "class_embd", .patches = "patch_embd", .positions = "position_embd", .embed_norm = "pre_ln", .layer = "blk.", \
     .final_norm = "post_ln", .newline = "model.image_newline", .projector = {__VA_ARGS__}, \
     .stem = {[LLM_STEM_Q] = "attn_q", [LLM_STEM_K] = "attn_k", [LLM_STEM_V] = "attn_v", [LLM_STEM_OUT] = "attn_out", [LLM_STEM_NORM_1] = "ln1", \
              [LLM_STEM_UP] = fc1, [LLM_STEM_DOWN] = fc2, [LLM_STEM_NORM_2] = "ln2"}}

const struct llm_names *llm_gguf_vision_names(const struct llm_config *c)
{
    static const struct llm_names names[2][2] = {
        {TOWER("ffn_up", "ffn_down", "mm.0", "mm.2"), TOWER("ffn_down", "ffn_up", "mm.0", "mm.2")},
        {TOWER("ffn_up", "ffn_down", "mm.model.fc", NULL), TOWER("ffn_down", "ffn_up", "mm.model.fc", NULL)}};
    return &names[c->projector.shuffle > 0][c->vision.fc_swapped];
}

static bool is(const char *text, size_t n, const char *word) { return text && strlen(word) == n && memcmp(text, word, n) == 0; }

static int read_tower(struct llm_vision *v, const struct llm_gguf *g, struct llm_err *e)
{
    const struct { const char *key; int64_t *to, max; } wholes[] = {
        {"clip.vision.image_size", &v->image_size, 1 << 14}, {"clip.vision.patch_size", &v->patch_size, 1 << 10},
        {"clip.vision.embedding_length", &v->hidden_size, 1 << 20}, {"clip.vision.feed_forward_length", &v->intermediate_size, 1 << 22},
        {"clip.vision.block_count", &v->num_hidden_layers, LLM_MAX_LAYERS},
        {"clip.vision.attention.head_count", &v->num_attention_heads, 1 << 14}};
    *v = (struct llm_vision){.num_channels = 3, .norm_eps = -1};
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
        if (llm_gguf_int(g, wholes[i].key, 1, wholes[i].max, wholes[i].to, e) < 0) return -1;
        if (*wholes[i].to == 0) return llm_fail(e, EX_DATAERR, "%s: expected a number, found none", wholes[i].key);
    }
    if (llm_gguf_real(g, "clip.vision.attention.layer_norm_epsilon", &v->norm_eps, e) < 0) return -1;
    if (v->norm_eps >= 0 && v->norm_eps <= 1) return 0;
    return llm_fail(e, EX_DATAERR, "clip.vision.attention.layer_norm_epsilon: expected a number from 0 to 1, found %s",
                    v->norm_eps < 0 ? "none" : "another");
}

/* A list of integers, of at most `room`. Returns how many there are; 0: none; -1: see `e`. */
static int64_t read_list(const struct llm_gguf *g, const char *key, int64_t *out, int64_t room, struct llm_err *e)
{
    const struct llm_gguf_value *v = llm_gguf_find(g, key);
    if (!v) return 0;
    const bool whole = v->type != LLM_GGUF_STRING && v->type != LLM_GGUF_F32 && v->type != LLM_GGUF_F64 && v->type != LLM_GGUF_BOOL;
    if (!whole || v->n < 1 || v->n > (uint64_t)room) return llm_fail(e, EX_DATAERR, "%s: expected 1 to %d integers, found another", key, (int)room);
    for (uint64_t i = 0; i < v->n; i++) out[i] = llm_gguf_whole(v, i);
    return (int64_t)v->n;
}

/* LLaVA 1.5, or NeXT if there is the vector that ends rows. Files without feature_layer have no layer after the one that is chosen. */
static int read_llava(struct llm_config *c, const struct llm_gguf *g, const struct llm_model_files *files, struct llm_err *e)
{
    struct llm_checkpoint *f;
    bool gelu = false, silu = false;
    int64_t layer[1], grids[2 * LLM_MAX_GRIDS];
    c->projector = (struct llm_projector){.feature_layer = -1, .act = LLM_ACT_GELU, .bias = true};
    if (llm_gguf_bool(g, "clip.use_gelu", &gelu, e) < 0 || llm_gguf_bool(g, "clip.use_silu", &silu, e) < 0) return -1;
    c->vision.act = gelu ? LLM_ACT_GELU : silu ? LLM_ACT_SILU : LLM_ACT_QUICK_GELU;
    c->vision.no_final_norm = !llm_model_files_find(files, "v.post_ln.weight", &f);
    const int64_t n_layers = read_list(g, "clip.vision.feature_layer", layer, 1, e);
    if (n_layers < 0) return -1;
    if (n_layers > 0) c->projector.feature_layer = layer[0];
    memcpy(c->model_type, "llava", sizeof "llava");
    if (!llm_model_files_find(files, "model.image_newline", &f)) return 0;
    const int64_t n = read_list(g, "clip.vision.image_grid_pinpoints", grids, 2 * LLM_MAX_GRIDS, e);
    if (n < 0) return -1;
    if (n == 0 || n % 2 != 0) return llm_fail(e, EX_DATAERR, "clip.vision.image_grid_pinpoints: expected pairs of integers, found none");
    c->projector.n_grids = n / 2;
    memcpy(c->projector.grids, grids, (size_t)n * sizeof *grids);
    memcpy(c->model_type, "llava_next", sizeof "llava_next");
    return 0;
}

static int read_idefics3(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e)
{
    c->projector = (struct llm_projector){.feature_layer = -1};
    c->vision.act = LLM_ACT_GELU_TANH;
    c->vision.patches_only = true;
    memcpy(c->model_type, "idefics3", sizeof "idefics3");
    if (llm_gguf_int(g, "clip.vision.projector.scale_factor", 1, 64, &c->projector.shuffle, e) < 0) return -1;
    return c->projector.shuffle > 0 ? 0 : llm_fail(e, EX_DATAERR, "clip.vision.projector.scale_factor: expected a number, found none");
}

/* Files of an older converter call the first matrix of a feed-forward part "ffn_down". Where it is square only LLaVA's are that old. */
static bool is_swapped(const struct llm_config *c, const struct llm_model_files *files, bool llava)
{
    const int64_t width = c->vision.hidden_size, inner = c->vision.intermediate_size;
    struct llm_checkpoint *f;
    const struct llm_entry *down = llm_model_files_find(files, "v.blk.0.ffn_down.weight", &f);
    return down && down->n_dims == 2 && down->shape[1] == width && down->shape[0] == inner && (llava || width != inner);
}

int llm_gguf_mmproj(struct llm_config *c, const struct llm_gguf *g, const struct llm_model_files *files, struct llm_err *e)
{
    const char *architecture = NULL, *type = NULL;
    size_t n = 0, n_type = 0;
    if (llm_gguf_str(g, "general.architecture", &architecture, &n, e) < 0 || llm_gguf_str(g, "clip.projector_type", &type, &n_type, e) < 0) return -1;
    if (!is(architecture, n, "clip")) {
        return llm_fail(e, EX_DATAERR, "general.architecture: expected clip (llama.cpp's mmproj), found %.*s",
                        architecture ? (int)(n < 64 ? n : 64) : 4, architecture ? architecture : "none");
    }
    if (strcmp(c->model_type, "llama") != 0) {
        return llm_fail(e, EX_UNAVAILABLE, "expected a language model of family llama beside it, found %s", c->model_type);
    }
    const bool llava = !type || is(type, n_type, "mlp");
    if (!llava && !is(type, n_type, "idefics3"))
        return llm_fail(e, EX_UNAVAILABLE, "clip.projector_type: expected mlp or idefics3, found %.*s", (int)(n_type < 64 ? n_type : 64), type);
    if (read_tower(&c->vision, g, e) < 0 || (llava ? read_llava(c, g, files, e) : read_idefics3(c, g, e)) < 0) return -1;
    c->vision.fc_swapped = is_swapped(c, files, llava);
    return 0;
}

static int put_colours(json_t *o, const char *key, const struct llm_gguf *g, const char *from, struct llm_err *e)
{
    const struct llm_gguf_value *v = llm_gguf_find(g, from);
    if (!v) return 0;
    if (v->n != 3 || (v->type != LLM_GGUF_F32 && v->type != LLM_GGUF_F64))
        return llm_fail(e, EX_DATAERR, "%s: expected 3 numbers, found another", from);
    json_t *list = json_pack("[f,f,f]", llm_gguf_number(v, 0), llm_gguf_number(v, 1), llm_gguf_number(v, 2));
    return json_object_set_new(o, key, list) == 0 ? 0 : llm_no_memory(e, "a preprocessor");
}

int llm_gguf_preprocessor(json_t *o, const struct llm_config *c, const struct llm_gguf *g, struct llm_err *e)
{
    int64_t longest = 0;
    if (put_colours(o, "image_mean", g, "clip.vision.image_mean", e) < 0 || put_colours(o, "image_std", g, "clip.vision.image_std", e) < 0
        || llm_gguf_int(g, "clip.vision.preproc_image_size", 1, 1 << 16, &longest, e) < 0) return -1;
    if (c->projector.shuffle == 0 || longest == 0) return 0;
    return json_object_set_new(o, "size", json_pack("{s:I}", "longest_edge", (json_int_t)longest)) == 0 ? 0 : llm_no_memory(e, "a preprocessor");
}
