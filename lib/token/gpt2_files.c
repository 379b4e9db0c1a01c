/* GPT-2's own two files: encoder.json (text → id) and vocab.bpe (a line a merge). They become the tokenizer.json that they mean. */
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

struct llm_tokenizer *llm_tokenizer_from_gpt2(const char *encoder_json, const char *vocab_bpe, struct llm_err *e)
{
    json_t *vocab = llm_json_load(encoder_json, MAX_FILE, e);
    if (!vocab)
        return NULL;
    json_t *merges = read_merges(vocab_bpe, e), *end = json_object_get(vocab, "<|endoftext|>"), *root = NULL;
    struct llm_tokenizer *t = NULL;
    if (!merges)
        goto done;
    root = json_pack("{s:[], s:{s:s, s:b, s:b}, s:{s:s, s:O, s:O}}", "added_tokens", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space",
                     0, "use_regex", 1, "model", "type", "BPE", "vocab", vocab, "merges", merges);
    if (!root) {
        llm_no_memory(e, "a tokenizer");
        goto done;
    }
    if (end && json_array_append_new(json_object_get(root, "added_tokens"),
                                     json_pack("{s:O, s:s, s:b}", "id", end, "content", "<|endoftext|>", "special", 1)) < 0) {
        llm_no_memory(e, "a tokenizer");
        goto done;
    }
    t = llm_tokenizer_from_value(root, e);
    if (!t)
        llm_in(e, "%s", encoder_json);
done:
    json_decref(root);
    json_decref(merges);
    json_decref(vocab);
    return t;
}
