/* Adapters to other programs' files: PEFT's folder and llama.cpp's GGUF (formats/adapter.md). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/cli.h"
#include "io/gguf_write.h"
#include "model/config/arch.h"
#include "model/weights/gguf_names.h"
#include "model/weights/lora_internal.h"
#include "model/weights/names.h"

/* ---- tensors ---- */

static int append(struct llm_tensor_list *t, const struct llm_tensor_out *out, struct llm_err *e)
{
    if (llm_grow((void **)&t->v, &t->room, t->n + 1, sizeof *t->v, e) < 0) return -1;
    t->v[t->n++] = *out;
    return 0;
}

/* n floats as `type`, in memory that lives until the next description. */
static void *typed(struct llm_lora *l, const float *x, size_t n, enum llm_dtype type, struct llm_err *e)
{
    void *out = llm_lora_stage(l, llm_dtype_bytes(type, n), e);
    if (out) llm_dtypes[type].encode(x, out, n);
    return out;
}

/* The elements of p as floats [rows, cols] in the order of `order`, in memory of their own. NULL: see `e`. */
static float *ordered(const struct llm_model *m, const struct llm_param *p, const struct llm_param *matrix, enum llm_lora_order order,
                      struct llm_err *e)
{
    int64_t n = llm_param_count(p), rows = p->shape[0];
    float *x = llm_alloc((size_t)n, sizeof *x, p->name, e);
    if (!x) return NULL;
    llm_weight_decode(&p->weight, 0, n, x);
    if (!matrix || llm_lora_reorder(m, matrix, order, true, x, n / rows, e) == 0) return x;
    free(x);
    return NULL;
}

static int add(struct llm_lora *l, const char *name, const float *x, const struct llm_tensor_out *shape, enum llm_dtype type,
               struct llm_tensor_list *t, struct llm_err *e)
{
    struct llm_tensor_out out = *shape;
    size_t n = 1;
    for (int i = 0; i < out.n_dims; i++) n *= (size_t)out.shape[i];
    out.name = name;
    out.dtype = type;
    out.data = typed(l, x, n, type, e);
    return out.data ? append(t, &out, e) : -1;
}

int llm_lora_check_param(const struct llm_model *m, const struct llm_param *p, const struct llm_gguf_names *names, struct llm_err *e)
{
    const struct llm_param_spec *s = names ? names->specs[p - m->params] : NULL;
    if (!names && !llm_ends_with(p->name, ".weight")) {
        return llm_fail(e, EX_UNAVAILABLE, "'%s': expected the weight of a module, which PEFT can adapt", p->name);
    }
    if (names && !s) return llm_fail(e, EX_UNAVAILABLE, "'%s': expected a matrix that has a name in GGUF", p->name);
    if (s && s->stem == LLM_STEM_KV_B) return llm_fail(e, EX_UNAVAILABLE, "'%s': GGUF has this matrix in two halves", p->name);
    return 0;
}

/* ---- PEFT ---- */

/* The name of a tensor in PEFT's folder, `own` with the module as PEFT names it, in memory that lives until the next description. */
static const char *peft_name(struct llm_lora *l, const struct llm_model *m, const struct llm_param *p, const char *own, struct llm_err *e)
{
    char module[LLM_LORA_NAME], peft[LLM_LORA_NAME];
    llm_lora_module(p, module);
    llm_lora_peft_module(m, p, peft);
    if (strcmp(module, peft) == 0) return own;
    char *name = llm_lora_stage(l, LLM_LORA_NAME, e);
    if (name) snprintf(name, LLM_LORA_NAME, LLM_LORA_PREFIX "%.100s%.50s", peft, own + strlen(LLM_LORA_PREFIX) + strlen(module));
    return name;
}

/* Adds a parameter of the model as it is, in the layout of Hugging Face's weights. */
static int add_param(struct llm_lora *l, const struct llm_model *m, const struct llm_param *p, const char *name, enum llm_dtype type,
                     struct llm_tensor_list *t, struct llm_err *e)
{
    struct llm_tensor_out shape = {.n_dims = p->n_dims, .shape = {p->shape[0], p->shape[1], p->shape[2]}};
    if (p->spec->gain && llm_config_blank(m->arch).norm_gain_offset != m->config.norm_gain_offset) {
        return llm_fail(e, EX_UNAVAILABLE, "'%s': gains of this base are stored differently", p->name);
    }
    float *x = ordered(m, p, p, LLM_LORA_HF, e);
    if (x && p->spec->transposed && p->n_dims == 2) {
        float *transposed = llm_transposed(x, sizeof *x, p->shape[0], p->shape[1], e);
        free(x);
        x = transposed;
        shape.shape[0] = p->shape[1];
        shape.shape[1] = p->shape[0];
    }
    int r = x ? add(l, name, x, &shape, type, t, e) : -1;
    /* PEFT looks for the head beside an embedding to which it is tied. */
    if (r == 0 && p == llm_model_embedding(m) && llm_lora_ties(l, m)) {
        char *head = llm_lora_stage(l, LLM_LORA_NAME, e);
        if (head) snprintf(head, LLM_LORA_NAME, LLM_LORA_PREFIX "%s.weight", llm_lora_head(m));
        r = head ? add(l, head, x, &shape, type, t, e) : -1;
    }
    free(x);
    return r;
}

/* Adds a parameter that the adapter stores whole. Beside a pair it is a part of what PEFT calls the base layer; of a module that PEFT saves it
 * expects all parameters. */
static int add_whole(struct llm_lora *l, const struct llm_model *m, size_t i, enum llm_dtype type, struct llm_tensor_list *t, struct llm_err *e)
{
    const struct llm_param *p = l->whole[i];
    const bool is_bias = p->spec->piece == LLM_PIECE_BIAS;
    const struct llm_param *weight = is_bias ? llm_lora_beside(m, p, "weight") : p;
    const struct llm_param *bias = p->spec->piece == LLM_PIECE_WEIGHT ? llm_lora_beside(m, p, "bias") : NULL;
    const bool within = weight && llm_lora_pair_of(l, weight), rest = bias && !within && !llm_lora_is_whole(l, bias);
    char *name = rest || within ? llm_lora_stage(l, LLM_LORA_NAME, e) : l->whole_names[i];
    if (!name) return -1;
    if (within) {
        char module[LLM_LORA_NAME];
        llm_lora_peft_module(m, weight, module);
        snprintf(name, LLM_LORA_NAME, LLM_LORA_PREFIX "%.130s.base_layer.%s", module, is_bias ? "bias" : "weight");
    }
    if (rest) snprintf(name, LLM_LORA_NAME, LLM_LORA_PREFIX "%.150s", bias->name);
    if (rest && add_param(l, m, bias, name, type, t, e) < 0) return -1;
    const char *own = within ? name : peft_name(l, m, p, l->whole_names[i], e);
    return own ? add_param(l, m, p, own, type, t, e) : -1;
}

static int add_pair(struct llm_lora *l, const struct llm_model *m, const struct llm_lora_pair *q, enum llm_dtype type, struct llm_tensor_list *t,
                    struct llm_err *e)
{
    const struct llm_param *halves[] = {&q->a, &q->b, &q->magnitude};
    if (llm_lora_check_param(m, q->param, NULL, e) < 0) return -1;
    for (int i = 0; i < (l->dora ? 3 : 2); i++) {
        const struct llm_tensor_out shape = {.n_dims = halves[i]->n_dims, .shape = {halves[i]->shape[0], halves[i]->shape[1]}};
        float *x = ordered(m, halves[i], i ? q->param : NULL, LLM_LORA_HF, e);
        const char *name = peft_name(l, m, q->param, q->names[i], e);
        int r = x && name ? add(l, name, x, &shape, type, t, e) : -1;
        free(x);
        if (r < 0) return -1;
    }
    return 0;
}

static struct llm_output *open_in(const char *folder, const char *name, struct llm_err *e)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path) return llm_output_open(path, false, e);
    llm_fail(e, EX_CANTCREAT, "%s: name too long", folder);
    return NULL;
}

static int write_config(const struct llm_lora *l, const struct llm_model *m, struct llm_output *o, struct llm_err *e)
{
    struct llm_buf text = {0};
    json_t *config = llm_lora_config(l, m, e);
    int r = config ? llm_json_dump(config, &text, e) : -1;
    if (r == 0) r = llm_buf_put(&text, "\n", 1, e);
    if (r == 0) r = llm_output_write(o, text.p, text.n, e);
    json_decref(config);
    llm_buf_release(&text);
    return r;
}

int llm_lora_save_folder(struct llm_lora *l, const struct llm_model *m, const char *path, enum llm_dtype type, struct llm_err *e)
{
    struct llm_tensor_list t = {0};
    int r = 0;
    for (size_t i = 0; r == 0 && i < l->n_pairs; i++) r = add_pair(l, m, &l->pairs[i], type, &t, e);
    for (size_t i = 0; r == 0 && i < l->n_whole; i++) r = add_whole(l, m, i, type, &t, e);
    if (r == 0 && mkdir(path, 0777) < 0 && errno != EEXIST) r = llm_fail_errno(e, EX_CANTCREAT, "%s", path);
    struct llm_output *o[2] = {NULL, NULL};
    json_t *meta = json_pack("{s:s}", "format", "pt");
    const struct llm_checkpoint_options plain = {.kind = "adapter", .plain = true};
    if (r == 0 && !meta) r = llm_no_memory(e, "metadata");
    if (r == 0 && (!(o[0] = open_in(path, "adapter_model.safetensors", e)) || !(o[1] = open_in(path, "adapter_config.json", e)))) r = -1;
    if (r == 0) r = llm_checkpoint_write(o[0], meta, t.v, t.n, &plain, e);
    if (r == 0) r = write_config(l, m, o[1], e);
    if (r == 0) {
        r = llm_output_commit_all(o, 2, e);
    } else {
        llm_output_abandon(o[0]);
        llm_output_abandon(o[1]);
    }
    json_decref(meta);
    free(t.v);
    return r;
}

/* ---- GGUF ---- */

/* Whether specification k is of the GGUF tensor of s: it itself, or an expert of the same layer. */
static bool of_tensor(const struct llm_gguf_names *names, size_t k, const struct llm_param_spec *s)
{
    return s->n_parts ? llm_param_spec_stacked(&names->declared.specs[k], s) : &names->declared.specs[k] == s;
}

static const struct llm_lora_pair *pair_at(const struct llm_lora *l, const struct llm_gguf_names *names, size_t k)
{
    return llm_lora_pair_of(l, names->params[k]);
}

/* The pair of the highest rank among those of the GGUF tensor of s. NULL: it has none. */
static const struct llm_lora_pair *highest(const struct llm_lora *l, const struct llm_gguf_names *names, const struct llm_param_spec *s)
{
    const struct llm_lora_pair *found = NULL;
    for (size_t k = 0; k < names->declared.n; k++) {
        const struct llm_lora_pair *q = of_tensor(names, k, s) ? pair_at(l, names, k) : NULL;
        if (q && (!found || q->a.weight.n > found->a.weight.n)) found = q;
    }
    return found;
}

/* What b is multiplied by in a stack of `rank` so that readers, who scale all by gguf_alpha / rank, get its own scale. */
static double make_up(const struct llm_lora *l, const struct llm_lora_pair *q, int64_t rank)
{
    const double own = (double)q->a.weight.n, alpha = q->alpha > 0 ? q->alpha / l->alpha : 1;
    return alpha * ((double)rank / (l->rslora ? sqrt(own * (double)l->rank) : own));
}

/* One half of a pair as part of a stack of `rank`: rows of a, columns of b that its own rank lacks are zero. */
static int put_half(const struct llm_lora *l, const struct llm_model *m, const struct llm_lora_pair *q, bool b, int64_t rank, float *out,
                    struct llm_err *e)
{
    const int64_t own = q->a.weight.n;
    const double times = make_up(l, q, rank);
    float *x = ordered(m, b ? &q->b : &q->a, b ? q->param : NULL, LLM_LORA_GGUF, e);
    if (!x) return -1;
    if (!b || (own == rank && times == 1)) {
        memcpy(out, x, (size_t)llm_param_count(b ? &q->b : &q->a) * sizeof *x);
    } else {
        for (int64_t i = 0; i < q->param->weight.n; i++) {
            for (int64_t c = 0; c < own; c++) out[i * rank + c] = (float)((double)x[i * own + c] * times);
        }
    }
    free(x);
    return 0;
}

/* Adds the pairs of the GGUF tensor of s: one, or those of the experts of a layer, of which q has the highest rank. */
static int add_gguf(struct llm_lora *l, const struct llm_model *m, const struct llm_gguf_names *names, const struct llm_param_spec *s,
                    const struct llm_lora_pair *q, enum llm_dtype type, struct llm_tensor_list *t, struct llm_err *e)
{
    static const char *const ends[] = {".lora_a", ".lora_b"};
    const int64_t parts = s->n_parts ? s->n_parts : 1, rank = q->a.weight.n;
    for (int i = 0; i < 2; i++) {
        const struct llm_param *half = i ? &q->b : &q->a;
        const int64_t n = llm_param_count(half);
        float *all = llm_calloc((size_t)(parts * n), sizeof *all, s->name, e);
        int r = all ? 0 : -1;
        for (size_t k = 0; r == 0 && k < names->declared.n; k++) {
            const struct llm_lora_pair *part = of_tensor(names, k, s) ? pair_at(l, names, k) : NULL;
            if (part) r = put_half(l, m, part, i, rank, all + (s->n_parts ? names->declared.specs[k].part * n : 0), e);
        }
        struct llm_tensor_out shape = {.n_dims = s->n_parts ? 3 : 2, .shape = {half->shape[0], half->shape[1]}};
        if (s->n_parts) memcpy(shape.shape, (int64_t[]){parts, half->shape[0], half->shape[1]}, 3 * sizeof *shape.shape);
        char *name = r == 0 ? llm_lora_stage(l, LLM_LORA_NAME, e) : NULL;
        if (name) snprintf(name, LLM_LORA_NAME, "%.150s%s", s->name, ends[i]);
        r = name ? add(l, name, all, &shape, type, t, e) : -1;
        free(all);
        if (r < 0) return -1;
    }
    return 0;
}

/* alpha, of which readers make the scale alpha / rank. */
static double gguf_alpha(const struct llm_lora *l)
{
    return l->rslora ? l->alpha * sqrt((double)l->rank) : l->alpha;
}

static int list_gguf(struct llm_lora *l, const struct llm_model *m, const struct llm_gguf_names *names, enum llm_dtype type,
                     struct llm_tensor_list *t, struct llm_err *e)
{
    for (size_t i = 0; i < l->n_pairs; i++) {
        if (llm_lora_check_param(m, l->pairs[i].param, names, e) < 0) return -1;
    }
    for (size_t i = 0; i < names->declared.n; i++) {
        const struct llm_param_spec *s = &names->declared.specs[i];
        const struct llm_lora_pair *q = s->part == 0 ? highest(l, names, s) : NULL;
        if (q && add_gguf(l, m, names, s, q, type, t, e) < 0) return -1;
    }
    return 0;
}

static int put(void *arg, size_t i, struct llm_output *o, struct llm_err *e)
{
    const struct llm_tensor_list *t = arg;
    return llm_output_write(o, t->v[i].data, llm_gguf_bytes(&t->v[i]), e);
}

int llm_lora_save_gguf(struct llm_lora *l, struct llm_model *m, struct llm_output *o, enum llm_dtype type, struct llm_err *e)
{
    struct llm_gguf_names names = {.params = NULL};
    struct llm_tensor_list t = {0};
    struct llm_gguf_out values = {.err = e};
    if (l->n_whole > 0) return llm_fail(e, EX_UNAVAILABLE, "'%s': GGUF has no place for a parameter that an adapter stores whole", l->whole[0]->name);
    if (l->dora) return llm_fail(e, EX_UNAVAILABLE, "use_dora: GGUF has no place for magnitudes: llm-quantize --merge adds the adapter to its model");
    if (llm_gguf_names_of(&names, m, e) < 0) {
        llm_gguf_names_release(&names);
        return -1;
    }
    const char *family = llm_gguf_family(m->arch)->gguf;
    llm_gguf_put_str(&values, "general.architecture", family, strlen(family));
    llm_gguf_put_str(&values, "general.type", "adapter", 7);
    llm_gguf_put_u32(&values, "general.file_type", type == LLM_F32 ? 0 : type == LLM_F16 ? 1 : 32);
    llm_gguf_put_str(&values, "adapter.type", "lora", 4);
    llm_gguf_put_f32(&values, "adapter.lora.alpha", (float)gguf_alpha(l));
    int r = list_gguf(l, m, &names, type, &t, e);
    if (r == 0) r = llm_gguf_write(o, &values, t.v, t.n, put, &t, e);
    llm_gguf_names_release(&names);
    llm_gguf_out_release(&values);
    free(t.v);
    return r;
}

/* ---- .llm ---- */

int llm_lora_save(struct llm_lora *l, struct llm_model *m, struct llm_output *o, struct llm_err *e)
{
    struct llm_tensor_list t = {0};
    const struct llm_checkpoint_options opt = {.kind = "adapter", .planes = true};
    json_t *meta = json_object();
    int r = meta ? llm_lora_describe(l, m, meta, &t, e) : llm_no_memory(e, "metadata");
    if (r == 0) r = llm_checkpoint_write(o, meta, t.v, t.n, &opt, e);
    json_decref(meta);
    free(t.v);
    return r;
}
