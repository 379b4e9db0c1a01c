/* The tables of n-gram models: memory, names, tensors (model/weights/ngram.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/buf.h"
#include "model/weights/ngram.h"

/* The arrays of a level, in the order in which files have them. */
enum kind { OLDEST, BACKOFF, DEEPER, FIRST, WORD, LOG_PROB, N_KINDS };
static const struct { const char *name; size_t at; bool tokens; enum llm_dtype dtype; } kinds[N_KINDS] = {
    [OLDEST] = {"context.%d.token", offsetof(struct llm_ngram_level, oldest), true, LLM_U32},
    [BACKOFF] = {"context.%d.backoff", offsetof(struct llm_ngram_level, backoff), false, LLM_F32},
    [DEEPER] = {"context.%d.longer", offsetof(struct llm_ngram_level, deeper), false, LLM_U32},
    [FIRST] = {"context.%d.ngrams", offsetof(struct llm_ngram_level, first), false, LLM_U32},
    [WORD] = {"ngram.%d.token", offsetof(struct llm_ngram_level, word), true, LLM_U32},
    [LOG_PROB] = {"ngram.%d.log_prob", offsetof(struct llm_ngram_level, log_prob), false, LLM_F32},
};

static struct llm_ngram_array *array_of(struct llm_ngram_level *l, enum kind k)
{
    return (struct llm_ngram_array *)((char *)l + kinds[k].at);
}

static bool has_array(int order, int k, enum kind kind)
{
    return !(kind == OLDEST && k == 1) && !(kind == DEEPER && k == order - 1);
}

static void name_array(char name[32], int k, enum kind kind)
{
    snprintf(name, 32, kinds[kind].name, kind == WORD || kind == LOG_PROB ? k + 1 : k);
}

static void array_release(struct llm_ngram_array *a)
{
    if (a->owner == LLM_NGRAM_HEAP) free((void *)a->data);
    if (a->owner == LLM_NGRAM_MAPPED) munmap((void *)a->data, llm_dtype_bytes(a->dtype, a->n));
    *a = (struct llm_ngram_array){.data = NULL};
}

void llm_ngram_destroy(struct llm_ngram *g)
{
    if (!g) return;
    array_release(&g->unigram);
    for (int k = 1; k < LLM_NGRAM_MAX_ORDER; k++) {
        for (int i = 0; i < N_KINDS; i++) array_release(array_of(&g->level[k], (enum kind)i));
    }
    free(g);
}

uint64_t llm_ngram_contexts(const struct llm_ngram *g, int k)
{
    return g->level[k].backoff.n;
}

uint64_t llm_ngram_count(const struct llm_ngram *g, int k)
{
    return k == 0 ? (uint64_t)g->vocab_size : g->level[k].word.n;
}

const struct llm_ngram_array *llm_ngram_tensor(const struct llm_ngram *g, size_t i, char name[32])
{
    if (i == 0) {
        snprintf(name, 32, "ngram.1.log_prob");
        return &g->unigram;
    }
    for (int k = 1; k < g->order; k++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            if (!has_array(g->order, k, (enum kind)kind) || --i > 0) continue;
            name_array(name, k, (enum kind)kind);
            return (const struct llm_ngram_array *)((const char *)&g->level[k] + kinds[kind].at);
        }
    }
    return NULL;
}

double llm_ngram_bytes(const struct llm_ngram *g)
{
    char name[32];
    double bytes = 0;
    for (size_t i = 0; i < LLM_NGRAM_MAX_TENSORS; i++) {
        const struct llm_ngram_array *a = llm_ngram_tensor(g, i, name);
        if (!a) break;
        bytes += (double)llm_dtype_bytes(a->dtype, a->n);
    }
    return bytes;
}

/* ---- loading ---- */

static int take(struct llm_ngram_array *a, struct llm_checkpoint *f, const char *name, enum llm_dtype dtype, struct llm_err *e)
{
    const struct llm_entry *t = llm_header_find(llm_checkpoint_header(f), name);
    if (!t) return llm_fail(e, EX_DATAERR, "tensor '%s': expected by the configuration, found none", name);
    if (t->dtype != dtype || t->n_dims != 1) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected %s of one dimension, found %s of %d", name, llm_dtypes[dtype].name,
                        llm_dtypes[t->dtype].name, t->n_dims);
    }
    a->n = (uint64_t)t->shape[0];
    a->dtype = dtype;
    a->data = llm_checkpoint_borrow(f, t);
    a->owner = LLM_NGRAM_BORROWED;
    if (a->data) return 0;
    void *copy = llm_alloc((size_t)a->n, (size_t)llm_dtypes[dtype].block_bytes, name, e);
    if (!copy) return -1;
    a->data = copy;
    a->owner = LLM_NGRAM_HEAP;
    return llm_checkpoint_read(f, t, copy, e);
}

static int expect(const struct llm_ngram_array *a, uint64_t n, int k, enum kind kind, struct llm_err *e)
{
    char name[32];
    if (a->n == n) return 0;
    name_array(name, k, kind);
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected [%" PRIu64 "], found [%" PRIu64 "]", name, n, a->n);
}

static int take_level(struct llm_ngram *g, int k, struct llm_checkpoint *f, struct llm_err *e)
{
    struct llm_ngram_level *l = &g->level[k];
    enum llm_dtype tokens = g->vocab_size < 65536 ? LLM_U16 : LLM_U32;
    for (int i = 0; i < N_KINDS; i++) {
        char name[32];
        if (!has_array(g->order, k, (enum kind)i)) continue;
        name_array(name, k, (enum kind)i);
        if (take(array_of(l, (enum kind)i), f, name, kinds[i].tokens ? tokens : kinds[i].dtype, e) < 0) return -1;
    }
    uint64_t n = l->backoff.n;
    if (k == 1 && expect(&l->backoff, (uint64_t)g->vocab_size + 1, k, BACKOFF, e) < 0) return -1;
    if (k > 1 && expect(&l->oldest, n, k, OLDEST, e) < 0) return -1;
    if (k < g->order - 1 && expect(&l->deeper, n + 1, k, DEEPER, e) < 0) return -1;
    return expect(&l->first, n + 1, k, FIRST, e) < 0 ? -1 : expect(&l->log_prob, l->word.n, k, LOG_PROB, e);
}

struct llm_ngram *llm_ngram_load(struct llm_checkpoint *f, const struct llm_config *c, struct llm_err *e)
{
    struct llm_ngram *g = llm_calloc(1, sizeof *g, "tables of n-grams", e);
    if (!g) return NULL;
    g->order = (int)c->ngram_order;
    g->vocab_size = c->vocab_size;
    g->begin = c->ngram_begin;
    int got = take(&g->unigram, f, "ngram.1.log_prob", LLM_F32, e);
    if (got == 0 && g->unigram.n != (uint64_t)g->vocab_size + 1) {
        got = llm_fail(e, EX_DATAERR, "tensor 'ngram.1.log_prob': expected [%" PRId64 "], found [%" PRIu64 "]", g->vocab_size + 1, g->unigram.n);
    }
    for (int k = 1; got == 0 && k < g->order; k++) got = take_level(g, k, f, e);
    if (got == 0) return g;
    llm_ngram_destroy(g);
    return NULL;
}
