/* What the files of schemas share. They work in one direction: schema_read.c finds what a schema consists of, schema_form.c brings it to its normal
 * form, schema.c makes terms of it. */
#ifndef LLM_INFER_CONSTRAIN_SCHEMA_INTERNAL_H
#define LLM_INFER_CONSTRAIN_SCHEMA_INTERNAL_H

#include "infer/constrain/number.h"
#include "infer/constrain/schema.h"

#define LLM_SCHEMA_ALWAYS UINT32_MAX /* no maximum */
enum { LLM_SCHEMA_MAX_COUNT = 1 << 24 };

/* A part of the document, with the resource whose references it makes. */
struct llm_schema_part { const json_t *json; uint32_t resource; };
struct llm_schema_resource { char *uri; const json_t *root; };
struct llm_schema_anchor { uint32_t resource; const char *name; const json_t *at; };

/* A schema that must hold, or must not: number << 1 | negated. */
typedef uint32_t llm_schema_claim;

enum llm_json_type { LLM_J_NULL, LLM_J_BOOL, LLM_J_NUMBER, LLM_J_STRING, LLM_J_ARRAY, LLM_J_OBJECT, LLM_J_TYPES };

/* What an alternative of arrays or objects demands of its parts. */
enum llm_clause_kind {
    LLM_C_ITEM,      /* the item at `at` */
    LLM_C_ITEMS,     /* every item from `at` on */
    LLM_C_CONTAINS,  /* from min to max items from `at` on satisfy the claim */
    LLM_C_MEMBER,    /* the member `key`, if it is there */
    LLM_C_PATTERN,   /* members whose keys match the term `at` */
    LLM_C_REST,      /* members that the schema `at` names in neither properties nor patternProperties */
    LLM_C_NAMES,     /* keys, as strings */
    LLM_C_REQUIRED,  /* the member `key` is there */
    LLM_C_FORBIDDEN, /* it is not */
    LLM_C_SOME,      /* some member whose key matches the term `at` satisfies the claim */
    LLM_C_SOME_REST  /* likewise, of those of LLM_C_REST */
};
struct llm_clause {
    enum llm_clause_kind kind;
    llm_schema_claim claim;
    uint32_t at, min, max;
    const char *key;
    size_t n_key;
};

/* One alternative of a type. */
struct llm_atom {
    enum llm_json_type type;
    bool truths[2];          /* booleans: false, true */
    llm_term text;           /* numbers; strings: to be intersected with all strings. LLM_TERM_ANYTHING: nothing is demanded */
    uint32_t min, max;       /* characters, items or members */
    struct llm_clause *clauses;
    size_t n, room;
    struct llm_shape *shape; /* objects: made when first needed */
};

/* Members of an object by their keys: those that are named, and classes of all others. */
struct llm_shape {
    struct llm_member {
        const char *key;
        size_t n_key;
        bool required, forbidden;
        llm_term text;       /* the key as JSON; LLM_TERM_NOTHING: not made yet */
        uint32_t node, some; /* what its value must be; bit i: it may satisfy the i-th LLM_C_SOME */
    } *members;
    struct llm_cell { llm_term keys; uint32_t node, some; } *cells;
    size_t n_members, members_room, n_cells, cells_room, n_required;
    llm_schema_claim some[8];
    uint32_t n_some;
};

/* Everything that is demanded of one value. */
struct llm_schema_node {
    uint32_t claims, n;      /* in schema->claims */
    struct llm_atom *atoms;
    size_t n_atoms;
    bool formed;
    char possible;           /* whether a value satisfies it: 0 not known, 1 being found out, 2 yes, 3 no */
};

struct llm_schema {
    struct llm_terms *t;
    struct llm_numbers *numbers;
    json_t *json;
    json_t *made;            /* a list of schemas that were made for constants */
    bool old_integers;       /* 1.0 is no integer (drafts up to 4) */
    bool old_refs;           /* members beside $ref do not count (drafts up to 7) */
    struct llm_err err;      /* the first failure */
    struct llm_schema_part *parts;
    size_t n_parts, parts_room;
    uint32_t *part_heads, *part_next; /* hash table of parts by address */
    size_t part_next_room;
    struct llm_schema_resource *resources;
    size_t n_resources, resources_room;
    struct llm_schema_anchor *anchors;
    size_t n_anchors, anchors_room;
    llm_schema_claim *claims;
    size_t n_claims, claims_room;
    struct llm_schema_node *nodes;
    size_t n_nodes, nodes_room;
    bool assumed;            /* a node that was being found out was taken to be impossible */
    struct { const json_t *value; uint32_t part; } *constants;
    size_t n_constants, constants_room;
    llm_term chars, strings; /* one character in a JSON string; every JSON string */
    llm_term any_number, plain_number, tidy_number, integer, any_integer /* however it is written */;
    bool (*possible)(struct llm_schema *s, struct llm_atom *a); /* llm_atom_possible, which the keywords' files must not call */
    int depth, finding;      /* how deep schemas, and questions whether one is possible, are nested now */
    /* schema.c */
    uint32_t value_kind, array_kind, object_kind;
    llm_term space;
    struct llm_place { uint32_t node, atom, at, n; uint32_t first; } *places; /* states within arrays and objects */
    size_t n_places, places_room;
    uint32_t *words;         /* of places: counts, or sets of members that were written */
    size_t n_words, words_room;
    uint32_t *place_heads, *place_next;
    size_t place_next_room;
};

enum { LLM_PART_BITS = 12, LLM_PLACE_BITS = 12 };

/* ---- schema_read.c ---- */
/* Finds resources and anchors, and refuses what is not supported. */
int llm_schema_scan(struct llm_schema *s);
/* The number of a part of the document. `resource`: of who names it, if it has none of its own. */
uint32_t llm_schema_part(struct llm_schema *s, const json_t *json, uint32_t resource);
/* What a reference leads to; NULL: nothing, which is noted. */
const json_t *llm_schema_resolve(struct llm_schema *s, uint32_t resource, const char *ref, uint32_t *to);
/* Notes a failure with EX_DATAERR. Returns -1. */
int llm_schema_fail(struct llm_schema *s, const char *fmt, ...) LLM_PRINTF(2, 3);
bool llm_schema_failed(struct llm_schema *s);

/* ---- schema_form.c ---- */
/* The node of claims, which are sorted. */
uint32_t llm_schema_node(struct llm_schema *s, llm_schema_claim *claims, size_t n);
/* Its alternatives. */
const struct llm_schema_node *llm_schema_form(struct llm_schema *s, uint32_t node);
/* Whether a value satisfies it. */
bool llm_schema_possible(struct llm_schema *s, uint32_t node);
const struct llm_shape *llm_schema_shape(struct llm_schema *s, struct llm_atom *a);
/* The node of the item at `at`, with a claim more of each bit of `with` (the i-th LLM_C_CONTAINS), or its negation for bits of `without`. */
uint32_t llm_schema_item(struct llm_schema *s, const struct llm_atom *a, uint32_t at, uint32_t with, uint32_t without);
/* The node of a member, with claims of LLM_C_SOME for the bits of `with`. */
uint32_t llm_schema_with(struct llm_schema *s, uint32_t node, const struct llm_shape *shape, uint32_t with);
bool llm_atom_possible(struct llm_schema *s, struct llm_atom *a);
/* Texts of an alternative that is a number or a string, quotes included. */
llm_term llm_atom_text(struct llm_schema *s, const struct llm_atom *a);
void llm_schema_nodes_release(struct llm_schema *s);

/* ---- formats.c ---- */
/* The pattern of a format; NULL: none is demanded. */
const char *llm_format_pattern(const char *name);

#endif
