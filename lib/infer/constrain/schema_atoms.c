/* Lists of alternatives, and what all of them demand. */
#include <stdlib.h>
#include <string.h>
#include "infer/constrain/chars.h"
#include "infer/constrain/regex.h"
#include "infer/constrain/schema_apply.h"

enum { MAX_ATOMS = 2000 };

static void shape_destroy(struct llm_shape *x)
{
    if (!x) return;
    free(x->members);
    free(x->cells);
    free(x);
}

static void atom_release(struct llm_atom *a)
{
    free(a->clauses);
    shape_destroy(a->shape);
}

void llm_atoms_clear(struct llm_atoms *a)
{
    for (size_t i = 0; i < a->n; i++) atom_release(&a->v[i]);
    a->n = 0;
}

void llm_atoms_release(struct llm_atoms *a)
{
    llm_atoms_clear(a);
    free(a->v);
    *a = (struct llm_atoms){0};
}

/* Appends an atom, which then belongs to the list. */
int llm_atoms_append(struct llm_form *f, struct llm_atoms *to, struct llm_atom *x)
{
    if (to->n >= MAX_ATOMS) llm_schema_fail(f->s, "anyOf, oneOf, allOf and not make more than %d alternatives of one value", MAX_ATOMS);
    if (llm_schema_failed(f->s) || llm_grow((void **)&to->v, &to->room, to->n + 1, sizeof *to->v, &f->s->err) < 0) {
        atom_release(x);
        return -1;
    }
    to->v[to->n++] = *x;
    return 0;
}

int llm_atoms_copy(struct llm_form *f, struct llm_atoms *to, const struct llm_atom *from)
{
    struct llm_atom x = *from;
    x.clauses = NULL;
    x.shape = NULL;
    x.room = 0;
    if (from->n > 0) {
        if (llm_grow((void **)&x.clauses, &x.room, from->n, sizeof *x.clauses, &f->s->err) < 0) return -1;
        memcpy(x.clauses, from->clauses, from->n * sizeof *x.clauses);
    }
    return llm_atoms_append(f, to, &x);
}

int llm_atoms_copy_all(struct llm_form *f, struct llm_atoms *to, const struct llm_atoms *from)
{
    for (size_t i = 0; i < from->n; i++)
        if (llm_atoms_copy(f, to, &from->v[i]) < 0) return -1;
    return 0;
}

/* Moves all of `from` to the end of `to`. */
int llm_atoms_move(struct llm_form *f, struct llm_atoms *to, struct llm_atoms *from)
{
    int status = 0;
    for (size_t i = 0; i < from->n; i++) {
        if (status == 0) status = llm_atoms_append(f, to, &from->v[i]);
        else atom_release(&from->v[i]);
    }
    from->n = 0;
    llm_atoms_release(from);
    return status;
}

/* Every alternative demands this, too. */
int llm_atoms_demand(struct llm_form *f, struct llm_atoms *a, const struct llm_clause *c)
{
    for (size_t i = 0; i < a->n; i++) {
        struct llm_atom *x = &a->v[i];
        if (llm_grow((void **)&x->clauses, &x->room, x->n + 1, sizeof *x->clauses, &f->s->err) < 0) return -1;
        x->clauses[x->n++] = *c;
        shape_destroy(x->shape);
        x->shape = NULL;
    }
    return 0;
}

int llm_atoms_demand_key(struct llm_form *f, struct llm_atoms *a, enum llm_clause_kind kind, const char *key, size_t n)
{
    return llm_atoms_demand(f, a, &(struct llm_clause){.kind = kind, .key = key, .n_key = n});
}

/* Texts are in a language (not), too. Alternatives without any are dropped. */
int llm_atoms_demand_text(struct llm_form *f, struct llm_atoms *a, llm_term text, bool negated)
{
    size_t n = 0;
    if (negated) text = llm_term_not(f->s->t, text);
    for (size_t i = 0; i < a->n; i++) {
        a->v[i].text = llm_term_and(f->s->t, a->v[i].text, text);
        if (llm_term_live(f->s->t, llm_atom_text(f->s, &a->v[i]))) a->v[n++] = a->v[i];
        else atom_release(&a->v[i]);
    }
    a->n = n;
    return llm_schema_failed(f->s) ? -1 : 0;
}

/* At least, or at most, so many characters, items or members. */
void llm_atoms_demand_size(struct llm_atoms *a, uint32_t min, uint32_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        struct llm_atom *x = &a->v[i];
        if (min > x->min) x->min = min;
        if (max < x->max) x->max = max;
        shape_destroy(x->shape);
        x->shape = NULL;
        if (x->min <= x->max) a->v[n++] = *x;
        else atom_release(x);
    }
    a->n = n;
}

llm_schema_claim llm_form_claim(struct llm_form *f, uint32_t part, const json_t *schema, bool negated)
{
    return llm_schema_part(f->s, schema, f->s->parts[part].resource) << 1 | negated;
}

int llm_atoms_replace(struct llm_atoms *a, struct llm_atoms *out, int status)
{
    llm_atoms_release(a);
    *a = *out;
    return status;
}


llm_term llm_schema_pattern(struct llm_schema *s, const char *pattern, size_t n, const char *keyword)
{
    struct llm_err e = {0};
    llm_term a = llm_regex_term(s->t, pattern, n, LLM_REGEX_JSON_SEARCH, &e);
    if (e.status) llm_schema_fail(s, "%s '%.100s': %s", keyword, pattern, e.text);
    return a;
}

/* One more alternative: what the clauses demand of a copy. */
int llm_atoms_branch(struct llm_form *f, struct llm_atoms *out, const struct llm_atoms *a, const struct llm_clause *c, size_t n)
{
    struct llm_atoms one = {0};
    int status = llm_atoms_copy_all(f, &one, a);
    for (size_t i = 0; status == 0 && i < n; i++) status = llm_atoms_demand(f, &one, &c[i]);
    if (status == 0) status = llm_atoms_move(f, out, &one);
    llm_atoms_release(&one);
    return status;
}

llm_term llm_atom_text(struct llm_schema *s, const struct llm_atom *a)
{
    if (a->type == LLM_J_NUMBER) return llm_term_and(s->t, a->text, s->any_number);
    llm_term all = s->strings;
    if (a->min > 0 || a->max != LLM_SCHEMA_ALWAYS) {
        llm_term quote = llm_term_byte(s->t, '"'), chars = llm_term_repeat(s->t, s->chars, a->min, a->max);
        all = llm_term_join(s->t, quote, llm_term_join(s->t, chars, quote));
    }
    return llm_term_and(s->t, a->text, all);
}

/* A number that counts something; larger ones than can be reached stand for no maximum. */
uint32_t llm_schema_count(const json_t *v)
{
    double x = json_number_value(v);
    return x < 0 ? 0 : x > LLM_SCHEMA_MAX_COUNT ? LLM_SCHEMA_ALWAYS : (uint32_t)x;
}
