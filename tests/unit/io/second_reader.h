/* A second reader of tensor messages and checkpoints, written from formats/tensor-message.md and formats/checkpoint.md alone and without lib/: whole
 * files in memory, one pass, no care for speed. What it reads and refuses is compared with what lib/io does. */
#ifndef TESTS_UNIT_IO_SECOND_READER_H
#define TESTS_UNIT_IO_SECOND_READER_H

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include <zstd.h>

/* What was read, as text: a line per message and a line per tensor, with the XXH64 of its true bytes. */
struct second { char *text; size_t n, room; };

static inline bool second_says(struct second *s, const char *a, const char *b, uint64_t bytes, uint64_t hash)
{
    if (s->room - s->n < strlen(a) + strlen(b) + 60) {
        s->room = 2 * s->room + strlen(a) + strlen(b) + 60;
        s->text = realloc(s->text, s->room);
    }
    s->n += (size_t)snprintf(s->text + s->n, s->room - s->n, "%s %s %" PRIu64 " %016" PRIx64 "\n", a, b, bytes, hash);
    return true;
}

/* Bits of an element of a native dtype, 0 when unknown; blocks: bytes of 32 elements. */
static inline int second_dtype(const char *name, int *block)
{
    static const struct { const char *name; int bits, block;
    } rows[] = {{"F64", 64, 0}, {"F32", 32, 0}, {"F16", 16, 0}, {"BF16", 16, 0}, {"I64", 64, 0}, {"U64", 64, 0},  {"I32", 32, 0}, {"U32", 32, 0},
                {"I16", 16, 0}, {"U16", 16, 0}, {"I8", 8, 0},   {"U8", 8, 0},    {"BOOL", 8, 0}, {"q8_0", 0, 34}, {"q4_0", 0, 18}};
    *block = 0;
    for (size_t i = 0; name && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) {
            *block = rows[i].block;
            return rows[i].bits;
        }
    return 0;
}

static inline bool second_whole(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* Bytes of a tensor by dtype and shape. */
static inline bool second_size(const char *dtype, const json_t *shape, uint64_t *bytes)
{
    int block, bits = second_dtype(dtype, &block);
    uint64_t n = 1, d = 1;
    if ((!bits && !block) || !json_is_array(shape) || json_array_size(shape) > 8) return false;
    for (size_t i = 0; i < json_array_size(shape); i++)
        if (!second_whole(json_array_get(shape, i), &d) || __builtin_mul_overflow(n, d, &n)) return false;
    if (block && d % 32) return false;
    return !__builtin_mul_overflow(block ? n / 32 : n, (uint64_t)(block ? block : bits / 8), bytes);
}

static inline void second_join(const unsigned char *planes, unsigned char *out, size_t count, int width)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t v = 0;
        for (int b = 0; b < width; b++) v = v << 8 | planes[(size_t)b * count + i];
        v = v >> 1 | (v & 1) << (8 * width - 1);
        for (int b = 0; b < width; b++) out[i * (size_t)width + (size_t)b] = (unsigned char)(v >> (8 * b));
    }
}

static inline bool second_tensor(struct second *s, const char *name, const char *dtype, bool planes, const unsigned char *p, uint64_t bytes)
{
    unsigned char *joined = NULL;
    if (planes) {
        int block, width = second_dtype(dtype, &block) / 8;
        if (dtype[0] != 'F' && dtype[0] != 'B') return false;
        joined = malloc(bytes + 1);
        for (uint64_t at = 0, step; at < bytes; at += step) {
            step = bytes - at < 4 << 20 ? bytes - at : 4 << 20;
            second_join(p + at, joined + at, step / (uint64_t)width, width);
        }
    }
    second_says(s, name, dtype, bytes, XXH64(planes ? joined : p, bytes, 0));
    free(joined);
    return true;
}

/* Whether the XXH64 of n bytes at p stands under `name`; sums NULL: nothing is said. */
static inline bool second_sum(const json_t *sums, const char *name, const void *p, uint64_t n)
{
    char hash[20];
    const char *said = json_string_value(json_object_get(sums, name));
    snprintf(hash, sizeof hash, "%016" PRIx64, (uint64_t)XXH64(p, n, 0));
    return !sums || (said && strcmp(said, hash) == 0);
}

/* llm.checksums: of `n` tensors and the metadata; false: wrong. *sums: NULL when there are none. */
static inline bool second_sums(const json_t *metadata, size_t n, json_t **sums)
{
    const char *key, *text = json_string_value(json_object_get(metadata, "llm.checksums"));
    json_t *v;
    if (!text) return true;
    *sums = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(*sums)) return false;
    json_object_foreach((json_t *)metadata, key, v) {
        if (strncmp(key, "llm.", 4) != 0 || !strcmp(key, "llm.kind") || !strcmp(key, "llm.tensors") || !strcmp(key, "llm.checksums")) continue;
        if (!second_sum(*sums, key, json_string_value(v), json_string_length(v))) return false;
        n++;
    }
    return json_object_size(*sums) == n;
}

/* The tensors of a header in the order of their offsets; *data: bytes they take; `frames` NULL or each tensor's bytes in turn. */
static inline bool second_tensors(struct second *s, const json_t *header, const json_t *types, const json_t *sums, const unsigned char *p,
                                  uint64_t have, uint64_t *data)
{
    size_t left = json_object_size(header) - (json_object_get(header, "__metadata__") != NULL);
    const char *name;
    json_t *t;
    json_object_foreach((json_t *)types, name, t)
        if (!json_object_get(header, name)) return false;
    *data = 0;
    for (bool empty = true; left; left--) {
        bool found = false;
        for (int pass = 0; pass < 2 && !found; pass++) { /* empty tensors stand before the one that begins where they do */
            json_object_foreach((json_t *)header, name, t) {
                uint64_t from, to;
                const json_t *o = json_object_get(t, "data_offsets");
                if (strcmp(name, "__metadata__") == 0 || json_array_size(o) != 2 || !second_whole(json_array_get(o, 0), &from)
                    || !second_whole(json_array_get(o, 1), &to) || to < from || json_object_get(t, "seen") || from != *data
                    || (to == from) != (pass == 0))
                    continue;
                const char *dtype = json_string_value(json_object_get(t, "dtype")), *encoding = NULL;
                const json_t *said = json_object_get(types, name);
                uint64_t bytes;
                int block;
                if (!second_dtype(dtype, &block) || !second_size(dtype, json_object_get(t, "shape"), &bytes) || bytes != to - from) return false;
                if (said) {
                    size_t known = json_object_get(said, "encoding") ? 3 : 2;
                    encoding = json_string_value(json_object_get(said, "encoding"));
                    if (strcmp(dtype, "U8") != 0 || json_object_size(said) != known || (encoding && strcmp(encoding, "planes") != 0)) return false;
                    dtype = json_string_value(json_object_get(said, "dtype"));
                    if (!second_size(dtype, json_object_get(said, "shape"), &bytes) || bytes != to - from) return false;
                }
                if (to > have || !second_sum(sums, name, p + from, to - from)) return false;
                if (!second_tensor(s, name, dtype, encoding != NULL, p + from, to - from)) return false;
                json_object_set_new(t, "seen", json_true());
                *data = to;
                found = true;
                break;
            }
        }
        empty = found;
        if (!empty) return false;
    }
    return true;
}

/* One message: its kind into `kind`, its bytes into *used. */
static inline bool second_message(struct second *s, const unsigned char *p, uint64_t n, char kind[40], json_t **metadata, uint64_t *used)
{
    uint64_t length = 0, data = 0;
    json_t *header, *types = NULL, *sums = NULL, *v;
    const char *key;
    bool good = false;
    *metadata = NULL;
    if (n < 8) return false;
    for (int i = 7; i >= 0; i--) length = length << 8 | p[i];
    if (length > 100000000 || length > n - 8 || p[8] != '{') return false;
    header = json_loadb((const char *)p + 8, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!header) return false;
    *metadata = json_incref(json_object_get(header, "__metadata__"));
    if (*metadata && !json_is_object(*metadata)) goto done;
    json_object_foreach(*metadata, key, v)
        if (!json_is_string(v) || strncmp(key, "llm.require.", 12) == 0) goto done;
    const char *word = json_string_value(json_object_get(*metadata, "llm.kind")),
               *text = json_string_value(json_object_get(*metadata, "llm.tensors"));
    snprintf(kind, 40, "%s", word ? word : "");
    if (text && !(types = json_loads(text, JSON_REJECT_DUPLICATES, NULL))) goto done;
    if (types && !json_is_object(types)) goto done;
    if (strcmp(kind, "end") != 0) second_says(s, "message", kind, length, 0);
    if (!second_sums(*metadata, json_object_size(header) - (*metadata != NULL), &sums)) goto done;
    good = second_tensors(s, header, types, sums, p + 8 + length, n - 8 - length, &data);
    *used = 8 + length + data;
done:
    json_decref(types);
    json_decref(sums);
    json_decref(header);
    return good;
}

static inline bool second_stream(struct second *s, const unsigned char *p, uint64_t n)
{
    uint64_t open = 0, at = 0, used, count = 0;
    bool multi = false;
    if (n == 0) return false;
    for (; at < n; at += used) {
        char kind[40], hash[20], number[24];
        json_t *meta;
        bool good = second_message(s, p + at, n - at, kind, &meta, &used);
        if (good && strcmp(kind, "end") == 0) {
            const char *c = json_string_value(json_object_get(meta, "llm.count")), *h = json_string_value(json_object_get(meta, "llm.xxh64"));
            snprintf(number, sizeof number, "%" PRIu64, count);
            snprintf(hash, sizeof hash, "%016" PRIx64, (uint64_t)XXH64(p + open, multi ? at - open : 0, 0));
            good = c && h && strcmp(c, number) == 0 && strcmp(h, hash) == 0;
            multi = false;
            count = 0;
        } else if (good && (strcmp(kind, "") == 0 || strcmp(kind, "checkpoint") == 0 || strcmp(kind, "kvcache") == 0)) {
            good = !multi;
        } else if (good) {
            if (!multi) open = at;
            multi = true;
            count++;
        }
        json_decref(meta);
        if (!good) return false;
    }
    return !multi;
}

static inline uint32_t second_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Frame boundaries must be where header and tensors begin: `frames` are content sizes, in order. */
static inline bool second_cuts(const unsigned char *p, const uint32_t *frames, size_t n)
{
    uint64_t length = 0, at = 0, data = 0;
    size_t i = 0;
    for (int k = 7; k >= 0; k--) length = length << 8 | p[k];
    for (uint64_t left = 8 + length, step; left; left -= step) {
        step = left < 4 << 20 ? left : 4 << 20;
        if (i == n || frames[i++] != step) return false;
    }
    json_t *header = json_loadb((const char *)p + 8, length, 0, NULL), *t;
    const char *name;
    bool found = true, good = true;
    while (good && found) {
        found = false;
        json_object_foreach(header, name, t) {
            const json_t *o = json_object_get(t, "data_offsets");
            uint64_t from = (uint64_t)json_integer_value(json_array_get(o, 0)), to = (uint64_t)json_integer_value(json_array_get(o, 1));
            if (!o || from != data || to == from) continue;
            for (uint64_t left = to - from, step; good && left; left -= step) {
                step = left < 4 << 20 ? left : 4 << 20;
                good = i < n && frames[i++] == step;
            }
            data = to;
            found = true;
            break;
        }
    }
    json_decref(header);
    (void)at;
    return good && i == n;
}

static inline bool second_checkpoint(struct second *s, const unsigned char *p, uint64_t n)
{
    static const unsigned char name[30] = "\x50\x2A\x4D\x18\x16\0\0\0llmutils checkpoint 1\n";
    if (n < 30 + 17 || memcmp(p, name, 30) != 0 || second_u32(p + n - 4) != 0x8F92EAB1 || p[n - 5] != 0) return false;
    uint64_t count = second_u32(p + n - 9), table = 8 + 8 * count + 9;
    if (table > n - 30 || second_u32(p + n - table) != 0x184D2A5E || second_u32(p + n - table + 4) != 8 * count + 9) return false;
    const unsigned char *entry = p + n - table + 8;
    if (second_u32(entry) != 30 || second_u32(entry + 4) != 0) return false;
    uint64_t at = 30, used = 0, total = 0;
    uint32_t *frames = malloc(count * sizeof *frames + 1);
    unsigned char *content = NULL;
    bool good = true;
    for (uint64_t i = 1; good && i < count; i++) {
        uint32_t packed = second_u32(entry + 8 * i), bytes = second_u32(entry + 8 * i + 4);
        frames[i - 1] = bytes;
        good = bytes > 0 && bytes <= 4 << 20 && packed > 5 && packed <= n - table - at && second_u32(p + at) == 0xFD2FB528 && (p[at + 4] & 4)
               && ZSTD_findFrameCompressedSize(p + at, packed) == packed;
        if (!good) break;
        content = realloc(content, total + bytes);
        good = ZSTD_decompress(content + total, bytes, p + at, packed) == bytes;
        at += packed;
        total += bytes;
    }
    char kind[40];
    json_t *meta = NULL;
    good = good && at == n - table && second_message(s, content, total, kind, &meta, &used) && used == total && strcmp(kind, "checkpoint") == 0
           && second_cuts(content, frames, count - 1);
    json_decref(meta);
    free(content);
    free(frames);
    return good;
}

#endif
