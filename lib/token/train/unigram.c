#include "token/train/unigram.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "token/trie.h"
#include "token/unicode.h"

#define MAX_PIECE 16        /* characters */
#define MAX_SEEDS 1000000
#define COVERAGE 0.9995     /* of the text by its most frequent characters */
#define SHRINK 0.75         /* of the pieces stay in each round */
#define MARK 0x2581

struct word { const unsigned char *p; uint32_t n; double count; };
struct trainer {
    struct word *words;          /* without their last byte (train/unigram.h); equal words once */
    size_t n_words;
    struct llm_counts merged;
    struct llm_unigram_pieces pieces;
    struct llm_trie trie;
    double *alpha, *beta;        /* [longest word + 1] */
    struct step { double score; uint32_t start; int32_t id; } *best; /* as long as alpha */
    double worst;                /* score */
    uint32_t longest;
};

void llm_unigram_pieces_release(struct llm_unigram_pieces *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->v[i].text);
    free(p->v);
    *p = (struct llm_unigram_pieces){0};
}

static int add_piece(struct llm_unigram_pieces *p, const char *text, size_t n, double score, struct llm_err *e)
{
    if (llm_grow((void **)&p->v, &p->room, p->n + 1, sizeof *p->v, e) < 0)
        return -1;
    char *copy = llm_alloc(n, 1, "pieces", e);
    if (!copy)
        return -1;
    memcpy(copy, text, n);
    p->v[p->n++] = (struct llm_unigram_piece){copy, n, score};
    return 0;
}

/* Best first, equal ones by their bytes. */
static int by_score(const void *a, const void *b)
{
    const struct llm_unigram_piece *x = a, *y = b;
    if (x->score != y->score)
        return (x->score < y->score) - (x->score > y->score);
    int d = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

/* ---- which characters may stand together ---- */

/* A coarse script: what stands for one writing system has one number; 0: common to all (digits, punctuation). */
static int script_of(uint32_t cp)
{
    static const struct { uint32_t from, to; int script; } ranges[] = {
        {0x370, 0x3FF, 2},     {0x400, 0x52F, 3},     {0x530, 0x58F, 4},     {0x590, 0x5FF, 5},     {0x600, 0x77F, 6},     {0x900, 0x97F, 7},
        {0x980, 0x9FF, 8},     {0xA00, 0xA7F, 9},     {0xA80, 0xAFF, 10},    {0xB80, 0xBFF, 11},    {0xC00, 0xC7F, 12},    {0xC80, 0xCFF, 13},
        {0xD00, 0xD7F, 14},    {0xE00, 0xE7F, 15},    {0xE80, 0xEFF, 16},    {0xF00, 0xFFF, 17},    {0x1000, 0x109F, 18},  {0x10A0, 0x10FF, 19},
        {0x1100, 0x11FF, 20},  {0x1200, 0x139F, 21},  {0x13A0, 0x13FF, 22},  {0x1780, 0x17FF, 23},  {0x1F00, 0x1FFF, 2},   {0x3041, 0x30FF, 24},
        {0x3130, 0x318F, 20},  {0x3400, 0x4DBF, 24},  {0x4E00, 0x9FFF, 24},  {0xAC00, 0xD7AF, 20},  {0xF900, 0xFAFF, 24},  {0x20000, 0x3FFFF, 24}};
    if (!(llm_char_class(cp) & (LLM_CH_LETTER | LLM_CH_UPPER)))
        return 0;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (cp >= ranges[i].from && cp <= ranges[i].to)
            return ranges[i].script;
    return 1; /* Latin, and what else has letters */
}

static bool may_be_piece(const uint32_t *p, size_t n)
{
    int script = -1;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == MARK) {
            if (i > 0)
                return false;
            continue;
        }
        int s = script_of(p[i]);
        if (p[i] < 3 || (script >= 0 && s != script))
            return false;
        script = s;
    }
    return n <= MAX_PIECE;
}

/* ---- seeds ---- */

struct char_count { uint32_t cp; double count; };
struct seeds {
    uint32_t *text;      /* characters of all words; each ends in 1 or 2; rare characters are 0 */
    size_t n, room;
    double *counts;      /* of the word that the character is in */
    size_t room_counts;
    uint32_t *order;     /* suffixes, sorted */
    struct char_count *chars;
    size_t n_chars, room_chars;
};

static int by_cp(const void *a, const void *b)
{
    const struct char_count *x = a, *y = b;
    return (x->cp > y->cp) - (x->cp < y->cp);
}

static int by_char_count(const void *a, const void *b)
{
    const struct char_count *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : by_cp(a, b);
}

static int collect_chars(struct seeds *s, struct llm_err *e)
{
    double all = 0, covered = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->text[i] < 3)
            continue;
        if (llm_grow((void **)&s->chars, &s->room_chars, s->n_chars + 1, sizeof *s->chars, e) < 0)
            return -1;
        s->chars[s->n_chars++] = (struct char_count){s->text[i], s->counts[i]};
        all += s->counts[i];
    }
    if (s->n_chars == 0)
        return llm_fail(e, EX_DATAERR, "the text has no words");
    qsort(s->chars, s->n_chars, sizeof *s->chars, by_cp);
    size_t n = 0;
    for (size_t i = 1; i < s->n_chars; i++) {
        if (s->chars[i].cp == s->chars[n].cp)
            s->chars[n].count += s->chars[i].count;
        else
            s->chars[++n] = s->chars[i];
    }
    s->n_chars = n + 1;
    qsort(s->chars, s->n_chars, sizeof *s->chars, by_char_count);
    for (n = 0; n < s->n_chars && covered / all < COVERAGE; n++)
        covered += s->chars[n].count;
    s->n_chars = n;
    qsort(s->chars, s->n_chars, sizeof *s->chars, by_cp);
    for (size_t i = 0; i < s->n; i++)
        if (s->text[i] >= 3 && !bsearch(&(struct char_count){s->text[i], 0}, s->chars, s->n_chars, sizeof *s->chars, by_cp))
            s->text[i] = 0;
    return 0;
}

static int read_words(struct seeds *s, const struct llm_counts *words, struct llm_err *e)
{
    for (size_t i = 0; words->slots && i < (size_t)1 << words->bits; i++) {
        const struct llm_count *slot = &words->slots[i];
        const unsigned char *p = slot->n ? llm_counts_word(words, slot) : NULL;
        for (size_t at = 0; at < slot->n;) {
            uint32_t cp;
            int len = llm_utf8_next(p + at, slot->n - at, &cp);
            if (llm_grow((void **)&s->text, &s->room, s->n + 1, sizeof *s->text, e) < 0
                || llm_grow((void **)&s->counts, &s->room_counts, s->n + 1, sizeof *s->counts, e) < 0)
                return -1;
            s->text[s->n] = len > 0 ? cp : 0;
            s->counts[s->n++] = (double)slot->count;
            at += len > 0 ? (size_t)len : 1;
        }
    }
    return s->n > UINT32_MAX / 2 ? llm_fail(e, EX_UNAVAILABLE, "more than 2 billion characters of distinct words") : collect_chars(s, e);
}

static bool is_end(uint32_t c)
{
    return c == LLM_WORD_GOES_ON || c == LLM_WORD_ENDS;
}

static int compare_suffixes(const void *a, const void *b, void *arg)
{
    const struct seeds *s = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    for (int i = 0; i <= MAX_PIECE; i++) {
        uint32_t cx = s->text[x + (uint32_t)i], cy = s->text[y + (uint32_t)i];
        if (cx != cy)
            return cx < cy ? -1 : 1;
        if (is_end(cx))
            break;
    }
    return x < y ? -1 : 1;
}

static size_t common(const struct seeds *s, uint32_t x, uint32_t y)
{
    size_t n = 0;
    while (n <= MAX_PIECE && s->text[x + n] == s->text[y + n])
        if (is_end(s->text[x + n++]))
            break;
    return n;
}

static int add_seed(const struct seeds *s, struct llm_unigram_pieces *out, uint32_t at, size_t n, double count, struct llm_err *e)
{
    unsigned char utf8[4 * MAX_PIECE];
    size_t len = 0;
    if (n < 2 || count < 2 || !may_be_piece(s->text + at, n))
        return 0;
    for (size_t i = 0; i < n; i++)
        len += (size_t)llm_utf8_put(s->text[at + i], utf8 + len);
    return add_piece(out, (const char *)utf8, len, count * (double)n, e);
}

/* Each stretch of sorted suffixes that have more characters in common than with those around them is a string that goes on in several ways. */
static int branching(struct seeds *s, struct llm_unigram_pieces *out, struct llm_err *e)
{
    struct { size_t length; uint32_t at; double count; } stack[MAX_PIECE + 3];
    size_t depth = 0;
    stack[0].length = 0;
    stack[0].count = 0;
    stack[0].at = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t lcp = i + 1 < s->n ? common(s, s->order[i], s->order[i + 1]) : 0;
        double count = s->counts[s->order[i]];
        uint32_t at = s->order[i];
        if (lcp > stack[depth].length) {
            depth++;
            stack[depth].length = lcp;
            stack[depth].at = at;
            stack[depth].count = 0;
        }
        stack[depth].count += count;
        while (lcp < stack[depth].length) {
            if (add_seed(s, out, stack[depth].at, stack[depth].length, stack[depth].count, e) < 0)
                return -1;
            double sum = stack[depth].count;
            at = stack[depth].at;
            depth--;
            if (lcp > stack[depth].length) {
                depth++;
                stack[depth].length = lcp;
                stack[depth].at = at;
                stack[depth].count = 0;
            }
            stack[depth].count += sum;
        }
    }
    return 0;
}

/* Sums of counts to logarithms of probabilities. */
static void to_log(struct llm_unigram_pieces *p)
{
    double sum = 0;
    for (size_t i = 0; i < p->n; i++)
        sum += p->v[i].score;
    for (size_t i = 0; i < p->n; i++)
        p->v[i].score = log(p->v[i].score) - log(sum);
}

static int make_seeds(const struct llm_counts *words, struct seeds *s, struct llm_unigram_pieces *out, struct llm_err *e)
{
    if (read_words(s, words, e) < 0 || !(s->order = llm_alloc(s->n, sizeof *s->order, "suffixes", e)))
        return -1;
    for (size_t i = 0; i < s->n; i++)
        s->order[i] = (uint32_t)i;
    qsort_r(s->order, s->n, sizeof *s->order, compare_suffixes, s);
    if (branching(s, out, e) < 0)
        return -1;
    if (out->n)
        qsort(out->v, out->n, sizeof *out->v, by_score);
    for (; out->n > MAX_SEEDS; out->n--)
        free(out->v[out->n - 1].text);
    for (size_t i = 0; i < s->n_chars; i++) {
        unsigned char utf8[4];
        if (add_piece(out, (const char *)utf8, (size_t)llm_utf8_put(s->chars[i].cp, utf8), s->chars[i].count, e) < 0)
            return -1;
    }
    to_log(out);
    return 0;
}

static void release_seeds(struct seeds *s)
{
    free(s->text);
    free(s->counts);
    free(s->order);
    free(s->chars);
}

/* ---- words through the model ---- */

static int by_word(const void *a, const void *b)
{
    const struct word *x = a, *y = b;
    if (x->count != y->count)
        return (x->count < y->count) - (x->count > y->count);
    int d = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

/* Words that differ only in what follows them become one. */
static int take_words(struct trainer *t, const struct llm_counts *words, struct llm_err *e)
{
    for (size_t i = 0; words->slots && i < (size_t)1 << words->bits; i++) {
        const struct llm_count *slot = &words->slots[i];
        unsigned char padded[16] = {0};
        const unsigned char *p = slot->n ? llm_counts_word(words, slot) : NULL;
        if (slot->n < 2)
            continue;
        if (slot->n <= 16) {
            memcpy(padded, p, slot->n);
            p = padded;
        }
        if (llm_counts_add(&t->merged, p, slot->n - 1, slot->count, e) < 0)
            return -1;
    }
    t->words = llm_alloc(t->merged.n, sizeof *t->words, "words", e);
    if (!t->words)
        return -1;
    for (size_t i = 0; t->merged.slots && i < (size_t)1 << t->merged.bits; i++) {
        const struct llm_count *slot = &t->merged.slots[i];
        if (slot->n)
            t->words[t->n_words++] = (struct word){llm_counts_word(&t->merged, slot), slot->n, (double)slot->count};
        t->longest = slot->n > t->longest ? slot->n : t->longest;
    }
    if (t->n_words)
        qsort(t->words, t->n_words, sizeof *t->words, by_word);
    t->longest = t->longest < 4 * MAX_PIECE ? 4 * MAX_PIECE : t->longest;
    t->alpha = llm_alloc((size_t)t->longest + 1, sizeof *t->alpha, "a word", e);
    t->beta = llm_alloc((size_t)t->longest + 1, sizeof *t->beta, "a word", e);
    t->best = llm_alloc((size_t)t->longest + 1, sizeof *t->best, "a word", e);
    return t->alpha && t->beta && t->best ? 0 : -1;
}

static int index_pieces(struct trainer *t, struct llm_err *e)
{
    llm_trie_release(&t->trie);
    t->worst = 0;
    for (size_t i = 0; i < t->pieces.n; i++) {
        if (llm_trie_put(&t->trie, 0, (const unsigned char *)t->pieces.v[i].text, t->pieces.v[i].n, (int32_t)i, e) < 0)
            return -1;
        t->worst = t->pieces.v[i].score < t->worst ? t->pieces.v[i].score : t->worst;
    }
    return 0;
}

static double log_add(double a, double b)
{
    double high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + log1p(exp(low - high));
}

/* Calls `edge` for every piece of the word, by where it begins; a character without a piece is an edge of id -1. */
typedef void edge_fn(struct trainer *t, uint32_t from, uint32_t to, int32_t id, double score, void *arg);
static void each_edge(struct trainer *t, const unsigned char *p, uint32_t n, edge_fn *edge, void *arg)
{
    for (uint32_t at = 0; at < n;) {
        uint32_t cp, node = 0, len = (uint32_t)llm_utf8_next(p + at, n - at, &cp);
        bool single = false;
        for (uint32_t i = at; i < n; i++) {
            int32_t id;
            node = llm_trie_next(&t->trie, node, p[i], &id);
            if (node == LLM_TRIE_NONE)
                break;
            if (id < 0)
                continue;
            edge(t, at, i + 1, id, t->pieces.v[id].score, arg);
            single = single || i + 1 - at == len;
        }
        if (!single)
            edge(t, at, at + len, -1, t->worst - 10, arg);
        at += len;
    }
}

struct edges { struct { uint32_t from, to; int32_t id; double score; } *v; size_t n, room; bool failed; };

static void keep_edge(struct trainer *t, uint32_t from, uint32_t to, int32_t id, double score, void *arg)
{
    struct edges *edges = arg;
    (void)t;
    if (edges->failed || llm_grow((void **)&edges->v, &edges->room, edges->n + 1, sizeof *edges->v, NULL) < 0) {
        edges->failed = true;
        return;
    }
    edges->v[edges->n].from = from;
    edges->v[edges->n].to = to;
    edges->v[edges->n].id = id;
    edges->v[edges->n++].score = score;
}

/* Adds how often each piece is expected in all words to `expected`. */
static int expect(struct trainer *t, double *expected, struct llm_err *e)
{
    struct edges edges = {0};
    for (size_t w = 0; w < t->n_words && !edges.failed; w++) {
        const struct word *word = &t->words[w];
        edges.n = 0;
        each_edge(t, word->p, word->n, keep_edge, &edges);
        for (uint32_t i = 0; i <= word->n; i++)
            t->alpha[i] = t->beta[i] = -INFINITY;
        t->alpha[0] = t->beta[word->n] = 0;
        for (size_t i = 0; i < edges.n; i++)
            t->alpha[edges.v[i].to] = log_add(t->alpha[edges.v[i].to], t->alpha[edges.v[i].from] + edges.v[i].score);
        for (size_t i = edges.n; i-- > 0;)
            t->beta[edges.v[i].from] = log_add(t->beta[edges.v[i].from], t->beta[edges.v[i].to] + edges.v[i].score);
        double all = t->alpha[word->n];
        for (size_t i = 0; i < edges.n; i++)
            if (edges.v[i].id >= 0)
                expected[edges.v[i].id] += word->count * exp(t->alpha[edges.v[i].from] + edges.v[i].score + t->beta[edges.v[i].to] - all);
    }
    free(edges.v);
    return edges.failed ? llm_no_memory(e, "a word") : 0;
}

static double digamma(double x)
{
    double result = 0;
    for (; x < 7; x++)
        result -= 1 / x;
    x -= 0.5;
    double r = 1 / (x * x);
    return result + log(x) + r * (1 / 24.0 - r * (7 / 960.0 - r * (31 / 8064.0 - r * (127 / 30720.0))));
}

/* Keeps those pieces whose `keep` is true, in order. */
static void keep_pieces(struct llm_unigram_pieces *p, const bool *keep)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (keep[i])
            p->v[n++] = p->v[i];
        else
            free(p->v[i].text);
    }
    p->n = n;
}

/* Expectation and maximisation (with a Dirichlet prior: digamma in place of the logarithm); what is hardly expected goes. */
static int weigh(struct trainer *t, struct llm_err *e)
{
    double sum = 0;
    double *expected = llm_calloc(t->pieces.n, sizeof *expected, "pieces", e);
    bool *keep = llm_alloc(t->pieces.n, sizeof *keep, "pieces", e);
    int bad = !expected || !keep || index_pieces(t, e) < 0 || expect(t, expected, e) < 0 ? -1 : 0;
    for (size_t i = 0; bad == 0 && i < t->pieces.n; i++) {
        keep[i] = expected[i] >= 0.5;
        sum += keep[i] ? expected[i] : 0;
    }
    for (size_t i = 0; bad == 0 && i < t->pieces.n; i++)
        t->pieces.v[i].score = keep[i] ? digamma(expected[i]) - digamma(sum) : 0;
    if (bad == 0)
        keep_pieces(&t->pieces, keep);
    free(expected);
    free(keep);
    return bad;
}

/* ---- pruning ---- */

struct search { uint32_t n; bool not_whole; };

static void offer(struct trainer *t, uint32_t from, uint32_t to, int32_t id, double score, void *arg)
{
    const struct search *s = arg;
    double sum = t->best[from].score + score;
    if ((s->not_whole && from == 0 && to == s->n) || !(sum > t->best[to].score))
        return;
    t->best[to].score = sum;
    t->best[to].start = from;
    t->best[to].id = id;
}

/* The best path through the word, in t->best; `not_whole`: that is not one piece. False: there is none. */
static bool viterbi(struct trainer *t, const unsigned char *p, uint32_t n, bool not_whole)
{
    struct search s = {n, not_whole};
    for (uint32_t i = 0; i <= n; i++)
        t->best[i].score = i ? -INFINITY : 0;
    each_edge(t, p, n, offer, &s);
    return t->best[n].score > -INFINITY;
}

struct loss { double loss; size_t piece; };

static int by_loss(const void *a, const void *b)
{
    const struct loss *x = a, *y = b;
    return x->loss != y->loss ? (x->loss < y->loss) - (x->loss > y->loss) : (x->piece > y->piece) - (x->piece < y->piece);
}

/* What the text loses in likelihood when piece i goes and the pieces of its next best path take its place; -1: it may go, infinite: it stays. */
static double loss_of(struct trainer *t, size_t i, const double *freq, const double *words, double sum, double all_words)
{
    const struct llm_unigram_piece *p = &t->pieces.v[i];
    uint32_t n = (uint32_t)p->n;
    if (freq[i] == 0 || !viterbi(t, (const unsigned char *)p->text, n, false))
        return -1;
    bool whole = t->best[n].start == 0 && t->best[n].id == (int32_t)i;
    if (!viterbi(t, (const unsigned char *)p->text, n, true))
        return INFINITY;
    if (!whole)
        return -1;
    double others = 0, made = 0;
    for (uint32_t at = n; at; at = t->best[at].start)
        others++;
    for (uint32_t at = n; at; at = t->best[at].start)
        made += log((t->best[at].id < 0 ? 0 : freq[t->best[at].id]) + freq[i]) - log(sum + freq[i] * (others - 1));
    return words[i] / all_words * (log(freq[i]) - log(sum) - made);
}

static int prune(struct trainer *t, size_t limit, struct llm_err *e)
{
    size_t n = t->pieces.n, stay = 0, n_losses = 0;
    double *freq = llm_calloc(n, sizeof *freq, "pieces", e), *words = llm_calloc(n, sizeof *words, "pieces", e), sum = 0, all = 0;
    bool *keep = llm_calloc(n, sizeof *keep, "pieces", e);
    struct loss *losses = llm_alloc(n, sizeof *losses, "pieces", e);
    int bad = !freq || !words || !keep || !losses || index_pieces(t, e) < 0 ? -1 : 0;
    for (size_t w = 0; bad == 0 && w < t->n_words; w++) {
        const struct word *word = &t->words[w];
        (void)viterbi(t, word->p, word->n, false);
        all += word->count;
        for (uint32_t at = word->n; at; at = t->best[at].start) {
            int32_t id = t->best[at].id;
            if (id < 0)
                continue;
            freq[id] += word->count;
            words[id] += word->count;
            sum += word->count;
        }
    }
    for (size_t i = 0; bad == 0 && i < n; i++) {
        double loss = loss_of(t, i, freq, words, sum, all);
        keep[i] = loss == INFINITY;
        stay += keep[i];
        if (!keep[i] && loss != -1)
            losses[n_losses++] = (struct loss){loss, i};
    }
    size_t target = (size_t)(SHRINK * (double)n) > limit ? (size_t)(SHRINK * (double)n) : limit;
    if (n_losses && bad == 0)
        qsort(losses, n_losses, sizeof *losses, by_loss);
    for (size_t i = 0; bad == 0 && i < n_losses && stay < target; i++, stay++)
        keep[losses[i].piece] = true;
    if (bad == 0)
        keep_pieces(&t->pieces, keep);
    free(freq);
    free(words);
    free(keep);
    free(losses);
    return bad;
}

/* ---- the whole ---- */

/* Every character, and the best of the rest. */
static int finish(struct trainer *t, const struct seeds *s, size_t limit, struct llm_unigram_pieces *out, struct llm_err *e)
{
    double penalty = 0;
    if (index_pieces(t, e) < 0)
        return -1;
    bool *taken = llm_calloc(t->pieces.n, sizeof *taken, "pieces", e);
    struct char_count *chars = llm_alloc(s->n_chars, sizeof *chars, "characters", e);
    int bad = taken && chars ? 0 : -1;
    if (bad == 0) {
        memcpy(chars, s->chars, s->n_chars * sizeof *chars);
        qsort(chars, s->n_chars, sizeof *chars, by_char_count);
    }
    for (size_t i = 0; bad == 0 && i < s->n_chars; i++) {
        unsigned char utf8[4];
        size_t n = (size_t)llm_utf8_put(chars[i].cp, utf8);
        int32_t id;
        bool known = llm_trie_longest(&t->trie, 0, utf8, n, &id) == n;
        bad = add_piece(out, (const char *)utf8, n, known ? t->pieces.v[id].score : t->worst + penalty, e);
        if (known)
            taken[id] = true;
        else
            penalty += 0.0001;
    }
    bool *keep = taken;
    for (size_t i = 0; bad == 0 && i < t->pieces.n; i++)
        keep[i] = !taken[i];
    if (bad == 0) {
        keep_pieces(&t->pieces, keep);
        if (t->pieces.n)
            qsort(t->pieces.v, t->pieces.n, sizeof *t->pieces.v, by_score);
    }
    for (size_t i = 0; bad == 0 && i < t->pieces.n && out->n < limit; i++)
        bad = add_piece(out, t->pieces.v[i].text, t->pieces.v[i].n, t->pieces.v[i].score, e);
    if (bad == 0 && out->n > limit)
        bad = llm_fail(e, EX_DATAERR, "the text has %zu characters: the vocabulary has room for %zu", s->n_chars, limit);
    if (bad == 0)
        qsort(out->v, out->n, sizeof *out->v, by_score);
    free(taken);
    free(chars);
    return bad;
}

int llm_train_unigram(const struct llm_counts *words, size_t limit, size_t vocab_size, struct llm_unigram_pieces *out, struct llm_err *e)
{
    struct trainer t = {0};
    struct seeds s = {0};
    size_t max = vocab_size + vocab_size / 10;
    int bad = make_seeds(words, &s, &t.pieces, e) < 0 || take_words(&t, words, e) < 0 ? -1 : 0;
    while (bad == 0) {
        bad = weigh(&t, e) < 0 || weigh(&t, e) < 0 ? -1 : 0;
        size_t before = t.pieces.n;
        if (bad < 0 || before <= max)
            break;
        bad = prune(&t, max, e);
        if (t.pieces.n == before) /* nothing more can go */
            break;
    }
    if (bad == 0)
        bad = finish(&t, &s, limit, out, e);
    release_seeds(&s);
    llm_unigram_pieces_release(&t.pieces);
    llm_trie_release(&t.trie);
    llm_counts_release(&t.merged);
    free(t.words);
    free(t.alpha);
    free(t.beta);
    free(t.best);
    return bad;
}
