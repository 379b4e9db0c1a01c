#include "base/log.h"
#include "bin/infer/batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/signals.h"
#include "bin/infer/resume.h"

enum { SYNC_SECONDS = 1 };

/* Lines of a regular file that are not blank; 0: unknown. */
static int64_t count_lines(const struct lines *in)
{
    char bytes[1 << 16];
    uint64_t size;
    int fd = llm_file_regular(in->file, &size);
    int64_t n = 0;
    bool some = false;
    ssize_t got;
    for (off_t at = 0; fd >= 0 && (got = pread(fd, bytes, sizeof bytes, at)) > 0; at += got) {
        for (ssize_t i = 0; i < got; i++) {
            if (bytes[i] == '\n') {
                n += some;
                some = false;
            } else if (bytes[i] != ' ' && bytes[i] != '\t' && bytes[i] != '\r') {
                some = true;
            }
        }
    }
    return n + some;
}

/* How many lines this run will answer; 0: unknown. */
static int64_t count_wanted(const struct session *s, const struct lines *in)
{
    int64_t all = count_lines(in), n = (all - in->part + in->parts - 1) / in->parts, answered = s->resume ? resume_answers(s->resume) : 0;
    if (n > in->max) n = in->max;
    return all == 0 ? 0 : n > answered ? n - answered : 0;
}

void batch_begin(struct batch *b, const struct session *s, const struct lines *in)
{
    *b = (struct batch){.s = s, .in = in};
    llm_progress_start(&b->bar, "batch", "items", 0);
    if (b->bar.on) b->bar.total = count_wanted(s, in);
    b->synced = b->bar.started;
    const char *output = s->a->common.output;
    b->shares = b->bar.on && (!output || strcmp(output, "-") == 0) && isatty(STDOUT_FILENO);
}

void batch_hide(const struct batch *b)
{
    if (b->shares) llm_progress_hide();
}

void batch_item(struct batch *b, int64_t read, int64_t generated)
{
    char note[40];
    double seconds = llm_now() - b->bar.started;
    b->items++;
    b->read += read;
    b->generated += generated;
    snprintf(note, sizeof note, "%.0f tokens/s", seconds > 0 ? (double)(b->read + b->generated) / seconds : 0);
    llm_progress_set(&b->bar, b->items, note);
}

void batch_end(struct batch *b)
{
    double seconds = llm_now() - b->bar.started;
    const char *output = b->s->a->common.output;
    bool interrupted = llm_signal_caught(), kept = interrupted && output && strcmp(output, "-") != 0;
    char generated[40] = "", failed[40] = "";
    llm_progress_end(&b->bar);
    if (b->items == 0) return; /* an error says more */
    if (b->generated > 0) snprintf(generated, sizeof generated, ", %" PRId64 " generated", b->generated);
    if (b->in->refused > 0) snprintf(failed, sizeof failed, ", %" PRId64 " failed", b->in->refused);
    llm_note("%s%" PRId64 " item%s, %" PRId64 " tokens read%s in %.2f s (%.1f items/s, %.0f tokens/s)%s%s%s",
             interrupted ? "interrupted: " : "", b->items, b->items == 1 ? "" : "s", b->read, generated, seconds,
             seconds > 0 ? (double)b->items / seconds : 0, seconds > 0 ? (double)(b->read + b->generated) / seconds : 0, failed,
             kept ? "; kept in " : "", kept ? output : "");
}

int batch_put(struct batch *b, const json_t *o, struct llm_err *e)
{
    struct llm_buf text = {0};
    batch_hide(b);
    int bad = llm_json_dump(o, &text, e) < 0 || llm_buf_put(&text, "\n", 1, e) < 0 || llm_output_write(b->s->out, text.p, text.n, e) < 0
              || llm_output_flush(b->s->out, e) < 0;
    double now = llm_now();
    if (!bad && b->s->resume && now - b->synced >= SYNC_SECONDS) {
        bad = llm_output_sync(b->s->out, e) < 0;
        b->synced = now;
    }
    llm_buf_release(&text);
    return bad ? -1 : 0;
}

int batch_refuse(struct batch *b, struct lines *in, const json_t *object, const struct llm_err *why, struct llm_err *e)
{
    json_t *answer = lines_refuse(in, object, why, e);
    int status = answer ? batch_put(b, answer, e) : -1;
    json_decref(answer);
    return status;
}

int batch_lines(struct batch *b, struct session *s, struct lines *in, const char *operand,
                int (*line)(void *arg, const char *text, size_t n, struct llm_err *e), int (*finish)(void *arg, struct llm_err *e), void *arg,
                struct llm_err *e)
{
    const char *text;
    size_t n;
    int got = lines_open(in, s->a->file ? s->a->file : operand ? operand : "-", prompt_max_bytes(s), e), status = 0;
    bool begun = got == 0;
    lines_choose(in, s->a);
    if (begun) batch_begin(b, s, in);
    while (got >= 0 && status == 0 && (got = lines_next(in, &text, &n, e)) > 0) status = line(arg, text, n, e);
    if (got == 0 && status == 0 && finish) status = finish(arg, e);
    if (begun) batch_end(b);
    if (got < 0) status = -1;
    if (status == 0) lines_summarise(in, &s->refused);
    lines_close(in);
    return status;
}
