/* How many different n-grams there are, without keeping them (HyperLogLog, Flajolet et al. 2007): of the hashes that fall into a register the longest
 * run of zeros is kept, so that each kind counts once. 65,536 registers an order: .4%. */
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "train/ngram/ngram_internal.h"

enum { BLOCK = 1 << 16, INDEX = 16, REGISTERS = 1 << INDEX };

struct sketch {
    const struct llm_ngram_source *source;
    int order;
    bool cross_document;
    int64_t begin;
    uint8_t *registers;            /* [threads][order][REGISTERS] */
    bool failed;
};

static uint64_t mix(uint64_t h)
{
    h ^= h >> 31;
    h *= 0x7fb5d329728ea185;
    h ^= h >> 27;
    h *= 0x81dadef4bc2dd44d;
    return h ^ h >> 33;
}

/* All n-grams that end with token i of [from, …), whose text begins at `start`. */
static void put(const struct sketch *s, uint8_t *registers, const int32_t *ids, uint64_t from, uint64_t start, uint64_t i)
{
    uint64_t hash = 0;
    bool own = ids[start > from ? start - from : 0] == s->begin;
    for (int k = 0; k < s->order; k++) {
        int64_t id = s->begin;
        if ((uint64_t)k <= i - start) id = ids[i - (uint64_t)k - from];
        else if ((uint64_t)k > i - start + 1 || (start >= from && own)) return;
        hash = mix(hash * 31 + (uint64_t)id + 0x9e3779b97f4a7c15);
        uint64_t rest = hash << INDEX | (uint64_t)1 << (INDEX - 1);
        uint8_t zeros = (uint8_t)(__builtin_clzll(rest) + 1), *r = &registers[(size_t)k * REGISTERS + (hash >> (64 - INDEX))];
        if (zeros > *r) *r = zeros;
    }
}

static void sketch_block(void *arg, size_t block, int thread)
{
    struct sketch *s = arg;
    uint64_t at = block * BLOCK, end = at + BLOCK < s->source->n ? at + BLOCK : s->source->n, before = (uint64_t)s->order;
    size_t n_ends = 0, document = 0;
    const uint64_t *ends = s->cross_document ? NULL : llm_tokens_doc_ends(s->source->tokens, &n_ends);
    for (size_t high = n_ends; document < high;) {
        size_t middle = document + (high - document) / 2;
        if (ends[middle] <= at) document = middle + 1;
        else high = middle;
    }
    uint64_t start = document > 0 ? ends[document - 1] : 0, from = at - start > before ? at - before : start;
    int32_t *ids = llm_scratch(thread, (size_t)(end - from) * sizeof *ids);
    if (!ids) {
        s->failed = true;
        return;
    }
    llm_tokens_get(s->source->tokens, from, (size_t)(end - from), ids, NULL);
    for (uint64_t i = at; i < end; i++) {
        while (document < n_ends && ends[document] <= i) start = ends[document++];
        put(s, s->registers + (size_t)thread * (size_t)s->order * REGISTERS, ids, from, start, i);
    }
}

static double estimate(const uint8_t *registers)
{
    double sum = 0, m = REGISTERS;
    size_t zero = 0;
    for (size_t i = 0; i < REGISTERS; i++) {
        sum += ldexp(1, -registers[i]);
        zero += registers[i] == 0;
    }
    double raw = .7213 / (1 + 1.079 / m) * m * m / sum;
    return raw <= 2.5 * m && zero > 0 ? m * log(m / (double)zero) : raw; /* few: by the registers that are empty */
}

int llm_ngram_distinct(const struct llm_ngram_source *source, const struct llm_ngram_options *o, double types[LLM_NGRAM_MAX_ORDER], struct llm_err *e)
{
    struct sketch s = {.source = source, .order = o->order, .cross_document = o->cross_document, .begin = llm_ngram_begin(source)};
    size_t threads = (size_t)llm_pool_threads(), size = (size_t)o->order * REGISTERS;
    s.registers = llm_calloc(threads, size, "counting n-grams", e);
    if (!s.registers) return -1;
    llm_parallel((size_t)((source->n + BLOCK - 1) / BLOCK), sketch_block, &s);
    for (size_t t = 1; t < threads; t++) {
        for (size_t i = 0; i < size; i++) {
            if (s.registers[t * size + i] > s.registers[i]) s.registers[i] = s.registers[t * size + i];
        }
    }
    for (int k = 0; k < o->order; k++) types[k] = estimate(s.registers + (size_t)k * REGISTERS);
    free(s.registers);
    return s.failed ? llm_no_memory(e, "counting n-grams") : 0;
}
