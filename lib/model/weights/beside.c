#include "model/weights/beside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "model/weights/lora.h"
#include "model/weights/names.h"

int llm_param_make(struct llm_param *p, const char *name, int n_dims, const int64_t *shape, enum llm_role role, struct llm_err *e)
{
    int64_t n = n_dims == 2 ? shape[0] : 1, k = n_dims == 2 ? shape[1] : shape[0];
    float *data = llm_calloc((size_t)n, (size_t)k * sizeof *data, name, e);
    if (!data) return -1;
    *p = (struct llm_param){.name = name, .n_dims = n_dims, .shape = {shape[0], n_dims == 2 ? k : 0}, .role = role, .decay = n_dims == 2,
                            .owned = true, .weight = {.dtype = LLM_F32, .data = data, .n = n, .k = k}};
    return 0;
}

void llm_param_release(struct llm_param *p)
{
    if (!p->name) return;
    llm_weight_release(&p->weight);
    if (p->owned) free((void *)p->weight.data);
    free(p->grad);
    *p = (struct llm_param){.name = NULL};
}

static const char *const kinds[] = {"lens", "dictionary"};

const char *llm_beside_kind(const char *path)
{
    struct llm_err ignored;
    struct stat st;
    const char *found = NULL;
    if (strcmp(path, "-") == 0 || stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return NULL;
    struct llm_checkpoint *f = llm_checkpoint_open(path, &ignored);
    const char *kind = f ? llm_checkpoint_header(f)->kind : NULL;
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kind, kinds[i]) == 0) found = kinds[i];
    }
    llm_checkpoint_close(f);
    return found;
}

static int check(const struct llm_checkpoint *f, const char *kind, struct llm_model *m, struct llm_err *e)
{
    const struct llm_header *h = llm_checkpoint_header(f);
    const char *of = llm_header_meta(h, LLM_META_BASE_FINGERPRINT);
    if (!h->kind || strcmp(h->kind, kind) != 0) return llm_fail(e, EX_DATAERR, "expected a %s, found %s", kind, h->kind ? h->kind : "tensors");
    if (!of) return llm_fail(e, EX_DATAERR, "expected the fingerprint of its model (" LLM_META_BASE_FINGERPRINT "), found none");
    if (!m) return 0;
    if (llm_model_fingerprint(m, e) < 0) return -1;
    if (strcmp(of, m->fingerprint) == 0) return 0;
    return llm_fail(e, EX_DATAERR, "expected a %s of this model (%s), found one of another (%s)", kind, m->fingerprint, of);
}

struct llm_checkpoint *llm_beside_open(const char *path, const char *kind, struct llm_model *m, struct llm_err *e)
{
    struct llm_checkpoint *f = llm_checkpoint_open(path, e);
    if (!f || check(f, kind, m, e) == 0) return f;
    llm_in(e, "%s", path);
    llm_checkpoint_close(f);
    return NULL;
}

static int read_param(struct llm_checkpoint *f, const struct llm_param *p, struct llm_err *e)
{
    const struct llm_entry *t = llm_header_find(llm_checkpoint_header(f), p->name);
    if (!t) return llm_fail(e, EX_DATAERR, "tensor '%s': expected one, found none", p->name);
    bool fits = t->dtype == LLM_F32 && t->n_dims == p->n_dims;
    for (int i = 0; i < p->n_dims && fits; i++) fits = t->shape[i] == p->shape[i];
    if (fits) return llm_checkpoint_read(f, t, (float *)p->weight.data, e);
    return p->n_dims == 2 ? llm_fail(e, EX_DATAERR, "tensor '%s': expected F32 [%lld, %lld], found another type or shape", p->name,
                                     (long long)p->shape[0], (long long)p->shape[1])
        : llm_fail(e, EX_DATAERR, "tensor '%s': expected F32 [%lld], found another type or shape", p->name, (long long)p->shape[0]);
}

int llm_beside_read(struct llm_checkpoint *f, struct llm_param *const *params, size_t n, struct llm_err *e)
{
    const struct llm_header *h = llm_checkpoint_header(f);
    int status = 0;
    for (size_t i = 0; i < n && status == 0; i++) status = read_param(f, params[i], e);
    for (size_t k = 0; k < h->n_entries && status == 0; k++) {
        const char *name = h->entries[k].name;
        bool known = strncmp(name, LLM_NAME_TRAINING, strlen(LLM_NAME_TRAINING)) == 0;
        for (size_t i = 0; i < n && !known; i++) {
            const char *ours = params[i]->name;
            known = strcmp(ours, name) == 0;
        }
        if (!known) status = llm_fail(e, EX_DATAERR, "tensor '%s': expected none of this name", name);
    }
    return status < 0 ? llm_in(e, "%s", llm_checkpoint_name(f)) : 0;
}

int llm_beside_describe(struct llm_model *m, const char *base, const struct llm_param *params, size_t n, json_t *meta,
                        struct llm_tensor_list *tensors, struct llm_err *e)
{
    if (llm_model_fingerprint(m, e) < 0) return -1;
    if (json_object_set_new(meta, LLM_META_BASE_FINGERPRINT, json_string(m->fingerprint)) < 0
        || (base && json_object_set_new(meta, LLM_META_BASE, json_string(base)) < 0)) {
        return llm_no_memory(e, "metadata");
    }
    if (llm_grow((void **)&tensors->v, &tensors->room, tensors->n + n, sizeof *tensors->v, e) < 0) return -1;
    for (size_t i = 0; i < n; i++) {
        const struct llm_param *p = &params[i];
        tensors->v[tensors->n++] = (struct llm_tensor_out){.name = p->name, .dtype = LLM_F32, .n_dims = p->n_dims,
                                                           .shape = {p->shape[0], p->shape[1]}, .data = p->weight.data};
    }
    return 0;
}

struct llm_model *llm_beside_load(const char *path, const char *base, struct llm_err *e)
{
    struct llm_model *m = NULL;
    const char *kind = llm_beside_kind(path);
    struct llm_checkpoint *f = kind ? llm_beside_open(path, kind, NULL, e) : NULL;
    if (!kind) llm_fail(e, EX_DATAERR, "%s: expected a lens or a dictionary", path);
    if (!f) return NULL;
    const char *training = llm_header_meta(llm_checkpoint_header(f), LLM_META_TRAINING);
    if (!base) base = llm_header_meta(llm_checkpoint_header(f), LLM_META_BASE);
    if (!base) llm_fail(e, EX_DATAERR, "%s: expected the path of its model (" LLM_META_BASE "), found none: --base says it", path);
    else m = llm_model_load(base, e);
    if (base && !m) llm_in(e, "%s: its model", path);
    json_t *state = m && training ? llm_json_parse(training, strlen(training), e) : NULL;
    if (m && check(f, kind, m, e) == 0 && (state || !training)) {
        json_decref(m->training);
        m->training = state;
        m->run_file = f;
        return m;
    }
    if (m) llm_in(e, "%s", path);
    json_decref(state);
    llm_model_destroy(m);
    llm_checkpoint_close(f);
    return NULL;
}
