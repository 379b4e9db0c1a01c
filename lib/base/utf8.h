/* UTF-8, decoded strictly: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef LLM_BASE_UTF8_H
#define LLM_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length of the character at p (n > 0 bytes are there): 1 to 4 with *cp filled; 0: not UTF-8; -1: cut short, valid so far. */
int llm_utf8_next(const unsigned char *p, size_t n, uint32_t *cp);
/* Writes `cp` (< 0x110000) and returns its length, 1 to 4. */
int llm_utf8_put(uint32_t cp, unsigned char out[4]);
/* Bytes of the byte order mark (U+FEFF) that a text begins with, as files of Windows do: 3, or 0. */
size_t llm_utf8_mark(const void *text, size_t n);
/* Offset of the first byte that is not UTF-8 (a cut character at the end counts), or n. */
size_t llm_utf8_invalid(const unsigned char *p, size_t n);
/* How many of the n bytes end with a whole character: less than n if the last character is cut short and more bytes may complete it. */
size_t llm_utf8_complete(const char *s, size_t n);
/* Whether a terminal would act on the character instead of showing it: control characters (C0, DEL, C1), line and paragraph separators, and the
 * marks that change the direction of writing. */
int llm_utf8_is_control(uint32_t cp);
/* White_Space and the separators U+001C to U+001F: what Python's str.isspace holds for. */
int llm_utf8_is_space(uint32_t cp);
/* Where the white space that begins at `from` ends; and how many of the n bytes are left without the white space at the end. Of both together: what
 * Python's str.strip leaves. */
size_t llm_utf8_skip_space(const char *s, size_t n, size_t from);
size_t llm_utf8_trim_end(const char *s, size_t n);
/* Copies n bytes to `out` in a form that is safe to show on one line: control characters as \n, \t, \r or \xHH a byte, bytes that are not UTF-8
 * as \xHH. Ends with NUL; stops before what does not fit into `room` bytes. Returns the length. */
size_t llm_utf8_escape(const char *text, size_t n, char *out, size_t room);

#endif
