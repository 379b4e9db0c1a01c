/* Unicode's normal forms through utf8proc. */
#include <utf8proc.h>
#include "token/norm/norm.h"
#include "token/normalise.h"

static int map(const unsigned char *p, size_t n, unsigned options, struct llm_buf *out, struct llm_err *e)
{
    size_t ascii = 0;
    while (ascii < n && p[ascii] < 0x80)
        ascii++;
    if (ascii == n)
        return llm_buf_put(out, p, n, e);
    return llm_normalise(p, n, options, out, e);
}

static int nfc(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    (void)s, (void)at;
    return llm_normaliser_rows[0].run(p, n, true, out, e) < 0 ? -1 : 0;
}

static int nfd(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    (void)s, (void)at;
    return map(p, n, UTF8PROC_DECOMPOSE, out, e);
}

static int nfkc(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    (void)s, (void)at;
    return map(p, n, UTF8PROC_COMPOSE | UTF8PROC_COMPAT, out, e);
}

static int nfkd(const struct llm_norm *s, const struct llm_norm_place *at, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    (void)s, (void)at;
    return map(p, n, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, out, e);
}

const struct llm_norm_row llm_norm_nfc = {"NFC", NULL, nfc}, llm_norm_nfd = {"NFD", NULL, nfd}, llm_norm_nfkc = {"NFKC", NULL, nfkc},
                          llm_norm_nfkd = {"NFKD", NULL, nfkd};
