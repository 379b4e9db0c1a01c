#include "train/rollout_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/paths.h"
#include "train/lines.h"

void llm_rollout_log_release(struct llm_rollout_log *l)
{
    for (size_t i = 0; i < l->n; i++) json_decref(l->v[i]);
    free(l->v);
    llm_buf_release(&l->text);
    if (l->path && l->fd >= 0) close(l->fd);
    *l = (struct llm_rollout_log){.fd = -1};
}

/* Lines of iterations that the weights have seen are counted, the others kept. */
static int take_line(void *arg, json_t *line, int64_t number, struct llm_err *e)
{
    struct llm_rollout_log *l = arg;
    int64_t iteration = -1, step = -1;
    (void)number;
    if (!json_is_object(line)) return llm_fail(e, EX_DATAERR, "expected an object");
    if (llm_json_int(line, "iteration", 0, INT64_MAX / 2, &iteration, e) < 0 || llm_json_int(line, "policy_step", 0, INT64_MAX / 2, &step, e) < 0) {
        return -1;
    }
    if (iteration < l->last || iteration > l->last + 1 || step < 0) {
        return llm_fail(e, EX_DATAERR, "\"iteration\": expected %" PRId64 " or the next, and \"policy_step\": is this the --rollout-log of a run?",
                        l->last < 0 ? 0 : l->last);
    }
    l->last = iteration;
    if (step + (iteration > 0 ? l->behind : 0) < l->step) {
        l->done = iteration + 1;
        return 0;
    }
    if (llm_grow((void **)&l->v, &l->room, l->n + 1, sizeof *l->v, e) < 0) return -1;
    l->v[l->n++] = json_incref(line);
    return 0;
}

/* Where the last whole line ends. */
static int cut_end(struct llm_rollout_log *l, struct llm_err *e)
{
    char block[1 << 14];
    off_t end = lseek(l->fd, 0, SEEK_END);
    if (end < 0) return llm_fail(e, EX_DATAERR, "%s: expected a regular file", l->path);
    for (off_t at = end; at > 0;) {
        size_t n = at < (off_t)sizeof block ? (size_t)at : sizeof block;
        ssize_t got = pread(l->fd, block, n, at - (off_t)n);
        if (got < 0 && errno == EINTR) continue;
        if (got != (ssize_t)n) return llm_fail_errno(e, EX_IOERR, "%s", l->path);
        while (n > 0 && block[n - 1] != '\n') n--, at--;
        if (n == 0) continue;
        return at < end && ftruncate(l->fd, at) < 0 ? llm_fail_errno(e, EX_IOERR, "%s", l->path) : 0;
    }
    return end > 0 && ftruncate(l->fd, 0) < 0 ? llm_fail_errno(e, EX_IOERR, "%s", l->path) : 0;
}

int llm_rollout_log_open(struct llm_rollout_log *l, const char *path, int64_t step, int64_t behind, struct llm_err *e)
{
    *l = (struct llm_rollout_log){.fd = -1, .path = path, .last = -1, .step = step, .behind = behind};
    llm_paths_add(LLM_PATH_REPLACED, "--rollout-log", path); /* an output of which the lines are read first */
    if (!path) return 0;
    l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0666);
    if (l->fd < 0) return llm_fail_errno(e, EX_CANTCREAT, "%s", path);
    struct flock alone = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(l->fd, F_SETLK, &alone) < 0 && (errno == EAGAIN || errno == EACCES)) {
        return llm_fail(e, EX_CANTCREAT, "%s: another run is writing it", path);
    }
    return cut_end(l, e) < 0 ? -1 : llm_lines_each(path, take_line, l, e);
}

json_t *llm_rollout_log_take(struct llm_rollout_log *l, int64_t iteration, int64_t group, int64_t sample)
{
    while (l->first < l->n && !l->v[l->first]) l->first++;
    for (size_t i = l->first; i < l->n; i++) {
        json_t *o = l->v[i];
        if (!o) continue;
        if (json_integer_value(json_object_get(o, "iteration")) > iteration) break;
        if (json_integer_value(json_object_get(o, "group")) != group || json_integer_value(json_object_get(o, "sample")) != sample) continue;
        l->v[i] = NULL;
        return o;
    }
    return NULL;
}

int llm_rollout_log_add(struct llm_rollout_log *l, const json_t *line, struct llm_err *e)
{
    if (!l->path) return 0;
    l->text.n = 0;
    if (llm_json_dump(line, &l->text, e) < 0 || llm_buf_put(&l->text, "\n", 1, e) < 0) return -1;
    for (size_t at = 0; at < l->text.n;) {
        ssize_t got = write(l->fd, l->text.p + at, l->text.n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return llm_fail_errno(e, EX_IOERR, "%s", l->path);
        at += (size_t)got;
    }
    return 0;
}

int llm_rollout_log_sync(struct llm_rollout_log *l, struct llm_err *e)
{
    return l->path && fsync(l->fd) < 0 && errno != EINVAL ? llm_fail_errno(e, EX_IOERR, "%s", l->path) : 0;
}
