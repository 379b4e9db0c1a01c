#include "cpu/profile.h"

#include <string.h>
#include "base/log.h"
#include "cpu/scratch.h"

enum { MAX_ROWS = 128 };

bool llm_profiling;

static struct {
    struct llm_profile_row rows[MAX_ROWS];
    size_t n;
    struct llm_profile_span *inner[2]; /* the innermost span; the innermost part */
    double started, stopped;
} profile;

static _Thread_local bool owner; /* the thread that is watched */

void llm_profile_start(void)
{
    memset(&profile, 0, sizeof profile);
    owner = true;
    profile.started = llm_now();
    llm_profiling = true;
}

void llm_profile_stop(void)
{
    if (llm_profiling) profile.stopped = llm_now();
    llm_profiling = false;
}

double llm_profile_seconds(void)
{
    return (llm_profiling ? llm_now() : profile.stopped) - profile.started;
}

size_t llm_profile_rows(const struct llm_profile_row **rows)
{
    *rows = profile.rows;
    return profile.n;
}

void llm_profile_enter(struct llm_profile_span *s, const char *name, bool part, double bytes)
{
    if (!owner || llm_pool_inside()) return;
    *s = (struct llm_profile_span){.name = name, .part = part, .bytes = bytes, .outer = profile.inner[part]};
    profile.inner[part] = s;
    s->started = llm_now();
}

static struct llm_profile_row *row_of(const struct llm_profile_span *s)
{
    size_t i = 0;
    while (i < profile.n && (profile.rows[i].part != s->part || strcmp(profile.rows[i].name, s->name) != 0)) i++;
    if (i == MAX_ROWS) return NULL;
    if (i == profile.n) profile.rows[profile.n++] = (struct llm_profile_row){.name = s->name, .part = s->part};
    return &profile.rows[i];
}

void llm_profile_leave(struct llm_profile_span *s)
{
    double seconds = llm_now() - s->started;
    struct llm_profile_row *row = row_of(s);
    profile.inner[s->part] = s->outer;
    if (s->outer) s->outer->inner += seconds;
    if (!row || !llm_profiling) return;
    row->calls++;
    row->seconds += seconds - s->inner;
    row->bytes += s->bytes;
    for (int u = 0; u < LLM_PROFILE_UNITS; u++) row->flops[u] += s->flops[u];
}

void llm_profile_work(enum llm_profile_unit unit, double flops, double bytes)
{
    if (!owner || llm_pool_inside()) return;
    for (int part = 0; part < 2; part++) {
        struct llm_profile_span *s = profile.inner[part];
        if (!s) continue;
        s->flops[unit] += flops;
        s->bytes += bytes;
    }
}
