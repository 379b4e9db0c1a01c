/* The model "unigram": of all ways to cut a text into pieces the one with the greatest sum of scores (Viterbi). Sums are added from left to
 * right in the precision of the reference, and the first of equal ones stays, so that near ties end as they do there. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

/* The best way to here: where its last piece begins, and that piece. */
struct path { double score; uint32_t start; int32_t id; };
#define NO_PATH UINT32_MAX

static inline void offer(struct path *to, double score, bool single, size_t start, int32_t id)
{
    if (to->start != NO_PATH && !(score > to->score))
        return;
    *to = (struct path){single ? (double)(float)score : score, (uint32_t)start, id};
}

/* Offers all pieces that begin at p[at]; the path to place i is paths[i & mask]. Returns the bytes of the character there. */
static inline size_t offer_from(const struct llm_tokenizer *t, struct path *paths, size_t mask, const unsigned char *p, size_t n, size_t at)
{
    uint32_t cp, node = 0;
    double here = paths[at & mask].score;
    bool single = false;
    size_t len = (size_t)llm_utf8_next(p + at, n - at, &cp);
    for (size_t i = at; i < n; i++) {
        int32_t id;
        node = llm_trie_next(&t->trie, node, p[i], &id);
        if (node == LLM_TRIE_NONE)
            break;
        if (id < 0)
            continue;
        size_t length = i + 1 - at;
        bool user = t->sentencepiece && t->flags[id] & LLM_TOKEN_USER && !(t->flags[id] & LLM_TOKEN_ADDED);
        double score = user ? 0.1 * (double)(length - 1) : t->scores[id]; /* as 0.2.3; up to 0.2.0 it is -0.1 */
        offer(&paths[(i + 1) & mask], score + here, t->sentencepiece, at, id);
        single = single || length == len;
    }
    if (!single) {
        double score = t->unknown_score + here;
        offer(&paths[(at + len) & mask], t->sentencepiece ? (double)(float)score : score, t->sentencepiece, at, -1);
    }
    return len;
}

static void search(const struct llm_tokenizer *t, struct path *paths, const unsigned char *p, size_t n)
{
    for (size_t i = 1; i <= n; i++)
        paths[i].start = NO_PATH;
    paths[0] = (struct path){0, 0, -1};
    for (size_t at = 0; at < n;)
        at += offer_from(t, paths, SIZE_MAX, p, n, at);
}

/* ---- long texts: of each place one byte is kept, the length of the best way's last piece; sums are needed only as far as a piece reaches ---- */

#define LONG_TEXT ((size_t)1 << 16)
#define FLUSH ((size_t)1 << 16) /* ids that are held at most */

struct lengths { uint8_t *narrow; uint32_t *wide; }; /* one of them: wide if a piece may have more than 255 bytes */

static inline size_t length_at(const struct lengths *l, size_t i)
{
    return l->narrow ? l->narrow[i] : l->wide[i];
}

static inline void set_length(const struct lengths *l, size_t i, size_t length)
{
    if (l->narrow)
        l->narrow[i] = (uint8_t)length;
    else
        l->wide[i] = (uint32_t)length;
}

static size_t longest_piece(const struct llm_tokenizer *t)
{
    size_t longest = 4, n; /* an unknown character */
    for (int32_t id = 0; id < t->vocab_size; id++) {
        llm_model_piece(t, id, &n);
        if (n > longest)
            longest = n;
    }
    return longest;
}

/* Fills l[1..n] with the lengths of the pieces that end there, then turns those of the best way into lengths of the pieces that begin there. */
static int search_long(const struct llm_tokenizer *t, const struct lengths *l, size_t longest, const unsigned char *p, size_t n, struct llm_err *e)
{
    size_t size = 8;
    while (size <= longest)
        size *= 2;
    struct path *ring = llm_alloc(size, sizeof *ring, "a path", e);
    if (!ring)
        return -1;
    for (size_t i = 0; i < size; i++)
        ring[i].start = NO_PATH;
    ring[0] = (struct path){0, 0, -1};
    for (size_t at = 0; at < n;) {
        size_t len = offer_from(t, ring, size - 1, p, n, at);
        for (size_t end = at + len; at < end; at++)
            ring[at & (size - 1)].start = NO_PATH; /* the place of one that is `size` further on */
        set_length(l, at, at - ring[at & (size - 1)].start);
    }
    free(ring);
    for (size_t end = n, next = 0; ;) {
        size_t length = end > 0 ? length_at(l, end) : 0;
        set_length(l, end, next);
        if (end == 0)
            return 0;
        next = length;
        end -= length;
    }
}

/* The piece's id; -1: unknown characters. */
static int32_t id_of(const struct llm_tokenizer *t, const unsigned char *p, size_t n)
{
    int32_t id = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < n && node != LLM_TRIE_NONE; i++)
        node = llm_trie_next(&t->trie, node, p[i], &id);
    return node == LLM_TRIE_NONE ? -1 : id;
}

static int put_pieces(struct llm_encoder *en, const struct lengths *l, const unsigned char *p, size_t n, struct llm_err *e)
{
    size_t unknown = 0; /* bytes of unknown characters before p[at], which become one */
    for (size_t at = 0, len; at < n; at += len) {
        len = length_at(l, at);
        int32_t id = id_of(en->t, p + at, len);
        if (id < 0) {
            unknown += len;
            continue;
        }
        if (unknown > 0 && llm_put_unknown(en, p + at - unknown, unknown, e) < 0)
            return -1;
        unknown = 0;
        if (en->flush && en->n_ids >= FLUSH) {
            if (en->flush(en->flush_arg, en->ids, en->n_ids, e) < 0)
                return -1;
            en->n_ids = 0;
        }
        en->ids[en->n_ids++] = id;
    }
    return unknown > 0 ? llm_put_unknown(en, p + n - unknown, unknown, e) : 0;
}

static int encode_long(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    size_t longest = longest_piece(en->t);
    struct lengths l = {0};
    if (longest <= UINT8_MAX)
        l.narrow = llm_alloc(n + 1, 1, "paths", e);
    else
        l.wide = llm_alloc(n + 1, sizeof *l.wide, "paths", e);
    int bad = (l.narrow || l.wide) && search_long(en->t, &l, longest, p, n, e) == 0 ? put_pieces(en, &l, p, n, e) : -1;
    free(l.narrow);
    free(l.wide);
    return bad;
}

static int encode_new(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    if (n >= NO_PATH)
        return llm_fail(e, EX_UNAVAILABLE, "a piece of %zu bytes without a split point: at most 4 GiB can be searched", n);
    if (n > LONG_TEXT)
        return encode_long(en, p, n, e);
    if (llm_grow(&en->paths, &en->room_paths, n + 1, sizeof(struct path), e) < 0)
        return -1;
    struct path *paths = en->paths;
    search(t, paths, p, n);
    /* Backwards, turning each path's start into its end. Unknown characters side by side become one. */
    size_t end = n, next = NO_PATH;
    while (end > 0) {
        size_t start = paths[end].start;
        int32_t id = paths[end].id;
        while (id < 0 && start > 0 && paths[start].id < 0)
            start = paths[start].start;
        paths[end].start = (uint32_t)next;
        paths[end].id = id;
        next = end;
        end = start;
    }
    for (size_t from = 0, at = next; from < n; from = at, at = next) {
        next = paths[at].start;
        if (paths[at].id >= 0)
            en->ids[en->n_ids++] = paths[at].id;
        else if (llm_put_unknown(en, p + from, at - from, e) < 0)
            return -1;
    }
    return 0;
}

/* Pieces of words are remembered; whole sentences would not come again. */
const struct llm_model_row llm_model_unigram = {"unigram", llm_word_encode, encode_new, NULL, NULL, false, false};
