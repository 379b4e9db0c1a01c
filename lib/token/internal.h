/* What the files of lib/token share. */
#ifndef LLM_TOKEN_INTERNAL_H
#define LLM_TOKEN_INTERNAL_H

#include <pthread.h>
#include "token/added.h"
#include "token/detokenizer.h"
#include "token/model/bpe.h"
#include "token/norm/norm.h"
#include "token/normalise.h"
#include "token/pre/pre.h"
#include "token/split/split.h"
#include "token/tokenizer.h"
#include "token/trie.h"

#define LLM_MAX_SPLITS 8    /* pre-tokenizers one after another */
#define LLM_MAX_TEMPLATE 16 /* ids that a post-processor puts on one side */
#define LLM_MAX_VOCAB (1 << 24)

enum { /* flags of an id */
    LLM_TOKEN_PRESENT = 1,
    LLM_TOKEN_ADDED = 2,      /* found in text before the model sees it */
    LLM_TOKEN_SPECIAL = 4,    /* … only when specials count; not shown by skip_special */
    LLM_TOKEN_NORMALIZED = 8, /* looked for in the normalised text */
    LLM_TOKEN_MODEL = 16,     /* the model itself may produce it */
    LLM_TOKEN_USER = 32,      /* not ADDED: SentencePiece's user-defined symbol, found before the model's own pieces, never normalised */
    LLM_TOKEN_STRIP_RIGHT = 32, /* ADDED: white space after it belongs to it … */
    LLM_TOKEN_STRIP_LEFT = 64,  /* … before it … */
    LLM_TOKEN_SINGLE_WORD = 128 /* … and letters do not touch it */
};

#define LLM_PIECES 256 /* encoded at a time */
/* A model type: one file in model/ and a row. `name` is what llm_tokenizer_type says. */
struct llm_model_row {
    const char *name;
    /* Encodes one piece with llm_encoder_room ids to spare. */
    int (*encode)(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e);
    /* The same without what is remembered of earlier words; NULL: nothing is. */
    int (*encode_new)(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e);
    /* n pieces, at most LLM_PIECES, one behind another from p on; ends[i]: where each ends. With ids to spare for all; NULL: `encode` for each. */
    int (*encode_pieces)(struct llm_encoder *en, const unsigned char *p, const size_t *ends, size_t n, struct llm_err *e);
    /* Ids of p[0, *used), as much of it as later text cannot change; NULL: of a text without splits nothing is certain but at its end. */
    int (*encode_front)(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, size_t *used, struct llm_err *e);
    bool any_cut; /* pieces may be cut between any two characters (there is nothing to merge) */
    bool counts;  /* it counts words instead of making ids (train/train.c) */
};
extern const struct llm_model_row llm_model_bpe, llm_model_byte, llm_model_char, llm_model_greedy, llm_model_bpe_chars, llm_model_unigram,
    llm_model_wordpiece;

struct llm_char_id { uint32_t cp; int32_t id; };

struct llm_tokenizer {
    const struct llm_model_row *model;
    int32_t vocab_size;      /* largest id + 1 */
    unsigned char *pieces;   /* all pieces one after another */
    uint32_t *offsets;       /* [vocab_size + 1] into pieces */
    unsigned char *flags;    /* [vocab_size] LLM_TOKEN_… */
    struct llm_bpe bpe;
    struct llm_char_ids { struct llm_char_id *v; size_t n; } chars, end_chars; /* ascending; models of characters; end_chars: with `suffix` */
    uint32_t *whole;         /* bytes → id and, above it, bits of the hash; 2^whole_bits, all ones: empty; with ignore_merges or bpe.joined */
    int whole_bits, whole_id_bits;
    const struct llm_normaliser_row *normaliser; /* NULL: none */
    struct llm_split splits[LLM_MAX_SPLITS];
    int n_splits;
    /* what goes beyond byte-level models, with texts handled as a whole (pipeline.c) */
    bool byte_level;         /* pieces are bytes: texts of the vocabulary are in GPT-2's alphabet in tokenizer.json */
    bool generic;            /* norms and pres hold what normaliser and splits cannot */
    struct llm_norm *norms;
    struct llm_pre *pres;
    int n_norms, n_pres;
    bool may_cut;            /* a long text can be encoded in parts (llm_pipeline_cut) */
    unsigned char added_end[256]; /* 1: some added token ends in this byte */
    struct llm_decode_step *decoders; /* none: pieces are joined */
    int n_decoders;
    json_t *parts;           /* {"normalizer", "pre_tokenizer", "decoder"} as in tokenizer.json, for writing */
    uint32_t *shown_at;      /* [vocab_size] what an id puts into the middle of a text: place in `shown` + 1, 0: not asked yet; NULL: its piece */
    double *scores;          /* [vocab_size] of a Unigram model */
    bool sentencepiece;      /* Unigram: sums in single precision, user-defined pieces always win, as SentencePiece has it */
    double unknown_score;
    bool byte_fallback, fuse_unknown;
    int32_t byte_token[256]; /* "<0x0A>", or -1 */
    struct llm_trie trie;    /* Unigram, WordPiece, greedy: texts → ids */
    struct llm_trie kept;    /* user-defined symbols */
    bool words;              /* no token of the model crosses the beginning of a word ("\u2581" after its first character) */
    char *prefix;            /* WordPiece: before what goes on within a word */
    char *suffix;            /* BPE: ends the tokens that end a word (CLIP's "</w>"); NULL: none does */
    int64_t max_word;        /* WordPiece: longer words are unknown, characters */
    bool ignore_merges;      /* a piece that is a token is not merged up */
    bool add_prefix_space;
    int32_t unknown;         /* id of what the model does not know, or -1 */
    int32_t before[LLM_MAX_TEMPLATE], after[LLM_MAX_TEMPLATE]; /* what --add-special puts around a document */
    int n_before, n_after;
    int32_t bos, eos;
    struct llm_buf json;     /* the tokenizer.json it came from; empty: made when asked for */
    pthread_mutex_t lock;    /* of what follows: made when asked for */
    struct llm_buf settings; /* the table "tokenizer.settings" */
    char id[65];
    bool id_known;
    struct llm_shown { const char *p; size_t n; char *own; } *shown;
    size_t n_shown, room_shown;
    struct llm_detokenizer *shower;
    struct llm_encoder *idle; /* of the last short text that was encoded (llm_encode), or NULL */
};

/* ---- building one: create, vocabulary, settings, finish ---- */
struct llm_tokenizer *llm_tokenizer_create(struct llm_err *e) LLM_MUST_CHECK;
/* A vocabulary in the making: ids in any order. */
struct llm_vocab_entry { const unsigned char *text; uint32_t n; unsigned char flags; double score; };
struct llm_vocab {
    struct llm_vocab_entry *v; /* by id; text borrowed */
    size_t n, room;
    int64_t limit;             /* ids stay below this: a few times the number of tokens that the file lists */
};
/* Refuses an id that is negative, taken, or not below the limit. */
int llm_vocab_put(struct llm_vocab *v, int64_t id, const unsigned char *text, size_t n, unsigned char flags, struct llm_err *e) LLM_MUST_CHECK;
void llm_vocab_release(struct llm_vocab *v);
/* Copies the vocabulary into `t`. */
int llm_tokenizer_set_vocab(struct llm_tokenizer *t, const struct llm_vocab *v, struct llm_err *e) LLM_MUST_CHECK;
/* After vocabulary, model and settings: byte table, merges (taken over), whole pieces, bos and eos. */
int llm_tokenizer_finish(struct llm_tokenizer *t, struct llm_bpe_merge *merges, size_t n_merges, struct llm_err *e) LLM_MUST_CHECK;
uint32_t llm_piece_hash(const unsigned char *p, size_t n);
/* Looks `text` up among present ids of the vocabulary; -1. Needs `whole`. */
int32_t llm_tokenizer_whole(const struct llm_tokenizer *t, const unsigned char *p, size_t n);
/* Prefetches what looking `p` up reads first. */
void llm_tokenizer_expect_whole(const struct llm_tokenizer *t, const unsigned char *p, size_t n);
/* Refuses a vocabulary with two tokens of one text. */
int llm_tokenizer_index_whole(struct llm_tokenizer *t, struct llm_err *e) LLM_MUST_CHECK;
/* Of a BPE model, after byte_level and byte_fallback are set: the suffix of tokens that end a word. */
int llm_tokenizer_set_suffix(struct llm_tokenizer *t, const char *suffix, struct llm_err *e) LLM_MUST_CHECK;
int llm_tokenizer_add_split(struct llm_tokenizer *t, const char *pattern, struct llm_err *e) LLM_MUST_CHECK;
/* The text of an id as the model has it: llm_tokenizer_piece is what it puts into a text. */
static inline const unsigned char *llm_model_piece(const struct llm_tokenizer *t, int32_t id, size_t *n)
{
    *n = t->offsets[id + 1] - t->offsets[id];
    return t->pieces + t->offsets[id];
}

/* ---- parts.c: normalizer, pre-tokenizer, decoder as tokenizer.json has them (borrowed; NULL or null: none) ---- */
int llm_tokenizer_set_parts(struct llm_tokenizer *t, const json_t *normalizer, const json_t *pre_tokenizer, const json_t *decoder,
                            struct llm_err *e) LLM_MUST_CHECK;
/* Where t->generic was left false and the model is one of bytes or single characters: the streaming form. */
int llm_tokenizer_stream_parts(struct llm_tokenizer *t, struct llm_err *e) LLM_MUST_CHECK;

/* ---- detokenizer.c ---- */
/* A byte-level model whose tokens have t->suffix: texts that are decoded get a blank instead. Hugging Face's ByteLevel decoder leaves the suffix
 * to the classes of transformers, which do that. */
int llm_tokenizer_hide_suffix(struct llm_tokenizer *t, struct llm_err *e) LLM_MUST_CHECK;

/* ---- models.c: tables of models over characters, after vocabulary and settings ---- */
int llm_model_prepare(struct llm_tokenizer *t, struct llm_err *e) LLM_MUST_CHECK;
/* The tokens of one character; then the one of `cp`, the lowest id where there are several, or -1; `ends`: where it ends a word. */
int llm_index_chars(struct llm_tokenizer *t, struct llm_err *e) LLM_MUST_CHECK;
int32_t llm_char_token(const struct llm_tokenizer *t, uint32_t cp, bool ends);
/* The bytes of a token without the suffix of words' ends; *ends: it had one. */
size_t llm_without_suffix(const struct llm_tokenizer *t, const unsigned char *p, size_t n, bool *ends);
/* Each way to cut a token into two tokens is a merge; `rank` of a token is that of its merges. *merges grows. */
int llm_all_merges(const struct llm_tokenizer *t, const uint32_t *rank, struct llm_bpe_merge **merges, size_t *n, struct llm_err *e) LLM_MUST_CHECK;
/* Makes t->bpe of a vocabulary whose scores say the order of its merges (indexed by text: llm_tokenizer_index_whole). */
int llm_merge_by_score(struct llm_tokenizer *t, const double *scores, struct llm_err *e) LLM_MUST_CHECK;
/* The token whose text is that of two others, where they can merge; LLM_BPE_NONE. */
#define LLM_MAX_JOINED 512 /* bytes of a text that can be found so */
uint32_t llm_joined(const struct llm_tokenizer *t, uint32_t left, uint32_t right);
/* The merges of a BPE model as a list: *n of them, the tokenizer's own. NULL: there are none, or memory is short (*n is not 0). */
const struct llm_bpe_merge *llm_tokenizer_merges(const struct llm_tokenizer *t, size_t *n, struct llm_err *e);
int llm_greedy_prepare(struct llm_tokenizer *t, struct llm_err *e) LLM_MUST_CHECK;
/* Ids for a character that the model does not know: its bytes, else the unknown token. */
int llm_put_unknown(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e) LLM_MUST_CHECK;

/* ---- pipeline.c: texts as a whole ---- */
/* A part of a segment (text between added tokens that are looked for in text as written). */
int llm_pipeline_run(struct llm_encoder *en, const unsigned char *p, size_t n, bool first, bool last, struct llm_err *e) LLM_MUST_CHECK;
/* The last place in [1, n) where a text may be cut, or 0. */
size_t llm_pipeline_cut(const struct llm_tokenizer *t, const unsigned char *p, size_t n);
/* `text` through all normalisers as a text of its own. */
int llm_pipeline_normalise(struct llm_encoder *en, const unsigned char *p, size_t n, bool first, bool last, struct llm_buf *out,
                           struct llm_err *e) LLM_MUST_CHECK;
void llm_pipeline_plan(struct llm_tokenizer *t); /* sets may_cut */
/* Text between added tokens; `last`: a token or the text's end follows. */
typedef int llm_text_sink(struct llm_encoder *en, const unsigned char *p, size_t n, bool last, struct llm_err *e);
/* Cuts a whole text at the tokens of `set`, with what they take of the white space around them. */
int llm_cut_whole(struct llm_encoder *en, const struct llm_added *set, const unsigned char *p, size_t n, llm_text_sink *next,
                  struct llm_err *e) LLM_MUST_CHECK;

/* ---- readers, by content ---- */
/* `root` is borrowed. */
struct llm_tokenizer *llm_tokenizer_from_value(const json_t *root, struct llm_err *e) LLM_MUST_CHECK;
struct llm_tokenizer *llm_tokenizer_from_ranks(const unsigned char *text, size_t n, const char *pattern, struct llm_err *e) LLM_MUST_CHECK;
/* `config`: the tokenizer_config.json beside it, or NULL. */
struct llm_tokenizer *llm_tokenizer_from_spm(const unsigned char *p, size_t n, const json_t *config, struct llm_err *e) LLM_MUST_CHECK;
/* hf_config.c: a token as added_tokens and added_tokens_decoder have them; text borrowed. */
int llm_added_token(const json_t *o, const char **text, size_t *n, unsigned char *flags, struct llm_err *e) LLM_MUST_CHECK;
int llm_config_put_added(struct llm_vocab *v, const json_t *config, struct llm_err *e) LLM_MUST_CHECK; /* texts borrowed */
/* The class of transformers that tokenizer_config.json names; siglip: SiglipTokenizer, and whether it makes texts lower case. `name` is borrowed. */
struct llm_config_class { const char *name; bool siglip, lowers; };
int llm_config_class(const json_t *config, struct llm_config_class *c, struct llm_err *e) LLM_MUST_CHECK;
int llm_config_set_ends(struct llm_tokenizer *t, const json_t *config, struct llm_err *e) LLM_MUST_CHECK;
bool llm_is_spm(const unsigned char *p, size_t n); /* does a file that begins so look like a SentencePiece model? */
struct llm_tokenizer *llm_tokenizer_from_rwkv(const unsigned char *text, size_t n, struct llm_err *e) LLM_MUST_CHECK;
bool llm_is_rwkv(const unsigned char *p, size_t n); /* … like a vocabulary of RWKV? */
/* gpt2_files.c: `class` is that of transformers ("GPT2Tokenizer", "CLIPTokenizer"); another is EX_UNAVAILABLE. */
struct llm_tokenizer *llm_tokenizer_from_gpt2(const char *vocab_json, const char *merges_text, const char *class, struct llm_err *e) LLM_MUST_CHECK;

struct llm_gguf;
struct llm_tokenizer *llm_tokenizer_from_gguf(const struct llm_gguf *g, struct llm_err *e) LLM_MUST_CHECK;
/* gguf_pre.c: what a tokenizer.ggml.pre means. */
#define LLM_GGUF_MAX_SPLITS 6
enum { LLM_GGUF_WHOLE = 1, /* pieces that are tokens are not merged */
       LLM_GGUF_BOS = 2 }; /* a document begins with BOS */
struct llm_gguf_pre { const char *names, *splits[LLM_GGUF_MAX_SPLITS]; int flags; }; /* names: separated by spaces */
const struct llm_gguf_pre *llm_gguf_pre_find(const char *name, size_t n); /* NULL: not known */
const struct llm_gguf_pre *llm_gguf_pre_row(size_t i); /* NULL after the last */

/* ---- identity ---- */
/* The merge that makes each token when it is encoded alone, or left = NONE: [vocab_size]. *all_made: every token of the model comes out
 * as itself, so that ignore_merges changes nothing. */
struct llm_bpe_merge *llm_tokenizer_derivations(const struct llm_tokenizer *t, bool *all_made, struct llm_err *e) LLM_MUST_CHECK;

/* As llm_bpe_derive, for merges over characters. */
int llm_bpe_chars_derive(const struct llm_tokenizer *t, struct llm_bpe_work *w, const unsigned char *p, size_t n, bool ends, int32_t *ids,
                         size_t *n_ids, struct llm_bpe_merge *last, struct llm_err *e) LLM_MUST_CHECK;

/* ---- GPT-2's alphabet: a printable character for each byte ---- */
uint32_t llm_byte_char(unsigned char byte);
int llm_char_byte(uint32_t cp); /* -1: not of the alphabet */
/* Bytes that `text` (UTF-8) stands for, appended to `out`. 1: done; 0: a character is not of the alphabet, nothing appended; -1. */
int llm_byte_text_decode(const char *text, size_t n, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
int llm_byte_text_encode(const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;

/* ---- encoder.c ---- */
struct llm_word_cache;
struct llm_counts;
struct llm_encode_stream;
#define LLM_LARGE_TEXT ((size_t)1 << 20) /* bytes of a text whose copies are released as soon as they are used */
struct llm_encoder {
    const struct llm_tokenizer *t;
    int flags;
    struct llm_added raw_set, normal_set; /* tokens looked for before and after normalising */
    struct llm_buf raw, unnormal, normal, text; /* what each stage keeps */
    size_t unnormal_want;                 /* the normaliser waits for this much */
    size_t text_at, text_want;            /* text before text_at is encoded; splitting waits for text_want bytes */
    bool in_document, in_segment;
    uint64_t document_bytes;              /* for messages */
    unsigned char cut[4];                 /* strict: a character cut by the last feed */
    size_t n_cut;
    struct llm_regex_state *regex[LLM_MAX_SPLITS];
    struct llm_regex_state *norm_regex[LLM_MAX_SPLITS];
    struct llm_buf stages[LLM_MAX_SPLITS]; /* texts that pre-tokenizers change */
    struct llm_buf forms[2];              /* texts that normalisers make, in turn */
    struct llm_buf raw_valid;             /* text with U+FFFD for what is no character */
    struct llm_buf added_texts;           /* of normal_set, when normalisers change them */
    bool whole;                           /* added tokens reach for what stands around them: documents are held */
    size_t unknown_end;                   /* n_ids after an unknown token that the next one may join; SIZE_MAX: none */
    bool at_start;                        /* nothing of the document came yet */
    void *paths;                          /* Unigram: [room_paths] */
    size_t room_paths;
    struct llm_bpe_work work;
    llm_bpe_flush *flush;     /* takes the ids of long pieces before the end of a feed, if not NULL */
    void *flush_arg;
    struct llm_word_cache *cache;
    struct llm_counts *counts;
    int32_t *ids; /* the caller's, while feeding */
    size_t n_ids, room;
};
/* Room for `n` more ids. */
static inline int llm_encoder_room(struct llm_encoder *en, size_t n, struct llm_err *e)
{
    if (en->room - en->n_ids >= n)
        return 0;
    return llm_grow((void **)&en->ids, &en->room, en->n_ids + n, sizeof *en->ids, e);
}
/* A part of a document that begins and ends at safe cuts (stream.c), into en->ids from 0 on; en->ids, n_ids and room are the caller's to
 * set and take back. `offset`: of p in its document. */
int llm_encoder_chunk(struct llm_encoder *en, const unsigned char *p, size_t n, bool first, bool last, uint64_t offset, struct llm_err *e)
    LLM_MUST_CHECK;
/* stream.c: the encoder of thread i, or of documents alone (LLM_MAX_THREADS); NULL: it was never needed. */
struct llm_encoder *llm_encode_stream_encoder(struct llm_encode_stream *s, int i);
/* model/word.c */
struct llm_word_cache *llm_word_cache_create(struct llm_err *e) LLM_MUST_CHECK;
void llm_word_cache_destroy(struct llm_word_cache *c);
/* More than n bytes of text will come. */
void llm_word_cache_expect(struct llm_word_cache *c, size_t n);
/* One piece through the model, or from memory; 16 bytes at p may be read, and 12 ids written. */
int llm_word_encode(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int llm_words_encode(struct llm_encoder *en, const unsigned char *p, const size_t *ends, size_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
