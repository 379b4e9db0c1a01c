/* Options that are lists of numbers: "128,512". */
#include <stdio.h>
#include <string.h>
#include "base/cli.h"

size_t llm_cli_numbers(const struct llm_cli *cli, const char *option, const char *text, int64_t min, int64_t max, int64_t *out, size_t room)
{
    char one[32];
    size_t n = 0;
    for (const char *s = text;; s++) {
        size_t length = strcspn(s, ",");
        if (n == room) llm_usage(cli, "--%s: expected at most %zu numbers", option, room);
        snprintf(one, sizeof one, "%.*s", (int)(length < sizeof one ? length : sizeof one - 1), s);
        if (llm_parse_int(one, &out[n]) < 0 || out[n] < min || out[n] > max) {
            llm_usage(cli, "--%s: expected integers from %lld to %lld with commas between, found '%s'", option, (long long)min,
                      (long long)max, text);
        }
        n++;
        s += length;
        if (!*s) return n;
    }
}
