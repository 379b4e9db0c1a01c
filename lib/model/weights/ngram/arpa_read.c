/* ARPA text to an n-gram model (model/weights/ngram.h). Lines are read as they come; n-grams become records, sorted into the order of the tables. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/cli.h"
#include "model/weights/model.h"
#include "model/weights/ngram/arpa.h"

enum { READ = 1 << 16, LONGEST = 1 << 20 };
#define UNKNOWN (-100 * M_LN10) /* of a word that a file without <unk> does not have */

/* ---- lines ---- */

struct lines {
    struct llm_file *f;
    struct llm_buf text;
    size_t at;
    uint64_t number;
};

/* 1: *line is the next, NUL-terminated, without its end; 0: no more. */
static int next_line(struct lines *l, char **line, struct llm_err *e)
{
    for (size_t seen = l->at;;) {
        char *end = l->text.n > seen ? memchr(l->text.p + seen, '\n', l->text.n - seen) : NULL;
        if (!end) {
            if (l->at > 0) memmove(l->text.p, l->text.p + l->at, l->text.n -= l->at);
            l->at = 0;
            seen = l->text.n;
            if (seen > LONGEST) return llm_file_bad(l->f, e, "line %" PRIu64 ": expected at most %d bytes", l->number + 1, LONGEST);
            if (llm_buf_reserve(&l->text, l->text.n + READ, e) < 0) return -1;
            int64_t got = llm_file_read_some(l->f, l->text.p + l->text.n, READ, e);
            if (got < 0) return -1;
            l->text.n += (size_t)got;
            if (got > 0) continue;
            if (l->text.n == 0) return 0;
            end = l->text.p + l->text.n; /* the last line may lack its end: there is room for a NUL */
        }
        *line = l->text.p + l->at;
        l->at = (size_t)(end - l->text.p) + (end < l->text.p + l->text.n);
        if (end > *line && end[-1] == '\r') end--;
        *end = 0;
        l->number++;
        if (memchr(*line, 0, (size_t)(end - *line))) {
            return llm_fail(e, EX_DATAERR, "%s: line %" PRIu64 ": expected text, found NUL", llm_file_name(l->f), l->number);
        }
        return 1;
    }
}

static int bad_line(struct lines *l, struct llm_err *e, const char *expected, const char *found)
{
    return llm_fail(e, EX_DATAERR, "%s: line %" PRIu64 ": expected %s, found '%.60s'", llm_file_name(l->f), l->number, expected, found);
}

/* The next word of a line, NUL-terminated in place; NULL: none. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " \t\v\f"), *end = word + strcspn(word, " \t\v\f");
    *at = *end ? end + 1 : end;
    if (word == end) return NULL;
    *end = 0;
    return word;
}

static bool is_blank(const char *line)
{
    return line[strspn(line, " \t\v\f")] == 0;
}

/* ---- sections ---- */

/* Reads a base-10 logarithm as a natural one. ARPA files write -99 or less for probability 0. 0 or -1. */
static int parse_log(struct lines *l, const char *word, float *out, struct llm_err *e)
{
    double v;
    if (!word || llm_parse_real(word, &v) < 0) return bad_line(l, e, "a logarithm", word ? word : "nothing");
    *out = v <= -99 && v > -100 ? -INFINITY : (float)(v * M_LN10);
    return 0;
}

static int read_counts(struct llm_arpa *a, struct lines *l, struct llm_err *e)
{
    char *line;
    int got;
    while ((got = next_line(l, &line, e)) > 0 && is_blank(line)) continue;
    if (got < 0) return -1;
    if (got == 0 || strncmp(line, "\\data\\", 6) != 0 || !is_blank(line + 6)) return bad_line(l, e, "\\data\\", got ? line : "the end");
    while ((got = next_line(l, &line, e)) > 0) {
        int n = 0, used = 0;
        if (is_blank(line)) continue;
        if (line[0] == '\\') {
            snprintf(a->section, sizeof a->section, "%s", line);
            break;
        }
        uint64_t count = 0;
        if (sscanf(line, "ngram %d = %" SCNu64 " %n", &n, &count, &used) != 2 || line[used] || n != a->order + 1 || strchr(line, '-')) {
            return bad_line(l, e, "\"ngram N=COUNT\", N one after another", line);
        }
        if (n > LLM_NGRAM_MAX_ORDER) return bad_line(l, e, "orders up to 16", line);
        a->count[a->order++] = count;
    }
    if (got < 0) return -1;
    return a->order > 0 ? 0 : bad_line(l, e, "\"ngram 1=COUNT\"", got ? line : "the end");
}

/* Reads one line of the section of n-grams of k + 1 words. 0 or -1. */
static int read_ngram(struct llm_arpa *a, struct lines *l, int k, char *line, struct llm_err *e)
{
    char *at = line, *word, *rest;
    float log_prob, backoff = 0;
    uint32_t ids[LLM_NGRAM_MAX_ORDER] = {0};
    char *words[LLM_NGRAM_MAX_ORDER];
    if (parse_log(l, next_word(&at), &log_prob, e) < 0) return -1;
    for (int i = 0; i <= k; i++) {
        if (!(words[i] = next_word(&at))) return bad_line(l, e, "more words", line);
        int64_t id = k > 0 ? llm_arpa_word(a, words[i]) : 0;
        if (id < 0) return bad_line(l, e, "words of the unigrams", words[i]);
        ids[i] = (uint32_t)id;
    }
    if ((word = next_word(&at)) && parse_log(l, word, &backoff, e) < 0) return -1;
    if ((rest = next_word(&at))) return bad_line(l, e, "the end of the line", rest);
    if (k == 0) return llm_arpa_add_word(a, words[0], log_prob, backoff, e) < 0 ? llm_in(e, "%s: line %" PRIu64, llm_file_name(l->f), l->number) : 0;
    return llm_arpa_add_ngram(a, k, ids, log_prob, backoff, e);
}

static int read_section(struct llm_arpa *a, struct lines *l, int k, struct llm_err *e)
{
    char *line, title[32];
    uint64_t found = 0;
    int got;
    snprintf(title, sizeof title, "\\%d-grams:", k + 1);
    if (strncmp(a->section, title, strlen(title)) != 0) return bad_line(l, e, title, a->section);
    while ((got = next_line(l, &line, e)) > 0) {
        if (is_blank(line)) continue;
        if (line[0] == '\\' && (strncmp(line, "\\end\\", 5) == 0 || strstr(line, "-grams:"))) {
            snprintf(a->section, sizeof a->section, "%.50s", line);
            break;
        }
        if (read_ngram(a, l, k, line, e) < 0) return -1;
        found++;
    }
    if (got < 0) return -1;
    if (got == 0) return bad_line(l, e, "\\end\\", "the end of the file");
    if (found == a->count[k]) return 0;
    return llm_fail(e, EX_DATAERR, "%s: line %" PRIu64 ": expected %" PRIu64 " n-grams of order %d before it, found %" PRIu64, llm_file_name(l->f),
                    l->number, a->count[k], k + 1, found);
}

static int read_all(struct llm_arpa *a, struct lines *l, struct llm_err *e)
{
    if (read_counts(a, l, e) < 0) return -1;
    for (int k = 0; k < a->order; k++) {
        if (read_section(a, l, k, e) < 0) return -1;
        if (k == 0 && llm_arpa_word(a, "<unk>") < 0 && llm_arpa_add_word(a, "<unk>", (float)UNKNOWN, 0, e) < 0) return -1;
        if (k == 0 && llm_arpa_fix_words(a, e) < 0) return llm_in(e, "%s", llm_file_name(l->f));
    }
    return strncmp(a->section, "\\end\\", 5) == 0 ? 0 : bad_line(l, e, "\\end\\", a->section);
}

struct llm_model *llm_arpa_read(struct llm_file *f, struct llm_err *e)
{
    struct llm_arpa a = {.order = 0};
    struct lines l = {.f = f};
    struct llm_model *m = NULL;
    if (read_all(&a, &l, e) == 0) {
        m = llm_arpa_model(&a, e);
        if (!m) llm_in(e, "%s", llm_file_name(f));
    }
    llm_buf_release(&l.text);
    llm_arpa_release(&a);
    llm_file_close(f);
    return m;
}
