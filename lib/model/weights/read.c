/* Parameters from files: found by name, checked against their declarations, and mapped or read. Matrices that a file keeps as [in, out] are
 * transposed to [out, in] here (save.c does the opposite); quantised matrices are always [out, in], whose rows are whole blocks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/weights/gguf_latent.h"
#include "model/weights/names.h"
#include "model/weights/open.h"

static void shape_text(const int64_t *shape, int n_dims, char *out, size_t n)
{
    size_t used = (size_t)snprintf(out, n, "[");
    for (int i = 0; i < n_dims && used < n; i++) used += (size_t)snprintf(out + used, n - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (used < n) snprintf(out + used, n - used, "]");
}

/* Checks the shape of a file's tensor against the parameter's; *transposed: the file has it as [in, out]. 0 or -1. */
static int check_shape(const struct llm_param_spec *s, const struct llm_entry *t, bool *transposed, struct llm_err *e)
{
    const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
    char want[64], found[64];
    if (!row->is_float && !row->is_quantised) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected floating point or quantised values, found %s", t->name, row->name);
    }
    if (row->is_quantised && (s->n_dims < 2 || s->blocks)) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected floating point, found %s", t->name, row->name);
    }
    *transposed = s->transposed && !row->is_quantised;
    if (s->file_dims && t->n_dims == s->file_dims && memcmp(t->shape, s->file_shape, (size_t)s->file_dims * sizeof *s->file_shape) == 0) return 0;
    if (s->scalar && t->n_dims == 0) return 0;
    int64_t shape[2] = {s->shape[*transposed ? 1 : 0], s->shape[*transposed ? 0 : 1]};
    if (s->middle && t->n_dims == 3 && t->shape[0] == s->shape[0] && t->shape[1] == 1 && t->shape[2] == s->shape[1]) return 0;
    if (!s->middle && !s->n_parts && t->n_dims == s->n_dims && t->shape[0] == shape[0] && (s->n_dims == 1 || t->shape[1] == shape[1])) return 0;
    shape_text(s->file_dims ? s->file_shape : shape, s->file_dims ? s->file_dims : s->n_dims, want, sizeof want);
    shape_text(t->shape, t->n_dims, found, sizeof found);
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected %s (%s), found %s", t->name, want, s->dims, found);
}

/* A malloced copy of a parameter's data, each of its blocks transposed. NULL: out of memory. */
static void *transposed_blocks(const struct llm_param_spec *s, const char *data, size_t bytes, size_t element, struct llm_err *e)
{
    if (s->blocks == 0) return llm_transposed(data, element, s->shape[1], s->shape[0], e);
    char *out = llm_alloc(bytes, 1, s->name, e), *block;
    const size_t size = bytes / (size_t)s->blocks;
    for (size_t at = 0; out && at < bytes; at += size) {
        block = llm_transposed(data + at, element, s->shape[1], s->shape[0] / s->blocks, e);
        if (block) {
            memcpy(out + at, block, size);
        } else {
            free(out);
            out = NULL;
        }
        free(block);
    }
    return out;
}

/* A malloced copy of a parameter's data in the model's layout, from the layout of the file. NULL: out of memory. */
static void *rearrange(const struct llm_config *c, const struct llm_param_spec *s, void *data, size_t bytes, size_t element, struct llm_err *e)
{
    void *out;
    if (s->by_head) {
        out = llm_alloc_huge(bytes, 1, s->name, e);
        if (out) llm_rows_by_head(c, data, bytes / (size_t)s->shape[0], false, out);
    } else {
        out = transposed_blocks(s, data, bytes, element, e);
    }
    free(data);
    return out;
}

/* Replaces -exp(x), as GGUF files have decays of state-space layers, by x. 0, or -1 if an element is not negative. */
static int undo_minus_exp(const struct llm_entry *t, float *x, size_t n, struct llm_err *e)
{
    if (t->dtype != LLM_F32) return llm_fail(e, EX_DATAERR, "tensor '%s': expected f32, found %s", t->name, llm_dtypes[t->dtype].name);
    for (size_t i = 0; i < n; i++) {
        if (!(x[i] < 0)) return llm_fail(e, EX_DATAERR, "tensor '%s': expected numbers below 0", t->name);
        x[i] = (float)log(-(double)x[i]);
    }
    return 0;
}

/* Replaces e^(-e^x), as files of rwkv.cpp have decays of RWKV 5, by x, after moving 0 and 1, to which extreme x are rounded, to the numbers next to
 * them. 0, or -1 if an element is not within 0 and 1. */
static int undo_exp_minus_exp(const struct llm_entry *t, float *x, size_t n, struct llm_err *e)
{
    if (t->dtype != LLM_F32) return llm_fail(e, EX_DATAERR, "tensor '%s': expected f32, found %s", t->name, llm_dtypes[t->dtype].name);
    for (size_t i = 0; i < n; i++) {
        if (!(x[i] >= 0 && x[i] <= 1)) return llm_fail(e, EX_DATAERR, "tensor '%s': expected numbers from 0 to 1", t->name);
        x[i] = (float)log(-log(fmin(fmax((double)x[i], 0x1p-149), 1 - 0x1p-25)));
    }
    return 0;
}

/* Parameters up to this size are copied instead of mapped: a mapped page would keep its neighbours in the file in memory, too. */
enum { FEW_BYTES = 16 << 10 };
/* A parameter that is not mapped: its bytes are read together with all others', then rearranged. */
struct wanted { size_t param; struct llm_checkpoint *file; const struct llm_entry *entry; bool transposed; };
struct loading { struct wanted *v; size_t n; };

/* Points the parameter at its data in the file's mapping, or allocates memory for them and adds the parameter to the list of those to be read. */
static int place_param(struct loading *l, const struct llm_param_spec *s, struct llm_param *p, struct wanted w, struct llm_err *e)
{
    const struct llm_entry *t = w.entry;
    if (check_shape(s, t, &w.transposed, e) < 0) return -1;
    size_t bytes = llm_dtype_bytes(t->dtype, (uint64_t)llm_param_count(p));
    if (llm_dtypes[t->dtype].is_quantised && s->shape[1] % llm_dtypes[t->dtype].block_size != 0) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected rows of whole blocks of %d, found %lld", t->name, llm_dtypes[t->dtype].block_size,
                        (long long)s->shape[1]);
    }
    p->weight.dtype = t->dtype;
    const char *mapped = llm_checkpoint_borrow(w.file, t);
    if (mapped && s->n_parts) mapped += (size_t)s->part * bytes;
    if (mapped && (bytes > FEW_BYTES || s->n_parts) && !w.transposed && !s->by_head && !s->minus_exp
        && !s->exp_minus_exp) {
        p->weight.data = mapped;
        llm_checkpoint_mapping(w.file, &p->weight.map, &p->weight.map_end);
        return 0;
    }
    p->weight.data = llm_alloc_huge(bytes, 1, t->name, e);
    if (!p->weight.data) return -1;
    p->owned = true;
    l->v[l->n++] = w;
    return 0;
}

static int fit_param(struct llm_model *m, const struct llm_declare *d, const struct wanted *w, struct llm_err *e)
{
    const struct llm_param_spec *s = &d->specs[w->param];
    struct llm_param *p = &m->params[w->param];
    if (s->minus_exp && undo_minus_exp(w->entry, (float *)p->weight.data, (size_t)llm_param_count(p), e) < 0) return -1;
    if (s->exp_minus_exp && undo_exp_minus_exp(w->entry, (float *)p->weight.data, (size_t)llm_param_count(p), e) < 0) return -1;
    if (!w->transposed && !s->by_head) return 0;
    size_t bytes = llm_dtype_bytes(w->entry->dtype, (uint64_t)llm_param_count(p));
    p->weight.data = rearrange(&m->config, s, (void *)p->weight.data, bytes, (size_t)llm_dtypes[w->entry->dtype].block_bytes, e);
    p->owned = p->weight.data != NULL;
    return p->owned ? 0 : -1;
}

static struct { void (*call)(void *arg, struct llm_param *p); void *arg; } on_read;

void llm_model_on_read(void (*read)(void *arg, struct llm_param *p), void *arg)
{
    on_read.call = read;
    on_read.arg = arg;
}

enum { TOGETHER = 4 << 20 }; /* bytes of tensors that are read together if their data may be moved before the next are read: a frame */

/* Reads and rearranges all parameters of the list, those of the same file in one call, or few at a time. */
static int read_wanted(struct llm_model *m, const struct llm_declare *d, const struct loading *l, struct llm_err *e)
{
    struct llm_wanted *run = llm_calloc(l->n, sizeof *run, "model", e);
    int r = run ? 0 : -1;
    for (size_t i = 0, n; i < l->n && r == 0; i += n) {
        uint64_t bytes = 0;
        for (n = 0; i + n < l->n && l->v[i + n].file == l->v[i].file && (!on_read.call || bytes < TOGETHER); n++) {
            run[n] = (struct llm_wanted){l->v[i + n].entry, (void *)m->params[l->v[i + n].param].weight.data};
            bytes += run[n].entry->bytes;
        }
        r = llm_checkpoint_read_many(l->v[i].file, run, n, e);
        for (size_t k = i; k < i + n && r == 0; k++) {
            r = fit_param(m, d, &l->v[k], e);
            if (r == 0 && on_read.call) on_read.call(on_read.arg, &m->params[l->v[k].param]);
        }
    }
    free(run);
    return r;
}

/* Alternative k (from 1) of a name of a family that lists other beginnings. NULL: there are fewer. */
static const char *renamed(const struct llm_arch *arch, const char *name, int k, char text[128])
{
    for (const struct llm_rename *r = arch->renamed; r->ours; r++) {
        const size_t n = strlen(r->ours);
        if (strncmp(name, r->ours, n) != 0 || --k > 0) continue;
        snprintf(text, 128, "%s%s", r->theirs, name + n);
        return text;
    }
    return NULL;
}

/* Whether the name is that of the head's bias, which files may also have under the name of names.head_bias. */
static bool is_head_bias(const struct llm_names *names, const char *name)
{
    size_t n = strlen(names->head);
    return names->head_bias && strncmp(name, names->head, n) == 0 && strcmp(name + n, ".bias") == 0;
}

/* Alternative k (from 0) of a parameter's name in files: with or without the family's prefix, with "gamma" and "beta" in norms as old files have
 * them, with either name of the head's bias; or with other beginnings. NULL: there are only k. */
static const char *alias(const struct llm_model *m, const char *name, int k, char text[128])
{
    static const char *const suffixes[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
    size_t prefix = strlen(m->arch->names.prefix), n = strlen(name);
    bool prefixed = strncmp(name, m->arch->names.prefix, prefix) == 0;
    if (m->arch->renamed && k > 0) return renamed(m->arch, name, k, text);
    if (k > 3) return NULL;
    if (k < 2) return k == 0 || !prefixed ? name : name + prefix;
    if (k == 2 && is_head_bias(&m->arch->names, name)) {
        snprintf(text, 128, "%s.bias", m->arch->names.head_bias);
        return text;
    }
    for (size_t i = 0; i < 2; i++) {
        size_t old = strlen(suffixes[i][0]);
        if (n < old || strcmp(name + n - old, suffixes[i][0]) != 0) continue;
        snprintf(text, 128, "%.*s%s", (int)(n - old), name, suffixes[i][1]);
        return k == 2 || !prefixed ? text : text + prefix;
    }
    return NULL;
}

/* The entry of a parameter, by the first of its names that a file has, and that file. A tensor that two files have is refused. NULL: not found, or
 * see `e`. */
static const struct llm_entry *find_entry(const struct llm_model *m, const char *name, struct llm_checkpoint **file, struct llm_err *e)
{
    const struct llm_entry *found = NULL;
    const char *other;
    char text[128];
    for (int k = 0; !found && (other = alias(m, name, k, text)); k++) {
        for (size_t i = 0; i < m->n_files; i++) {
            const struct llm_entry *t = llm_header_find(llm_checkpoint_header(m->files[i]), other);
            if (!t) continue;
            if (found) {
                llm_fail(e, EX_DATAERR, "tensor '%s': expected once, found in %s and in %s", name, llm_checkpoint_name(*file),
                         llm_checkpoint_name(m->files[i]));
                return NULL;
            }
            found = t;
            *file = m->files[i];
        }
    }
    if (!found) {
        llm_fail(e, EX_DATAERR, "tensor '%s': expected by the configuration (%s, %lld layers), found none", name, m->config.model_type,
                 (long long)m->config.num_hidden_layers);
    }
    return found;
}

/* Whether a tensor of other programs' files is no parameter: masks and frequencies that follow from the configuration. */
static bool is_buffer(const struct llm_model *m, const char *name)
{
    static const char *const ends[] = {".attn.bias",   ".attn.masked_bias", ".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias",
                                       ".embed_tokens.weight", ".shared_head.head.weight", /* copies, of layers that predict further */
                                       "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (n >= strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0) return true;
    }
    for (size_t i = 0; m->arch->unused && m->arch->unused[i]; i++) {
        if (strncmp(name, m->arch->unused[i], strlen(m->arch->unused[i])) == 0) return true;
    }
    n = strlen(m->arch->names.head);
    if (strncmp(name, m->arch->names.head, n) != 0) return false;
    return (m->config.tie_word_embeddings && strcmp(name + n, ".weight") == 0) || (m->config.head_transform && strcmp(name + n, ".bias") == 0);
}

static bool is_ours(const char *name)
{
    return strncmp(name, LLM_NAME_TOKENIZER, strlen(LLM_NAME_TOKENIZER)) == 0 || strncmp(name, LLM_NAME_TRAINING, strlen(LLM_NAME_TRAINING)) == 0;
}

static bool is_declared(const struct llm_model *m, const struct llm_declare *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++) {
        char text[128];
        const char *other;
        if (d->gguf && llm_latent_is_half(&d->specs[i], name)) return true;
        for (int k = 0; (other = alias(m, d->specs[i].name, k, text)); k++) {
            if (strcmp(other, name) == 0) return true;
        }
    }
    return false;
}

static int check_extra(const struct llm_model *m, const struct llm_declare *d, const struct llm_header *h, struct llm_err *e)
{
    for (size_t i = 0; i < h->n_entries; i++) {
        const char *name = h->entries[i].name;
        if (is_ours(name) || is_buffer(m, name) || is_declared(m, d, name)) continue;
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected one of a %s of %lld layers, found one that the configuration does not have", name,
                        m->config.model_type, (long long)m->config.num_hidden_layers);
    }
    return 0;
}

/* Copies a parameter that is a part of a tensor and cannot be mapped. Such parts are few, so each is read by itself. */
static int copy_part(struct llm_model *m, const struct llm_declare *d, struct loading *l, struct llm_err *e)
{
    const struct wanted *w = &l->v[l->n - 1];
    const struct llm_param_spec *s = &d->specs[w->param];
    const struct llm_param *p = &m->params[w->param];
    uint64_t bytes = llm_dtype_bytes(w->entry->dtype, (uint64_t)llm_param_count(p));
    l->n--;
    return llm_checkpoint_read_part(w->file, w->entry, (uint64_t)s->part * bytes, bytes, (void *)p->weight.data, e);
}

static int place_params(struct llm_model *m, const struct llm_declare *d, struct loading *l, struct llm_err *e)
{
    const struct llm_model_files files = {m->files, m->n_files};
    for (size_t i = 0; i < m->n_params; i++) {
        struct wanted w = {.param = i};
        struct llm_latent_halves halves;
        if (d->gguf && llm_latent_find(&files, &d->specs[i], &halves)) {
            if (llm_latent_read(&m->config, &halves, &m->params[i], e) < 0) return -1;
            continue;
        }
        size_t before = l->n;
        w.entry = find_entry(m, d->specs[i].name, &w.file, e);
        if (!w.entry || place_param(l, &d->specs[i], &m->params[i], w, e) < 0) return -1;
        if (l->n > before && d->specs[i].n_parts && copy_part(m, d, l, e) < 0) return -1;
    }
    return 0;
}

int llm_params_read(struct llm_model *m, const struct llm_declare *d, struct llm_err *e)
{
    struct loading l = {llm_calloc(m->n_params, sizeof *l.v, "model", e), 0};
    int r = l.v ? place_params(m, d, &l, e) : -1;
    if (r == 0) r = read_wanted(m, d, &l, e);
    free(l.v);
    for (size_t i = 0; i < m->n_files && r == 0; i++) r = check_extra(m, d, llm_checkpoint_header(m->files[i]), e);
    return r;
}
