/* Whether a work item of the pool is running on this thread (cpu/scratch.h). The pool sets it; the profiler, which the pool calls, reads it. */
#include "cpu/scratch.h"

static _Thread_local bool inside;

bool llm_pool_inside(void) { return inside; }

bool llm_pool_set_inside(bool on)
{
    bool before = inside;
    inside = on;
    return before;
}
