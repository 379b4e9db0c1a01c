/* Every reader of a whole file, given each of its beginnings, each of its bytes changed, and files of the other readers: nothing is taken that was
 * cut, an error is a line with status 65 (69: a thing that is not supported), and a pipe is answered as a file is. */
#include "fixture.h"

#include "base/hash.h"
#include "data/tokens.h"
#include "infer/kvfile.h"
#include "token/tokenizer.h"

static char root[3000];

/* ---- the readers: 0 and a checksum of what was read, or -1 ---- */

static int read_kv(const char *path, uint64_t *sum, struct llm_err *e)
{
    struct llm_kv_file f = {0};
    int got = llm_kv_file_read(&f, path, e);
    if (got == 0) *sum = llm_xxh64(f.ids, (size_t)f.n * sizeof *f.ids, (uint64_t)f.layers[0].types.k);
    llm_kv_file_release(&f);
    return got;
}

static int read_tokens(const char *path, uint64_t *sum, struct llm_err *e)
{
    char hex[17];
    struct llm_tokens *t = llm_tokens_open(&path, 1, NULL, 6, e);
    if (!t) return -1;
    int got = llm_tokens_fingerprint(t, hex, e);
    if (got == 0) *sum = llm_xxh64(hex, 16, llm_tokens_count(t));
    llm_tokens_close(t);
    return got;
}

static int read_checkpoint(const char *path, uint64_t *sum, struct llm_err *e)
{
    struct llm_checkpoint *c = llm_checkpoint_open(path, e);
    if (!c) return -1;
    const struct llm_header *h = llm_checkpoint_header(c);
    int got = 0;
    uint64_t all = h->n_entries;
    for (size_t i = 0; got == 0 && i < h->n_entries; i++) {
        unsigned char *p = malloc(h->entries[i].bytes + 1);
        assert_non_null(p);
        got = llm_checkpoint_read(c, &h->entries[i], p, e);
        if (got == 0) all = llm_xxh64(p, h->entries[i].bytes, all);
        free(p);
    }
    if (got == 0) *sum = all;
    llm_checkpoint_close(c);
    return got;
}

static int read_tokenizer(const char *path, uint64_t *sum, struct llm_err *e)
{
    struct llm_tokenizer *t = llm_tokenizer_load(path, "gpt2", e);
    if (!t) return -1;
    *sum = llm_xxh64(llm_tokenizer_id(t), 64, 0);
    llm_tokenizer_destroy(t);
    return 0;
}

static const struct reader {
    const char *name, *file;
    int (*read)(const char *path, uint64_t *sum, struct llm_err *e);
    size_t whole; /* this beginning is whole in itself: the first of two streams */
    int stride;   /* look at every so many bytes: what is long is slow */
} readers[] = {
    {"kv", "formats/cache.kv", read_kv, 0, 1},
    {"tokens", "formats/tokens.tok", read_tokens, 0, 1},
    {"two streams", "formats/two.tok", read_tokens, 546, 3},
    {"safetensors", "formats/foreign.safetensors", read_checkpoint, 0, 1},
    {"plain checkpoint", "formats/native.safetensors", read_checkpoint, 0, 1},
    {"checkpoint", "formats/checkpoint.llm", read_checkpoint, 0, 1},
    {"tokenizer tables", "formats/tokenizer.safetensors", read_tokenizer, 0, 5},
    {"tokenizer.json", "tiny/tokenizer.json", read_tokenizer, 0, 29},
};
enum { N_READERS = sizeof readers / sizeof *readers };

/* Reads the bytes as a file and as a pipe: the same answer, or the test fails. Returns it. */
static int answer(const struct reader *r, const unsigned char *p, size_t n, const char *what, size_t at, bool pipe_too)
{
    uint64_t sum[2] = {0};
    struct llm_err e[2] = {{0}, {0}};
    put_file("x", p, n);
    int got = r->read("x", &sum[0], &e[0]);
    if (got < 0 && e[0].status != EX_DATAERR && e[0].status != EX_UNAVAILABLE)
        fail_msg("%s, %s %zu: status %d: %s", r->name, what, at, e[0].status, e[0].text);
    if (got < 0 && strncmp(e[0].text, "x: ", 3) != 0) fail_msg("%s, %s %zu: does not name the file: %s", r->name, what, at, e[0].text);
    if (!pipe_too) return got;
    pid_t pid = pipe_in(p, n, 4096);
    int piped = r->read("-", &sum[1], &e[1]);
    pipe_done(pid);
    if (piped != got || sum[0] != sum[1] || e[0].status != e[1].status)
        fail_msg("%s, %s %zu: as a file %d '%s', from a pipe %d '%s'", r->name, what, at, e[0].status, e[0].text, e[1].status, e[1].text);
    return got;
}

static unsigned char *golden(const struct reader *r, size_t *n)
{
    char path[4000];
    snprintf(path, sizeof path, "%s/tests/golden/%s", root, r->file);
    return get_file(path, n);
}

static void cuts_and_changes(void **state)
{
    const struct reader *r = *state;
    size_t n;
    unsigned char *p = golden(r, &n);
    if (answer(r, p, n, "whole", n, true) != 0) fail_msg("%s: the golden is refused", r->name);
    for (size_t cut = 0; cut < n; cut += (size_t)r->stride)
        if ((answer(r, p, cut, "cut", cut, cut % 32 == 0 || cut + 8 > n) == 0) != (cut && cut == r->whole)) fail_msg("%s: cut at %zu", r->name, cut);
    for (size_t i = 0; i < n; i += (size_t)r->stride) {
        p[i] ^= (unsigned char)(1 << i % 8);
        answer(r, p, n, "changed byte", i, i % 16 == 0);
        p[i] ^= (unsigned char)(1 << i % 8);
    }
    free(p);
}

/* Checksums: no bit of a cache can be changed unseen, its metadata and the key of the checksums included. */
static void every_bit_of_a_cache(void **state)
{
    size_t n;
    uint64_t sum;
    unsigned char *p = golden(&readers[0], &n);
    (void)state;
    for (size_t bit = 0; bit < n * 8; bit++) {
        struct llm_err e = {0};
        p[bit / 8] ^= (unsigned char)(1 << bit % 8);
        put_file("changed.kv", p, n);
        if (read_kv("changed.kv", &sum, &e) == 0) fail_msg("bit %zu of byte %zu: not seen", bit % 8, bit / 8);
        assert_true(e.status == EX_DATAERR || e.status == EX_UNAVAILABLE);
        p[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    put_file("changed.kv", p, n);
    assert_int_equal(read_kv("changed.kv", &sum, &(struct llm_err){0}), 0);
    free(p);
}

static void each_other(void **state)
{
    (void)state;
    for (int i = 0; i < N_READERS; i++)
        for (int k = 0; k < N_READERS; k++) {
            const struct reader *r = &readers[i];
            bool related = r->read == readers[k].read || (r->read == read_checkpoint && readers[k].read == read_tokenizer && k == N_READERS - 2);
            size_t n;
            unsigned char *p = golden(&readers[k], &n);
            if (answer(r, p, n, readers[k].name, (size_t)k, true) == 0 && !related) fail_msg("%s takes %s", r->name, readers[k].file);
            free(p);
        }
}

int main(void)
{
    struct CMUnitTest tests[N_READERS + 2];
    for (int i = 0; i < N_READERS; i++)
        tests[i] = (struct CMUnitTest){readers[i].name, cuts_and_changes, NULL, NULL, (void *)(uintptr_t)&readers[i]};
    tests[N_READERS] = (struct CMUnitTest){"each is given the files of the others", each_other, NULL, NULL, NULL};
    tests[N_READERS + 1] = (struct CMUnitTest){"every bit of a cache", every_bit_of_a_cache, NULL, NULL, NULL};
    if (!getcwd(root, sizeof root)) return 1;
    return _cmocka_run_group_tests("readers", tests, N_READERS + 2, fixture_setup, fixture_teardown);
}
