/* Models made of tables that are there already (model/weights/ngram.h). */
#include <string.h>
#include "base/buf.h"
#include "model/weights/model.h"
#include "model/weights/ngram.h"

struct llm_model *llm_ngram_model(struct llm_ngram *g, int64_t bos, int64_t eos, struct llm_err *e)
{
    struct llm_config c = llm_config_blank(llm_arch_find("ngram"));
    c.vocab_size = g->vocab_size;
    c.ngram_order = g->order;
    c.ngram_begin = g->begin;
    c.bos_token_id = bos;
    c.eos_token_id = eos;
    json_t *nothing = json_object();
    int got = nothing ? llm_config_finish(&c, nothing, e) : llm_no_memory(e, "configuration");
    json_decref(nothing);
    struct llm_model *m = got == 0 ? llm_model_shape(&c, e) : NULL;
    if (!m) {
        llm_ngram_destroy(g);
        return NULL;
    }
    m->ngram = g;
    return m;
}
