/* Filling in the middle (Bavarian et al. 2022): finds a tokenizer's markers and puts each part of a text after its marker. */
#include "model/weights/fim.h"

#include <string.h>

/* The markers' names in known tokenizers: Qwen (also CodeGemma and others), StarCoder, SantaCoder, DeepSeek, Code Llama, Granite. */
static const char *const names[][3] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"}, {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"▁<PRE>", "▁<SUF>", "▁<MID>"}, {"<|fim_begin|>", "<|fim_hole|>", "<|fim_end|>"}, {"[PREFIX]", "[SUFFIX]", "[MIDDLE]"}};

int llm_model_fim(const struct llm_model *m, struct llm_fim *f, struct llm_err *e)
{
    int64_t vocab = m->config.vocab_size, eos = m->config.eos_token_id >= 0 || !m->tokenizer ? m->config.eos_token_id
                                                                                            : llm_tokenizer_eos(m->tokenizer);
    bool found = false;
    for (size_t i = 0; !found && m->tokenizer && i < sizeof names / sizeof *names; i++) {
        *f = (struct llm_fim){.prefix = llm_tokenizer_special(m->tokenizer, names[i][0]), .suffix = llm_tokenizer_special(m->tokenizer, names[i][1]),
                              .middle = llm_tokenizer_special(m->tokenizer, names[i][2])};
        found = f->prefix >= 0 && f->suffix >= 0 && f->middle >= 0 && f->prefix < vocab && f->suffix < vocab && f->middle < vocab;
    }
    if (!found) {
        return llm_fail(e, EX_DATAERR, "filling in: expected tokens that name a text's parts (<|fim_prefix|>, <|fim_suffix|>, <|fim_middle|> and "
                        "others of the tokenizer), found none");
    }
    f->begin = m->tokenizer ? llm_tokenizer_bos(m->tokenizer) : (int32_t)m->config.bos_token_id;
    f->end = (int32_t)eos;
    if (eos >= 0 && eos < vocab) return 0;
    return llm_fail(e, EX_DATAERR, "filling in: expected a token that ends a text, found none");
}

static int64_t put(int32_t *out, int64_t at, struct llm_fim_part p)
{
    if (p.n > 0) memcpy(out + at, p.ids, (size_t)p.n * sizeof *out);
    return at + p.n;
}

static int64_t put_one(int32_t *out, int64_t at, int32_t id)
{
    return put(out, at, (struct llm_fim_part){&id, 1});
}

int64_t llm_fim_put(const struct llm_fim *f, bool suffix_first, struct llm_fim_part prefix, struct llm_fim_part suffix, struct llm_fim_part middle,
                    int32_t *out)
{
    int64_t n = put_one(out, 0, f->prefix);
    if (!suffix_first) n = put(out, n, prefix);
    n = put(out, put_one(out, n, f->suffix), suffix);
    n = put_one(out, n, f->middle);
    if (suffix_first) n = put(out, n, prefix);
    return put(out, n, middle);
}
