#include "infer/sample/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int llm_logit_bias_parse(const char *text, struct llm_logit_bias *bias)
{
    const char *sign = text + strspn(text, "0123456789");
    char digits[24];
    int64_t id;
    double x = -INFINITY;
    size_t n = (size_t)(sign - text);
    snprintf(digits, sizeof digits, "%.*s", (int)(n < 20 ? n : 20), text);
    if (llm_parse_int(digits, &id) < 0 || id > INT32_MAX || (*sign != '+' && *sign != '-')
        || (strcmp(sign, "-inf") != 0 && llm_parse_real(sign, &x) < 0)) return -1;
    *bias = (struct llm_logit_bias){(int32_t)id, (float)x};
    return 0;
}
