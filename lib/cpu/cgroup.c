/* Limits of control groups (cpu/cgroup.h), by the files that cgroups(7) and the kernel's Documentation/admin-guide/cgroup-v1 name. */
#include "cpu/cgroup.h"
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The first n numbers of a file of one line; -1 each that is not there, as behind "max". */
static void numbers_in(const char *folder, const char *name, double *number, int n)
{
    char path[900];
    for (int i = 0; i < n; i++) number[i] = -1;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "re");
    for (int i = 0; f && i < n && fscanf(f, "%lf", &number[i]) == 1; i++) continue;
    if (f) fclose(f);
}

static void bound_cpus(struct llm_cgroup *c, double quota, double period)
{
    if (!(quota > 0) || !(period > 0)) return;
    double cpus = (quota + period - 1) / period;
    if (cpus < (double)c->cpus) c->cpus = (int64_t)cpus;
}

static void bound_memory(struct llm_cgroup *c, double limit, double used)
{
    if (!(limit >= 0)) return;
    double left = used >= 0 ? limit - used : limit;
    if (limit < c->memory) c->memory = limit;
    if (left < c->memory_left) c->memory_left = left > 0 ? left : 0;
}

static void read_cpu(struct llm_cgroup *c, const char *folder)
{
    double quota, period;
    numbers_in(folder, "cpu.cfs_quota_us", &quota, 1);
    numbers_in(folder, "cpu.cfs_period_us", &period, 1);
    bound_cpus(c, quota, period);
}

static void read_memory(struct llm_cgroup *c, const char *folder)
{
    double limit, used;
    numbers_in(folder, "memory.limit_in_bytes", &limit, 1);
    numbers_in(folder, "memory.usage_in_bytes", &used, 1);
    bound_memory(c, limit, used);
}

static void read_both(struct llm_cgroup *c, const char *folder)
{
    double cpu[2], limit, used;
    numbers_in(folder, "cpu.max", cpu, 2);
    bound_cpus(c, cpu[0], cpu[1]);
    numbers_in(folder, "memory.max", &limit, 1);
    numbers_in(folder, "memory.current", &used, 1);
    bound_memory(c, limit, used);
}

/* A group's folder below `root`, and its parents up to it. */
static void read_up(struct llm_cgroup *c, const char *root, const char *group, void (*read)(struct llm_cgroup *, const char *))
{
    char folder[800];
    const size_t top = strlen(root);
    snprintf(folder, sizeof folder, "%s%s", root, strcmp(group, "/") == 0 ? "" : group);
    for (;;) {
        read(c, folder);
        char *slash = strrchr(folder, '/');
        if (!slash || slash < folder + top) return;
        *slash = 0;
    }
}

struct llm_cgroup llm_cgroup_read(const char *groups, const char *self)
{
    struct llm_cgroup c = {INT64_MAX, DBL_MAX, DBL_MAX};
    char line[400], root[300];
    FILE *f = fopen(self, "re");
    while (f && fgets(line, sizeof line, f)) { /* "0::/path" for version 2, "3:cpu,cpuacct:/path" for version 1 */
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        if (list[1] == 0) read_up(&c, groups, group, read_both);
        for (char *save, *word = strtok_r(list + 1, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
            snprintf(root, sizeof root, "%s/%s", groups, word);
            if (strcmp(word, "cpu") == 0) read_up(&c, root, group, read_cpu);
            if (strcmp(word, "memory") == 0) read_up(&c, root, group, read_memory);
        }
    }
    if (f) fclose(f);
    return c;
}

struct llm_cgroup llm_cgroup_self(void) { return llm_cgroup_read("/sys/fs/cgroup", "/proc/self/cgroup"); }
