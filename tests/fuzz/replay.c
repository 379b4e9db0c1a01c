/* A fuzzer without libFuzzer, as one test of `make check`: its seeds, the goldens of the formats, and what a few thousand changes make of them.
 * Which changes is the same every time. Run from the top of the checkout; another start or other files: replay_x [START [FILE...]] */
#include <glob.h>
#include "base/buf.h"
#include "base/rng.h"
#include "fuzz.h"

enum { CHANGES = 1500, MOST = 1 << 16 };

static void read_file(const char *path, struct llm_buf *b)
{
    struct llm_err e = {0};
    FILE *f = fopen(path, "rb");
    MUST(f && llm_buf_reserve(b, MOST, &e) == 0);
    b->n = fread(b->p, 1, MOST, f);
    fclose(f);
}

/* Some of the bytes changed, removed, put twice, or taken from another input. */
static size_t change(const struct llm_buf *from, const struct llm_buf *other, uint32_t number, uint32_t start, unsigned char *out)
{
    struct llm_rng r = llm_rng_at(start, 0, LLM_RNG_TEST, 1, number, 0);
    static const unsigned char telling[] = {0, 1, 0x7F, 0x80, 0xFF, '"', '{', '}', '[', ']', ':', ',', '-', '9', ' ', '\n', '\\'};
    uint32_t draw = 0;
    size_t n = from->n;
    if (n) memcpy(out, from->p, n);
    for (uint64_t times = 1 + llm_rng_below(&r, draw++, 4); times--;) {
        size_t at = n ? llm_rng_below(&r, draw++, (uint32_t)n) : 0, len = 1 + llm_rng_below(&r, draw++, 16);
        if (len > n - at) len = n - at;
        switch (llm_rng_below(&r, draw++, 6)) {
        case 0: if (n) out[at] ^= (unsigned char)(1u << llm_rng_below(&r, draw++, 8)); break;
        case 1: if (n) out[at] = telling[llm_rng_below(&r, draw++, sizeof telling)]; break;
        case 2: memmove(out + at, out + at + len, n - at - len); n -= len; break;
        case 3:
            if (n + len > MOST) break;
            memmove(out + at + len, out + at, n - at);
            n += len;
            break;
        case 4: n = at; break;
        default:
            if (!other->n) break;
            size_t there = llm_rng_below(&r, draw++, (uint32_t)other->n);
            if (len > other->n - there) len = other->n - there;
            if (len > MOST - at) len = MOST - at;
            memcpy(out + at, other->p + there, len);
            if (at + len > n) n = at + len;
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    static unsigned char text[MOST];
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    char pattern[300];
    glob_t g = {0};
    uint32_t start = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 0;
    if (strncmp(name, "replay_", 7) == 0) name += 7;
    snprintf(pattern, sizeof pattern, "tests/fuzz/seeds/fuzz_%s/*", name);
    for (int i = 2; i < argc; i++) glob(argv[i], GLOB_APPEND * (i > 2), NULL, &g);
    if (argc <= 2) {
        glob(pattern, 0, NULL, &g);
        glob("tests/golden/formats/*.*", GLOB_APPEND, NULL, &g);
        glob("tests/golden/formats/bad/*", GLOB_APPEND, NULL, &g);
    }
    struct llm_buf *seeds = calloc(g.gl_pathc + 1, sizeof *seeds);
    size_t n = 0, own = 0;
    MUST(seeds);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        size_t len = strlen(g.gl_pathv[i]);
        if (len > 4 && strcmp(g.gl_pathv[i] + len - 4, "/bad") == 0) continue;
        read_file(g.gl_pathv[i], &seeds[n]);
        own += argc > 2 || strstr(g.gl_pathv[i], "/seeds/");
        LLVMFuzzerTestOneInput((unsigned char *)seeds[n].p, seeds[n].n);
        n++;
    }
    uint32_t changes = n ? CHANGES : 0;
    if (!own) own = n; /* its own seeds come first in the list, and are all that is changed where there are any */
    for (uint32_t i = 0; i < changes; i++) {
        size_t len = change(&seeds[i % own], &seeds[i * 7919u % n], i, start, text);
        unsigned char *exact = malloc(len + 1); /* sanitizers see what lies behind it */
        MUST(exact);
        memcpy(exact, text, len);
        LLVMFuzzerTestOneInput(exact, len);
        free(exact);
    }
    printf("1..1\n%s 1 - fuzz_%s: %zu inputs and %u changes of them\n", n ? "ok" : "not ok", name, n, changes);
    for (size_t i = 0; i < n; i++) llm_buf_release(&seeds[i]);
    free(seeds);
    globfree(&g);
    return n ? 0 : 1;
}
