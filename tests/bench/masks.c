/* Times of constraints under a large vocabulary: compiling each schema of JSONSchemaBench, and the mask of every token of its valid instances, as
 * MaskBench takes them (https://github.com/guidance-ai/jsonschemabench), on one thread.
 *
 *   make build/libllm.a && cc -O2 -D_GNU_SOURCE -Ilib -o build/masks tests/bench/masks.c build/libllm.a \
 *       -lzstd -ljansson -lxxhash -lnettle -lpcre2-8 -lutf8proc -lm -lpthread && build/masks TOKENIZER SCHEMAS.jsonl
 *
 * Every mask is the whole one, as a set of bits, which is what MaskBench takes; llm-infer itself tries the most likely token first. `applied again`:
 * the same mask once more, from what was remembered, and all other logits set to -infinity. Prints microseconds: mean, median, 99th of a hundred, and
 * the largest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/json.h"
#include "base/log.h"
#include "infer/constrain/constraint.h"

struct times { double *v; size_t n, room; };

static void note(struct times *t, double seconds)
{
    if (t->n == t->room) t->v = realloc(t->v, (t->room = t->room * 2 + 1024) * sizeof *t->v);
    if (!t->v) exit(1);
    t->v[t->n++] = seconds * 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *what, struct times *t)
{
    double sum = 0;
    if (t->n == 0) return;
    for (size_t i = 0; i < t->n; i++) sum += t->v[i];
    qsort(t->v, t->n, sizeof *t->v, compare);
    printf("%s\t%zu\t%.1f\t%.1f\t%.1f\t%.1f\n", what, t->n, sum / (double)t->n, t->v[t->n / 2], t->v[t->n * 99 / 100], t->v[t->n - 1]);
}

static struct times compiles, masks, firsts, applied;

/* Walks an instance. Returns whether it was accepted. */
static bool walk(struct llm_constraint *c, const struct llm_tokenizer *t, const char *text, float *logits, size_t n, uint64_t *mask)
{
    struct llm_err e = {0};
    struct llm_matcher m = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    bool taken = true;
    llm_matcher_begin(&m, c);
    if (llm_encode(t, text, strlen(text), 0, &ids, &n_ids, &e) < 0) exit(llm_report(&e));
    for (size_t i = 0; taken && i < n_ids; i++) {
        memset(logits, 0, n * sizeof *logits);
        double began = llm_now();
        if (llm_matcher_mask(&m, mask, &e) < 0) return false;
        note(i == 0 ? &firsts : &masks, llm_now() - began);
        began = llm_now();
        if (llm_matcher_apply(&m, logits, n, &e) < 0) return false;
        note(&applied, llm_now() - began);
        taken = logits[ids[i]] == 0 && llm_matcher_take(&m, ids[i], &e) == 0;
    }
    free(ids);
    return taken;
}

int main(int argc, char **argv)
{
    struct llm_err e = {0};
    char *line = NULL;
    size_t room = 0, refused = 0, rejected = 0;
    if (argc != 3) return 2;
    struct llm_tokenizer *t = llm_tokenizer_load(argv[1], NULL, &e);
    struct llm_tokens *v = t ? llm_tokens_create(t, &e) : NULL;
    FILE *f = fopen(argv[2], "r");
    if (!v || !f) return llm_report(&e);
    float *logits = malloc((size_t)v->vocab_size * sizeof *logits);
    uint64_t *mask = malloc(v->words * sizeof *mask);
    while (logits && mask && getline(&line, &room, f) > 0) {
        json_t *row = json_loads(line, JSON_DECODE_ANY, NULL), *test;
        char *schema = json_dumps(json_object_get(row, "schema"), JSON_ENCODE_ANY | JSON_COMPACT);
        size_t i;
        double began = llm_now();
        struct llm_constraint *c = llm_constraint_create(LLM_CONSTRAIN_SCHEMA, schema, strlen(schema), v, &e);
        if (c) note(&compiles, llm_now() - began);
        else refused++;
        json_array_foreach(json_object_get(row, "tests"), i, test) {
            if (!c || !json_is_true(json_object_get(test, "valid"))) continue;
            char *text = json_dumps(json_object_get(test, "data"), JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
            rejected += !walk(c, t, text, logits, (size_t)v->vocab_size, mask);
            free(text);
        }
        llm_constraint_destroy(c);
        json_decref(row);
        free(schema);
    }
    printf("microseconds of\tn\tmean\tmedian\tp99\tlargest\n");
    print("compile", &compiles);
    print("first mask", &firsts);
    print("later masks", &masks);
    for (size_t i = 0; i < firsts.n; i++) note(&masks, firsts.v[i] / 1e6);
    print("all masks", &masks);
    print("applied again", &applied);
    printf("vocabulary %d, schemas refused %zu, instances rejected %zu\n", v->vocab_size, refused, rejected);
    return 0;
}
