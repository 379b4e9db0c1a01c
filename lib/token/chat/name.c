/* The names that a template uses, each stored once. */
#include <string.h>
#include <xxhash.h>
#include "token/chat/jinja.h"

static const struct name *find_name(const struct template *t, const char *p, size_t n, size_t *bucket)
{
    *bucket = XXH3_64bits(p, n) % N_NAME_BUCKETS;
    for (const struct name *name = t->names[*bucket]; name; name = name->next)
        if (name->n == n && memcmp(name->p, p, n) == 0) return name;
    return NULL;
}

const struct name *llm_jinja_known_name(const struct template *t, const char *p, size_t n)
{
    size_t bucket;
    return find_name(t, p, n, &bucket);
}

const struct name *llm_jinja_name(struct work *w, struct template *t, const char *p, size_t n)
{
    size_t bucket;
    const struct name *known = find_name(t, p, n, &bucket);
    if (known) return known;
    struct name *name = llm_jinja_alloc(w, sizeof *name);
    char *copy = llm_jinja_alloc(w, n + 1);
    if (!name || !copy) return NULL;
    memcpy(copy, p, n);
    copy[n] = 0;
    *name = (struct name){copy, n, t->names[bucket]};
    return t->names[bucket] = name;
}
