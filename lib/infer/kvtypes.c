#include "infer/kvtypes.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/suggest.h"

const enum llm_dtype llm_kv_types[] = {LLM_F32, LLM_F16, LLM_BF16, LLM_Q8_0, LLM_Q4_0, LLM_Q8_0_ROT, LLM_Q4_0_ROT, LLM_NO_DTYPE};

const char *llm_kv_word(int i) { return llm_kv_types[i] == LLM_NO_DTYPE ? NULL : llm_dtypes[llm_kv_types[i]].name; }

/* The type that the first n bytes of `word` name; of values, which are not rotated, if `values`. */
static int read_type(const char *word, size_t n, bool values, enum llm_dtype *type, struct llm_err *e)
{
    struct llm_suggest near;
    char list[200] = "", found[40];
    for (int i = 0; llm_kv_word(i); i++) {
        if (values && llm_kv_types[i] != llm_dtype_unrotated(llm_kv_types[i])) continue;
        if (strlen(llm_kv_word(i)) != n || strncmp(word, llm_kv_word(i), n) != 0) continue;
        *type = llm_kv_types[i];
        return 0;
    }
    snprintf(found, sizeof found, "%.*s", (int)(n < 39 ? n : 39), word);
    llm_suggest_begin(&near, found);
    for (int i = 0; llm_kv_word(i); i++) {
        if (values && llm_kv_types[i] != llm_dtype_unrotated(llm_kv_types[i])) continue;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? "|" : "", llm_kv_word(i));
        llm_suggest_add(&near, llm_kv_word(i), llm_kv_word(i));
    }
    return llm_fail(e, LLM_EX_USAGE, "expected one of %s, found '%s'%s", list, found, llm_suggest_text(&near, ""));
}

/* Reads the part that begins at `text` and has n bytes. Layers are of[0..layers), or any if `of` is NULL. */
static int read_part(const char *text, size_t n, struct llm_kv_pair *of, int64_t layers, struct llm_err *e)
{
    const char *end = text + n, *colon = memchr(text, ':', n), *types = colon ? colon + 1 : text;
    const char *comma = memchr(types, ',', (size_t)(end - types));
    int64_t first = 0, last = layers - 1;
    struct llm_kv_pair pair;
    if (colon) {
        char *at;
        first = last = strtoll(text, &at, 10);
        if (at > text && *at == '-') last = strtoll(at + 1, &at, 10);
        if (text[0] < '0' || text[0] > '9' || at != colon || last < first) {
            return llm_fail(e, LLM_EX_USAGE, "expected layers as 3: or 2-5:, found '%.*s'", (int)(colon - text + 1), text);
        }
        if (of && last >= layers) return llm_fail(e, LLM_EX_USAGE, "expected layers below %" PRId64 ", found %" PRId64, layers, last);
    }
    if (read_type(types, (size_t)((comma ? comma : end) - types), false, &pair.k, e) < 0) return -1;
    pair.v = llm_dtype_unrotated(pair.k);
    if (comma && read_type(comma + 1, (size_t)(end - comma - 1), true, &pair.v, e) < 0) return -1;
    for (int64_t l = first; of && l <= last; l++) of[l] = pair;
    return 0;
}

static int read_parts(const char *text, struct llm_kv_pair *of, int64_t layers, struct llm_err *e)
{
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, "/");
        if (read_part(at, n, of, layers, e) < 0) return -1;
        at += n;
        if (!*at) return 0;
    }
}

int llm_kv_types_read(const char *text, struct llm_kv_pair *of, int64_t n, struct llm_err *e)
{
    for (int64_t l = 0; l < n; l++) of[l] = (struct llm_kv_pair){LLM_NO_DTYPE, LLM_NO_DTYPE};
    if (read_parts(text, of, n, e) < 0) return -1;
    for (int64_t l = 0; l < n; l++) {
        if (of[l].k == LLM_NO_DTYPE) return llm_fail(e, LLM_EX_USAGE, "expected a type for layer %" PRId64 ", found none in '%s'", l, text);
    }
    return 0;
}

int llm_kv_types_check(const char *text, struct llm_err *e)
{
    return text ? read_parts(text, NULL, 0, e) : 0;
}

char *llm_kv_types_text(const struct llm_kv_pair *of, int64_t n, struct llm_err *e)
{
    enum { PART = 64 }; /* more than a part takes */
    char *text = llm_calloc((size_t)n + 1, PART, "types of a cache", e);
    size_t at = 0;
    for (int64_t first = 0, end; text && first < n; first = end) {
        for (end = first + 1; end < n && of[end].k == of[first].k && of[end].v == of[first].v; end++) { }
        char layers[48] = "";
        if (end - first == 1) snprintf(layers, sizeof layers, "%" PRId64 ":", first);
        else snprintf(layers, sizeof layers, "%" PRId64 "-%" PRId64 ":", first, end - 1);
        at += (size_t)snprintf(text + at, PART, "%s%s%s", first ? "/" : "", first == 0 && end == n ? "" : layers, llm_dtypes[of[first].k].name);
        if (of[first].v != llm_dtype_unrotated(of[first].k)) at += (size_t)snprintf(text + at, PART, ",%s", llm_dtypes[of[first].v].name);
    }
    return text;
}
