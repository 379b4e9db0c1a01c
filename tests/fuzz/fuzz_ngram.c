/* Tables of n-grams, as a file of any bytes: whatever offsets and tokens say, no question leaves the tables, and they can be written as ARPA or are
 * refused. */
#include "fuzz.h"
#include "model/model.h"
#include "model/weights/ngram.h"

static void write_arpa(const struct llm_model *m)
{
    struct llm_err e = {0};
    struct llm_output *o = llm_output_open("/dev/null", false, &e);
    MUST(o);
    MUST(llm_arpa_write(m, o, &e) == 0 || e.status);
    llm_output_abandon(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    char path[40];
    int fd = fuzz_file(data, n, path);
    struct llm_model *m = llm_model_load(path, &e);
    MUST(m || e.status);
    if (m && m->ngram && m->config.vocab_size < 1 << 16) {
        const struct llm_ngram *g = m->ngram;
        float *all = malloc((size_t)g->vocab_size * sizeof *all), sum = 0;
        MUST(all);
        for (int32_t a = 0; a <= g->vocab_size && a < 6; a++) {
            int32_t newest[LLM_NGRAM_MAX_ORDER];
            struct llm_ngram_state s;
            for (int k = 0; k < LLM_NGRAM_MAX_ORDER; k++) newest[k] = (int32_t)((a + k * data[n - 1]) % (g->vocab_size + 2)) - 1;
            newest[0] = a;
            llm_ngram_find(g, newest, g->order - 1, &s);
            llm_ngram_log_probs(g, &s, all);
            for (int64_t w = 0; w <= g->vocab_size; w++) sum += llm_ngram_log_prob(g, &s, w);
        }
        free(all);
        write_arpa(m);
        MUST(sum != 12345.678f); /* is used */
    }
    llm_model_destroy(m);
    close(fd);
    return 0;
}
