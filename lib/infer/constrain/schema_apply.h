/* Bringing schemas to their normal form: what schema_form.c and the files of keywords share. schema_atoms.c has lists of alternatives,
 * schema_scalar.c and schema_parts.c keywords of one type, schema_keywords.c those of all types and schemas as a whole. */
#ifndef LLM_INFER_CONSTRAIN_SCHEMA_APPLY_H
#define LLM_INFER_CONSTRAIN_SCHEMA_APPLY_H

#include "base/buf.h"
#include "infer/constrain/schema_internal.h"

struct llm_atoms { struct llm_atom *v; size_t n, room; };

/* What is being brought to its normal form: values of one type. */
struct llm_form {
    struct llm_schema *s;
    enum llm_json_type type;
    int (*apply)(struct llm_form *f, struct llm_atoms *a, llm_schema_claim claim); /* llm_schema_apply */
};
/* A keyword with its value `v`, of the schema `part`: all alternatives satisfy it, or (negated) violate it, too. 0 or -1. */
typedef int llm_keyword(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated);

/* All alternatives satisfy a claim, too. 0 or -1. */
int llm_schema_apply(struct llm_form *f, struct llm_atoms *a, llm_schema_claim claim);

/* ---- schema_atoms.c: those that return an int return 0, or -1 with the failure noted ---- */
void llm_atoms_clear(struct llm_atoms *a);
void llm_atoms_release(struct llm_atoms *a);
/* Appends an atom, which then belongs to the list. */
int llm_atoms_append(struct llm_form *f, struct llm_atoms *to, struct llm_atom *x);
int llm_atoms_copy(struct llm_form *f, struct llm_atoms *to, const struct llm_atom *from);
int llm_atoms_copy_all(struct llm_form *f, struct llm_atoms *to, const struct llm_atoms *from);
/* Moves all of `from` to the end of `to`. */
int llm_atoms_move(struct llm_form *f, struct llm_atoms *to, struct llm_atoms *from);
/* Every alternative demands this, too. */
int llm_atoms_demand(struct llm_form *f, struct llm_atoms *a, const struct llm_clause *c);
int llm_atoms_demand_key(struct llm_form *f, struct llm_atoms *a, enum llm_clause_kind kind, const char *key, size_t n);
/* Texts are in a language (not), too. Alternatives without any are dropped. */
int llm_atoms_demand_text(struct llm_form *f, struct llm_atoms *a, llm_term text, bool negated);
/* At least, or at most, so many characters, items or members. */
void llm_atoms_demand_size(struct llm_atoms *a, uint32_t min, uint32_t max);
llm_schema_claim llm_form_claim(struct llm_form *f, uint32_t part, const json_t *schema, bool negated);
/* *a becomes *out; returns status. */
int llm_atoms_replace(struct llm_atoms *a, struct llm_atoms *out, int status);
/* JSON strings in which a pattern matches. */
llm_term llm_schema_pattern(struct llm_schema *s, const char *pattern, size_t n, const char *keyword);
/* One more alternative: what the clauses demand of a copy. */
int llm_atoms_branch(struct llm_form *f, struct llm_atoms *out, const struct llm_atoms *a, const struct llm_clause *c, size_t n);
/* A number that counts something; larger ones than can be reached stand for no maximum. */
uint32_t llm_schema_count(const json_t *v);

/* ---- schema_scalar.c ---- */
llm_term llm_form_compared(struct llm_form *f, const json_t *v, int relations);
int llm_form_bound(struct llm_form *f, struct llm_atoms *a, const json_t *v, int relations, bool negated);
llm_keyword llm_kw_minimum, llm_kw_maximum, llm_kw_exclusive_minimum, llm_kw_exclusive_maximum, llm_kw_multiple_of, llm_kw_min_size,
    llm_kw_max_size, llm_kw_pattern, llm_kw_format;

/* ---- schema_parts.c ---- */
llm_keyword llm_kw_prefix_items, llm_kw_items, llm_kw_additional_items, llm_kw_contains, llm_kw_properties, llm_kw_pattern_properties,
    llm_kw_additional, llm_kw_names, llm_kw_required, llm_kw_dependencies;

#endif
