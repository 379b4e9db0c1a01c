#include "measure/convention.h"

#include "base/utf8.h"

const char *llm_convention_word(int i)
{
    static const char *const words[] = {"document", "llama.cpp", "hf-stride", "word"};
    return i >= 0 && i < (int)(sizeof words / sizeof *words) ? words[i] : NULL;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

bool llm_window_next(enum llm_convention convention, int64_t context, int64_t stride, int64_t n, struct llm_window *w)
{
    const int64_t end = w->at + w->n; /* tokens before it are done */
    const bool first = w->n == 0;
    struct llm_score_part part = {w->at, w->n, w->skip};
    switch (convention) {
    case LLM_BY_DOCUMENT:
        if (!llm_score_next(context, n, &part)) return false;
        *w = (struct llm_window){.at = part.at, .n = part.n, .skip = part.skip};
        break;
    case LLM_BY_LLAMA_CPP:
        if (n - end < context) return false;
        *w = (struct llm_window){.at = end, .n = context, .skip = context / 2 + 1};
        break;
    case LLM_BY_HF_STRIDE:
        if (end >= n) return false;
        w->at = first ? 0 : w->at + stride;
        w->n = least(context, n - w->at);
        w->weight = w->at + w->n - end - 1;
        w->skip = end > w->at ? end - w->at : 1; /* nothing stands before the first token of a window */
        return true;
    default: /* LLM_BY_WORD; the first token stands before the text */
        if (first ? n < 2 : end >= n) return false;
        w->n = least(context, n - 1) + 1;
        w->at = first ? 0 : least(end + context, n) - w->n;
        w->skip = first ? 1 : end - w->at;
    }
    w->weight = w->n - w->skip;
    return true;
}

int64_t llm_count_words(const char *text, size_t n)
{
    int64_t words = 1;
    bool before = false;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        const int got = llm_utf8_next((const unsigned char *)text + i, n - i, &cp);
        const bool space = got > 0 && llm_utf8_is_space(cp);
        words += space && !before;
        before = space;
        i += got > 0 ? (size_t)got : 1;
    }
    return words;
}
