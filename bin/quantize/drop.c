#include "bin/quantize/drop.h"

#include <inttypes.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/log.h"
#include "data/input.h"

enum { TOKENS = 2048 };

int quantize_drop(const struct drop_request *q, struct llm_model **m, struct llm_err *e)
{
    struct llm_model *base = llm_model_load(q->in, e);
    struct llm_kl_base b = {0};
    struct llm_input text = {0};
    struct llm_dropped *dropped = base ? llm_calloc((size_t)q->layers, sizeof *dropped, "layers", e) : NULL;
    int status = dropped ? llm_input_read(&text, q->text, base, e) : -1;
    const int64_t max = q->tokens > 0 ? q->tokens : TOKENS, n = text.n > (size_t)max ? max : (int64_t)text.n;
    if (status == 0 && (status = llm_kl_base_init(&b, base, text.ids, n, q->context, e)) < 0) llm_in(e, "%s", q->text);
    if (status == 0) status = llm_drop_layers(m, &b, q->layers, dropped, e);
    for (int64_t i = 0; i < q->layers && status == 0; i++) {
        llm_note("without layer %" PRId64 ": KL %.6f nats a token over %" PRId64 " tokens", dropped[i].layer, dropped[i].kl.mean,
                 dropped[i].kl.tokens);
    }
    free(dropped);
    llm_kl_base_release(&b);
    llm_model_destroy(base);
    llm_input_release(&text);
    return status;
}
