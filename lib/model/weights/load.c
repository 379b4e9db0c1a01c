/* Models from files: `.llm`, safetensors with our metadata, Hugging Face folders and GGUF, of one file or several. Here (and in save.c, back)
 * matrices that a file keeps as [in, out] are turned to [out, in]; quantised matrices are always [out, in], whose rows are whole blocks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "token/chat/find.h"
#include "base/pages.h"
#include "io/sniff.h"
#include "model/config/arch.h"
#include "model/config/files.h"
#include "model/weights/gguf_save.h"
#include "model/weights/names.h"
#include "model/weights/ngram.h"
#include "model/config/sentence.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

static void shape_text(const int64_t *shape, int n_dims, char *out, size_t n)
{
    size_t used = (size_t)snprintf(out, n, "[");
    for (int i = 0; i < n_dims && used < n; i++) used += (size_t)snprintf(out + used, n - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (used < n) snprintf(out + used, n - used, "]");
}

/* Whether the file's shape is that of the parameter; *turned: as [in, out]. */
static int check_shape(const struct llm_param_spec *s, const struct llm_entry *t, bool *turned, struct llm_err *e)
{
    const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
    char want[64], found[64];
    if (!row->is_float && !row->is_quantised) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected floating point or quantised values, found %s", t->name, row->name);
    }
    if (row->is_quantised && s->n_dims < 2) return llm_fail(e, EX_DATAERR, "tensor '%s': expected floating point, found %s", t->name, row->name);
    *turned = s->transposed && !row->is_quantised;
    if (s->file_dims && t->n_dims == s->file_dims && memcmp(t->shape, s->file_shape, (size_t)s->file_dims * sizeof *s->file_shape) == 0) return 0;
    int64_t shape[2] = {s->shape[*turned ? 1 : 0], s->shape[*turned ? 0 : 1]};
    if (s->middle && t->n_dims == 3 && t->shape[0] == s->shape[0] && t->shape[1] == 1 && t->shape[2] == s->shape[1]) return 0;
    if (!s->middle && !s->n_parts && t->n_dims == s->n_dims && t->shape[0] == shape[0] && (s->n_dims == 1 || t->shape[1] == shape[1])) return 0;
    shape_text(s->file_dims ? s->file_shape : shape, s->file_dims ? s->file_dims : s->n_dims, want, sizeof want);
    shape_text(t->shape, t->n_dims, found, sizeof found);
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected %s (%s), found %s", t->name, want, s->dims, found);
}

void *llm_turned(const void *data, size_t element, int64_t rows, int64_t cols, struct llm_err *e)
{
    char *out = llm_alloc((size_t)rows * (size_t)cols, element, "a transposed matrix", e);
    const char *in = data;
    if (!out) return NULL;
    for (int64_t r0 = 0; r0 < rows; r0 += 32) { /* in squares that fit the cache */
        for (int64_t c0 = 0; c0 < cols; c0 += 32) {
            for (int64_t r = r0; r < r0 + 32 && r < rows; r++) {
                for (int64_t c = c0; c < c0 + 32 && c < cols; c++) {
                    memcpy(out + (size_t)(c * rows + r) * element, in + (size_t)(r * cols + c) * element, element);
                }
            }
        }
    }
    return out;
}

void llm_rows_by_head(const struct llm_config *c, const void *data, size_t row_bytes, bool to_file, void *out)
{
    int64_t d = c->head_dim, n = c->num_attention_heads;
    for (int64_t part = 0; part < 3; part++) {
        for (int64_t head = 0; head < n; head++) {
            size_t ours = (size_t)((part * n + head) * d) * row_bytes, theirs = (size_t)((head * 3 + part) * d) * row_bytes;
            memcpy((char *)out + (to_file ? theirs : ours), (const char *)data + (to_file ? ours : theirs), (size_t)d * row_bytes);
        }
    }
}

/* What stands in the file otherwise than in memory, put right: in a new allocation. */
static void *rearrange(const struct llm_config *c, const struct llm_param_spec *s, void *data, size_t bytes, size_t element, struct llm_err *e)
{
    void *out;
    if (s->by_head) {
        out = llm_alloc_huge(bytes, 1, s->name, e);
        if (out) llm_rows_by_head(c, data, bytes / (size_t)s->shape[0], false, out);
    } else {
        out = llm_turned(data, element, s->shape[1], s->shape[0], e);
    }
    free(data);
    return out;
}

/* Decays of state-space layers, from -exp of them: F32. */
static int undo_minus_exp(const struct llm_entry *t, float *x, size_t n, struct llm_err *e)
{
    if (t->dtype != LLM_F32) return llm_fail(e, EX_DATAERR, "tensor '%s': expected f32, found %s", t->name, llm_dtypes[t->dtype].name);
    for (size_t i = 0; i < n; i++) {
        if (!(x[i] < 0)) return llm_fail(e, EX_DATAERR, "tensor '%s': expected numbers below 0", t->name);
        x[i] = (float)log(-(double)x[i]);
    }
    return 0;
}

/* What is so small is copied: its page in the mapping would hold on to the neighbours that come into memory with it. */
enum { FEW_BYTES = 16 << 10 };
/* A parameter that was not borrowed: its bytes are read with all others', and then put right. */
struct wanted { size_t param; struct llm_checkpoint *file; const struct llm_entry *entry; bool turned; };
struct loading { struct wanted *v; size_t n; };

/* Borrows the parameter's data, or allocates memory for them and adds it to what is to be read. */
static int place_param(struct loading *l, const struct llm_param_spec *s, struct llm_param *p, struct wanted w, struct llm_err *e)
{
    const struct llm_entry *t = w.entry;
    if (check_shape(s, t, &w.turned, e) < 0) return -1;
    size_t bytes = llm_dtype_bytes(t->dtype, (uint64_t)llm_param_count(p));
    if (llm_dtypes[t->dtype].is_quantised && s->shape[1] % llm_dtypes[t->dtype].block_size != 0) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected rows of whole blocks of %d, found %lld", t->name, llm_dtypes[t->dtype].block_size,
                        (long long)s->shape[1]);
    }
    p->weight.dtype = t->dtype;
    const char *mapped = llm_checkpoint_borrow(w.file, t);
    if (mapped && s->n_parts) mapped += (size_t)s->part * bytes;
    if (mapped && (bytes > FEW_BYTES || s->n_parts) && !w.turned && !s->by_head && !s->minus_exp) {
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

/* Runs of tensors that lie in one file, at once. */
static int read_wanted(struct llm_model *m, const struct loading *l, struct llm_err *e)
{
    struct llm_wanted *run = llm_calloc(l->n, sizeof *run, "model", e);
    int r = run ? 0 : -1;
    for (size_t i = 0, n; i < l->n && r == 0; i += n) {
        for (n = 0; i + n < l->n && l->v[i + n].file == l->v[i].file; n++) {
            run[n] = (struct llm_wanted){l->v[i + n].entry, (void *)m->params[l->v[i + n].param].weight.data};
        }
        r = llm_checkpoint_read_many(l->v[i].file, run, n, e);
    }
    free(run);
    return r;
}

static int fit_param(struct llm_model *m, const struct llm_declare *d, const struct wanted *w, struct llm_err *e)
{
    const struct llm_param_spec *s = &d->specs[w->param];
    struct llm_param *p = &m->params[w->param];
    if (s->minus_exp && undo_minus_exp(w->entry, (float *)p->weight.data, (size_t)llm_param_count(p), e) < 0) return -1;
    if (!w->turned && !s->by_head) return 0;
    size_t bytes = llm_dtype_bytes(w->entry->dtype, (uint64_t)llm_param_count(p));
    p->weight.data = rearrange(&m->config, s, (void *)p->weight.data, bytes, (size_t)llm_dtypes[w->entry->dtype].block_bytes, e);
    p->owned = p->weight.data != NULL;
    return p->owned ? 0 : -1;
}

/* Names that files may give a parameter: with or without the family's prefix, and, of old, "gamma" and "beta" in norms. k counts from 0; NULL:
 * no more. */
static const char *alias(const struct llm_model *m, const char *name, int k, char text[128])
{
    static const char *const suffixes[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
    size_t prefix = strlen(m->arch->names.prefix), n = strlen(name);
    bool prefixed = strncmp(name, m->arch->names.prefix, prefix) == 0;
    if (k > 3) return NULL;
    if (k < 2) return k == 0 || !prefixed ? name : name + prefix;
    for (size_t i = 0; i < 2; i++) {
        size_t old = strlen(suffixes[i][0]);
        if (n < old || strcmp(name + n - old, suffixes[i][0]) != 0) continue;
        snprintf(text, 128, "%.*s%s", (int)(n - old), name, suffixes[i][1]);
        return k == 2 || !prefixed ? text : text + prefix;
    }
    return NULL;
}

/* The parameter's entry; *file: where it stands. A tensor in two files is refused. */
static const struct llm_entry *find_entry(const struct llm_model *m, const char *name, struct llm_checkpoint **file, struct llm_err *e)
{
    const struct llm_entry *found = NULL;
    for (size_t i = 0; i < m->n_files; i++) {
        const struct llm_header *h = llm_checkpoint_header(m->files[i]);
        const struct llm_entry *t = NULL;
        char text[128];
        const char *other;
        for (int k = 0; !t && (other = alias(m, name, k, text)); k++) t = llm_header_find(h, other);
        if (!t) continue;
        if (found) {
            llm_fail(e, EX_DATAERR, "tensor '%s': expected once, found in %s and in %s", name, llm_checkpoint_name(*file),
                     llm_checkpoint_name(m->files[i]));
            return NULL;
        }
        found = t;
        *file = m->files[i];
    }
    if (!found) {
        llm_fail(e, EX_DATAERR, "tensor '%s': expected by the configuration (%s, %lld layers), found none", name, m->config.model_type,
                 (long long)m->config.num_hidden_layers);
    }
    return found;
}

/* Tensors that other people's files carry beside parameters: masks and frequencies that follow from the configuration. */
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

static int load_tokenizer(struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e)
{
    const struct llm_header *h = llm_checkpoint_header(f);
    const struct llm_gguf *g = llm_checkpoint_gguf(f);
    bool carries = g ? llm_gguf_find(g, "tokenizer.ggml.tokens") != NULL
                     : llm_header_find(h, LLM_NAME_TOKENIZER_JSON) || llm_header_find(h, LLM_NAME_TOKENIZER "pieces");
    if (!carries) return 0;
    m->tokenizer = llm_tokenizer_from_checkpoint(f, e);
    return m->tokenizer ? 0 : -1;
}

/* Parts of tensors that lie where they cannot be borrowed are few: each is copied here. */
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

static int load_params(struct llm_model *m, const struct llm_declare *d, struct llm_err *e)
{
    struct loading l = {llm_calloc(m->n_params, sizeof *l.v, "model", e), 0};
    int r = l.v ? place_params(m, d, &l, e) : -1;
    if (r == 0) r = read_wanted(m, &l, e);
    for (size_t i = 0; i < l.n && r == 0; i++) r = fit_param(m, d, &l.v[i], e);
    free(l.v);
    for (size_t i = 0; i < m->n_files && r == 0; i++) r = check_extra(m, d, llm_checkpoint_header(m->files[i]), e);
    return r;
}

/* tokenizer.chat_template of a GGUF file. */
static int load_gguf_template(struct llm_model *m, const struct llm_gguf *g, struct llm_err *e)
{
    const char *text = NULL;
    size_t n = 0;
    if (llm_gguf_str(g, "tokenizer.chat_template", &text, &n, e) < 0) return -1;
    if (text && !memchr(text, 0, n) && !(m->chat_template = strndup(text, n))) return llm_no_memory(e, "chat template");
    return 0;
}

static int load_state(struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e)
{
    const char *training = llm_header_meta(llm_checkpoint_header(f), LLM_META_TRAINING);
    const char *fingerprint = llm_header_meta(llm_checkpoint_header(f), LLM_META_FINGERPRINT);
    const char *chat_template = llm_header_meta(llm_checkpoint_header(f), LLM_META_CHAT_TEMPLATE);
    if (load_tokenizer(m, f, e) < 0) return -1;
    if (llm_checkpoint_gguf(f)) return load_gguf_template(m, llm_checkpoint_gguf(f), e);
    if (chat_template && !m->chat_template && !(m->chat_template = strdup(chat_template))) return llm_no_memory(e, "chat template");
    if (training && !(m->training = llm_json_parse(training, strlen(training), e))) return llm_in(e, LLM_META_TRAINING);
    if (fingerprint && strlen(fingerprint) < sizeof m->fingerprint) memcpy(m->fingerprint, fingerprint, strlen(fingerprint) + 1);
    return 0;
}

/* Gives memory back that only loading needed: pages of the model's files and the program's, which come again where they are used, and what malloc
 * kept of tables that tokenizers were made of. */
static void forget(const struct llm_model *m)
{
    for (size_t i = 0; i < m->n_files; i++) llm_checkpoint_release_pages(m->files[i]);
    llm_pages_release_program();
    llm_pages_release_freed();
}

/* The model of configuration `c`; takes the files over. `name`: what the whole is called in messages. */
static struct llm_model *from_config(struct llm_model_files *files, const char *name, const struct llm_config *c, struct llm_err *e)
{
    struct llm_declare d = {.specs = NULL};
    struct llm_config fitted = *c;
    const struct llm_arch *arch = llm_arch_find(c->model_type);
    if (arch->in_files) arch->in_files(&fitted, files);
    struct llm_model *m = llm_model_shape(&fitted, e);
    if (!m) {
        llm_in(e, "%s", name);
        llm_model_files_close(files);
        return NULL;
    }
    m->files = files->v;
    m->n_files = files->n;
    int r = 0;
    if (m->arch->load) {
        r = m->arch->load(m, m->files[0], e);
    } else if (llm_checkpoint_gguf(m->files[0])) { /* the same parameters under other names */
        r = llm_model_declare_gguf(&fitted, &d, e);
        if (r == 0) r = load_params(m, &d, e);
        llm_declare_release(&d);
    } else {
        r = load_params(m, &(struct llm_declare){.specs = m->specs, .n = m->n_params}, e);
    }
    if (r == 0) r = load_state(m, m->files[0], e);
    if (r == 0) forget(m);
    if (r == 0) return m;
    llm_in(e, "%s", name);
    llm_model_destroy(m);
    return NULL;
}

/* Takes the files over. */
static struct llm_model *from_files(struct llm_model_files *files, const char *name, const json_t *config, struct llm_err *e)
{
    struct llm_config c;
    if (llm_config_from_json(&c, config, e) == 0) {
        struct llm_model *m = from_config(files, name, &c, e);
        if (!m || llm_model_read_labels(m, config, e) == 0) return m;
        llm_in(e, "%s: configuration", name);
        llm_model_destroy(m);
        return NULL;
    }
    llm_in(e, "%s: configuration", name);
    llm_model_files_close(files);
    return NULL;
}

static int gguf_config(struct llm_config *c, const struct llm_model_files *files, struct llm_err *e)
{
    struct llm_checkpoint *f;
    const struct llm_entry *embed = llm_model_files_find(files, "token_embd.weight", &f);
    if (llm_gguf_config(c, llm_checkpoint_gguf(files->v[0]), e) < 0) return -1;
    if (!embed || embed->n_dims != 2 || embed->shape[0] < 1 || embed->shape[0] > 1 << 24) {
        return llm_fail(e, EX_DATAERR, "tensor 'token_embd.weight': expected [vocabulary, %lld], found %s", (long long)c->hidden_size,
                        embed ? "another shape" : "none");
    }
    c->vocab_size = embed->shape[0];
    c->tie_word_embeddings = !llm_model_files_find(files, "output.weight", &f);
    llm_gguf_biases(c, files);
    if (llm_gguf_rope_factors(c, files, e) < 0) return -1;
    json_t *nothing = json_object();
    int r = nothing ? llm_config_finish(c, nothing, e) : llm_no_memory(e, "configuration");
    json_decref(nothing);
    return r;
}

/* Takes the files over. */
static struct llm_model *from_gguf(struct llm_model_files *files, const char *path, struct llm_err *e)
{
    struct llm_config c;
    if (llm_model_files_open_split(files, path, e) < 0) return NULL;
    if (gguf_config(&c, files, e) == 0) return from_config(files, llm_checkpoint_name(files->v[0]), &c, e);
    llm_in(e, "%s", llm_checkpoint_name(files->v[0]));
    llm_model_files_close(files);
    return NULL;
}

/* "folder/name", or -1 with an error. */
static int join(char out[4096], const char *folder, size_t n, const char *name, struct llm_err *e)
{
    if (snprintf(out, 4096, "%.*s/%s", (int)n, folder, name) < 4096) return 0;
    return llm_fail(e, EX_NOINPUT, "%.*s: name too long", (int)n, folder);
}

/* The folder's chat template, where it has one that parses: a model without serves all but chats, which look for it again and say why. */
static void take_chat_template(struct llm_model *m, const char *folder, size_t n)
{
    char path[4096];
    struct llm_chat c = {0};
    struct llm_err e;
    if (join(path, folder, n, "", &e) == 0 && llm_chat_find(&c, NULL, path, NULL, &e) == 0 && !m->chat_template) {
        m->chat_template = c.text;
        c.text = NULL;
    }
    llm_chat_release(&c);
}

/* A model whose configuration and tokenizer stand beside its weights. Takes the files over. */
static struct llm_model *from_folder(const char *folder, size_t n, struct llm_model_files *files, const char *name, struct llm_err *e)
{
    char path[4096];
    struct stat st;
    json_t *config = join(path, folder, n, "config.json", e) == 0 ? llm_json_load(path, 1 << 20, e) : NULL;
    if (!config) {
        llm_model_files_close(files);
        return NULL;
    }
    struct llm_model *m = from_files(files, name, config, e);
    json_decref(config);
    if (m) take_chat_template(m, folder, n);
    if (m && llm_sentence_read(&m->config, folder, n, e) < 0) {
        llm_model_destroy(m);
        return NULL;
    }
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    for (size_t i = 0; m && !m->tokenizer && i < sizeof names / sizeof *names; i++) {
        if (join(path, folder, n, names[i], e) == 0
            && (stat(path, &st) != 0 || (join(path, folder, n, "", e) == 0 && (m->tokenizer = llm_tokenizer_load(path, NULL, e)) != NULL))) continue;
        llm_model_destroy(m);
        return NULL;
    }
    if (!m || llm_folder_ends(m, folder, n, e) == 0) return m;
    llm_model_destroy(m);
    return NULL;
}

static struct llm_model *load_folder(const char *folder, struct llm_err *e)
{
    char config[4096], whole[4096], index[4096];
    struct llm_model_files files = {0};
    struct stat st;
    size_t n = strlen(folder);
    if (join(config, folder, n, "config.json", e) < 0 || join(whole, folder, n, "model.safetensors", e) < 0
        || join(index, folder, n, LLM_MODEL_INDEX, e) < 0) return NULL;
    if (stat(config, &st) != 0) { /* said first: it is what makes a folder a model */
        llm_model_no_folder(folder, e);
        return NULL;
    }
    bool many = stat(whole, &st) != 0 && stat(index, &st) == 0;
    if ((many ? llm_model_files_open_index(&files, index, e) : llm_model_files_open(&files, whole, e)) < 0) return NULL;
    return from_folder(folder, n, &files, many ? index : whole, e);
}

struct llm_model *llm_model_load(const char *path, struct llm_err *e)
{
    struct llm_model_files files = {0};
    struct stat st;
    char beside[4096];
    bool pipe = strcmp(path, "-") == 0;
    if (!pipe && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return load_folder(path, e);
    struct llm_file *f = llm_file_open(path, e);
    enum llm_content content;
    if (!f) return NULL;
    if (llm_sniff(f, &content, e) < 0) {
        llm_file_close(f);
        return NULL;
    }
    if (content == LLM_CONTENT_ARPA) return llm_arpa_read(f, e);
    if (llm_model_files_take(&files, f, e) < 0) return NULL;
    if (llm_checkpoint_gguf(files.v[0])) return from_gguf(&files, path, e);
    const char *name = llm_checkpoint_name(files.v[0]), *text = llm_header_meta(llm_checkpoint_header(files.v[0]), LLM_META_CONFIG);
    const char *slash = strrchr(path, '/'), *folder = !slash ? "." : path;
    size_t n = !slash ? 1 : (size_t)(slash - path);
    if (!text && !pipe && join(beside, folder, n, "config.json", e) == 0 && stat(beside, &st) == 0) return from_folder(folder, n, &files, path, e);
    json_t *config = text ? llm_json_parse(text, strlen(text), e) : NULL;
    if (!config) {
        if (text) llm_in(e, "%s: metadata %s", name, LLM_META_CONFIG);
        else llm_fail(e, EX_DATAERR, "%s: expected a model (metadata %s, or config.json beside it), found none", name, LLM_META_CONFIG);
        llm_model_files_close(&files);
        return NULL;
    }
    struct llm_model *m = from_files(&files, name, config, e);
    json_decref(config);
    return m;
}
