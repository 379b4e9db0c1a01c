/* Models from Hugging Face folders: config.json, weights in one file or in those that an index names, a tokenizer, a chat template, how texts are
 * embedded (sentence-transformers), and the tokens that end a text, wherever the folder names them. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/log.h"
#include "model/config/sentence.h"
#include "model/weights/open.h"
#include "token/chat/find.h"
#include "token/image/processor.h"

/* Adds the token of "eos_token", a string or an object with "content", to those that end a text. */
static void add_token(struct llm_model *m, const json_t *o)
{
    const json_t *v = json_object_get(o, "eos_token");
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    if (text && m->tokenizer) llm_config_add_eos(&m->config, llm_tokenizer_special(m->tokenizer, text));
}

/* Would transformers' generate do something for this value? */
static bool is_at_work(const json_t *v)
{
    return json_is_array(v) ? json_array_size(v) > 0 : json_is_object(v) ? json_object_size(v) > 0
           : json_is_number(v) ? json_number_value(v) > 0 : json_is_true(v);
}

/* Warns of what generation_config.json does to texts whatever the options are, and nothing does here. */
static void warn_of_rules(const json_t *o, const char *path)
{
    static const char *const keys[] = {"forced_bos_token_id", "forced_eos_token_id", "forced_decoder_ids", "suppress_tokens", "begin_suppress_tokens",
                                       "bad_words_ids", "force_words_ids", "sequence_bias", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
                                       "exponential_decay_length_penalty", "min_length", "min_new_tokens"};
    char text[400] = "";
    for (size_t i = 0, n = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(o, keys[i]);
        bool id = json_is_integer(v) && i < 2; /* 0 is one, too */
        if (id || is_at_work(v)) n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", keys[i]);
    }
    if (*text) llm_warn("%s: not applied to texts: %s", path, text);
}

static int read_ends(struct llm_model *m, const char *folder, size_t n, struct llm_err *e)
{
    static const struct { const char *name; bool ids; } files[] = {
        {"generation_config.json", true}, {"tokenizer_config.json", false}, {"special_tokens_map.json", false}};
    char path[4096];
    struct stat st;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (snprintf(path, sizeof path, "%.*s/%s", (int)n, folder, files[i].name) >= (int)sizeof path || stat(path, &st) != 0) continue;
        json_t *o = llm_json_load(path, 64 << 20, e);
        if (!o) return -1;
        int r = files[i].ids ? llm_config_add_eos_from(&m->config, o, "eos_token_id", e) : 0;
        if (!files[i].ids) add_token(m, o);
        else if (r == 0) warn_of_rules(o, path);
        json_decref(o);
        if (r < 0) return llm_in(e, "%s", path);
    }
    return 0;
}

/* Takes the folder's chat template if it has one that parses. Without it the model serves everything but chats, which report the reason themselves.
 * */
static void take_chat_template(struct llm_model *m, const char *folder, size_t n)
{
    char path[4096];
    struct llm_chat c = {0};
    struct llm_err e;
    if (llm_path_join(path, folder, n, "", &e) == 0 && llm_chat_find(&c, NULL, path, NULL, &e) == 0 && !m->chat_template) {
        m->chat_template = c.text;
        c.text = NULL;
    }
    llm_chat_release(&c);
}

/* Takes what the folder says of pictures, if it says something that is JSON; it is checked where pictures are read. */
static void take_preprocessor(struct llm_model *m, const char *folder, size_t n)
{
    char path[LLM_IMAGE_PROCESSOR_PATH];
    struct llm_err e;
    struct llm_buf text = {0};
    struct llm_config sees;
    if (!llm_config_sees(&m->config, &sees) || m->preprocessor) return;
    json_t *o = llm_image_processor_find(folder, n, path, &e);
    if (o && llm_json_dump(o, &text, &e) == 0) m->preprocessor = strndup(text.p, text.n);
    llm_buf_release(&text);
    json_decref(o);
}

struct llm_model *llm_open_in_folder(const char *folder, size_t n, struct llm_model_files *files, const char *name, struct llm_err *e)
{
    char path[4096];
    struct stat st;
    json_t *config = llm_path_join(path, folder, n, "config.json", e) == 0 ? llm_json_load(path, 1 << 20, e) : NULL;
    if (!config || llm_config_of_file(config, e) < 0) {
        json_decref(config);
        llm_model_files_close(files);
        return NULL;
    }
    struct llm_model *m = llm_open_with_json(files, name, config, e);
    json_decref(config);
    if (m) take_chat_template(m, folder, n);
    if (m) take_preprocessor(m, folder, n);
    if (m && (llm_model_fit_positions(m, e) < 0 || llm_sentence_read(&m->config, folder, n, e) < 0)) {
        llm_model_destroy(m);
        return NULL;
    }
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "spiece.model", LLM_NAME_RWKV_VOCABULARY};
    for (size_t i = 0; m && !m->tokenizer && i < sizeof names / sizeof *names; i++) {
        int joined = llm_path_join(path, folder, n, names[i], e);
        if (joined == 0 && stat(path, &st) != 0) continue;
        if (joined == 0) joined = llm_path_join(path, folder, n, "", e);
        if (joined == 0 && (m->tokenizer = llm_tokenizer_load(path, NULL, e)) != NULL) continue;
        llm_model_destroy(m);
        return NULL;
    }
    /* A model that generates no text ends none: its end token is where its vectors are taken from, which the configuration alone says. */
    if (!m || m->config.pooling == LLM_POOL_EOS || read_ends(m, folder, n, e) == 0) return m;
    llm_model_destroy(m);
    return NULL;
}

struct llm_model *llm_open_folder(const char *folder, struct llm_err *e)
{
    char config[4096], whole[4096], index[4096];
    struct llm_model_files files = {0};
    struct stat st;
    size_t n = strlen(folder);
    if (llm_path_join(config, folder, n, "config.json", e) < 0 || llm_path_join(whole, folder, n, "model.safetensors", e) < 0
        || llm_path_join(index, folder, n, LLM_MODEL_INDEX, e) < 0) return NULL;
    if (stat(config, &st) != 0) { /* said first: it is what makes a folder a model */
        llm_model_no_folder(folder, e);
        return NULL;
    }
    bool many = stat(whole, &st) != 0 && stat(index, &st) == 0;
    if ((many ? llm_model_files_open_index(&files, index, e) : llm_model_files_open(&files, whole, e)) < 0) return NULL;
    return llm_open_in_folder(folder, n, &files, many ? index : whole, e);
}
