/* What the files of terms share. */
#ifndef LLM_INFER_CONSTRAIN_TERM_INTERNAL_H
#define LLM_INFER_CONSTRAIN_TERM_INTERNAL_H

#include "infer/constrain/term.h"

enum llm_term_kind { NOTHING, EMPTY_TEXT, SET, JOIN, EITHER, BOTH, NOT, REPEAT, LEXEME, LAZY, MACHINE };
enum { UNKNOWN, LIVE, DEAD };
enum { MAX_KINDS = 16 };

struct llm_term_node {
    uint8_t kind, live;
    bool nullable, split;    /* split: its parts are known */
    uint32_t x, y, z;        /* what it consists of. EITHER, BOTH: x: offset in lists, y: number. Others: see make() */
    uint32_t next;           /* in the hash table's chain */
    uint32_t parts, n_parts; /* its derivatives: bytes of each are disjoint, and other bytes lead to nothing */
    uint32_t row;            /* number of its row, from 1 */
    uint32_t expanded;       /* LAZY */
    uint32_t seen;           /* number of the last search that has come here */
};

struct llm_term_part { uint32_t set; llm_term to; };

struct llm_term_chain { uint32_t to, next; }; /* targets of a class, as a chain; 0 ends it */
struct llm_term_class { struct llm_byte_set set; uint32_t chain; };

struct llm_terms {
    struct llm_term_node *v;
    size_t n, room, max;
    uint32_t *heads;         /* hash table of terms, 2^bits */
    int bits;
    struct llm_byte_set *sets;
    size_t n_sets, sets_room;
    uint32_t *set_heads, *set_next; /* hash table of sets */
    size_t set_next_room;
    llm_term *lists;
    size_t n_lists, lists_room;
    struct llm_term_part *parts;
    size_t n_parts, parts_room;
    llm_term **rows;         /* chunks of ROW_CHUNK rows of 256 */
    size_t n_rows, n_chunks, rows_room;
    struct llm_term_chain *chains; /* scratch of joining parts; as a stack */
    size_t n_chains, chains_room;
    struct llm_term_class *classes;
    size_t n_classes, classes_room;
    struct { llm_term_expand *expand; void *arg; } kinds[MAX_KINDS];
    uint32_t n_kinds;
    struct llm_term_machine machines[MAX_KINDS];
    uint32_t n_machines;
    int depth, joining;
    uint32_t searches;
    struct llm_err err;
    bool deep;               /* `err` says that rules are nested too deeply: a failure of one text */
};

/* Room in an array of `t`; false: memory is short, which is noted. */
bool llm_terms_grow(struct llm_terms *t, void **array, size_t *room, size_t want, size_t size);
/* The number of a set in t->sets. */
uint32_t llm_terms_set(struct llm_terms *t, const struct llm_byte_set *s);

static inline bool llm_byte_set_is_empty(const struct llm_byte_set *s)
{
    return !(s->w[0] | s->w[1] | s->w[2] | s->w[3]);
}

#endif
