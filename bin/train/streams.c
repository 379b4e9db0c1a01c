/* What a run of llm-train reads and writes: formats of outputs, and inputs from standard input. */
#include <string.h>
#include "bin/train/train.h"

enum llm_model_format llm_run_format(const char *path, int to)
{
    if (to >= 0) return (enum llm_model_format)to;
    enum llm_model_format format = llm_model_format_of(path);
    return format == LLM_FORMAT_GGUF ? LLM_FORMAT_LLM : format; /* a name that check_outputs refuses */
}

int llm_run_check_stdin(const struct args *a, const char *const *data, size_t n_data, struct llm_err *e)
{
    const char *const named[] = {a->config, a->init, a->resume, a->tokenizer, a->val};
    size_t readers = 0;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) readers += named[i] && strcmp(named[i], "-") == 0;
    for (size_t i = 0; i < n_data; i++) readers += strcmp(data[i], "-") == 0;
    return readers < 2 ? 0 : llm_fail(e, LLM_EX_USAGE, "expected one input from standard input (-) at most, found %zu", readers);
}
