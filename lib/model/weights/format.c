#include "model/weights/format.h"
#include <stddef.h>
#include "base/cli.h"

static const struct {
    const char *word, *suffix;
} formats[] = {
    [LLM_FORMAT_LLM] = {"llm", ".llm"},
    [LLM_FORMAT_SAFETENSORS] = {"safetensors", ".safetensors"},
    [LLM_FORMAT_ARPA] = {"arpa", ".arpa"},
    [LLM_FORMAT_GGUF] = {"gguf", ".gguf"},
    [LLM_FORMAT_FOLDER] = {"folder", "/"},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

const char *llm_model_format_word(int i) { return i < N_FORMATS ? formats[i].word : NULL; }

const char *llm_trained_format_word(int i) { return i < LLM_FORMAT_GGUF ? formats[i].word : NULL; }

enum llm_model_format llm_model_format_of(const char *path)
{
    for (int i = 0; path && i < LLM_FORMAT_FOLDER; i++)
        if (llm_ends_with(path, formats[i].suffix)) return (enum llm_model_format)i;
    return LLM_FORMAT_LLM;
}
