/* JSON Lines as training data, by each objective that reads them: conversations, pairs, rollouts. The first byte chooses the objective. Lines are
 * read into records, or refused with a reason. */
#include "fuzz.h"
#include "base/log.h"
#include "cpu/pool.h"
#include "model/weights/model.h"
#include "train/lines.h"
#include "train/objective.h"

static struct llm_model *model(void)
{
    static struct llm_model *m;
    struct llm_err e = {0};
    if (m) return m;
    llm_verbosity = -1;
    MUST(llm_pool_start(1, &e) == 0);
    m = llm_model_load("tests/golden/tiny", &e);
    MUST(m && m->tokenizer && llm_model_fingerprint(m, &e) == 0);
    return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    enum { CONTEXT = 64 };
    struct llm_train_options o;
    struct llm_lines l;
    struct llm_err e = {0};
    int readers[64], n_readers = 0;
    char path[40];
    const char *const paths[] = {path};
    for (int i = 0; llm_objectives[i]; i++)
        if (llm_objectives[i]->record) readers[n_readers++] = i;
    if (n == 0) return 0;
    llm_train_options_default(&o);
    o.objective = readers[data[0] % n_readers];
    int fd = fuzz_file(data + 1, n - 1, path);
    MUST(llm_lines_init(&l, &o, model()->tokenizer, NULL, CONTEXT, &e) == 0);
    l.model = model();
    MUST(llm_chat_find(&l.chat, "chatml", NULL, model()->tokenizer, &e) == 0);
    struct llm_records *r = llm_lines_read(&l, paths, 1, &e);
    MUST(r || e.status);
    llm_records_destroy(r);
    llm_lines_release(&l);
    close(fd);
    return 0;
}
