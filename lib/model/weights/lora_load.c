/* Adapters from files: .llm of kind `adapter`, folders as PEFT writes them, and GGUF (lora_gguf.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/log.h"
#include "io/sniff.h"
#include "model/config/arch.h"
#include "model/weights/lora_internal.h"
#include "model/weights/names.h"

#define CONFIG_FILE "adapter_config.json"
#define WEIGHTS_FILE "adapter_model.safetensors"

/* ---- names ---- */

/* The parameter of PEFT's module or parameter name, with or without the family's prefix. NULL: the model has none. */
static struct llm_param *find_param(const struct llm_model *m, const char *name, size_t n)
{
    static const char *const ends[] = {".weight", ""};
    size_t prefix = strlen(m->arch->names.prefix);
    char text[2 * LLM_LORA_NAME];
    for (int i = 0; i < 2; i++) {
        struct llm_param *p;
        snprintf(text, sizeof text, "%.*s%s", (int)n, name, ends[i]);
        if ((p = llm_model_find(m, text)) != NULL) return p;
        snprintf(text, sizeof text, "%s%.*s%s", m->arch->names.prefix, (int)n, name, ends[i]);
        if (prefix > 0 && (p = llm_model_find(m, text)) != NULL) return p;
        snprintf(text, sizeof text, "%.*s%s", (int)(n - prefix), name + prefix, ends[i]);
        if (prefix > 0 && n > prefix && strncmp(name, m->arch->names.prefix, prefix) == 0 && (p = llm_model_find(m, text)) != NULL) return p;
    }
    const char *head = llm_lora_head(m), *own = m->arch->names.head;
    const size_t n_head = strlen(head);
    if (!own || strcmp(head, own) == 0 || n < n_head || strncmp(name, head, n_head) != 0) return NULL;
    snprintf(text, sizeof text, "%s%.*s", own, (int)(n - n_head), name + n_head);
    return find_param(m, text, strlen(text));
}

/* What a tensor of an adapter is, by its name. */
struct place { enum { HALF_A, HALF_B, MAGNITUDE, WHOLE, TIED, EXPERTS, OTHER } kind; struct llm_param *param; };

/* `ties`: the head is the embedding, so that a head that is stored beside it says nothing more. */
static struct place place_of(const struct llm_model *m, const char *name, bool ties)
{
    static const char *const halves[] = {".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"};
    const char *head = llm_lora_head(m);
    size_t n = strlen(name), n_head = strlen(head), prefix = strlen(LLM_LORA_PREFIX);
    struct place p = {.kind = OTHER};
    if (n >= LLM_LORA_NAME) return p;
    if (strncmp(name, LLM_LORA_PREFIX, prefix) == 0) {
        name += prefix;
        n -= prefix;
    }
    for (int i = 0; i < 3; i++) {
        size_t end = strlen(halves[i]);
        if (n <= end || strcmp(name + n - end, halves[i]) != 0) continue;
        p.kind = i == 0 ? HALF_A : i == 1 ? HALF_B : MAGNITUDE;
        p.param = find_param(m, name, n - end);
        return p;
    }
    /* What PEFT stores beside a pair: the base's own matrix of a head, biases. */
    static const char base[] = ".base_layer";
    char text[LLM_LORA_NAME];
    const char *at = strstr(name, base);
    if (at) {
        snprintf(text, sizeof text, "%.*s%s", (int)(at - name), name, at + strlen(base));
        name = text;
        n = strlen(text);
    }
    p.param = find_param(m, name, n);
    if (p.param) p.kind = WHOLE;
    else if (ties && n == n_head + strlen(".weight") && strncmp(name, head, n_head) == 0 && strcmp(name + n_head, ".weight") == 0) p.kind = TIED;
    return p;
}

/* ---- pairs and whole parameters ---- */

struct reading {
    struct llm_lora *l;
    struct llm_model *m;
    struct llm_checkpoint *f;
    enum llm_lora_order order;
    struct place *places;      /* [entries of the file] */
    struct llm_lora_experts experts;
};

static const struct llm_entry *find_half(const struct reading *r, const struct llm_param *p, int kind)
{
    const struct llm_header *h = llm_checkpoint_header(r->f);
    for (size_t i = 0; i < h->n_entries; i++) {
        if (r->places[i].param == p && (int)r->places[i].kind == kind) return &h->entries[i];
    }
    return NULL;
}

static int read_pair(const struct reading *r, struct llm_param *p, const struct llm_entry *a, struct llm_err *e)
{
    const struct llm_entry *b = find_half(r, p, HALF_B);
    if (!b) return llm_fail(e, EX_DATAERR, "tensor '%s': expected its lora_B too, found none", a->name);
    if (!llm_lora_can_adapt(p->spec)) return llm_fail(e, EX_UNAVAILABLE, "tensor '%s': expected an adapter of a matrix that is multiplied", a->name);
    if (a->n_dims != 2 || a->shape[0] < 1 || a->shape[0] > LLM_LORA_MAX_RANK) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected [rank, %lld]", a->name, (long long)p->weight.k);
    }
    struct llm_lora_pair *q = llm_lora_add_pair(r->l, r->m, p, a->shape[0], e);
    if (!q) return -1;
    float *down = (float *)(uintptr_t)q->a.weight.data, *up = (float *)(uintptr_t)q->b.weight.data;
    if (llm_lora_read(r->f, a, 2, q->a.shape, down, e) < 0 || llm_lora_read(r->f, b, 2, q->b.shape, up, e) < 0) return -1;
    if (llm_lora_reorder(r->m, p, r->order, false, up, q->b.weight.k, e) < 0) return -1;
    if (!r->l->dora) return 0;
    const struct llm_entry *v = find_half(r, p, MAGNITUDE);
    float *magnitude = (float *)(uintptr_t)q->magnitude.weight.data;
    if (!v) return llm_fail(e, EX_DATAERR, "tensor '%s': expected its lora_magnitude_vector too (use_dora), found none", a->name);
    if (llm_lora_read(r->f, v, 1, q->magnitude.shape, magnitude, e) < 0) return -1;
    return llm_lora_reorder(r->m, p, r->order, false, magnitude, 1, e);
}

/* The parameter's weight becomes `data` (F32, owned by it). */
static void replace(struct llm_param *p, float *data)
{
    llm_weight_release(&p->weight);
    if (p->owned) free((void *)(uintptr_t)p->weight.data);
    p->weight.data = data;
    p->weight.dtype = LLM_F32;
    p->weight.map = p->weight.map_end = NULL; /* no file has the new data: their pages must not be released */
    p->owned = true;
}

/* Whether the matrix p has the values x. PEFT stores the base's head beside its pair: such a copy changes nothing. -1: see `e`. */
static int has_values(const struct llm_param *p, const float *x, struct llm_err *e)
{
    const int64_t k = p->weight.k;
    bool same = true;
    float *row = llm_alloc((size_t)k, sizeof *row, p->name, e);
    if (!row) return -1;
    for (int64_t i = 0; same && i < p->weight.n; i++) {
        llm_weight_decode(&p->weight, i * k, k, row);
        same = memcmp(row, x + i * k, (size_t)k * sizeof *row) == 0;
    }
    free(row);
    return same;
}

static int read_whole(const struct reading *r, struct llm_param *p, const struct llm_entry *t, struct llm_err *e)
{
    const struct llm_param_spec *s = p->spec;
    bool transposed = r->order == LLM_LORA_HF && s->transposed && p->n_dims == 2;
    int64_t shape[4] = {p->shape[0], p->shape[1], p->shape[2], p->shape[3]};
    if (r->order == LLM_LORA_HF && s->gain && llm_config_blank(r->m->arch).norm_gain_offset != r->m->config.norm_gain_offset) {
        return llm_fail(e, EX_UNAVAILABLE, "tensor '%s': gains of this base are stored differently", t->name);
    }
    if (transposed) {
        shape[0] = p->shape[1];
        shape[1] = p->shape[0];
    }
    float *data = llm_alloc_huge((size_t)llm_param_count(p), sizeof *data, t->name, e);
    if (!data) return -1;
    if (llm_lora_read(r->f, t, p->n_dims, shape, data, e) < 0) {
        free(data);
        return -1;
    }
    float *back = transposed ? llm_transposed(data, sizeof *data, shape[0], shape[1], e) : data;
    if (transposed) free(data);
    if (!back) return -1;
    int same = llm_lora_reorder(r->m, p, r->order, false, back, llm_param_count(p) / p->shape[0], e);
    if (same == 0 && llm_lora_pair_of(r->l, p)) same = has_values(p, back, e);
    if (same != 0) {
        free(back);
        return same < 0 ? -1 : 0;
    }
    replace(p, back);
    llm_lora_add_whole(r->l, p);
    return 0;
}

static bool is_training(const char *name)
{
    return strncmp(name, LLM_NAME_TRAINING, strlen(LLM_NAME_TRAINING)) == 0;
}

static int read_placed(struct reading *r, struct llm_err *e)
{
    const struct llm_header *h = llm_checkpoint_header(r->f);
    size_t found = 0;
    for (size_t i = 0; i < r->m->n_params; i++) { /* in the model's order */
        const struct llm_entry *a = find_half(r, &r->m->params[i], HALF_A), *w = find_half(r, &r->m->params[i], WHOLE);
        if (a && read_pair(r, &r->m->params[i], a, e) < 0) return -1;
        if (!a && llm_lora_experts_pair(&r->experts, r->l, r->m, r->f, &r->m->params[i], e) < 0) return -1;
        if (w && read_whole(r, &r->m->params[i], w, e) < 0) return -1;
        found += (a ? r->l->dora ? 3 : 2 : 0) + (w ? 1 : 0);
    }
    if (llm_lora_experts_check(&r->experts, r->m, e) < 0) return -1;
    for (size_t i = 0; i < h->n_entries; i++) {
        const char *name = h->entries[i].name;
        const bool placed = is_training(name) || r->places[i].kind == TIED || r->places[i].kind == EXPERTS;
        found += placed;
        if (r->places[i].kind == MAGNITUDE && !r->l->dora) return llm_fail(e, EX_DATAERR, "tensor '%s': expected use_dora with it", name);
        if (placed || r->places[i].param) continue;
        if (strstr(name, "lora_embedding_"))
            return llm_fail(e, EX_UNAVAILABLE, "tensor '%s': expected pairs of matrices (LoRA) and whole parameters", name);
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected a part of a %s of %lld layers", name, r->m->config.model_type,
                        (long long)r->m->config.num_hidden_layers);
    }
    if (found == h->n_entries) return 0;
    return llm_fail(e, EX_DATAERR, "expected each tensor of a pair once, found %zu tensors of which %zu were used", h->n_entries, found);
}

/* *ties: whether the head may be stored beside the embedding that it is; then whether it is. */
static int read_tensors(struct llm_lora *l, struct llm_model *m, struct llm_checkpoint *f, enum llm_lora_order order, bool *ties, struct llm_err *e)
{
    const struct llm_header *h = llm_checkpoint_header(f);
    struct reading r = {.l = l, .m = m, .f = f, .order = order, .places = llm_calloc(h->n_entries + 1, sizeof *r.places, "an adapter", e)};
    if (!r.places) return -1;
    bool tied = false;
    int got = 0;
    for (size_t i = 0; i < h->n_entries && got >= 0; i++) {
        r.places[i] = place_of(m, h->entries[i].name, *ties && m->config.tie_word_embeddings);
        tied |= r.places[i].kind == TIED;
        got = r.places[i].param || m->config.num_experts == 0 ? 0 : llm_lora_experts_add(&r.experts, h, &h->entries[i], e);
        if (got > 0) r.places[i].kind = EXPERTS;
    }
    *ties = tied;
    if (got >= 0) got = read_placed(&r, e);
    llm_lora_experts_release(&r.experts);
    free(r.places);
    return got;
}

/* ---- files ---- */

static int check_base(const struct llm_lora *l, struct llm_model *m, struct llm_err *e)
{
    if (!l->base_fingerprint[0]) return 0;
    if (llm_model_base_fingerprint(m, e) < 0) return -1;
    if (strcmp(l->base_fingerprint, m->fingerprint) == 0) return 0;
    return llm_fail(e, EX_DATAERR, "expected the model that it was made for (fingerprint %s%s%s), found one of fingerprint %s", l->base_fingerprint,
                    l->base_path ? ", " : "", l->base_path ? l->base_path : "", m->fingerprint);
}

static int read_message(struct llm_lora *l, struct llm_model *m, struct llm_checkpoint *f, struct llm_err *e)
{
    const struct llm_header *h = llm_checkpoint_header(f);
    const char *text = llm_header_meta(h, LLM_META_ADAPTER), *base = llm_header_meta(h, LLM_META_BASE_FINGERPRINT);
    const char *training = llm_header_meta(h, LLM_META_TRAINING), *dropout = llm_header_meta(h, LLM_META_MODEL_DROPOUT);
    if (!text) return llm_fail(e, EX_DATAERR, "expected metadata %s, found none", LLM_META_ADAPTER);
    json_t *config = llm_json_parse(text, strlen(text), e);
    int r = config ? llm_lora_read_config(l, config, e) : -1;
    json_decref(config);
    if (r < 0) return llm_in(e, "metadata %s", LLM_META_ADAPTER);
    if (base && strlen(base) < sizeof l->base_fingerprint) memcpy(l->base_fingerprint, base, strlen(base) + 1);
    if (check_base(l, m, e) < 0) return -1;
    if (training && !(l->training = llm_json_parse(training, strlen(training), e))) return llm_in(e, LLM_META_TRAINING);
    const char *chat = llm_header_meta(h, LLM_META_CHAT_TEMPLATE); /* by which its conversations were rendered */
    if (chat) {
        l->has_chat = true;
        free(m->chat_template);
        if (!(m->chat_template = strdup(chat))) return llm_no_memory(e, "chat template");
    }
    if (dropout) {
        l->model_dropout = strtod(dropout, NULL);
        if (!(l->model_dropout >= 0 && l->model_dropout < 1))
            return llm_fail(e, EX_DATAERR, "metadata %s: expected within [0, 1)", LLM_META_MODEL_DROPOUT);
    }
    bool ties = false;
    return read_tensors(l, m, f, LLM_LORA_OWN, &ties, e);
}

static struct llm_checkpoint *open_in(const char *folder, const char *name, struct llm_err *e)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path) return llm_checkpoint_open(path, e);
    llm_fail(e, EX_NOINPUT, "%s: name too long", folder);
    return NULL;
}

static int read_folder(struct llm_lora *l, struct llm_model *m, const char *folder, struct llm_err *e)
{
    char path[4096];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", folder, CONFIG_FILE) >= (int)sizeof path) return llm_fail(e, EX_NOINPUT, "%s: name too long", folder);
    if (stat(path, &st) != 0) {
        return llm_fail(e, EX_NOINPUT, "expected an adapter's folder (%s and %s), found no %s", CONFIG_FILE, WEIGHTS_FILE, CONFIG_FILE);
    }
    json_t *config = llm_json_load(path, 16 << 20, e);
    bool ties = false;
    int r = config ? llm_lora_read_config(l, config, e) : -1;
    if (r == 0) r = llm_json_bool(config, "ensure_weight_tying", &ties, e);
    json_decref(config);
    if (r < 0) return config ? llm_in(e, "%s", CONFIG_FILE) : -1;
    struct llm_checkpoint *f = open_in(folder, WEIGHTS_FILE, e);
    r = f ? read_tensors(l, m, f, LLM_LORA_HF, &ties, e) : -1;
    llm_checkpoint_close(f);
    /* PEFT does not tie every embedding that ensure_weight_tying is said of (wte): the file has a head where it does. */
    if (r == 0 && llm_lora_ties(l, m) && !ties)
        return llm_fail(e, EX_UNAVAILABLE, "expected ensure_weight_tying and '%s.weight' with '%s', which is the model's head, too",
                        llm_lora_head(m), llm_model_embedding(m)->name);
    return r;
}

static int read_any(struct llm_lora *l, struct llm_model *m, const char *path, struct llm_err *e)
{
    struct stat st;
    if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return read_folder(l, m, path, e);
    struct llm_checkpoint *f = l->file = llm_checkpoint_open(path, e);
    if (!f) return 1; /* `e` names the file */
    const char *kind = llm_checkpoint_header(f)->kind;
    if (llm_checkpoint_gguf(f)) return llm_lora_read_gguf(l, m, f, e);
    if (kind && strcmp(kind, "adapter") == 0) return read_message(l, m, f, e);
    return llm_fail(e, EX_DATAERR, "expected an adapter (.llm of kind adapter, GGUF, or PEFT's folder), found a %s",
                    kind ? kind : "file of tensors without " CONFIG_FILE);
}

/* A parameter that an adapter stores whole replaces the model's. So such an adapter must be the only one, with scale 1. */
static int check_whole(const struct llm_model *m, const struct llm_lora *l, struct llm_err *e)
{
    const struct llm_lora *with = l->n_whole > 0 ? l : m->lora && m->lora->n_whole > 0 ? m->lora : NULL;
    if (!with || (!m->lora && l->factor == 1)) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected an adapter of pairs alone beside another or with a scale, found '%s' stored whole",
                    with->whole[0]->name);
}

int llm_lora_load(struct llm_model *m, const char *path, float factor, struct llm_err *e)
{
    struct llm_lora *l = llm_lora_blank(m, e);
    if (!l) return -1;
    l->factor = factor;
    l->path = strdup(path);
    int r = l->path ? read_any(l, m, path, e) : llm_no_memory(e, "an adapter");
    if (r == 0 && l->n_pairs + l->n_whole == 0) r = llm_fail(e, EX_DATAERR, "expected pairs of matrices, found none");
    if (r == 0) r = check_whole(m, l, e);
    if (r == 0) r = llm_lora_set_alphas(l, m, e);
    if (r == 0) {
        llm_lora_attach(l, m);
        return 0;
    }
    llm_lora_destroy(l);
    return r > 0 ? -1 : llm_in(e, "%s", path);
}

int llm_lora_is_file(const char *path, struct llm_err *e)
{
    char name[4096];
    struct stat st;
    if (strcmp(path, "-") == 0 || stat(path, &st) != 0) return 0;
    if (S_ISDIR(st.st_mode)) return snprintf(name, sizeof name, "%s/%s", path, CONFIG_FILE) < (int)sizeof name && stat(name, &st) == 0;
    if (!S_ISREG(st.st_mode)) return 0;
    struct llm_checkpoint *f = llm_checkpoint_open(path, e);
    if (!f) return e->status == EX_IOERR ? -1 : 0;
    const char *kind = llm_checkpoint_header(f)->kind, *type = NULL;
    size_t n = 0;
    bool is = kind && strcmp(kind, "adapter") == 0;
    if (llm_checkpoint_gguf(f) && llm_gguf_str(llm_checkpoint_gguf(f), "general.type", &type, &n, e) == 0 && type)
        is = n == 7 && memcmp(type, "adapter", 7) == 0;
    llm_checkpoint_close(f);
    return is;
}

/* adapter_config.json of a folder, or of a .llm. NULL: see `e`. */
static json_t *config_of(const char *path, struct llm_err *e)
{
    char name[4096];
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (snprintf(name, sizeof name, "%s/%s", path, CONFIG_FILE) < (int)sizeof name) return llm_json_load(name, 16 << 20, e);
        llm_fail(e, EX_NOINPUT, "%s: name too long", path);
        return NULL;
    }
    struct llm_checkpoint *f = llm_checkpoint_open(path, e);
    if (!f) return NULL;
    const char *text = llm_header_meta(llm_checkpoint_header(f), LLM_META_ADAPTER);
    json_t *config = text ? llm_json_parse(text, strlen(text), e) : json_object();
    if (!config) llm_in(e, "%s", path);
    llm_checkpoint_close(f);
    return config;
}

char *llm_lora_base_of(const char *path, struct llm_err *e)
{
    const char *base = NULL;
    json_t *config = config_of(path, e);
    if (!config) return NULL;
    int r = llm_json_str(config, "base_model_name_or_path", &base, e);
    char *copy = r == 0 && base ? strdup(base) : NULL;
    if (!copy && r == 0) llm_fail(e, EX_DATAERR, "%s: expected the path of its base (base_model_name_or_path), found none", path);
    json_decref(config);
    return copy;
}

struct llm_model *llm_lora_load_with_base(const char *path, struct llm_err *e)
{
    char *base = llm_lora_base_of(path, e);
    struct llm_model *m = base ? llm_model_load(base, e) : NULL;
    if (base && !m) llm_in(e, "%s: its base", path);
    free(base);
    if (!m) return NULL;
    if (llm_lora_load(m, path, 1, e) == 0) {
        json_decref(m->training);
        m->training = json_incref(m->lora->training);
        if (m->lora->model_dropout >= 0) llm_model_set_dropout(m, m->lora->model_dropout);
        return m;
    }
    llm_model_destroy(m);
    return NULL;
}

int llm_lora_parse(const char *text, char **path, float *factor, struct llm_err *e)
{
    struct stat st;
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    double scale = colon && colon[1] ? strtod(colon + 1, &end) : 1;
    bool scaled = end && !*end && scale > -1e6 && scale < 1e6 && (strcmp(text, "-") != 0 && stat(text, &st) != 0);
    *factor = scaled ? (float)scale : 1;
    *path = strndup(text, scaled ? (size_t)(colon - text) : strlen(text));
    return *path ? 0 : llm_no_memory(e, "an adapter");
}
