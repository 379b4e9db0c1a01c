/* The object: its parts put together, and what others ask of it. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

struct llm_tokenizer *llm_tokenizer_create(struct llm_err *e)
{
    struct llm_tokenizer *t = llm_calloc(1, sizeof *t, "a tokenizer", e);
    if (!t)
        return NULL;
    t->unknown = t->bos = t->eos = -1;
    t->max_word = 100;
    for (int i = 0; i < 256; i++)
        t->bpe.byte_id[i] = LLM_BPE_NONE;
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void llm_tokenizer_destroy(struct llm_tokenizer *t)
{
    if (!t)
        return;
    free(t->pieces);
    free(t->offsets);
    free(t->flags);
    free(t->chars.v);
    free(t->end_chars.v);
    free(t->whole);
    llm_bpe_release(&t->bpe);
    for (int i = 0; i < t->n_splits; i++)
        llm_split_release(&t->splits[i]);
    for (int i = 0; i < t->n_norms; i++)
        llm_norm_release(&t->norms[i]);
    for (int i = 0; i < t->n_pres; i++)
        llm_pre_release(&t->pres[i]);
    for (int i = 0; i < t->n_decoders; i++)
        llm_decode_step_release(&t->decoders[i]);
    free(t->norms);
    free(t->pres);
    free(t->decoders);
    for (size_t i = 0; i < t->n_shown; i++)
        free(t->shown[i].own);
    free(t->shown);
    free(t->shown_at);
    llm_detokenizer_destroy(t->shower);
    llm_encoder_destroy(t->idle);
    free(t->scores);
    free(t->prefix);
    free(t->suffix);
    json_decref(t->parts);
    llm_trie_release(&t->trie);
    llm_trie_release(&t->kept);
    llm_buf_release(&t->json);
    llm_buf_release(&t->settings);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- vocabulary ---- */

int llm_vocab_put(struct llm_vocab *v, int64_t id, const unsigned char *text, size_t n, unsigned char flags, struct llm_err *e)
{
    if (id < 0 || id >= v->limit || id >= LLM_MAX_VOCAB)
        return llm_fail(e, EX_DATAERR, "token id %lld: expected 0 to %lld in a vocabulary of this size", (long long)id,
                        (long long)(v->limit < LLM_MAX_VOCAB ? v->limit : LLM_MAX_VOCAB) - 1);
    if (n > UINT32_MAX / 4)
        return llm_fail(e, EX_DATAERR, "token %lld: %zu bytes long", (long long)id, n);
    if ((size_t)id >= v->n) {
        size_t old = v->n;
        if (llm_grow((void **)&v->v, &v->room, (size_t)id + 1, sizeof *v->v, e) < 0)
            return -1;
        v->n = (size_t)id + 1;
        memset(v->v + old, 0, (v->n - old) * sizeof *v->v);
    }
    if (v->v[id].flags)
        return llm_fail(e, EX_DATAERR, "token id %lld is given twice", (long long)id);
    v->v[id] = (struct llm_vocab_entry){text, (uint32_t)n, flags | LLM_TOKEN_PRESENT, 0};
    return 0;
}

void llm_vocab_release(struct llm_vocab *v)
{
    free(v->v);
    *v = (struct llm_vocab){0};
}

int llm_tokenizer_set_vocab(struct llm_tokenizer *t, const struct llm_vocab *v, struct llm_err *e)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < v->n; i++)
        bytes += v->v[i].n;
    if (v->n == 0)
        return llm_fail(e, EX_DATAERR, "the vocabulary is empty");
    if (bytes > UINT32_MAX)
        return llm_fail(e, EX_DATAERR, "the vocabulary's texts are %llu bytes long", (unsigned long long)bytes);
    t->pieces = llm_alloc((size_t)bytes, 1, "a vocabulary", e);
    t->offsets = llm_alloc(v->n + 1, sizeof *t->offsets, "a vocabulary", e);
    t->flags = llm_alloc(v->n, 1, "a vocabulary", e);
    if (t->model == &llm_model_unigram)
        t->scores = llm_alloc(v->n, sizeof *t->scores, "a vocabulary", e);
    if (!t->pieces || !t->offsets || !t->flags || (t->model == &llm_model_unigram && !t->scores))
        return -1;
    uint32_t at = 0;
    for (size_t i = 0; i < v->n; i++) {
        t->offsets[i] = at;
        t->flags[i] = v->v[i].flags;
        if (t->scores)
            t->scores[i] = v->v[i].score + 0.0; /* no -0: it would be written as 0 */
        if (v->v[i].n)
            memcpy(t->pieces + at, v->v[i].text, v->v[i].n);
        at += v->v[i].n;
    }
    t->offsets[v->n] = at;
    t->vocab_size = (int32_t)v->n;
    return 0;
}

/* ---- the model's own tables ---- */

int llm_tokenizer_set_suffix(struct llm_tokenizer *t, const char *suffix, struct llm_err *e)
{
    for (const char *p = suffix; t->byte_level && *p; p++)
        if (*p <= ' ' || *p > '~')
            return llm_fail(e, EX_UNAVAILABLE, "end_of_word_suffix '%s': with ByteLevel only printable ASCII is supported", suffix);
    if (t->byte_fallback)
        return llm_fail(e, EX_UNAVAILABLE, "'byte_fallback' with an end_of_word_suffix is not supported");
    t->suffix = strdup(suffix);
    return t->suffix ? 0 : llm_no_memory(e, "a tokenizer");
}

static int32_t special_of(const struct llm_tokenizer *t, const char *const *names)
{
    for (; *names; names++) {
        int32_t id = llm_tokenizer_special(t, *names);
        if (id >= 0)
            return id;
    }
    return -1;
}

/* Files seldom say which tokens begin and end a document; the post-processor's come first, then the names that models use. */
static void find_ends(struct llm_tokenizer *t)
{
    static const char *const begins[] = {"<|begin_of_text|>", "<s>", "<bos>", "<|startoftext|>", "<｜begin▁of▁sentence｜>", NULL};
    static const char *const ends[] = {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>",
                                       "<|rwkv_tokenizer_end_of_text|>", NULL};
    if (t->bos < 0)
        t->bos = t->n_before ? t->before[0] : special_of(t, begins);
    if (t->eos < 0)
        t->eos = t->n_after ? t->after[t->n_after - 1] : special_of(t, ends);
}

size_t llm_tokenizer_turn_ends(const struct llm_tokenizer *t, int32_t *ids, size_t room)
{
    static const char *const names[] = {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>", "_<EOT>",
        "<｜end▁of▁sentence｜>", "<end_of_utterance>", "<|endofturn|>",
        "<|rwkv_tokenizer_end_of_text|>"};
    size_t found = 0;
    for (int32_t id = 0; id < t->vocab_size && found < room; id++) {
        size_t n;
        const unsigned char *text = llm_model_piece(t, id, &n);
        if (!(t->flags[id] & LLM_TOKEN_SPECIAL))
            continue;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (found < room && strlen(names[i]) == n && memcmp(names[i], text, n) == 0)
                ids[found++] = id;
    }
    return found;
}

static int check_ids(const struct llm_tokenizer *t, struct llm_err *e)
{
    size_t n;
    for (int i = 0; i < t->n_before + t->n_after; i++) {
        int32_t id = i < t->n_before ? t->before[i] : t->after[i - t->n_before];
        if (!llm_tokenizer_piece(t, id, &n))
            return llm_fail(e, EX_DATAERR, "the post-processor's id %d is not in the vocabulary", id);
    }
    return 0;
}

static int finish_bytes(struct llm_tokenizer *t, struct llm_bpe_merge *merges, size_t n_merges, struct llm_err *e)
{
    if (t->suffix && (!(t->bpe.end_id = llm_alloc(256, sizeof *t->bpe.end_id, "a vocabulary", e)) || llm_tokenizer_hide_suffix(t, e) < 0)) {
        free(merges);
        return -1;
    }
    for (int i = 0; t->bpe.end_id && i < 256; i++)
        t->bpe.end_id[i] = LLM_BPE_NONE;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        bool ends;
        size_t n;
        const unsigned char *p = llm_model_piece(t, id, &n);
        if (llm_without_suffix(t, p, n, &ends) != 1 || !(t->flags[id] & LLM_TOKEN_MODEL))
            continue;
        uint32_t *slot = ends ? &t->bpe.end_id[*p] : &t->bpe.byte_id[*p];
        if (*slot == LLM_BPE_NONE)
            *slot = (uint32_t)id;
    }
    if (llm_bpe_init(&t->bpe, merges, n_merges, e) < 0)
        return -1;
    if (t->model == &llm_model_byte && (t->n_splits || t->generic))
        t->model = &llm_model_bpe;
    return 0;
}

/* Models over characters. */
static int finish_chars(struct llm_tokenizer *t, struct llm_bpe_merge *merges, size_t n_merges, struct llm_err *e)
{
    if (t->model != &llm_model_bpe_chars)
        free(merges);
    else if (!t->bpe.slots && !t->bpe.joined && llm_bpe_init(&t->bpe, merges, n_merges, e) < 0) /* a reader may have made it */
        return -1;
    return llm_model_prepare(t, e);
}

int llm_tokenizer_finish(struct llm_tokenizer *t, struct llm_bpe_merge *merges, size_t n_merges, struct llm_err *e)
{
    bool over_chars = t->model->encode_new && t->model != &llm_model_bpe;
    if (t->model == &llm_model_char || t->model == &llm_model_greedy) {
        free(merges);
        if ((t->model == &llm_model_char ? llm_index_chars(t, e) : llm_greedy_prepare(t, e)) < 0)
            return -1;
    } else if ((over_chars ? finish_chars : finish_bytes)(t, merges, n_merges, e) < 0) {
        return -1;
    }
    if (t->ignore_merges && !t->whole && llm_tokenizer_index_whole(t, e) < 0)
        return -1;
    if (!t->ignore_merges && !t->bpe.joined) { /* a reader needed it */
        free(t->whole);
        t->whole = NULL;
    }
    if (((t->generic && !t->byte_level) || t->suffix) && !(t->shown_at = llm_calloc((size_t)t->vocab_size, sizeof *t->shown_at, "a vocabulary", e)))
        return -1;
    llm_pipeline_plan(t);
    find_ends(t);
    return check_ids(t, e);
}

int llm_tokenizer_add_split(struct llm_tokenizer *t, const char *pattern, struct llm_err *e)
{
    if (t->n_splits == LLM_MAX_SPLITS)
        return llm_fail(e, EX_UNAVAILABLE, "more than %d splits one after another", LLM_MAX_SPLITS);
    if (llm_split_init(&t->splits[t->n_splits], pattern, e) < 0)
        return -1;
    t->n_splits++;
    return 0;
}

/* ---- answers ---- */

int32_t llm_tokenizer_vocab_size(const struct llm_tokenizer *t)
{
    return t->vocab_size;
}

const char *llm_tokenizer_type(const struct llm_tokenizer *t)
{
    return t->model->name;
}

const char *llm_tokenizer_piece(const struct llm_tokenizer *t, int32_t id, size_t *n)
{
    *n = 0;
    if (id < 0 || id >= t->vocab_size || !(t->flags[id] & LLM_TOKEN_PRESENT))
        return NULL;
    if (t->shown_at)
        return llm_detokenizer_show(t, id, n);
    return (const char *)llm_model_piece(t, id, n);
}

bool llm_tokenizer_is_special(const struct llm_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab_size && t->flags[id] & LLM_TOKEN_SPECIAL;
}

int32_t llm_tokenizer_special(const struct llm_tokenizer *t, const char *text)
{
    size_t want = strlen(text);
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n = t->offsets[id + 1] - t->offsets[id];
        if (t->flags[id] & LLM_TOKEN_ADDED && n == want && memcmp(t->pieces + t->offsets[id], text, n) == 0)
            return id;
    }
    return -1;
}

int32_t llm_tokenizer_bos(const struct llm_tokenizer *t)
{
    return t->bos;
}

int32_t llm_tokenizer_unknown(const struct llm_tokenizer *t)
{
    return t->unknown;
}

int32_t llm_tokenizer_eos(const struct llm_tokenizer *t)
{
    return t->eos;
}
