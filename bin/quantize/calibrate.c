#include "bin/quantize/calibrate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/log.h"
#include "data/tokens.h"
#include "io/sniff.h"
#include "quant/imatrix.h"

struct ids { int32_t *v; size_t n; };

static int read_text(struct ids *in, struct llm_file *f, const struct llm_model *m, struct llm_err *e)
{
    struct llm_buf text = {0};
    enum llm_content content;
    int64_t got = 1;
    int status = -1;
    if (llm_sniff(f, &content, e) < 0) return -1;
    if (content == LLM_CONTENT_CHECKPOINT || content == LLM_CONTENT_ZSTD || content == LLM_CONTENT_GGUF) {
        return llm_sniff_refuse(f, "text or a token stream", e);
    }
    while (got > 0) {
        got = llm_buf_reserve(&text, text.n + (1 << 16), e) < 0 ? -1 : llm_file_read_some(f, text.p + text.n, 1 << 16, e);
        if (got > 0) text.n += (size_t)got;
    }
    if (got == 0 && !m->tokenizer) llm_fail(e, EX_DATAERR, "the model carries no tokenizer: expected a token stream, found text");
    else if (got == 0) status = llm_encode(m->tokenizer, text.p ? text.p : "", text.n, LLM_ENCODE_ADD_SPECIAL, &in->v, &in->n, e);
    llm_buf_release(&text);
    return status < 0 ? llm_in(e, "%s", llm_file_name(f)) : 0;
}

static int read_stream(struct ids *in, struct llm_file *f, const struct llm_model *m, struct llm_err *e)
{
    const char *id = m->tokenizer ? llm_tokenizer_id(m->tokenizer) : NULL;
    struct llm_tokens *t = llm_tokens_from_file(f, id, (int32_t)m->config.vocab_size, e);
    if (!t) return -1;
    in->n = (size_t)llm_tokens_count(t);
    in->v = llm_alloc(in->n + 1, sizeof *in->v, "tokens", e);
    if (in->v) llm_tokens_get(t, 0, in->n, in->v, NULL);
    llm_tokens_close(t);
    return in->v ? 0 : -1;
}

/* A token stream begins with a message: eight bytes of length, then a brace. */
static int read_ids(struct ids *in, const char *path, const struct llm_model *m, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    size_t got = 0;
    const unsigned char *p = f ? llm_file_peek(f, 9, &got, e) : NULL;
    int status = -1;
    if (p) status = got == 9 && p[8] == '{' && !p[4] && !p[5] && !p[6] && !p[7] ? read_stream(in, f, m, e) : read_text(in, f, m, e);
    llm_file_close(f);
    return status == 0 ? llm_model_check_ids(m, in->v, (int64_t)in->n, e) : -1;
}

static int gather(const struct calibration *c, struct llm_model *model, struct llm_moments *m, struct llm_err *e)
{
    struct ids in = {0};
    int status = read_ids(&in, c->text, model, e);
    if (status == 0 && c->tokens > 0 && in.n > (size_t)c->tokens) in.n = (size_t)c->tokens;
    if (status == 0) status = llm_moments_gather(m, model, in.v, in.n, c->context, e);
    free(in.v);
    return status;
}

static void tell(const struct llm_moments *m)
{
    struct llm_coverage c = llm_moments_coverage(m);
    if (m->tokens > 0) llm_note("calibration: %.0f tokens in %" PRId64 " windows", m->tokens, m->chunks);
    if (c.unseen > 0) {
        llm_note("calibration: no token chose %zu of %zu experts: their matrices are quantised without importances", c.unseen, c.experts);
    } else if (c.experts > 0) {
        llm_note("calibration: each of %zu experts saw at least %.0f tokens", c.experts, c.least);
    }
}

static int write_out(const struct calibration *c, const struct llm_model *model, const struct llm_moments *m, struct llm_err *e)
{
    const char *dataset = c->text ? c->text : c->importances;
    struct llm_output *o = llm_output_open(c->out, true, e);
    if (!o) return -1;
    if (llm_imatrix_write(m, model, llm_ends_with(c->out, ".dat"), dataset, c->context ? c->context : 512, o, e) < 0) {
        llm_output_abandon(o);
        return -1;
    }
    return llm_output_commit(o, e);
}

int quantize_calibrate(const struct calibration *c, struct llm_model *model, struct llm_moments *m, struct llm_err *e)
{
    size_t unknown = 0;
    int status = c->out ? llm_output_try(c->out, true, e) : 0;
    if (status == 0) status = llm_moments_init(m, model, e);
    if (status == 0 && c->products) status = llm_moments_want_products(m, e);
    if (status == 0) status = c->text ? gather(c, model, m, e) : llm_imatrix_read(m, model, c->importances, &unknown, e);
    if (status != 0) return status;
    if (unknown > 0) llm_note("%s: %zu entries are of no matrix of this model", c->importances, unknown);
    tell(m);
    return c->out ? write_out(c, model, m, e) : 0;
}
