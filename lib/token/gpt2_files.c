/* The two files of GPT-2 and of CLIP: encoder.json or vocab.json (text → id) and vocab.bpe or merges.txt (a line a merge). They become the
 * tokenizer.json that they mean. */
#include <string.h>
#include "base/json.h"
#include "io/file.h"
#include "token/internal.h"

#define MAX_FILE ((size_t)1 << 28)

static json_t *read_merges(const char *path, struct llm_err *e)
{
    struct llm_map m;
    if (llm_map_open(&m, path, e) < 0)
        return NULL;
    json_t *list = json_array();
    const char *p = m.p ? (const char *)m.p : "", *end = p + m.n;
    for (size_t line = 1; list && p < end; line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop)
            stop = end;
        size_t n = (size_t)(stop - p) - (stop > p && stop[-1] == '\r');
        bool comment = line == 1 && n && *p == '#';
        if (n && !comment && json_array_append_new(list, json_stringn(p, n)) < 0) {
            llm_fail(e, EX_DATAERR, "%s: line %zu: expected UTF-8", path, line);
            json_decref(list);
            list = NULL;
        }
        p = stop + 1;
    }
    llm_map_close(&m);
    return list;
}

/* What such files do not say: the rest of the tokenizer.json of transformers' class for them. */
struct rest {
    const char *class; /* without the "Fast" that may follow */
    const char *bos, *eos;
    const char *json;
};

static const struct rest rests[] = {
    {"GPT2Tokenizer", NULL, "<|endoftext|>",
     "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}, \"model\": {\"type\": \"BPE\"}}"},
    {"CLIPTokenizer", "<|startoftext|>", "<|endoftext|>",
     "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\s+\"}, "
     "\"content\": \" \"}, {\"type\": \"Lowercase\"}]}, "
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
     "\"<\\\\|startoftext\\\\|>|<\\\\|endoftext\\\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\\\p{L}]+|[\\\\p{N}]|[^\\\\s\\\\p{L}\\\\p{N}]+\"}, "
     "\"behavior\": \"Removed\", \"invert\": true}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true}]}, "
     "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true}, "
     "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<|endoftext|>\", \"end_of_word_suffix\": \"</w>\"}}"},
};

static const struct rest *find_rest(const char *class, struct llm_err *e)
{
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        size_t n = strlen(rests[i].class);
        if (strncmp(class, rests[i].class, n) == 0 && (!class[n] || strcmp(class + n, "Fast") == 0))
            return &rests[i];
    }
    llm_fail(e, EX_UNAVAILABLE, "vocab.json and merges.txt of tokenizer_class '%s': expected GPT2Tokenizer or CLIPTokenizer, or a tokenizer.json",
             class);
    return NULL;
}

/* A special token that the vocabulary has, to `added`; false: memory is short. */
static bool put_special(json_t *added, const json_t *vocab, const char *text)
{
    json_t *id = text ? json_object_get(vocab, text) : NULL;
    return !id || json_array_append_new(added, json_pack("{s:O, s:s, s:b}", "id", id, "content", text, "special", 1)) == 0;
}

static json_t *put_together(const struct rest *r, json_t *vocab, json_t *merges, struct llm_err *e)
{
    json_t *root = llm_json_parse(r->json, strlen(r->json), e), *model = json_object_get(root, "model"), *added = json_array();
    json_t *bos = r->bos ? json_object_get(vocab, r->bos) : NULL, *eos = json_object_get(vocab, r->eos);
    bool done = root && put_special(added, vocab, r->bos) && put_special(added, vocab, r->eos) && json_object_set(model, "vocab", vocab) == 0
                && json_object_set(model, "merges", merges) == 0;
    if (done && bos && eos)
        done = json_object_set_new(root, "post_processor", json_pack("{s:s, s:[s, O], s:[s, O]}", "type", "RobertaProcessing", "cls", r->bos, bos,
                                                                     "sep", r->eos, eos)) == 0;
    done = json_object_set_new(root, "added_tokens", added) == 0 && done;
    if (done)
        return root;
    json_decref(root);
    llm_no_memory(e, "a tokenizer");
    return NULL;
}

struct llm_tokenizer *llm_tokenizer_from_gpt2(const char *vocab_json, const char *merges_text, const char *class, struct llm_err *e)
{
    const struct rest *rest = find_rest(class, e);
    json_t *vocab = rest ? llm_json_load(vocab_json, MAX_FILE, e) : NULL;
    json_t *merges = vocab ? read_merges(merges_text, e) : NULL;
    json_t *root = merges ? put_together(rest, vocab, merges, e) : NULL;
    struct llm_tokenizer *t = root ? llm_tokenizer_from_value(root, e) : NULL;
    if (root && !t)
        llm_in(e, "%s", vocab_json);
    json_decref(root);
    json_decref(merges);
    json_decref(vocab);
    return t;
}
