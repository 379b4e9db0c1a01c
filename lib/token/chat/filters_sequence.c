/* Filters of sequences. */
#include <stdlib.h>
#include <string.h>
#include "token/chat/filters.h"

static const struct value error = {.type = V_ERROR}, absent = {.type = V_ABSENT};

static bool truth_or(struct value v, bool otherwise)
{
    return v.type == V_ABSENT ? otherwise : llm_jinja_truth(v);
}

static struct value filter_list(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    (void)arg;
    if (llm_jinja_items(w, v, &items) < 0) return error;
    struct value list = llm_jinja_sequence(w, S_LIST, items->n);
    for (size_t i = 0; i < items->n && !is_error(list); i++)
        if (llm_jinja_append(w, list.as.sequence, items->v[i]) < 0) return error;
    return list;
}

static struct value filter_first(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    (void)arg;
    if (llm_jinja_items(w, v, &items) < 0) return error;
    return items->n ? items->v[0] : llm_jinja_undefined(w, NULL, v_none(), "No first item, sequence was empty.");
}

static struct value filter_last(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    (void)arg;
    if (is_kind(v, S_GENERATOR)) return llm_jinja_fail(w, "'generator' object is not reversible");
    if (llm_jinja_items(w, v, &items) < 0) return error;
    return items->n ? items->v[items->n - 1] : llm_jinja_undefined(w, NULL, v_none(), "No last item, sequence was empty.");
}

static struct value filter_join(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    struct value between = arg[0].type == V_ABSENT ? llm_jinja_borrow(w, "", 0) : llm_jinja_str(w, arg[0]);
    if (is_error(between) || llm_jinja_items(w, v, &items) < 0) return error;
    if (arg[1].type == V_ABSENT || arg[1].type == V_NONE) return llm_jinja_join(w, between.as.text, items);
    struct value list = llm_jinja_sequence(w, S_LIST, items->n);
    for (size_t i = 0; i < items->n && !is_error(list); i++)
        if (llm_jinja_append(w, list.as.sequence, llm_jinja_path(w, items->v[i], arg[1], absent)) < 0) return error;
    return is_error(list) ? list : llm_jinja_join(w, between.as.text, list.as.sequence);
}

static struct value filter_reverse(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    (void)arg;
    if (llm_jinja_items(w, v, &items) < 0) return error;
    struct value list = llm_jinja_sequence(w, S_GENERATOR, items->n);
    for (size_t i = items->n; i-- > 0 && !is_error(list);)
        if (llm_jinja_append(w, list.as.sequence, items->v[i]) < 0) return error;
    if (v.type != V_TEXT || is_error(list)) return list;
    struct text nothing = {"", 0, 0, false};
    return llm_jinja_join(w, &nothing, list.as.sequence);
}

static struct value filter_items(struct work *w, struct value v, const struct value *arg)
{
    const struct call none = {0};
    (void)arg;
    if (v.type == V_UNDEFINED) return llm_jinja_sequence(w, S_GENERATOR, 0);
    if (v.type != V_DICT || v.as.dict->is_namespace) return llm_jinja_fail(w, "Can only get item pairs from a mapping.");
    v = llm_jinja_method(w, v, "items", &none);
    if (!is_error(v)) v.as.sequence->kind = S_GENERATOR;
    return v;
}

/* What items are ordered or told apart by: an attribute, with its case folded away unless asked otherwise. */
static struct value key_of(struct work *w, struct value item, struct value attribute, struct value fallback, bool case_sensitive)
{
    item = llm_jinja_path(w, item, attribute, fallback);
    return item.type == V_TEXT && !case_sensitive ? llm_jinja_case(w, item.as.text, CASE_LOWER) : item;
}

struct sorting { struct value key, item; };

/* Stable merge sort; -1 as soon as two keys have no order. */
static int merge_sort(struct work *w, struct sorting *v, struct sorting *room, size_t n, bool reverse)
{
    size_t half = n / 2, i = 0, j = half, k = 0;
    int order;
    if (n < 2) return 0;
    if (merge_sort(w, v, room, half, reverse) < 0 || merge_sort(w, v + half, room, n - half, reverse) < 0) return -1;
    memcpy(room, v, n * sizeof *v);
    while (i < half && j < n) {
        /* `<` alone decides, as in Python; a reversed sort keeps equals in order too. */
        if (llm_jinja_order(w, reverse ? room[i].key : room[j].key, reverse ? room[j].key : room[i].key, "<", &order) < 0) return -1;
        v[k++] = order < 0 ? room[j++] : room[i++];
    }
    while (i < half) v[k++] = room[i++];
    while (j < n) v[k++] = room[j++];
    return 0;
}

/* `attribute` of filter sort may name several, separated by commas: the key is a list of them. */
static struct value sort_key(struct work *w, struct value item, struct value attribute, struct value fallback, bool case_sensitive)
{
    const bool one = attribute.type != V_TEXT || !memchr(attribute.as.text->p, ',', attribute.as.text->n);
    if (one) return key_of(w, item, attribute, fallback, case_sensitive);
    struct value comma = llm_jinja_borrow(w, ",", 1), keys = llm_jinja_sequence(w, S_LIST, 0);
    struct value names = is_error(comma) ? comma : llm_jinja_split(w, attribute.as.text, comma, -1, false);
    if (is_error(names) || is_error(keys)) return error;
    for (size_t i = 0; i < names.as.sequence->n; i++)
        if (llm_jinja_append(w, keys.as.sequence, key_of(w, item, names.as.sequence->v[i], fallback, case_sensitive)) < 0) return error;
    return keys;
}

static struct value sorted(struct work *w, const struct sequence *items, struct value attribute, struct value fallback, bool case_sensitive,
                           bool reverse)
{
    struct sorting *v = llm_jinja_alloc(w, (items->n * 2 + 1) * sizeof *v);
    struct value list = llm_jinja_sequence(w, S_LIST, items->n);
    if (!v || is_error(list)) return error;
    for (size_t i = 0; i < items->n; i++) {
        v[i] = (struct sorting){sort_key(w, items->v[i], attribute, fallback, case_sensitive), items->v[i]};
        if (is_error(v[i].key)) return error;
    }
    if (merge_sort(w, v, v + items->n, items->n, reverse) < 0) return error;
    for (size_t i = 0; i < items->n; i++)
        if (llm_jinja_append(w, list.as.sequence, v[i].item) < 0) return error;
    return list;
}

static struct value filter_sort(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    if (llm_jinja_items(w, v, &items) < 0) return error;
    return sorted(w, items, arg[2], absent, truth_or(arg[1], false), truth_or(arg[0], false));
}

static struct value filter_dictsort(struct work *w, struct value v, const struct value *arg)
{
    const struct call none = {0};
    if (v.type != V_DICT || v.as.dict->is_namespace) return llm_jinja_fail(w, "dictsort: expected a mapping, found %s", llm_jinja_type(v));
    bool by_value = arg[1].type == V_TEXT && arg[1].as.text->n == 5 && memcmp(arg[1].as.text->p, "value", 5) == 0;
    v = llm_jinja_method(w, v, "items", &none);
    return is_error(v) ? v : sorted(w, v.as.sequence, v_int(by_value), absent, truth_or(arg[0], false), truth_or(arg[2], false));
}

static struct value filter_unique(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    struct value seen = llm_jinja_dict(w), list = llm_jinja_sequence(w, S_GENERATOR, 0);
    if (llm_jinja_items(w, v, &items) < 0 || is_error(seen) || is_error(list)) return error;
    for (size_t i = 0; i < items->n; i++) {
        struct value key = key_of(w, items->v[i], arg[1], absent, truth_or(arg[0], false));
        if (is_error(key)) return key;
        if (llm_jinja_dict_get(seen.as.dict, key)) continue;
        if (llm_jinja_dict_set(w, seen.as.dict, key, v_none()) < 0 || llm_jinja_append(w, list.as.sequence, items->v[i]) < 0) return error;
    }
    return list;
}

static struct value extreme(struct work *w, struct value v, const struct value *arg, bool largest)
{
    struct sequence *items;
    if (llm_jinja_items(w, v, &items) < 0) return error;
    if (items->n == 0) return llm_jinja_undefined(w, NULL, v_none(), "No aggregated item, sequence was empty.");
    struct value best = items->v[0], best_key = key_of(w, best, arg[1], absent, truth_or(arg[0], false));
    for (size_t i = 1; i < items->n && !is_error(best_key); i++) {
        struct value key = key_of(w, items->v[i], arg[1], absent, truth_or(arg[0], false));
        int order;
        if (is_error(key) || llm_jinja_order(w, key, best_key, largest ? ">" : "<", &order) < 0) return error;
        if (largest ? order > 0 : order < 0) best = items->v[i], best_key = key;
    }
    return is_error(best_key) ? error : best;
}

static struct value filter_min(struct work *w, struct value v, const struct value *arg)
{
    return extreme(w, v, arg, false);
}

static struct value filter_max(struct work *w, struct value v, const struct value *arg)
{
    return extreme(w, v, arg, true);
}

static struct value filter_sum(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    struct value total = arg[1].type == V_ABSENT ? v_int(0) : arg[1];
    if (llm_jinja_items(w, v, &items) < 0) return error;
    if (total.type == V_TEXT) return llm_jinja_fail(w, "sum() can't sum strings");
    for (size_t i = 0; i < items->n && !is_error(total); i++) {
        struct value item = llm_jinja_path(w, items->v[i], arg[0], absent);
        total = is_error(item) ? item : llm_jinja_binary(w, OP_ADD, total, item);
    }
    return total;
}

static struct value filter_batch(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    struct value out = llm_jinja_sequence(w, S_GENERATOR, 0), row = absent;
    if (!is_whole(arg[0]) || whole(arg[0]) < 1) return llm_jinja_fail(w, "batch: expected how many items a batch has");
    if (llm_jinja_items(w, v, &items) < 0 || is_error(out)) return error;
    uint64_t size = (uint64_t)whole(arg[0]);
    for (size_t i = 0; i < items->n; i++) {
        if (i % size == 0) {
            row = llm_jinja_sequence(w, S_LIST, 0);
            if (is_error(row) || llm_jinja_append(w, out.as.sequence, row) < 0) return error;
        }
        if (llm_jinja_append(w, row.as.sequence, items->v[i]) < 0) return error;
    }
    bool fill = arg[1].type != V_ABSENT && arg[1].type != V_NONE;
    while (fill && items->n && row.as.sequence->n < size)
        if (llm_jinja_append(w, row.as.sequence, arg[1]) < 0) return error;
    return out;
}

static struct value filter_slice(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    struct value out = llm_jinja_sequence(w, S_GENERATOR, 0);
    if (!is_whole(arg[0]) || whole(arg[0]) < 1 || whole(arg[0]) > 1 << 20) return llm_jinja_fail(w, "slice: expected how many slices");
    if (llm_jinja_items(w, v, &items) < 0 || is_error(out)) return error;
    size_t n = (size_t)whole(arg[0]), each = items->n / n, more = items->n % n, at = 0;
    for (size_t i = 0; i < n; i++) {
        struct value row = llm_jinja_sequence(w, S_LIST, 0);
        if (is_error(row)) return error;
        for (size_t end = at + each + (i < more); at < end; at++)
            if (llm_jinja_append(w, row.as.sequence, items->v[at]) < 0) return error;
        if (i >= more && arg[1].type != V_ABSENT && arg[1].type != V_NONE && llm_jinja_append(w, row.as.sequence, arg[1]) < 0) return error;
        if (llm_jinja_append(w, out.as.sequence, row) < 0) return error;
    }
    return out;
}

/* Groups of equal attribute, in its order: pairs of it (.grouper) and the list of items (.list). */
static struct value filter_groupby(struct work *w, struct value v, const struct value *arg)
{
    struct sequence *items;
    struct value out = llm_jinja_sequence(w, S_LIST, 0), last_key = absent, group = absent;
    const struct value fallback = arg[1].type == V_NONE ? absent : arg[1];
    bool case_sensitive = truth_or(arg[2], false);
    if (llm_jinja_items(w, v, &items) < 0 || is_error(out)) return error;
    struct value list = sorted(w, items, arg[0], fallback, case_sensitive, false);
    if (is_error(list)) return error;
    for (size_t i = 0; i < list.as.sequence->n; i++) {
        struct value item = list.as.sequence->v[i], key = key_of(w, item, arg[0], fallback, case_sensitive);
        int same = is_error(key) ? -1 : group.type == V_ABSENT ? 0 : llm_jinja_equal(w, key, last_key);
        if (same < 0) return error;
        if (!same) {
            struct value pair = llm_jinja_sequence(w, S_TUPLE, 2);
            group = llm_jinja_sequence(w, S_LIST, 0);
            if (is_error(pair) || llm_jinja_append(w, pair.as.sequence, llm_jinja_path(w, item, arg[0], fallback)) < 0) return error;
            if (llm_jinja_append(w, pair.as.sequence, group) < 0 || llm_jinja_append(w, out.as.sequence, pair) < 0) return error;
            pair.as.sequence->is_group = true;
            last_key = key;
        }
        if (llm_jinja_append(w, group.as.sequence, item) < 0) return error;
    }
    return out;
}

const struct filter llm_jinja_sequence_filters[] = {
    {"list", "", filter_list}, {"first", "", filter_first}, {"last", "", filter_last}, {"join", "d attribute", filter_join},
    {"reverse", "", filter_reverse}, {"items", "", filter_items}, {"sort", "reverse case_sensitive attribute", filter_sort},
    {"dictsort", "case_sensitive by reverse", filter_dictsort}, {"unique", "case_sensitive attribute", filter_unique},
    {"min", "case_sensitive attribute", filter_min}, {"max", "case_sensitive attribute", filter_max}, {"sum", "attribute start", filter_sum},
    {"batch", "linecount fill_with", filter_batch}, {"slice", "slices fill_with", filter_slice},
    {"groupby", "attribute default case_sensitive", filter_groupby}, {0}};

bool llm_jinja_selects(const char *name)
{
    return strcmp(name, "select") == 0 || strcmp(name, "reject") == 0 || strcmp(name, "selectattr") == 0 || strcmp(name, "rejectattr") == 0;
}

/* The name of a filter or a test, given as a value. NULL: it is no string. */
static const char *name_of(struct work *w, struct value v)
{
    char *name = v.type == V_TEXT ? llm_jinja_alloc(w, v.as.text->n + 1) : NULL;
    if (v.type != V_TEXT) llm_jinja_error(w, "expected the name of a filter or test, found %s", llm_jinja_type(v));
    if (!name) return NULL;
    memcpy(name, v.as.text->p, v.as.text->n);
    name[v.as.text->n] = 0;
    return name;
}

struct value llm_jinja_select(struct work *w, const char *name, struct value v, const struct call *c)
{
    bool by_attribute = strlen(name) > 6, keep = name[0] == 's';
    struct sequence *items;
    struct value out = llm_jinja_sequence(w, S_GENERATOR, 0);
    size_t at = by_attribute;
    const char *test = NULL;
    if (!llm_jinja_truth(v)) return out; /* none, as Jinja has it, and nothing is looked at */
    if (by_attribute && c->n == 0) return llm_jinja_fail(w, "%s: Missing parameter for attribute name", name);
    if (c->n > at && !(test = name_of(w, c->v[at]))) return error;
    if (llm_jinja_items(w, v, &items) < 0 || is_error(out)) return error;
    bool more = c->n > at + 1;
    const struct call rest = {more ? c->v + at + 1 : NULL, more ? c->n - at - 1 : 0, c->kw, c->n_kw};
    for (size_t i = 0; i < items->n; i++) {
        struct value of = by_attribute ? llm_jinja_path(w, items->v[i], c->v[0], absent) : items->v[i];
        int got = is_error(of) ? -1 : test ? llm_jinja_test(w, test, of, &rest) : llm_jinja_truth(of);
        if (got < 0 || (got == keep && llm_jinja_append(w, out.as.sequence, items->v[i]) < 0)) return error;
    }
    return out;
}

struct value llm_jinja_map(struct work *w, struct value v, const struct call *c)
{
    struct sequence *items;
    struct value out = llm_jinja_sequence(w, S_GENERATOR, 0), arg[2] = {absent, absent};
    const char *filter = NULL;
    if (!llm_jinja_truth(v)) return out;
    if (c->n == 0 && llm_jinja_bind(w, "map", "attribute default", c, arg) < 0) return error;
    if (c->n == 0 && arg[0].type == V_ABSENT) return llm_jinja_fail(w, "map requires a filter argument");
    if (arg[1].type == V_NONE) arg[1] = absent;
    if (c->n && !(filter = name_of(w, c->v[0]))) return error;
    if (llm_jinja_items(w, v, &items) < 0 || is_error(out)) return error;
    const struct call rest = {c->n ? c->v + 1 : NULL, c->n ? c->n - 1 : 0, c->kw, c->n_kw};
    if (llm_jinja_enter(w) < 0) return error;
    for (size_t i = 0; i < items->n; i++) {
        struct value got = filter ? llm_jinja_filter(w, filter, items->v[i], &rest) : llm_jinja_path(w, items->v[i], arg[0], arg[1]);
        if (llm_jinja_append(w, out.as.sequence, got) < 0) return error;
    }
    llm_jinja_leave(w);
    return out;
}
