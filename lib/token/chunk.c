#include "token/chunk.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/arena.h"
#include "base/utf8.h"

/* What begins at a byte, from weak to strong. 0: the byte is inside of a character. */
enum pause { INSIDE, CHARACTER, WORD, SENTENCE, LINE, PARAGRAPH, SECTION };

static const char *const words[] = {"text", "markdown", "code", NULL};

const char *llm_chunk_kind_word(int i)
{
    return words[i];
}

enum llm_chunk_kind llm_chunk_kind_of(const char *path)
{
    static const char *const markdown[] = {"md", "markdown", "mkd", "rmd", NULL};
    static const char *const code[] = {"c", "h", "cc", "cpp", "cxx", "hpp", "cs", "go", "java", "js", "jsx", "kt", "lua", "m", "php", "pl", "py", "r",
                                       "rb", "rs", "scala", "sh", "bash", "sql", "swift", "ts", "tsx", "zig", NULL};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && markdown[i]; i++) {
        if (strcasecmp(dot + 1, markdown[i]) == 0) return LLM_CHUNK_MARKDOWN;
    }
    for (size_t i = 0; dot && code[i]; i++) {
        if (strcasecmp(dot + 1, code[i]) == 0) return LLM_CHUNK_CODE;
    }
    return LLM_CHUNK_TEXT;
}

struct document {
    const struct llm_chunking *c;
    const char *text;
    size_t n;
    unsigned char *pause;          /* [n + 1] enum pause */
};

/* The character at byte i; one that is not UTF-8 is a byte. */
static size_t character(const struct document *d, size_t i, uint32_t *cp)
{
    int n = llm_utf8_next((const unsigned char *)d->text + i, d->n - i, cp);
    if (n > 0) return (size_t)n;
    *cp = 0xFFFD;
    return 1;
}

static bool is_space(const struct document *d, size_t i, size_t *length)
{
    uint32_t cp;
    *length = character(d, i, &cp);
    return llm_utf8_is_space(cp);
}

/* Ends of sentences: those of scripts that put a space behind them, and those that need none. */
static bool ends_sentence(uint32_t cp) { return cp == '.' || cp == '!' || cp == '?' || cp == 0x2026 /* … */; }
static bool ends_sentence_alone(uint32_t cp) { return cp == 0x3002 || cp == 0xFF01 || cp == 0xFF1F || cp == 0xFF61; /* 。！？｡ */ }
/* Quotes and brackets that may follow the end of a sentence and belong to it. */
static bool closes(uint32_t cp)
{
    return cp == '"' || cp == '\'' || cp == ')' || cp == ']' || cp == 0x2019 || cp == 0x201D || cp == 0xBB || cp == 0x300D || cp == 0x300F
           || cp == 0xFF09;
}

/* Words and sentences. After an abbreviation the next word often begins with a small letter: no sentence begins there. */
static void mark_words(struct document *d)
{
    enum { NOTHING, POINT, STOP } ended = NOTHING; /* a sentence, if white space follows; a sentence in any case */
    bool space = true;
    size_t step;
    for (size_t i = 0; i < d->n; i += step) {
        uint32_t cp;
        step = character(d, i, &cp);
        bool now = llm_utf8_is_space(cp), begins = ended == STOP || (ended == POINT && space && !(cp >= 'a' && cp <= 'z'));
        d->pause[i] = CHARACTER;
        if (!now && (space || ended == STOP) && !closes(cp)) d->pause[i] = d->c->kind != LLM_CHUNK_CODE && begins ? SENTENCE : WORD;
        if (ends_sentence_alone(cp)) ended = STOP;
        else if (ends_sentence(cp)) ended = POINT;
        else if (!now && !closes(cp)) ended = NOTHING;
        space = now;
    }
    d->pause[d->n] = SECTION;
}

static size_t line_end(const struct document *d, size_t i)
{
    const char *newline = memchr(d->text + i, '\n', d->n - i);
    return newline ? (size_t)(newline - d->text) : d->n;
}

/* Level of the Markdown heading that the line is ("## Setup"), whose text is [*begin, *end); 0: it is none. */
static int heading(const struct document *d, size_t i, size_t end, size_t *begin, size_t *stop)
{
    size_t level = 0;
    while (i + level < end && d->text[i + level] == '#') level++;
    size_t at = i + level;
    if (level == 0 || level > LLM_CHUNK_HEADINGS || (at < end && d->text[at] != ' ' && d->text[at] != '\t' && d->text[at] != '\r')) return 0;
    while (at < end && strchr(" \t\r", d->text[at])) at++;
    while (end > at && strchr(" \t\r", d->text[end - 1])) end--;
    *begin = at;
    *stop = end;
    return (int)level;
}

/* Whether the line opens or closes a block of code; `open` is the mark of the one that is open, or 0. */
static bool is_fence(const char *line, size_t n, char open)
{
    return n >= 3 && (*line == '`' || *line == '~') && line[1] == *line && line[2] == *line && (!open || open == *line);
}

/* Lines, paragraphs, sections. Inside of a fenced block a line is worth a sentence, so that the block is cut last. */
static void mark_lines(struct document *d)
{
    bool blank = true;
    char fence = 0;
    for (size_t i = 0; i < d->n;) {
        size_t end = line_end(d, i), first = i, step, begin, stop;
        while (first < end && is_space(d, first, &step)) first += step;
        bool empty = first >= end, fenced = fence, closing = false;
        if (d->c->kind == LLM_CHUNK_MARKDOWN && !empty && is_fence(d->text + first, end - first, fence)) {
            closing = fence;
            fence = fence ? 0 : d->text[first];
        }
        if (!empty) {
            enum pause p = blank ? PARAGRAPH : LINE;
            for (size_t k = i; k < end && fenced; k++) d->pause[k] = d->pause[k] > WORD ? WORD : d->pause[k];
            if (fenced) p = closing ? CHARACTER : SENTENCE;
            else if (d->c->kind == LLM_CHUNK_MARKDOWN && heading(d, i, end, &begin, &stop)) p = SECTION;
            else if (d->c->kind == LLM_CHUNK_CODE && blank && first == i && !strchr("})];", d->text[i])) p = SECTION;
            size_t at = d->c->kind == LLM_CHUNK_CODE || fenced ? i : first; /* code keeps its indentation */
            if (d->pause[at] < p || fenced) d->pause[at] = (unsigned char)p;
        }
        blank = empty;
        i = end < d->n ? end + 1 : end;
    }
}

/* Tokens of [begin, end). */
static int count(const struct document *d, size_t begin, size_t end, int64_t *tokens, struct llm_err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    int status = llm_encode(d->c->tokenizer, d->text + begin, end - begin, 0, &ids, &n, e);
    free(ids);
    *tokens = (int64_t)n;
    return status;
}

/* [begin, *end) without white space at its end. */
static size_t trimmed(const struct document *d, size_t begin, size_t end)
{
    size_t last = begin, step;
    for (size_t i = begin; i < end; i += step) {
        if (!is_space(d, i, &step)) last = i + step;
    }
    return last;
}

/* The first byte of text at `i` or later. */
static size_t first_text(const struct document *d, size_t i)
{
    for (size_t step; i < d->n && is_space(d, i, &step);) i += step;
    return i;
}

/* Where a passage that may begin at `i` begins: at the first text, in code with the indentation of its line. */
static size_t skip_space(const struct document *d, size_t i)
{
    size_t line = i, from = i;
    i = first_text(d, i);
    for (size_t k = from; k < i; k++) {
        if (d->text[k] == '\n') line = k + 1;
    }
    return d->c->kind == LLM_CHUNK_CODE && i < d->n && (line == 0 || d->text[line - 1] == '\n') ? line : i;
}

static size_t character_at_or_before(const struct document *d, size_t i)
{
    while (i > 0 && d->pause[i] == INSIDE) i--;
    return i;
}

/* The farthest place up to which the text from `begin` on was seen to fit into `size` tokens; *end == begin: not one character does. */
static int reach(const struct document *d, size_t begin, size_t limit, size_t *end, struct llm_err *e)
{
    size_t fits = begin, step = (size_t)d->c->size * 8, over = limit + 1;
    int64_t tokens;
    while (fits < limit) { /* in long steps until it is too much, then by halves */
        size_t ahead = over > limit ? (step < limit - fits ? fits + step : limit) : fits + (over - fits) / 2;
        size_t at = character_at_or_before(d, ahead);
        if (at <= fits) { /* within the next character: the one that the half-way point cut */
            for (at = fits + 1; at < limit && d->pause[at] == INSIDE;) at++;
            if (at >= over) break;
        }
        if (count(d, begin, at, &tokens, e) < 0) return -1;
        if (tokens <= d->c->size) fits = at;
        else over = at;
    }
    *end = fits;
    return 0;
}

/* Where the passage from `begin` on ends: at the strongest pause in the second half of what fits, and after byte `after`. 0: nothing fits there. */
static int find_end(const struct document *d, size_t begin, size_t after, size_t *end, int64_t *tokens, struct llm_err *e)
{
    size_t text = first_text(d, begin);
    if (text > after) after = text;
    for (size_t limit = d->n;;) {
        size_t far, best;
        if (reach(d, begin, limit, &far, e) < 0) return -1;
        if (far == begin) {
            return llm_fail(e, EX_DATAERR, "byte %zu: a character of more than %lld tokens, which a passage may have", begin, (long long)d->c->size);
        }
        best = far;
        for (size_t i = far; i > begin + (far - begin) / 2 && i > after; i--) {
            if (d->pause[i] > d->pause[best]) best = i;
        }
        *end = trimmed(d, begin, best);
        if (*end <= after) return 0;
        if (count(d, begin, *end, tokens, e) < 0) return -1;
        if (*tokens <= d->c->size) return 1;
        limit = character_at_or_before(d, best - 1); /* shorter text, more tokens: rare, and possible */
    }
}

/* Where the passage after [begin, end) begins: at the first sentence, else word, of the last `overlap` tokens. */
static int find_begin(const struct document *d, size_t begin, size_t end, size_t *next, struct llm_err *e)
{
    uint32_t cp;
    size_t low = begin + character(d, begin, &cp), high = end;
    *next = skip_space(d, end);
    if (d->c->overlap == 0 || *next >= d->n) return 0;
    while (low < high) { /* the least place from which on the rest fits */
        size_t middle = character_at_or_before(d, low + (high - low) / 2);
        int64_t tokens;
        if (middle < low) middle = low;
        if (count(d, middle, end, &tokens, e) < 0) return -1;
        if (tokens <= d->c->overlap) high = middle;
        else for (low = middle + 1; low < high && d->pause[low] == INSIDE;) low++;
    }
    for (int least = SENTENCE; least >= WORD; least--) {
        for (size_t i = high; i < end; i++) {
            if (d->pause[i] < least) continue;
            *next = i;
            return 0;
        }
    }
    return 0;
}

/* Moves the headings on to those that byte `to` stands under; *at: what was read already. */
static void read_headings(const struct document *d, struct llm_chunk *chunk, size_t *at, char *fence, size_t to)
{
    while (*at < d->n && *at <= to) {
        size_t end = line_end(d, *at), first = *at, step, begin, stop;
        while (first < end && is_space(d, first, &step)) first += step;
        if (first < end && is_fence(d->text + first, end - first, *fence)) *fence = *fence ? 0 : d->text[first];
        int level = *fence ? 0 : heading(d, *at, end, &begin, &stop);
        for (int i = level; i > 0 && i <= LLM_CHUNK_HEADINGS; i++) chunk->headings[i - 1].begin = chunk->headings[i - 1].end = 0;
        if (level > 0) {
            chunk->headings[level - 1].begin = begin;
            chunk->headings[level - 1].end = stop;
        }
        *at = end + 1;
    }
}

int llm_chunk(const struct llm_chunking *c, const char *text, size_t n, struct llm_err *e)
{
    struct document d = {c, text, n, llm_calloc(n + 1, 1, "places between words", e)};
    struct llm_chunk chunk = {0};
    size_t headed = 0, before = 0;
    char fence = 0;
    int status = 0;
    if (!d.pause) return -1;
    mark_words(&d);
    mark_lines(&d);
    chunk.begin = skip_space(&d, 0);
    while (status == 0 && chunk.begin < n) {
        size_t next = n;
        if (c->kind == LLM_CHUNK_MARKDOWN) read_headings(&d, &chunk, &headed, &fence, chunk.begin);
        int found = find_end(&d, chunk.begin, before, &chunk.end, &chunk.tokens, e);
        if (found > 0) {
            before = chunk.end;
            status = c->take(c->arg, &chunk, e);
            if (status == 0) status = find_begin(&d, chunk.begin, chunk.end, &next, e);
        } else if (found == 0) { /* what is repeated, or the indentation, leaves no room for more */
            next = chunk.begin < before ? skip_space(&d, before) : first_text(&d, chunk.begin);
        } else {
            status = -1;
        }
        chunk.begin = next;
    }
    free(d.pause);
    return status;
}
