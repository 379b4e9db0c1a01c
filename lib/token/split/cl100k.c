/* The cl100k family: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 * Llama 3 has it so; Qwen 2 and 3 take one digit at a time; tiktoken's cl100k_base has \s++$ before the new lines. */
#include "token/split/scan.h"
#include "token/split/split.h"
#include "token/split/window.h"

static inline size_t next(const unsigned char *p, const unsigned char *end, bool last, int digits, bool all_at_end)
{
    struct llm_scan s = {end, last, false};
    size_t len, after_len;
    if (*p == '\'') {
        size_t n = llm_scan_contraction(&s, p);
        if (n)
            return n;
    }
    unsigned c = llm_scan_at(&s, p, &len);
    const unsigned char *q = p + len;
    if (c & LLM_CH_LETTER)
        return llm_scan_done(&s, p, llm_scan_run(&s, q, LLM_CH_LETTER));
    if (c & LLM_CH_NUMBER)
        return llm_scan_done(&s, p, llm_scan_numbers(&s, p, digits));
    unsigned after = llm_scan_at(&s, q, &after_len);
    if (!(c & LLM_CH_NEWLINE) && (after & LLM_CH_LETTER))
        return llm_scan_done(&s, p, llm_scan_run(&s, q + after_len, LLM_CH_LETTER));
    if (c & LLM_CH_SPACE && !(*p == ' ' && !(after & (LLM_CH_NOT_OTHER | LLM_SCAN_NONE))))
        return llm_scan_done(&s, p, llm_scan_space(&s, p, true, all_at_end));
    q = llm_scan_other(&s, q);
    return llm_scan_done(&s, p, llm_scan_run(&s, q, LLM_CH_NEWLINE));
}

static size_t next_llama3(const unsigned char *p, const unsigned char *end, bool last)
{
    return next(p, end, last, 3, false);
}

static size_t next_cl100k(const unsigned char *p, const unsigned char *end, bool last)
{
    return next(p, end, last, 3, true);
}

static size_t next_qwen2(const unsigned char *p, const unsigned char *end, bool last)
{
    return next(p, end, last, 1, false);
}

/* What cl100k has more than Llama 3 is at the end of the text, where no window is. */
static uint64_t window(const struct llm_byte_masks *m, const unsigned char *p, int n)
{
    return llm_window_words(m, p, n, (struct llm_window_style){false, false});
}

static uint64_t window_qwen2(const struct llm_byte_masks *m, const unsigned char *p, int n)
{
    return llm_window_words(m, p, n, (struct llm_window_style){true, false});
}

const struct llm_split_row llm_split_llama3 = {
    "llama3",
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+"},
    next_llama3, window};
const struct llm_split_row llm_split_cl100k = {
    "cl100k",
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s+\\z|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|"
     "\\s+(?!\\S)|\\s"},
    next_cl100k, window};
const struct llm_split_row llm_split_qwen2 = {
    "qwen2",
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    next_qwen2, window_qwen2};
