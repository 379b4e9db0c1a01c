/* GGUF: whatever is accepted lies inside the input, apart from each other, and can be read; configurations that come out can be multiplied. */
#include "fuzz.h"
#include "io/gguf.h"
#include "model/config/gguf.h"

static void check_values(const struct llm_gguf *g, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct llm_gguf_value *v = &g->values[i];
        const char *s;
        size_t length;
        uint64_t at = 0, strings = 0;
        MUST(llm_gguf_find(g, v->key) == v);
        MUST(v->p >= data && v->bytes <= n && v->p + v->bytes <= data + n);
        while (llm_gguf_next(v, &at, &s, &length)) {
            MUST((const uint8_t *)s + length <= data + n);
            strings++;
        }
        MUST(v->type != LLM_GGUF_STRING || strings == v->n);
        for (uint64_t j = 0; v->type != LLM_GGUF_STRING && j < v->n && j < 100; j++) {
            (void)llm_gguf_number(v, j);
            (void)llm_gguf_whole(v, j);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_gguf g;
    struct llm_header h;
    struct llm_config c;
    struct llm_err e = {0};
    uint64_t last = 0;
    if (llm_gguf_parse(&g, &h, data, n, "fuzz", &e) < 0) {
        MUST(e.status != 0);
        return 0;
    }
    check_values(&g, data, n);
    for (size_t i = 0; i < h.n_entries; i++) {
        const struct llm_entry *t = &h.entries[i];
        MUST(t->offset >= last && t->bytes <= h.data_bytes && t->offset <= h.data_bytes - t->bytes);
        MUST(h.header_bytes + t->offset + t->bytes <= n || t->bytes == 0);
        MUST(llm_header_find(&h, t->name) == t);
        last = t->offset + t->bytes;
    }
    json_t *nothing = json_object();
    if (llm_gguf_config(&c, &g, &e) == 0 && llm_config_finish(&c, nothing, &e) == 0) {
        int64_t most;
        MUST(!__builtin_mul_overflow(c.hidden_size, c.intermediate_size, &most) && c.num_hidden_layers >= 1);
    }
    json_decref(nothing);
    llm_gguf_release(&g);
    llm_header_release(&h);
    return 0;
}
