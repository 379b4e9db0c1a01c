/* The model "unigram": of all ways to cut a text into pieces the one with the greatest sum of scores (Viterbi). Sums are added from left to
 * right in the precision of the reference, and the first of equal ones stays, so that near ties end as they do there. */
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

static void search(const struct llm_tokenizer *t, struct path *paths, const unsigned char *p, size_t n)
{
    for (size_t i = 1; i <= n; i++)
        paths[i].start = NO_PATH;
    paths[0] = (struct path){0, 0, -1};
    for (size_t at = 0, len; at < n; at += len) {
        uint32_t cp, node = 0;
        double here = paths[at].score;
        bool single = false;
        len = (size_t)llm_utf8_next(p + at, n - at, &cp);
        for (size_t i = at; i < n; i++) {
            int32_t id;
            node = llm_trie_next(&t->trie, node, p[i], &id);
            if (node == LLM_TRIE_NONE)
                break;
            if (id < 0)
                continue;
            size_t length = i + 1 - at;
            bool user = t->sentencepiece && t->flags[id] & LLM_TOKEN_USER && !(t->flags[id] & LLM_TOKEN_ADDED);
            double score = user ? (double)((float)length * (float)t->best_score) - 0.1 : t->scores[id];
            offer(&paths[i + 1], score + here, t->sentencepiece, at, id);
            single = single || length == len;
        }
        if (!single) {
            double score = t->unknown_score + here;
            offer(&paths[at + len], t->sentencepiece ? (double)(float)score : score, t->sentencepiece, at, -1);
        }
    }
}

static int encode_new(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    if (n >= NO_PATH)
        return llm_fail(e, EX_UNAVAILABLE, "a piece of %zu bytes without a split point: at most 4 GiB can be searched", n);
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
