/* ARPA files: what is taken can be asked, sampled from and written, and what was written is taken again, with as many n-grams. */
#include <math.h>
#include "fuzz.h"
#include "model/model.h"
#include "model/weights/ngram.h"

/* The model as ARPA text, read again. */
static struct llm_model *again(const struct llm_model *m)
{
    struct llm_err e = {0};
    char path[] = "/tmp/llm-fuzz-arpa-XXXXXX";
    int fd = mkstemp(path);
    MUST(fd >= 0);
    struct llm_output *o = llm_output_open(path, false, &e);
    MUST(o && llm_arpa_write(m, o, &e) == 0 && llm_output_commit(o, &e) == 0);
    struct llm_model *copy = llm_model_load(path, &e);
    if (!copy) fprintf(stderr, "%s\n", e.text);
    unlink(path);
    close(fd);
    return copy;
}

static void ask(const struct llm_ngram *g, int32_t a, int32_t b)
{
    const int32_t newest[2] = {a, b};
    struct llm_ngram_state s;
    llm_ngram_find(g, newest, g->order > 2 ? 2 : g->order - 1, &s);
    float *all = malloc((size_t)g->vocab_size * sizeof *all);
    MUST(all);
    llm_ngram_log_probs(g, &s, all);
    for (int64_t w = 0; w < g->vocab_size; w++) {
        float one = llm_ngram_log_prob(g, &s, w);
        MUST(one == all[w] || (isnan(one) && isnan(all[w])));
    }
    free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    struct llm_file *f = llm_file_from_memory(data, n, "fuzz", &e);
    MUST(f);
    struct llm_model *m = llm_arpa_read(f, &e), *copy;
    MUST(m || e.status);
    if (!m) return 0;
    int32_t last = (int32_t)m->config.vocab_size - 1;
    for (int32_t a = 0; a <= last && a < 8; a++) ask(m->ngram, a, last - a);
    copy = again(m);
    MUST(copy && copy->ngram->order == m->ngram->order);
    for (int k = 1; k < m->ngram->order; k++) MUST(llm_ngram_count(copy->ngram, k) == llm_ngram_count(m->ngram, k));
    llm_model_destroy(copy);
    llm_model_destroy(m);
    return 0;
}
