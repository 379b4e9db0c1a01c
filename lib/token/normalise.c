/* NFC through utf8proc. Only stretches that can change go there: those with a character that has a decomposition or combines with
 * the one before it. */
#include "token/normalise.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "token/unicode.h"

/* A bit per character: NFC leaves it alone and it never combines with what stands before it. */
static unsigned char inert[0x110000 / 8];
static pthread_once_t inert_once = PTHREAD_ONCE_INIT;

static void clear_inert(utf8proc_int32_t cp)
{
    inert[cp >> 3] = (unsigned char)(inert[cp >> 3] & ~(1u << (cp & 7)));
}

static void fill_inert(void)
{
    memset(inert, 0xFF, sizeof inert);
    for (utf8proc_int32_t cp = 0x80; cp < 0x110000; cp++) {
        const utf8proc_property_t *p = utf8proc_get_property(cp);
        utf8proc_int32_t parts[32];
        int boundary = 0;
        if (p->combining_class)
            clear_inert(cp);
        if (p->decomp_type || p->decomp_seqindex == UINT16_MAX || (cp >= 0xAC00 && cp <= 0xD7A3))
            continue;
        utf8proc_ssize_t n = utf8proc_decompose_char(cp, parts, 32, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
        for (utf8proc_ssize_t i = 1; i < n && i < 32; i++)
            clear_inert(parts[i]); /* second halves: they combine backwards */
        utf8proc_ssize_t composed = utf8proc_normalize_utf32(parts, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (composed != 1 || parts[0] != cp)
            clear_inert(cp);
    }
    for (utf8proc_int32_t cp = 0x1161; cp <= 0x11C2; cp++)
        clear_inert(cp); /* Hangul vowels and final consonants */
}

static bool is_inert(uint32_t cp)
{
    return inert[cp >> 3] >> (cp & 7) & 1;
}

int llm_normalise(const unsigned char *p, size_t n, unsigned options, struct llm_buf *out, struct llm_err *e)
{
    utf8proc_uint8_t *text = NULL;
    utf8proc_ssize_t len = utf8proc_map(p, (utf8proc_ssize_t)n, &text, (utf8proc_option_t)(UTF8PROC_STABLE | options));
    if (len < 0)
        return len == UTF8PROC_ERROR_NOMEM ? llm_no_memory(e, "normalised text")
                                           : llm_fail(e, EX_DATAERR, "normalising: %s", utf8proc_errmsg(len));
    int bad = llm_buf_put(out, text, (size_t)len, e);
    free(text);
    return bad;
}

static long nfc(const unsigned char *p, size_t n, bool last, struct llm_buf *out, struct llm_err *e)
{
    size_t done = 0;      /* text before this is in `out` */
    size_t starter = 0;   /* the inert character that a following mark would combine with */
    bool changing = false; /* since `starter` something came that may change */
    size_t at = 0;
    pthread_once(&inert_once, fill_inert);
    while (at < n) {
        uint32_t cp;
        int len = llm_utf8_next(p + at, n - at, &cp);
        if (len < 0 && !last)
            break;
        bool still = len <= 0 || is_inert(cp);
        if (still) {
            if (changing) {
                if (llm_buf_put(out, p + done, starter - done, e) < 0 || llm_normalise(p + starter, at - starter, UTF8PROC_COMPOSE, out, e) < 0)
                    return -1;
                done = at;
                changing = false;
            }
            starter = len <= 0 ? at + 1 : at; /* nothing combines with a byte that is no character */
        } else {
            changing = true;
        }
        at += len <= 0 ? 1 : (size_t)len;
    }
    if (!last) {
        if (llm_buf_put(out, p + done, starter - done, e) < 0)
            return -1;
        return (long)starter;
    }
    size_t plain = changing ? starter : n;
    if (llm_buf_put(out, p + done, plain - done, e) < 0 || (changing && llm_normalise(p + starter, n - starter, UTF8PROC_COMPOSE, out, e) < 0))
        return -1;
    return (long)n;
}

const struct llm_normaliser_row llm_normaliser_rows[] = {{"NFC", nfc}, {NULL, NULL}};

const struct llm_normaliser_row *llm_normaliser_find(const char *name)
{
    for (const struct llm_normaliser_row *r = llm_normaliser_rows; r->name; r++)
        if (strcmp(r->name, name) == 0)
            return r;
    return NULL;
}
