/* Models to folders of Hugging Face's, which transformers reads (model/weights/save_folder.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "model/config/transformers.h"
#include "model/weights/save_folder.h"

enum { MAX_FILES = 8 };
static const char weights_file[] = "model.safetensors";
struct folder {
    const char *path;
    bool made; /* it did not exist */
    struct llm_output *v[MAX_FILES];
    size_t n;
};

/* path: room for the name of a file in the folder. */
static int name_file(char path[4096], const char *folder, const char *name, struct llm_err *e)
{
    size_t n = strlen(folder);
    if (snprintf(path, 4096, "%s%s%s", folder, n && folder[n - 1] == '/' ? "" : "/", name) < 4096) return 0;
    return llm_fail(e, EX_CANTCREAT, "%s: name too long", folder);
}

static struct llm_output *open_file(struct folder *f, const char *name, struct llm_err *e)
{
    char path[4096];
    struct llm_output *o = name_file(path, f->path, name, e) == 0 ? llm_output_open(path, false, e) : NULL;
    if (o) f->v[f->n++] = o;
    return o;
}

static int make_folder(struct folder *f, struct llm_err *e)
{
    f->made = mkdir(f->path, 0777) == 0;
    return f->made || errno == EEXIST ? 0 : llm_fail_errno(e, EX_CANTCREAT, "%s", f->path);
}

int llm_model_try_folder(const char *path, struct llm_err *e)
{
    struct folder f = {.path = path};
    char file[4096];
    int r = make_folder(&f, e);
    if (r == 0) r = name_file(file, path, weights_file, e);
    if (r == 0) r = llm_output_try(file, false, e);
    if (f.made) rmdir(path);
    return r;
}

bool llm_model_folder_takes(enum llm_dtype type)
{
    return type == LLM_F32 || type == LLM_F16 || type == LLM_BF16 || type == LLM_NO_DTYPE;
}

static int write_text(struct folder *f, const char *name, const char *text, size_t n, struct llm_err *e)
{
    struct llm_output *o = open_file(f, name, e);
    return o ? llm_output_write(o, text, n, e) : -1;
}

/* Takes the reference to `object`. */
static int write_json(struct folder *f, const char *name, json_t *object, struct llm_err *e)
{
    struct llm_buf text = {0};
    int r = object ? llm_json_dump(object, &text, e) : llm_no_memory(e, name);
    if (r == 0) r = llm_buf_put(&text, "\n", 1, e);
    if (r == 0) r = write_text(f, name, text.p, text.n, e);
    json_decref(object);
    llm_buf_release(&text);
    return r;
}

/* Of tokenizer_config.json; a token that there is not is left out. */
static int name_token(const struct llm_tokenizer *t, json_t *o, const char *key, int64_t id)
{
    size_t n;
    const char *text = id >= 0 && id < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, (int32_t)id, &n) : NULL;
    json_t *v = text ? json_stringn(text, n) : NULL; /* NULL, too: bytes that are no text */
    return v ? json_object_set_new(o, key, v) : 0;
}

static int write_tokenizer(struct folder *f, const struct llm_model *m, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    const struct llm_tokenizer *t = m->tokenizer;
    struct llm_buf text = {0};
    int r = llm_tokenizer_to_json(t, &text, e);
    if (r == 0) r = write_text(f, "tokenizer.json", text.p, text.n, e);
    llm_buf_release(&text);
    if (r < 0) return -1;
    /* Without a class that takes tokenizer.json as it is, transformers takes the family's, which splits texts by rules of its own. */
    json_t *o = json_pack("{s:s,s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0);
    if (!o || name_token(t, o, "bos_token", c->bos_token_id >= 0 ? c->bos_token_id : llm_tokenizer_bos(t)) < 0
        || name_token(t, o, "eos_token", c->eos_token_id >= 0 ? c->eos_token_id : llm_tokenizer_eos(t)) < 0
        || name_token(t, o, "unk_token", llm_tokenizer_unknown(t)) < 0 || name_token(t, o, "mask_token", llm_model_mask_token(m)) < 0) {
        json_decref(o);
        return llm_no_memory(e, "tokenizer_config.json");
    }
    return write_json(f, "tokenizer_config.json", o, e);
}

/* The tokens that begin and end a text, as transformers' generate wants them. */
static int write_generation(struct folder *f, const json_t *config, struct llm_err *e)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "decoder_start_token_id"};
    json_t *o = json_object();
    for (size_t i = 0; o && i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(config, keys[i]);
        if (v && !json_is_null(v) && json_object_set(o, keys[i], v) < 0) return json_decref(o), llm_no_memory(e, "generation_config.json");
    }
    if (o && json_object_size(o) == 0) return json_decref(o), 0;
    return write_json(f, "generation_config.json", o, e);
}

static int check_types(const struct llm_model *m, struct llm_err *e)
{
    if (m->ngram) return llm_fail(e, EX_UNAVAILABLE, "a folder of Hugging Face's: expected a network, found n-grams");
    for (size_t i = 0; i < m->n_params; i++) {
        enum llm_dtype type = m->params[i].weight.dtype;
        if (llm_model_folder_takes(type)) continue;
        return llm_fail(e, EX_UNAVAILABLE, "a folder of Hugging Face's: tensor '%s': expected f32, f16 or bf16, found %s", m->params[i].name,
                        llm_dtypes[type].name);
    }
    return 0;
}

int llm_model_save_folder(struct llm_model *m, const char *path, struct llm_err *e)
{
    struct folder f = {.path = path};
    if (check_types(m, e) < 0) return llm_in(e, "%s", path);
    json_t *config = llm_config_for_transformers(&m->config, e);
    if (!config) return -1;
    int r = llm_model_write_labels(m, config) < 0 ? llm_no_memory(e, "configuration") : 0;
    if (r == 0) r = make_folder(&f, e);
    struct llm_output *weights = r == 0 ? open_file(&f, weights_file, e) : NULL;
    if (r == 0) r = weights ? llm_model_save_weights(m, weights, e) : -1;
    if (r == 0) r = write_json(&f, "config.json", json_incref(config), e);
    if (r == 0) r = write_generation(&f, config, e);
    if (r == 0 && m->tokenizer) r = write_tokenizer(&f, m, e);
    if (r == 0 && m->chat_template) r = write_text(&f, "chat_template.jinja", m->chat_template, strlen(m->chat_template), e);
    if (r == 0 && m->preprocessor) r = write_text(&f, "preprocessor_config.json", m->preprocessor, strlen(m->preprocessor), e);
    json_decref(config);
    if (r == 0) {
        r = llm_output_commit_all(f.v, f.n, e);
    } else {
        for (size_t i = 0; i < f.n; i++) llm_output_abandon(f.v[i]);
    }
    if (r < 0 && f.made) rmdir(path);
    return r;
}
