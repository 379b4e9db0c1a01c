/* Models from files: `.llm`, safetensors with our metadata, Hugging Face folders of one file or several. Here (and in save.c, back) matrices that a
 * file keeps as [in, out] are turned to [out, in]; quantised matrices are always [out, in], whose rows are whole blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "token/chat/find.h"
#include "model/arch.h"
#include "model/files.h"
#include "model/names.h"

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
    int64_t shape[2] = {s->shape[*turned ? 1 : 0], s->shape[*turned ? 0 : 1]};
    if (t->n_dims == s->n_dims && t->shape[0] == shape[0] && (s->n_dims == 1 || t->shape[1] == shape[1])) return 0;
    shape_text(shape, s->n_dims, want, sizeof want);
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

static int load_param(struct llm_model *m, const struct llm_param_spec *s, struct llm_param *p, struct llm_checkpoint *f, const struct llm_entry *t,
                      struct llm_err *e)
{
    bool turned = false;
    if (check_shape(s, t, &turned, e) < 0) return -1;
    size_t bytes = llm_dtype_bytes(t->dtype, (uint64_t)llm_param_count(p)), element = (size_t)llm_dtypes[t->dtype].block_bytes;
    if (llm_dtypes[t->dtype].is_quantised && s->shape[1] % llm_dtypes[t->dtype].block_size != 0) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected rows of whole blocks of %d, found %lld", t->name, llm_dtypes[t->dtype].block_size,
                        (long long)s->shape[1]);
    }
    p->weight.dtype = t->dtype;
    const void *mapped = llm_checkpoint_borrow(f, t);
    if (mapped && !turned && (size_t)mapped % 8 == 0) {
        p->weight.data = mapped;
        return 0;
    }
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!data) return llm_no_memory(e, t->name);
    p->weight.data = data;
    p->owned = true;
    if (llm_checkpoint_read(f, t, data, e) < 0) return -1;
    if (turned) {
        p->weight.data = llm_turned(data, element, s->shape[1], s->shape[0], e);
        free(data);
        p->owned = p->weight.data != NULL;
        if (!p->owned) return -1;
    }
    (void)m;
    return 0;
}

/* The parameter's entry, also where a file leaves out the family's prefix; *file: where it stands. A tensor in two files is refused. */
static const struct llm_entry *find_entry(const struct llm_model *m, const char *name, struct llm_checkpoint **file, struct llm_err *e)
{
    const struct llm_entry *found = NULL;
    size_t prefix = strlen(m->arch->names.prefix);
    bool prefixed = strncmp(name, m->arch->names.prefix, prefix) == 0;
    for (size_t i = 0; i < m->n_files; i++) {
        const struct llm_header *h = llm_checkpoint_header(m->files[i]);
        const struct llm_entry *t = llm_header_find(h, name);
        if (!t && prefixed) t = llm_header_find(h, name + prefix);
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
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0) return true;
    }
    return m->config.tie_word_embeddings && strcmp(name, "lm_head.weight") == 0;
}

static bool is_ours(const char *name)
{
    return strncmp(name, LLM_NAME_TOKENIZER, strlen(LLM_NAME_TOKENIZER)) == 0 || strncmp(name, LLM_NAME_TRAINING, strlen(LLM_NAME_TRAINING)) == 0;
}

static int check_extra(const struct llm_model *m, const struct llm_header *h, struct llm_err *e)
{
    size_t n = strlen(m->arch->names.prefix);
    for (size_t i = 0; i < h->n_entries; i++) {
        const char *name = h->entries[i].name;
        char full[300];
        if (is_ours(name) || llm_model_find(m, name) || is_buffer(m, name)) continue;
        snprintf(full, sizeof full, "%.*s%s", (int)n, m->arch->names.prefix, name);
        if (strlen(name) < 200 && llm_model_find(m, full)) continue;
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected one of a %s of %lld layers, found one that the configuration does not have", name,
                        m->config.model_type, (long long)m->config.num_hidden_layers);
    }
    return 0;
}

static int load_tokenizer(struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e)
{
    const struct llm_entry *t = llm_header_find(llm_checkpoint_header(f), LLM_NAME_TOKENIZER_JSON);
    if (!t) return 0;
    char *text = llm_alloc((size_t)t->bytes + 1, 1, "tokenizer", e);
    if (!text) return -1;
    int r = llm_checkpoint_read(f, t, text, e);
    if (r == 0) m->tokenizer = llm_tokenizer_from_json(text, (size_t)t->shape[0], LLM_NAME_TOKENIZER_JSON, e);
    free(text);
    return m->tokenizer ? 0 : -1;
}

static int load_params(struct llm_model *m, const struct llm_declare *d, struct llm_err *e)
{
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_checkpoint *f = NULL;
        const struct llm_entry *t = find_entry(m, m->params[i].name, &f, e);
        if (!t || load_param(m, &d->specs[i], &m->params[i], f, t, e) < 0) return -1;
    }
    for (size_t i = 0; i < m->n_files; i++) {
        if (check_extra(m, llm_checkpoint_header(m->files[i]), e) < 0) return -1;
    }
    return 0;
}

static int load_state(struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e)
{
    const char *training = llm_header_meta(llm_checkpoint_header(f), LLM_META_TRAINING);
    const char *fingerprint = llm_header_meta(llm_checkpoint_header(f), LLM_META_FINGERPRINT);
    const char *chat_template = llm_header_meta(llm_checkpoint_header(f), LLM_META_CHAT_TEMPLATE);
    if (load_tokenizer(m, f, e) < 0) return -1;
    if (chat_template && !m->chat_template && !(m->chat_template = strdup(chat_template))) return llm_no_memory(e, "chat template");
    if (training && !(m->training = llm_json_parse(training, strlen(training), e))) return llm_in(e, LLM_META_TRAINING);
    if (fingerprint && strlen(fingerprint) < sizeof m->fingerprint) memcpy(m->fingerprint, fingerprint, strlen(fingerprint) + 1);
    return 0;
}

/* Takes the files over. `name`: what the whole is called in messages. */
static struct llm_model *from_files(struct llm_model_files *files, const char *name, const json_t *config, struct llm_err *e)
{
    struct llm_config c;
    struct llm_declare d;
    struct llm_model *m = NULL;
    if (llm_config_from_json(&c, config, e) < 0) {
        llm_in(e, "configuration");
    } else if ((m = llm_model_shape(&c, &d, e)) != NULL) {
        m->files = files->v;
        m->n_files = files->n;
        int r = load_params(m, &d, e);
        if (r == 0) r = load_state(m, m->files[0], e);
        llm_declare_release(&d);
        if (r == 0) return m;
        llm_in(e, "%s", name);
        llm_model_destroy(m);
        return NULL;
    }
    llm_in(e, "%s", name);
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
    if (!m || m->tokenizer) return m;
    if (join(path, folder, n, "tokenizer.json", e) == 0
        && (stat(path, &st) != 0 || (m->tokenizer = llm_tokenizer_load(path, NULL, e)) != NULL)) return m;
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
        llm_fail_errno(e, EX_NOINPUT, "%s", config);
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
    if (llm_model_files_open(&files, path, e) < 0) return NULL;
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
