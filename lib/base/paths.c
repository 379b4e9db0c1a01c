#include "base/paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct named { enum llm_path_role role; const char *label, *path; };
static struct named *paths;
static size_t n_paths, room;

/* The file to which a path leads. */
struct place {
    bool exists, has_folder;
    dev_t dev, folder_dev;
    ino_t ino, folder_ino;
    char name[NAME_MAX + 1]; /* in the folder */
};

void llm_paths_clear(void)
{
    free(paths);
    paths = NULL;
    n_paths = room = 0;
}

void llm_paths_add(enum llm_path_role role, const char *label, const char *path)
{
    if (!path) return;
    if (n_paths == room) {
        size_t more = room ? 2 * room : 16;
        struct named *v = realloc(paths, more * sizeof *v);
        if (!v) return; /* without memory the path is not compared; later work will report that memory is short */
        paths = v;
        room = more;
    }
    paths[n_paths++] = (struct named){role, label, path};
}

int llm_path_resolve(const char *path, char out[PATH_MAX])
{
    char next[PATH_MAX];
    if (snprintf(out, PATH_MAX, "%s", path) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (int hops = 0; hops < 40; hops++) {
        ssize_t n = readlink(out, next, sizeof next - 1);
        if (n < 0) return 0;
        next[n] = 0;
        char *slash = strrchr(out, '/');
        size_t dir = next[0] == '/' || !slash ? 0 : (size_t)(slash - out) + 1;
        if (dir + (size_t)n >= PATH_MAX) break;
        memcpy(out + dir, next, (size_t)n + 1);
    }
    errno = ELOOP;
    return -1;
}

static bool is_output(enum llm_path_role role)
{
    return role >= LLM_PATH_OUTPUT;
}

static bool is_dash(const char *path)
{
    return strcmp(path, "-") == 0;
}

static void look_at_name(struct place *w, const char *path)
{
    char full[PATH_MAX];
    struct stat st = {0};
    if (llm_path_resolve(path, full) < 0) return;
    char *slash = strrchr(full, '/');
    const char *name = slash ? slash + 1 : full;
    if (!*name || snprintf(w->name, sizeof w->name, "%s", name) >= (int)sizeof w->name) return;
    if (slash == full) slash[1] = 0;
    else if (slash) *slash = 0;
    w->has_folder = stat(slash ? full : ".", &st) == 0;
    w->folder_dev = st.st_dev;
    w->folder_ino = st.st_ino;
}

static struct place look(enum llm_path_role role, const char *path)
{
    struct place w = {0};
    struct stat st = {0};
    bool standard = is_dash(path);
    if (standard) w.exists = fstat(is_output(role) ? STDOUT_FILENO : STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode);
    else w.exists = stat(path, &st) == 0;
    if (w.exists && (S_ISCHR(st.st_mode) || S_ISSOCK(st.st_mode))) w.exists = false;
    else if (!standard) look_at_name(&w, path);
    w.dev = st.st_dev;
    w.ino = st.st_ino;
    return w;
}

static bool same(const struct place *a, const struct place *b)
{
    if (a->exists && b->exists && a->dev == b->dev && a->ino == b->ino) return true;
    return a->has_folder && b->has_folder && a->folder_dev == b->folder_dev && a->folder_ino == b->folder_ino && strcmp(a->name, b->name) == 0;
}

/* Whether two paths must be different files. */
static bool excluded(const struct named *a, const struct named *b)
{
    if (!is_output(a->role) && !is_output(b->role)) return false;
    if (is_output(a->role) && is_output(b->role)) {
        return a->role != LLM_PATH_STDOUT && b->role != LLM_PATH_STDOUT && !(is_dash(a->path) && is_dash(b->path)); /* programs themselves refuse two
                                                                                                                     * outputs to stdout */
    }
    return !(a->role == LLM_PATH_REPLACED && b->role == LLM_PATH_REPLACING) && !(a->role == LLM_PATH_REPLACING && b->role == LLM_PATH_REPLACED);
}

static const char *spoken(const struct named *n)
{
    return !is_dash(n->path) ? n->path : is_output(n->role) ? "standard output" : "standard input";
}

static int refuse(const struct named *output, const struct named *other, struct llm_err *e)
{
    return llm_fail(e, LLM_EX_USAGE, "%s: expected a file other than %s%s%s, found %s", output->label, other->label, *other->label ? " " : "",
                    spoken(other), spoken(output));
}

int llm_paths_check(struct llm_err *e)
{
    struct place *places = calloc(n_paths + 1, sizeof *places);
    int got = places ? 0 : llm_no_memory(e, "paths");
    for (size_t i = 0; got == 0 && i < n_paths; i++) {
        places[i] = look(paths[i].role, paths[i].path);
        for (size_t k = 0; got == 0 && k < i; k++) {
            if (!excluded(&paths[i], &paths[k]) || !same(&places[i], &places[k])) continue;
            got = is_output(paths[i].role) ? refuse(&paths[i], &paths[k], e) : refuse(&paths[k], &paths[i], e);
        }
    }
    free(places);
    return got;
}

/* Whether the command line names the file, by the same words and in the same direction. */
static bool is_named(const struct named *one)
{
    for (size_t i = 0; i < n_paths; i++) {
        if (is_output(paths[i].role) == is_output(one->role) && strcmp(paths[i].path, one->path) == 0) return true;
    }
    return false;
}

/* Compares a file with all those that the command line names. */
static int check_one(const struct named *one, struct llm_err *e)
{
    struct place here = look(one->role, one->path);
    for (size_t i = 0; i < n_paths; i++) {
        struct place there = look(paths[i].role, paths[i].path);
        if (!excluded(one, &paths[i]) || !same(&here, &there)) continue;
        return is_output(one->role) ? refuse(one, &paths[i], e) : refuse(&paths[i], one, e);
    }
    return 0;
}

int llm_paths_check_input(const char *path, struct llm_err *e)
{
    const struct named one = {LLM_PATH_INPUT, "the input", path};
    return n_paths == 0 || is_named(&one) ? 0 : check_one(&one, e);
}

int llm_paths_check_output(const char *path, struct llm_err *e)
{
    const struct named one = {LLM_PATH_OUTPUT, path, path};
    return n_paths == 0 || is_dash(path) || is_named(&one) ? 0 : check_one(&one, e);
}

int llm_paths_check_part(const char *path, struct llm_err *e)
{
    return check_one(&(struct named){LLM_PATH_OUTPUT, path, path}, e);
}
