#include "data/input.h"

#include <stdlib.h>
#include "base/buf.h"
#include "io/sniff.h"

void llm_input_release(struct llm_input *in)
{
    free(in->ids);
    free(in->mask);
    llm_tokens_close(in->stream);
    *in = (struct llm_input){0};
}

static int read_text(struct llm_input *in, struct llm_file *f, const struct llm_model *m, struct llm_err *e)
{
    struct llm_buf text = {0};
    int64_t got = 1;
    int status = -1;
    while (got > 0) {
        got = llm_buf_reserve(&text, text.n + (1 << 16), e) < 0 ? -1 : llm_file_read_some(f, text.p + text.n, 1 << 16, e);
        if (got > 0) text.n += (size_t)got;
    }
    if (got == 0 && !m->tokenizer) llm_fail(e, EX_DATAERR, "the model carries no tokenizer: expected a token stream, found text");
    else if (got == 0) status = llm_encode(m->tokenizer, text.p ? text.p : "", text.n, LLM_ENCODE_ADD_SPECIAL, &in->ids, &in->n, e);
    llm_buf_release(&text);
    if (status == 0) status = llm_model_check_ids(m, in->ids, (int64_t)in->n, e);
    return status < 0 ? llm_in(e, "%s", llm_file_name(f)) : 0;
}

static int read_stream(struct llm_input *in, struct llm_file *f, const struct llm_model *m, struct llm_err *e)
{
    const char *id = m->tokenizer ? llm_tokenizer_id(m->tokenizer) : NULL;
    in->stream = llm_tokens_from_file(f, id, (int32_t)m->config.vocab_size, e);
    if (!in->stream) return -1;
    in->n = (size_t)llm_tokens_count(in->stream);
    in->ids = llm_alloc(in->n, sizeof *in->ids, "tokens", e);
    in->mask = in->ids ? llm_alloc(in->n, 1, "tokens", e) : NULL;
    if (!in->mask) return -1;
    llm_tokens_get(in->stream, 0, in->n, in->ids, in->mask);
    return 0;
}

/* A token stream begins with a message: eight bytes of length, less than 4 GiB, then a brace. A text has no zero bytes. */
static int is_stream(struct llm_file *f, bool *yes, struct llm_err *e)
{
    size_t got = 0;
    const unsigned char *p = llm_file_peek(f, 9, &got, e);
    if (!p) return -1;
    *yes = got == 9 && p[8] == '{' && p[4] == 0 && p[5] == 0 && p[6] == 0 && p[7] == 0;
    return 0;
}

/* Any bytes can be a text, but a checkpoint, a GGUF file and a zstd archive are refused. */
static int check_text(struct llm_file *f, struct llm_err *e)
{
    enum llm_content content;
    if (llm_sniff(f, &content, e) < 0) return -1;
    if (content != LLM_CONTENT_CHECKPOINT && content != LLM_CONTENT_ZSTD && content != LLM_CONTENT_GGUF) return 0;
    return llm_sniff_refuse(f, "text or a token stream", e);
}

int llm_input_read(struct llm_input *in, const char *path, const struct llm_model *m, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    bool stream = false;
    if (!f) return -1;
    int status = is_stream(f, &stream, e);
    if (status == 0) status = stream ? read_stream(in, f, m, e) : check_text(f, e) < 0 ? -1 : read_text(in, f, m, e);
    llm_file_close(f);
    return status;
}
