/* What the control groups of Linux (versions 2 and 1), that is a container or a job of a scheduler, allow a process. */
#ifndef LLM_CPU_CGROUP_H
#define LLM_CPU_CGROUP_H

#include <stdint.h>

/* The least that the process's group and those above it set; as great as the type holds where none sets anything. */
struct llm_cgroup {
    int64_t cpus;       /* of time, rounded up */
    double memory;      /* bytes */
    double memory_left; /* bytes that the group does not use yet, file pages included */
};
/* groups: where the hierarchies are mounted ("/sys/fs/cgroup"); self: the file that names the process's groups ("/proc/self/cgroup"). */
struct llm_cgroup llm_cgroup_read(const char *groups, const char *self);
/* That of this process. */
struct llm_cgroup llm_cgroup_self(void);

#endif
