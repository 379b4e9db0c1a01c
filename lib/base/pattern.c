#include "base/pattern.h"

#include <fnmatch.h>

bool llm_pattern_any(const char *const *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (fnmatch(v[i], name, 0) == 0) return true;
    }
    return false;
}
