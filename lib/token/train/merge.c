/* Counts of pairs are kept up to date as words change: a merge touches only the words that hold its pair. The most frequent pair comes
 * from a heap whose entries may be out of date; such a one goes back with its present count. */
#include "token/train/merge.h"
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

struct word { size_t at; uint32_t n; uint64_t count; }; /* symbols[at, at + n) */
struct pair {
    uint32_t left, right;
    int64_t count;
    uint32_t *words;      /* those that hold it, or did */
    size_t n_words, room;
    uint32_t touched;     /* the last merge that made more of it */
};
struct entry { int64_t count; uint32_t pair; };

struct merger {
    const struct llm_train_options *o;
    const struct llm_merge_alphabet *alphabet;
    struct llm_growing_vocab *vocab;
    struct word *words;
    size_t n_words;
    uint32_t *symbols;
    struct pair *pairs;
    size_t n_pairs, room_pairs;
    uint32_t *slots;      /* hash of (left, right) → index of pairs + 1; 2^bits */
    int bits;
    struct entry *heap;
    size_t n_heap, room_heap;
    uint32_t *made;       /* pairs of which the present merge made more */
    size_t n_made, room_made;
    uint32_t step;        /* of the present merge, from 1 */
    uint32_t *texts;      /* hash of bytes → id + 1; 2^text_bits */
    int text_bits;
};

int llm_growing_vocab_put(struct llm_growing_vocab *v, const void *bytes, size_t n, struct llm_err *e)
{
    if (llm_grow((void **)&v->offsets, &v->room, v->n + 2, sizeof *v->offsets, e) < 0 || llm_buf_put(&v->bytes, bytes, n, e) < 0)
        return -1;
    if (v->n == 0)
        v->offsets[0] = 0;
    v->offsets[++v->n] = v->bytes.n;
    return 0;
}

void llm_growing_vocab_release(struct llm_growing_vocab *v)
{
    llm_buf_release(&v->bytes);
    free(v->offsets);
    *v = (struct llm_growing_vocab){0};
}

static const char *text_of(const struct llm_growing_vocab *v, uint32_t id, size_t *n)
{
    *n = v->offsets[id + 1] - v->offsets[id];
    return v->bytes.p + v->offsets[id];
}

/* ---- pairs ---- */

static size_t slot_of(const struct merger *m, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right;
    return (size_t)((key ^ key >> 29) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - m->bits));
}

static int grow_slots(struct merger *m, struct llm_err *e)
{
    m->bits = m->bits ? m->bits + 1 : 16;
    size_t n = (size_t)1 << m->bits;
    free(m->slots);
    m->slots = llm_calloc(n, sizeof *m->slots, "pairs", e);
    if (!m->slots)
        return -1;
    for (size_t i = 0; i < m->n_pairs; i++) {
        size_t at = slot_of(m, m->pairs[i].left, m->pairs[i].right);
        while (m->slots[at])
            at = (at + 1) & (n - 1);
        m->slots[at] = (uint32_t)i + 1;
    }
    return 0;
}

/* Index of the pair, made when it is new; UINT32_MAX: `e`. */
static uint32_t pair_index(struct merger *m, uint32_t left, uint32_t right, struct llm_err *e)
{
    if ((m->bits == 0 || m->n_pairs * 2 >= (size_t)1 << m->bits) && grow_slots(m, e) < 0)
        return UINT32_MAX;
    size_t mask = ((size_t)1 << m->bits) - 1;
    for (size_t at = slot_of(m, left, right);; at = (at + 1) & mask) {
        if (m->slots[at]) {
            const struct pair *p = &m->pairs[m->slots[at] - 1];
            if (p->left == left && p->right == right)
                return m->slots[at] - 1;
            continue;
        }
        if (llm_grow((void **)&m->pairs, &m->room_pairs, m->n_pairs + 1, sizeof *m->pairs, e) < 0)
            return UINT32_MAX;
        m->pairs[m->n_pairs] = (struct pair){.left = left, .right = right};
        m->slots[at] = (uint32_t)++m->n_pairs;
        return (uint32_t)m->n_pairs - 1;
    }
}

static int add_pair(struct merger *m, uint32_t left, uint32_t right, uint32_t word, struct llm_err *e)
{
    uint32_t index = pair_index(m, left, right, e);
    if (index == UINT32_MAX)
        return -1;
    struct pair *p = &m->pairs[index];
    p->count += (int64_t)m->words[word].count;
    if (p->touched != m->step) {
        p->touched = m->step;
        if (llm_grow((void **)&m->made, &m->room_made, m->n_made + 1, sizeof *m->made, e) < 0)
            return -1;
        m->made[m->n_made++] = index;
    }
    if (p->n_words && p->words[p->n_words - 1] == word)
        return 0;
    if (llm_grow((void **)&p->words, &p->room, p->n_words + 1, sizeof *p->words, e) < 0)
        return -1;
    p->words[p->n_words++] = word;
    return 0;
}

static void remove_pair(struct merger *m, uint32_t left, uint32_t right, uint32_t word)
{
    size_t mask = ((size_t)1 << m->bits) - 1;
    for (size_t at = slot_of(m, left, right); m->slots[at]; at = (at + 1) & mask) {
        struct pair *p = &m->pairs[m->slots[at] - 1];
        if (p->left == left && p->right == right) {
            p->count -= (int64_t)m->words[word].count;
            return;
        }
    }
}

/* ---- the heap ---- */

static int compare_text(const struct llm_growing_vocab *v, uint32_t a, uint32_t b)
{
    size_t na, nb;
    const char *ta = text_of(v, a, &na), *tb = text_of(v, b, &nb);
    int d = memcmp(ta, tb, na < nb ? na : nb);
    return d ? d : (na > nb) - (na < nb);
}

/* Does x come before y? */
static bool before(const struct merger *m, struct entry x, struct entry y)
{
    if (x.count != y.count)
        return x.count > y.count;
    const struct pair *a = &m->pairs[x.pair], *b = &m->pairs[y.pair];
    if (m->o->ties == LLM_TIES_ID)
        return a->left != b->left ? a->left < b->left : a->right < b->right;
    int d = compare_text(m->vocab, a->left, b->left);
    return d ? d > 0 : compare_text(m->vocab, a->right, b->right) > 0;
}

static int push(struct merger *m, uint32_t pair, struct llm_err *e)
{
    struct entry x = {m->pairs[pair].count, pair};
    if (x.count <= 0 || x.count < m->o->min_frequency)
        return 0;
    if (llm_grow((void **)&m->heap, &m->room_heap, m->n_heap + 1, sizeof *m->heap, e) < 0)
        return -1;
    size_t i = m->n_heap++;
    for (; i > 0 && before(m, x, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = x;
    return 0;
}

static struct entry pop(struct merger *m)
{
    struct entry top = m->heap[0], x = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && before(m, m->heap[child + 1], m->heap[child]))
            child++;
        if (!before(m, m->heap[child], x))
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = x;
    return top;
}

/* ---- words ---- */

static int take_words(struct merger *m, const struct llm_counts *c, struct llm_err *e)
{
    size_t total = 0, slots = c->slots ? (size_t)1 << c->bits : 0;
    for (size_t i = 0; i < slots; i++)
        total += c->slots[i].n;
    if (c->n > UINT32_MAX)
        return llm_fail(e, EX_UNAVAILABLE, "more than 4 billion distinct words");
    m->words = llm_alloc(c->n, sizeof *m->words, "words", e);
    m->symbols = llm_alloc(total, sizeof *m->symbols, "words", e);
    if (!m->words || !m->symbols)
        return -1;
    size_t at = 0;
    for (size_t i = 0; i < slots; i++) {
        const struct llm_count *s = &c->slots[i];
        if (s->n == 0)
            continue;
        const unsigned char *p = llm_counts_word(c, s);
        uint32_t word = (uint32_t)m->n_words++, *v = m->symbols + at, n = m->alphabet->symbols(m->alphabet->arg, p, s->n, v);
        m->words[word] = (struct word){at, n, s->count};
        at += n;
        for (uint32_t k = 0; k + 1 < n; k++)
            if (add_pair(m, v[k], v[k + 1], word, e) < 0)
                return -1;
    }
    return 0;
}

/* Every `left right` in the word becomes `id`. */
static int merge_word(struct merger *m, uint32_t word, uint32_t left, uint32_t right, uint32_t id, struct llm_err *e)
{
    struct word *w = &m->words[word];
    uint32_t *v = m->symbols + w->at, n = w->n, from = 0, to = 0;
    while (from < n) {
        if (from + 1 >= n || v[from] != left || v[from + 1] != right) {
            v[to++] = v[from++];
            continue;
        }
        if (to > 0) {
            remove_pair(m, v[to - 1], left, word);
            if (add_pair(m, v[to - 1], id, word, e) < 0)
                return -1;
        }
        from += 2;
        if (from < n) {
            remove_pair(m, right, v[from], word);
            if (add_pair(m, id, v[from], word, e) < 0)
                return -1;
        }
        v[to++] = id;
    }
    w->n = to;
    return 0;
}

/* ---- the vocabulary ---- */

static size_t text_slot(const struct merger *m, const char *p, size_t n)
{
    return (size_t)(llm_xxh64(p, n, 0) >> (64 - m->text_bits));
}

/* The id of these bytes, a new one when they are not in the vocabulary yet; UINT32_MAX: `e`. */
static uint32_t id_of(struct merger *m, const char *p, size_t n, struct llm_err *e)
{
    size_t mask = ((size_t)1 << m->text_bits) - 1, at = text_slot(m, p, n);
    for (; m->texts[at]; at = (at + 1) & mask) {
        size_t len;
        const char *text = text_of(m->vocab, m->texts[at] - 1, &len);
        if (len == n && memcmp(text, p, n) == 0)
            return m->texts[at] - 1;
    }
    if (llm_growing_vocab_put(m->vocab, p, n, e) < 0)
        return UINT32_MAX;
    m->texts[at] = (uint32_t)m->vocab->n;
    return (uint32_t)m->vocab->n - 1;
}

/* What is in the vocabulary already is found, too: a merge may make the text of a special token. */
static int index_texts(struct merger *m, struct llm_err *e)
{
    for (m->text_bits = 10; (int64_t)1 << m->text_bits < 2 * m->o->vocab_size; m->text_bits++) {
    }
    size_t mask = ((size_t)1 << m->text_bits) - 1;
    m->texts = llm_calloc(mask + 1, sizeof *m->texts, "a vocabulary", e);
    for (size_t id = 0; m->texts && id < m->vocab->n; id++) {
        size_t n;
        const char *text = text_of(m->vocab, (uint32_t)id, &n);
        size_t at = text_slot(m, text, n);
        while (n && m->texts[at])
            at = (at + 1) & mask;
        if (n)
            m->texts[at] = (uint32_t)id + 1;
    }
    return m->texts ? 0 : -1;
}

static uint32_t new_token(struct merger *m, uint32_t left, uint32_t right, struct llm_err *e)
{
    struct llm_buf joined = {0};
    size_t nl, nr;
    const char *l = text_of(m->vocab, left, &nl);
    uint32_t id = UINT32_MAX;
    if (llm_buf_put(&joined, l, nl, e) == 0) {
        const char *r = text_of(m->vocab, right, &nr);
        size_t prefix = strlen(m->alphabet->prefix);
        if (nr < prefix || memcmp(r, m->alphabet->prefix, prefix) != 0)
            prefix = 0;
        if (llm_buf_put(&joined, r + prefix, nr - prefix, e) == 0)
            id = id_of(m, joined.p, joined.n, e);
    }
    llm_buf_release(&joined);
    return id;
}

/* One merge of the pair at the top of the heap. 1: made, 0: the top was out of date. */
static int step(struct merger *m, struct llm_bpe_merge *made, struct llm_err *e)
{
    struct entry top = pop(m);
    if (top.count != m->pairs[top.pair].count)
        return push(m, top.pair, e);
    struct pair p = m->pairs[top.pair]; /* merging moves `pairs` */
    uint32_t id = new_token(m, p.left, p.right, e);
    if (id == UINT32_MAX)
        return -1;
    m->step++;
    m->n_made = 0;
    m->pairs[top.pair].words = NULL;
    m->pairs[top.pair].n_words = m->pairs[top.pair].room = 0;
    int bad = 0;
    for (size_t i = 0; i < p.n_words && bad == 0; i++)
        bad = merge_word(m, p.words[i], p.left, p.right, id, e);
    free(p.words);
    m->pairs[top.pair].count = 0;
    for (size_t i = 0; i < m->n_made && bad == 0; i++)
        bad = push(m, m->made[i], e);
    *made = (struct llm_bpe_merge){p.left, p.right, 0, id};
    return bad < 0 ? -1 : 1;
}

static void release(struct merger *m)
{
    for (size_t i = 0; i < m->n_pairs; i++)
        free(m->pairs[i].words);
    free(m->pairs);
    free(m->slots);
    free(m->heap);
    free(m->made);
    free(m->words);
    free(m->symbols);
    free(m->texts);
}

int llm_merge_words(const struct llm_counts *words, const struct llm_train_options *o, const struct llm_merge_alphabet *alphabet,
                    struct llm_growing_vocab *vocab, struct llm_bpe_merge **merges, size_t *n_merges, struct llm_err *e)
{
    struct merger m = {.o = o, .alphabet = alphabet, .vocab = vocab, .step = 1};
    size_t room = 0;
    int bad = index_texts(&m, e) < 0 || take_words(&m, words, e) < 0 ? -1 : 0;
    for (size_t i = 0; i < m.n_pairs && bad == 0; i++)
        bad = push(&m, (uint32_t)i, e);
    while (bad >= 0 && m.n_heap && (int64_t)vocab->n < o->vocab_size) {
        struct llm_bpe_merge made;
        bad = step(&m, &made, e);
        if (bad <= 0)
            continue;
        if (llm_grow((void **)merges, &room, *n_merges + 1, sizeof **merges, e) < 0) {
            bad = -1;
            break;
        }
        made.rank = (uint32_t)*n_merges;
        (*merges)[(*n_merges)++] = made;
    }
    release(&m);
    return bad < 0 ? -1 : 0;
}
