/* What a folder's tokenizer_config.json says of a tokenizer that has no tokenizer.json: tokens beside those of the .model, and what stands around
 * documents. Keys: added_tokens_decoder {id: {content, special, lstrip, rstrip, single_word, normalized}}, bos_token, eos_token, add_bos_token,
 * add_eos_token, tokenizer_class, do_lower_case. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"

int llm_added_token(const json_t *o, const char **text, size_t *n, unsigned char *flags, struct llm_err *e)
{
    const json_t *content = json_object_get(o, "content");
    bool special = false, normalized = false, single = false, left = false, right = false;
    if (!json_is_string(content) || json_string_length(content) == 0)
        return llm_fail(e, EX_DATAERR, "expected a content");
    if (llm_json_bool(o, "special", &special, e) < 0 || llm_json_bool(o, "normalized", &normalized, e) < 0
        || llm_json_bool(o, "single_word", &single, e) < 0 || llm_json_bool(o, "lstrip", &left, e) < 0
        || llm_json_bool(o, "rstrip", &right, e) < 0)
        return -1;
    *text = json_string_value(content);
    *n = json_string_length(content);
    *flags = (unsigned char)(LLM_TOKEN_ADDED | (special ? LLM_TOKEN_SPECIAL : 0) | (normalized ? LLM_TOKEN_NORMALIZED : 0)
                             | (single ? LLM_TOKEN_SINGLE_WORD : 0) | (left ? LLM_TOKEN_STRIP_LEFT : 0) | (right ? LLM_TOKEN_STRIP_RIGHT : 0));
    return 0;
}

static int put_added(struct llm_vocab *v, const char *key, const json_t *o, struct llm_err *e)
{
    const char *text;
    size_t n;
    unsigned char flags;
    char *end;
    long id = strtol(key, &end, 10);
    if (*key < '0' || *key > '9' || *end || id >= LLM_MAX_VOCAB)
        return llm_fail(e, EX_DATAERR, "expected an id");
    if (llm_added_token(o, &text, &n, &flags, e) < 0)
        return -1;
    if ((size_t)id >= v->n || !v->v[id].flags)
        return llm_vocab_put(v, id, (const unsigned char *)text, n, flags, e);
    struct llm_vocab_entry *piece = &v->v[id];
    if (piece->n != n || memcmp(piece->text, text, n) != 0)
        return llm_fail(e, EX_DATAERR, "token id %ld is '%.*s' in the model and '%.*s' here", id, (int)(piece->n < 100 ? piece->n : 100),
                        (const char *)piece->text, (int)(n < 100 ? n : 100), text);
    piece->flags = (unsigned char)(LLM_TOKEN_PRESENT | (piece->flags & LLM_TOKEN_MODEL) | flags);
    return 0;
}

int llm_config_put_added(struct llm_vocab *v, const json_t *config, struct llm_err *e)
{
    json_t *added = json_object_get(config, "added_tokens_decoder"), *o;
    const char *key;
    if (added && !json_is_object(added))
        return llm_fail(e, EX_DATAERR, "added_tokens_decoder: expected an object");
    v->limit += (int64_t)json_object_size(added);
    json_object_foreach(added, key, o)
        if (put_added(v, key, o, e) < 0)
            return llm_in(e, "added_tokens_decoder: '%s'", key);
    for (size_t id = 0; id < v->n; id++)
        if (!v->v[id].flags && json_object_size(added))
            return llm_fail(e, EX_DATAERR, "added_tokens_decoder: token id %zu is missing", id);
    return 0;
}

/* "bos_token": a text, or an object with "content". The token's id, or what it was. */
static int32_t id_of(const struct llm_tokenizer *t, const json_t *config, const char *key, int32_t normally)
{
    const json_t *v = json_object_get(config, key);
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    int32_t id = text ? llm_tokenizer_special(t, text) : -1;
    return id < 0 ? normally : id;
}

int llm_config_class(const json_t *config, struct llm_config_class *c, struct llm_err *e)
{
    *c = (struct llm_config_class){.name = "", .lowers = true};
    if (llm_json_str(config, "tokenizer_class", &c->name, e) < 0)
        return -1;
    c->siglip = strcmp(c->name, "SiglipTokenizer") == 0;
    return c->siglip ? llm_json_bool(config, "do_lower_case", &c->lowers, e) : 0;
}

int llm_config_set_ends(struct llm_tokenizer *t, const json_t *config, struct llm_err *e)
{
    struct llm_config_class c;
    if (llm_config_class(config, &c, e) < 0)
        return -1;
    /* what these classes do where nothing is said */
    bool bos = strncmp(c.name, "Llama", 5) == 0 || strncmp(c.name, "Gemma", 5) == 0, eos = strncmp(c.name, "T5", 2) == 0 || c.siglip;
    if (llm_json_bool(config, "add_bos_token", &bos, e) < 0 || llm_json_bool(config, "add_eos_token", &eos, e) < 0)
        return -1;
    t->bos = id_of(t, config, "bos_token", t->bos);
    t->eos = id_of(t, config, "eos_token", t->eos);
    t->n_before = t->n_after = 0;
    if (bos && t->bos >= 0)
        t->before[t->n_before++] = t->bos;
    if (eos && t->eos >= 0)
        t->after[t->n_after++] = t->eos;
    return 0;
}
