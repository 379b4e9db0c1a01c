/* SentencePiece's .model: a protobuf message read by hand. ModelProto: 1 pieces {1 text, 2 score, 3 type}, 2 trainer_spec {3 model type,
 * 24 treat_whitespace_as_suffix, 35 byte_fallback, 44 unk_surface, 46 bos_piece, 47 eos_piece}, 3 normalizer_spec {2 precompiled_charsmap,
 * 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces}, 5 denormalizer_spec. Source: sentencepiece_model.proto. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum { UNIGRAM = 1, BPE, WORD, CHAR };

/* ---- the wire format ---- */

struct field {
    uint64_t number, value;     /* value: of wire types 0, 1, 5 */
    int wire;
    const unsigned char *p;     /* of wire type 2: n bytes */
    size_t n;
};
struct cursor { const unsigned char *start, *p, *end; };

static int bad_byte(const struct cursor *c, const char *what, struct llm_err *e)
{
    return llm_fail(e, EX_DATAERR, "byte %zu: %s", (size_t)(c->p - c->start), what);
}

static int varint(struct cursor *c, uint64_t *v, struct llm_err *e)
{
    *v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (c->p == c->end)
            return bad_byte(c, "cut short", e);
        unsigned char b = *c->p++;
        *v |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80)
            return 0;
    }
    return bad_byte(c, "a number of more than 64 bits", e);
}

/* 1: the next field, 0: the message ends, -1. */
static int next_field(struct cursor *c, struct field *f, struct llm_err *e)
{
    uint64_t key, length;
    if (c->p == c->end)
        return 0;
    if (varint(c, &key, e) < 0)
        return -1;
    f->number = key >> 3;
    f->wire = (int)(key & 7);
    f->p = NULL;
    f->n = 0;
    if (f->wire == 0)
        return varint(c, &f->value, e) < 0 ? -1 : 1;
    if (f->wire == 2) {
        if (varint(c, &length, e) < 0)
            return -1;
        if (length > (uint64_t)(c->end - c->p))
            return bad_byte(c, "a field longer than what is left", e);
        f->p = c->p;
        f->n = (size_t)length;
        c->p += length;
        return 1;
    }
    if (f->wire != 1 && f->wire != 5)
        return bad_byte(c, "expected a field, found a wire type of none", e);
    size_t width = f->wire == 1 ? 8 : 4;
    if ((size_t)(c->end - c->p) < width)
        return bad_byte(c, "cut short", e);
    f->value = 0;
    for (size_t i = 0; i < width; i++)
        f->value |= (uint64_t)c->p[i] << 8 * i;
    c->p += width;
    return 1;
}

static int expect(const struct cursor *c, const struct field *f, int wire, struct llm_err *e)
{
    return f->wire == wire ? 0 : bad_byte(c, "a field of another type", e);
}

/* ---- the message ---- */

struct piece { const unsigned char *text; size_t n; float score; int type; };
struct model {
    struct piece *pieces;
    size_t n, room;
    uint64_t type;
    bool suffix, byte_fallback, dummy, extra, escape, denormalises, has_user, has_trainer, has_normalizer;
    const unsigned char *map, *surface, *bos, *eos;
    size_t n_map, n_surface, n_bos, n_eos;
};

static int read_piece(struct model *m, struct cursor c, struct llm_err *e)
{
    struct field f;
    struct piece piece = {.type = NORMAL};
    int got;
    while ((got = next_field(&c, &f, e)) > 0) {
        uint32_t bits = (uint32_t)f.value;
        if (f.number > 3)
            continue;
        if (expect(&c, &f, f.number == 1 ? 2 : f.number == 2 ? 5 : 0, e) < 0)
            return -1;
        if (f.number == 1) {
            piece.text = f.p;
            piece.n = f.n;
        } else if (f.number == 2) {
            memcpy(&piece.score, &bits, 4);
        } else {
            piece.type = f.value > BYTE ? 0 : (int)f.value;
        }
    }
    if (got < 0)
        return -1;
    if (!piece.n || llm_utf8_invalid(piece.text, piece.n) < piece.n || memchr(piece.text, '\0', piece.n))
        return llm_fail(e, EX_DATAERR, "piece %zu: expected text", m->n);
    if (!isfinite(piece.score))
        return llm_fail(e, EX_DATAERR, "piece %zu: expected a finite score", m->n);
    if (piece.type < NORMAL)
        return llm_fail(e, EX_DATAERR, "piece %zu: a type of no kind", m->n);
    if (m->n == LLM_MAX_VOCAB)
        return llm_fail(e, EX_DATAERR, "more than %d pieces", LLM_MAX_VOCAB);
    if (llm_grow((void **)&m->pieces, &m->room, m->n + 1, sizeof *m->pieces, e) < 0)
        return -1;
    m->pieces[m->n++] = piece;
    m->has_user = m->has_user || piece.type == USER_DEFINED;
    return 0;
}

static int read_trainer(struct model *m, struct cursor c, struct llm_err *e)
{
    struct field f;
    int got;
    m->has_trainer = true;
    while ((got = next_field(&c, &f, e)) > 0) {
        bool number = f.number == 3 || f.number == 24 || f.number == 35, text = f.number == 44 || f.number == 46 || f.number == 47;
        if ((number || text) && expect(&c, &f, text ? 2 : 0, e) < 0)
            return -1;
        if (f.number == 3)
            m->type = f.value;
        else if (f.number == 24)
            m->suffix = f.value;
        else if (f.number == 35)
            m->byte_fallback = f.value;
        const unsigned char **to = f.number == 44 ? &m->surface : f.number == 46 ? &m->bos : f.number == 47 ? &m->eos : NULL;
        if (to) {
            *to = f.p;
            *(f.number == 44 ? &m->n_surface : f.number == 46 ? &m->n_bos : &m->n_eos) = f.n;
        }
    }
    return got;
}

static int read_normalizer(struct model *m, struct cursor c, struct llm_err *e)
{
    struct field f;
    int got;
    m->has_normalizer = true;
    while ((got = next_field(&c, &f, e)) > 0) {
        if (f.number < 2 || f.number > 5)
            continue;
        if (expect(&c, &f, f.number == 2 ? 2 : 0, e) < 0)
            return -1;
        if (f.number == 2) {
            m->map = f.p;
            m->n_map = f.n;
        } else {
            *(f.number == 3 ? &m->dummy : f.number == 4 ? &m->extra : &m->escape) = f.value;
        }
    }
    return got;
}

static int read_denormalizer(struct model *m, struct cursor c, struct llm_err *e)
{
    struct field f;
    int got;
    while ((got = next_field(&c, &f, e)) > 0)
        m->denormalises = m->denormalises || (f.number == 2 && f.n);
    return got;
}

/* Google's library refuses files without pieces of text, and byte pieces that are not all there, or that no byte fallback uses. A protobuf message
 * may end after any field, and a trainer always writes both specifications after the pieces: without them the file was cut. */
static int check_whole(const struct model *m, struct llm_err *e)
{
    size_t bytes = 0, texts = 0;
    for (size_t i = 0; i < m->n; i++) {
        const struct piece *p = &m->pieces[i];
        bytes += p->type == BYTE;
        if (p->type == BYTE && llm_byte_piece(p->text, p->n) < 0)
            return llm_fail(e, EX_DATAERR, "piece %zu: expected <0x00> to <0xFF>, found '%.*s'", i, (int)(p->n < 40 ? p->n : 40),
                            (const char *)p->text);
        texts += m->pieces[i].type == NORMAL || m->pieces[i].type == USER_DEFINED || m->pieces[i].type == UNUSED;
    }
    if (m->n == 0)
        return llm_fail(e, EX_DATAERR, "expected a SentencePiece model, found no pieces");
    if (!m->has_trainer || !m->has_normalizer)
        return llm_fail(e, EX_DATAERR, "cut short: expected a trainer_spec and a normalizer_spec, found no %s",
                        m->has_trainer ? "normalizer_spec" : "trainer_spec");
    if (texts == 0)
        return llm_fail(e, EX_DATAERR, "expected pieces of text, found none among %zu pieces", m->n);
    if (bytes != (m->byte_fallback ? 256 : 0))
        return llm_fail(e, EX_DATAERR, "expected %d byte pieces (byte_fallback is %s), found %zu", m->byte_fallback ? 256 : 0,
                        m->byte_fallback ? "true" : "false", bytes);
    return 0;
}

static int read_model(struct model *m, const unsigned char *p, size_t n, struct llm_err *e)
{
    struct cursor c = {p, p, p + n};
    struct field f;
    int got;
    while ((got = next_field(&c, &f, e)) > 0) {
        int (*read)(struct model *, struct cursor, struct llm_err *) = f.number == 1   ? read_piece
                                                                       : f.number == 2 ? read_trainer
                                                                       : f.number == 3 ? read_normalizer
                                                                       : f.number == 5 ? read_denormalizer
                                                                                       : NULL;
        if (!read)
            continue;
        if (expect(&c, &f, 2, e) < 0 || read(m, (struct cursor){p, f.p, f.p + f.n}, e) < 0)
            return -1;
    }
    if (got < 0)
        return -1;
    if (check_whole(m, e) < 0)
        return -1;
    if (m->type < UNIGRAM || m->type > CHAR)
        return llm_fail(e, EX_DATAERR, "model type %llu: expected 1 to 4", (unsigned long long)m->type);
    if (m->suffix)
        return llm_fail(e, EX_UNAVAILABLE, "'treat_whitespace_as_suffix' is not supported");
    return m->denormalises ? llm_fail(e, EX_UNAVAILABLE, "'denormalizer_spec' is not supported") : 0;
}

/* ---- the tokenizer ---- */

static const char mark[] = "\xE2\x96\x81";

/* Without rules it is what a tokenizer.json says with two normalizers of Hugging Face's library. */
static json_t *make_normalizer(const struct model *m, const struct llm_config_class *class, struct llm_err *e)
{
    struct llm_buf map = {0};
    json_t *o = NULL;
    if (class->siglip) {
        if (llm_base64_encode(m->map, m->n_map, &map, e) == 0)
            o = json_pack("{s:s, s:[{s:s, s:b}, {s:s, s:s, s:b, s:b, s:b}]}", "type", "Sequence", "normalizers", "type", "SigLIP", "lowercase",
                          class->lowers, "type", "SentencePiece", "precompiled_charsmap", map.p ? map.p : "", "after_text", 1,
                          "remove_extra_whitespaces", m->extra, "escape_whitespaces", m->escape);
    } else if (!m->n_map && m->dummy && !m->extra && m->escape && !m->has_user) {
        o = json_pack("{s:s, s:[{s:s, s:s}, {s:s, s:{s:s}, s:s}]}", "type", "Sequence", "normalizers", "type", "Prepend", "prepend", mark, "type",
                      "Replace", "pattern", "String", " ", "content", mark);
    } else if (llm_base64_encode(m->map, m->n_map, &map, e) == 0) {
        o = json_pack("{s:s, s:s, s:b, s:b, s:b}", "type", "SentencePiece", "precompiled_charsmap", map.p ? map.p : "", "add_dummy_prefix", m->dummy,
                      "remove_extra_whitespaces", m->extra, "escape_whitespaces", m->escape);
    }
    llm_buf_release(&map);
    return o;
}

static int set_parts(struct llm_tokenizer *t, const struct model *m, const json_t *config, struct llm_err *e)
{
    struct llm_config_class class;
    if (llm_config_class(config, &class, e) < 0)
        return -1;
    json_t *normalizer = make_normalizer(m, &class, e), *pre = NULL;
    json_t *decoder = json_pack("{s:s, s:b, s:b, s:s%}", "type", "SentencePiece", "add_dummy_prefix", m->dummy, "remove_extra_whitespaces", m->extra,
                                "unk_surface", m->n_surface ? (const char *)m->surface : " \xE2\x81\x87 ", m->n_surface ? m->n_surface : (size_t)5);
    if (m->type == WORD)
        pre = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "String", mark, "behavior", "MergedWithNext", "invert", 0);
    int bad = !normalizer || !decoder || (m->type == WORD && !pre) ? llm_no_memory(e, "a tokenizer")
                                                                   : llm_tokenizer_set_parts(t, normalizer, pre, decoder, e);
    json_decref(normalizer);
    json_decref(pre);
    json_decref(decoder);
    t->generic = true;
    return bad;
}

static int put_pieces(struct llm_tokenizer *t, const struct model *m, struct llm_vocab *v, struct llm_err *e)
{
    static const unsigned char flags[] = {[NORMAL] = LLM_TOKEN_MODEL,
                                          [UNKNOWN] = LLM_TOKEN_ADDED | LLM_TOKEN_SPECIAL,
                                          [CONTROL] = LLM_TOKEN_ADDED | LLM_TOKEN_SPECIAL,
                                          [USER_DEFINED] = LLM_TOKEN_MODEL | LLM_TOKEN_USER,
                                          [UNUSED] = 0,
                                          [BYTE] = 0};
    for (size_t i = 0; i < m->n; i++) {
        const struct piece *p = &m->pieces[i];
        if (p->type == UNUSED && m->type == BPE)
            return llm_fail(e, EX_UNAVAILABLE, "piece %zu: unused pieces of a BPE model are not supported", i);
        if (p->type == UNKNOWN && t->unknown >= 0)
            return llm_fail(e, EX_DATAERR, "piece %zu: a second unknown piece", i);
        if (p->type == UNKNOWN)
            t->unknown = (int32_t)i;
        if (llm_vocab_put(v, (int64_t)i, p->text, p->n, flags[p->type], e) < 0)
            return -1;
        v->v[i].score = (double)p->score;
        if (p->type == CONTROL && m->n_bos == p->n && memcmp(m->bos, p->text, p->n) == 0)
            t->bos = (int32_t)i;
        if (p->type == CONTROL && m->n_eos == p->n && memcmp(m->eos, p->text, p->n) == 0)
            t->eos = (int32_t)i;
    }
    return t->unknown < 0 ? llm_fail(e, EX_DATAERR, "expected an unknown piece") : 0;
}

/* SentencePiece could merge a character that is no piece; here symbols are pieces. */
static int check_alphabet(const struct llm_tokenizer *t, struct llm_err *e)
{
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        const unsigned char *p = llm_model_piece(t, id, &n);
        uint32_t cp;
        for (size_t at = 0, len; t->flags[id] & LLM_TOKEN_MODEL && !(t->flags[id] & LLM_TOKEN_USER) && at < n; at += len) {
            len = (size_t)llm_utf8_next(p + at, n - at, &cp);
            if (llm_tokenizer_whole(t, p + at, len) < 0)
                return llm_fail(e, EX_UNAVAILABLE, "piece %d: a character that is no piece itself (U+%04X) is not supported", id, cp);
        }
    }
    return 0;
}

static int by_text(const void *a, const void *b)
{
    const struct piece *x = *(const struct piece *const *)a, *y = *(const struct piece *const *)b;
    size_t both = x->n < y->n ? x->n : y->n;
    int d = both ? memcmp(x->text, y->text, both) : 0;
    return d ? d : x->n != y->n ? (x->n > y->n) - (x->n < y->n) : (x > y) - (x < y);
}

/* Pieces of every type: what is no piece of the model stands in the vocabulary too. */
static int check_distinct(const struct model *m, struct llm_err *e)
{
    const struct piece **v = llm_alloc(m->n, sizeof *v, "pieces", e);
    int bad = v ? 0 : -1;
    for (size_t i = 0; v && i < m->n; i++)
        v[i] = &m->pieces[i];
    if (v && m->n)
        qsort(v, m->n, sizeof *v, by_text);
    for (size_t i = 1; bad == 0 && i < m->n; i++)
        if (v[i]->n == v[i - 1]->n && (v[i]->n == 0 || memcmp(v[i]->text, v[i - 1]->text, v[i]->n) == 0))
            bad = llm_fail(e, EX_DATAERR, "pieces %td and %td are the same", v[i - 1] - m->pieces, v[i] - m->pieces);
    free(v);
    return bad;
}

static int build(struct llm_tokenizer *t, const struct model *m, struct llm_vocab *v, const json_t *config, struct llm_err *e)
{
    t->model = m->type == UNIGRAM ? &llm_model_unigram : m->type == WORD ? &llm_model_wordpiece : &llm_model_bpe_chars;
    t->sentencepiece = m->type == UNIGRAM;
    t->byte_fallback = m->byte_fallback;
    t->fuse_unknown = true;
    if (m->type == WORD) { /* a word is one piece or unknown: no piece goes on within one */
        t->prefix = strdup("\xF4\x8F\xBF\xBF");
        t->max_word = INT32_MAX;
        if (!t->prefix)
            return llm_no_memory(e, "a tokenizer");
    }
    if (check_distinct(m, e) < 0 || set_parts(t, m, config, e) < 0 || put_pieces(t, m, v, e) < 0
        || llm_config_put_added(v, config, e) < 0 || llm_tokenizer_set_vocab(t, v, e) < 0 || llm_config_set_ends(t, config, e) < 0
        || llm_tokenizer_index_whole(t, e) < 0)
        return -1;
    if (m->type == BPE) {
        double *scores = llm_alloc(m->n, sizeof *scores, "scores", e);
        for (size_t i = 0; scores && i < m->n; i++)
            scores[i] = (double)m->pieces[i].score;
        int bad = !scores || check_alphabet(t, e) < 0 ? -1 : llm_merge_by_score(t, scores, e);
        free(scores);
        if (bad < 0)
            return -1;
    }
    return llm_tokenizer_finish(t, NULL, 0, e);
}

struct llm_tokenizer *llm_tokenizer_from_spm(const unsigned char *p, size_t n, const json_t *config, struct llm_err *e)
{
    struct model m = {.type = UNIGRAM, .dummy = true, .extra = true, .escape = true};
    struct llm_vocab v = {0};
    m.bos = (const unsigned char *)"<s>";
    m.eos = (const unsigned char *)"</s>";
    m.n_bos = 3;
    m.n_eos = 4;
    struct llm_tokenizer *t = read_model(&m, p, n, e) == 0 ? llm_tokenizer_create(e) : NULL;
    v.limit = (int64_t)m.n;
    if (t && build(t, &m, &v, config, e) < 0) {
        llm_tokenizer_destroy(t);
        t = NULL;
    }
    free(m.pieces);
    llm_vocab_release(&v);
    return t;
}

bool llm_is_spm(const unsigned char *p, size_t n)
{
    return n >= 4 && p[0] == 0x0A && p[1] >= 2 && p[2] == 0x0A && p[3] >= 1 && p[3] + 2 <= p[1];
}
