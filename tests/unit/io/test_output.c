/* Outputs appear whole or not at all; files are read as they come. */
#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <termios.h>

#include "base/signals.h"
#include "io/file.h"
#include "io/output.h"

static int files_here(void)
{
    int n = 0;
    DIR *d = opendir(".");
    for (struct dirent *entry; (entry = readdir(d));) n += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(d);
    return n;
}

static void empty_folder(void)
{
    assert_int_equal(system("rm -rf ./* ./.[!.]*"), 0);
}

static void write_text(const char *path, const char *text)
{
    struct llm_err e = {0};
    struct llm_output *o = llm_output_open(path, true, &e);
    if (!o) fail_msg("%s", e.text);
    assert_int_equal(llm_output_write(o, text, strlen(text), &e), 0);
    if (llm_output_commit(o, &e) < 0) fail_msg("%s", e.text);
}

static void expect_text(const char *path, const char *text)
{
    size_t n;
    unsigned char *p = get_file(path, &n);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(p, text, n);
    free(p);
}

static void commits(void **state)
{
    struct stat st;
    (void)state;
    empty_folder();
    write_text("new", "one");
    expect_text("new", "one");
    assert_int_equal(stat("new", &st), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(st.st_mode & 07777, 0666 & ~mask);
    /* the mode of what is replaced stays; links are followed, also those that lead nowhere yet */
    assert_int_equal(chmod("new", 0640), 0);
    assert_int_equal(symlink("new", "link"), 0);
    write_text("link", "two");
    expect_text("new", "two");
    assert_int_equal(stat("new", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(lstat("link", &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(mkdir("folder", 0777), 0);
    assert_int_equal(symlink("folder/later", "ahead"), 0);
    write_text("ahead", "three");
    expect_text("folder/later", "three");
    assert_int_equal(files_here(), 4);
    /* as long as a name may be */
    char name[7 + 255 + 1] = "folder/";
    memset(name + 7, 'n', 255);
    write_text(name, "four");
    expect_text(name, "four");
}

static void nothing_until_committed(void **state)
{
    struct llm_err e = {0};
    (void)state;
    empty_folder();
    write_text("target", "old");
    struct llm_output *o = llm_output_open("target", true, &e);
    static char much[1 << 20];
    assert_int_equal(llm_output_write(o, much, sizeof much, &e), 0);
    assert_int_equal(llm_output_printf(o, &e, "%5000d", 7), 0);
    assert_int_equal(llm_output_offset(o), sizeof much + 5000);
    expect_text("target", "old");
    llm_output_abandon(o);
    expect_text("target", "old");
    assert_int_equal(files_here(), 1);
}

/* A child that opens `target`, writes much, and is then killed by `number`, which nohup(1) and shells' background jobs would let it ignore.
   Returns its status as wait gives it. */
static int die_writing(int number)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct llm_err e;
        signal(number, SIG_DFL);
        llm_start();
        struct llm_output *o = llm_output_open("target", true, &e);
        static char much[1 << 20];
        if (!o || llm_output_write(o, much, sizeof much, &e) < 0) _exit(1);
        kill(getpid(), number);
        _exit(2);
    }
    int status;
    waitpid(pid, &status, 0);
    return status;
}

static void signals(void **state)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGKILL};
    (void)state;
    for (int i = 0; i < 4; i++) {
        empty_folder();
        write_text("target", "old");
        int status = die_writing(numbers[i]);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), numbers[i]);
        expect_text("target", "old");
        assert_int_equal(files_here(), numbers[i] == SIGKILL ? 2 : 1); /* against SIGKILL nothing helps; the target is whole */
    }
}

/* A write that fails, in a child of its own: status of the error. */
static int full(const char *path, int limit)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct llm_err e = {0};
        llm_start();
        if (limit) setrlimit(RLIMIT_FSIZE, &(struct rlimit){(rlim_t)limit, (rlim_t)limit});
        struct llm_output *o = llm_output_open(path, true, &e);
        static char much[1 << 20];
        int got = o ? llm_output_write(o, much, sizeof much, &e) : -1;
        if (got < 0) llm_output_abandon(o);
        else got = llm_output_commit(o, &e);
        _exit(got < 0 ? e.status : 0);
    }
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void failures(void **state)
{
    struct llm_err e = {0};
    (void)state;
    empty_folder();
    write_text("target", "old");
    assert_int_equal(full("/dev/full", 0), EX_IOERR);
    assert_int_equal(full("target", 100000), EX_IOERR);
    expect_text("target", "old");
    assert_int_equal(files_here(), 1);
    assert_int_equal(full("absent/x", 0), EX_CANTCREAT);
    assert_int_equal(full(".", 0), EX_CANTCREAT);
    assert_int_equal(full("target/x", 0), EX_CANTCREAT);
    assert_int_equal(full("/dev/null", 0), 0);
    assert_int_equal(symlink("loop", "loop"), 0);
    assert_null(llm_output_open("loop", true, &e));
    assert_int_equal(e.status, EX_CANTCREAT);
}

/* A FIFO is written straight through. */
static void fifos(void **state)
{
    char got[10] = "";
    struct llm_err e = {0};
    (void)state;
    empty_folder();
    assert_int_equal(mkfifo("fifo", 0600), 0);
    int fd = open("fifo", O_RDONLY | O_NONBLOCK);
    struct llm_output *o = llm_output_open("fifo", true, &e);
    assert_non_null(o);
    assert_int_equal(llm_output_write(o, "abc", 3, &e), 0);
    assert_int_equal(llm_output_flush(o, &e), 0);
    assert_int_equal(read(fd, got, 10), 3);
    assert_string_equal(got, "abc");
    assert_int_equal(llm_output_commit(o, &e), 0);
    close(fd);
    struct stat st;
    assert_int_equal(lstat("fifo", &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

static void files_peek(void **state)
{
    unsigned char text[200000], out[200000];
    size_t got;
    struct llm_err e = {0};
    (void)state;
    empty_folder();
    for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)(i * 7 >> 3);
    put_file("f", text, sizeof text);
    for (int pipe = 0; pipe < 2; pipe++) {
        pid_t pid = pipe ? pipe_in(text, sizeof text, 1234) : 0;
        struct llm_file *f = llm_file_open(pipe ? "-" : "f", &e);
        uint64_t size;
        assert_int_equal(llm_file_regular(f, &size) >= 0, !pipe);
        assert_memory_equal(llm_file_peek(f, 60000, &got, &e), text, 60000);
        assert_int_equal(got, 60000);
        assert_int_equal(llm_file_offset(f), 0);
        assert_int_equal(llm_file_read(f, out, 5, &e), 0);
        assert_memory_equal(llm_file_peek(f, 60000, &got, &e), text + 5, 60000);
        assert_int_equal(llm_file_read(f, out + 5, sizeof text - 10, &e), 0);
        assert_memory_equal(llm_file_peek(f, 60000, &got, &e), text + sizeof text - 5, 5);
        assert_int_equal(got, 5);
        assert_int_equal(llm_file_at_end(f, &e), 0);
        assert_int_equal(llm_file_read(f, out, 6, &e), -1);
        assert_int_equal(e.status, EX_DATAERR);
        assert_non_null(strstr(e.text, "byte 199995: cut short: expected 6 bytes, found 5"));
        assert_int_equal(llm_file_at_end(f, &e), 1);
        assert_memory_equal(out + 5, text + 5, sizeof text - 10);
        llm_file_close(f);
        if (pid) pipe_done(pid);
    }
    assert_null(llm_file_open("absent", &e));
    assert_int_equal(e.status, EX_NOINPUT);
    assert_null(llm_file_open(".", &e));
    assert_int_equal(e.status, EX_NOINPUT);
}

/* What a terminal gets of `text` written in parts of `step` bytes. */
static void shown(const char *text, size_t step, char *seen, size_t room)
{
    struct llm_err e = {0};
    struct termios raw;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0) skip();
    int keep = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_int_equal(tcgetattr(keep, &raw), 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(keep, TCSANOW, &raw), 0);
    struct llm_output *o = llm_output_open(ptsname(master), false, &e);
    if (!o) fail_msg("%s", e.text);
    for (size_t at = 0, n = strlen(text); at < n; at += step)
        assert_int_equal(llm_output_text(o, text + at, n - at < step ? n - at : step, &e), 0);
    assert_int_equal(llm_output_write(o, "$", 1, &e), 0); /* what is held back comes before anything else */
    assert_int_equal(llm_output_commit(o, &e), 0);
    size_t n = 0;
    while (n == 0 || seen[n - 1] != '$') {
        ssize_t got = read(master, seen + n, room - n - 1);
        assert_true(got > 0);
        n += (size_t)got;
    }
    seen[n - 1] = 0;
    close(keep);
    close(master);
}

static void text_on_a_terminal_is_utf8(void **state)
{
    static const struct { const char *text, *seen; } rows[] = {
        {"plain", "plain"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\xff" "b", "a\xef\xbf\xbd" "b"},
        {"\xe2\x82" "x", "\xef\xbf\xbd\xef\xbf\xbd" "x"},
        {"\xf0\x9f\x98\xf0\x9f\x98\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x98\x80"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"end\xe2\x82", "end\xef\xbf\xbd\xef\xbf\xbd"}};
    char seen[200];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t step = 1; step <= 8; step++) {
            shown(rows[i].text, step, seen, sizeof seen);
            if (strcmp(seen, rows[i].seen) != 0) fail_msg("row %zu in parts of %zu", i, step);
        }
    }
}

static void text_in_a_file_stays(void **state)
{
    struct llm_err e = {0};
    (void)state;
    struct llm_output *o = llm_output_open("text", false, &e);
    assert_non_null(o);
    assert_int_equal(llm_output_text(o, "a\xff\xe2", 3, &e), 0);
    assert_int_equal(llm_output_commit(o, &e), 0);
    expect_text("text", "a\xff\xe2");
    empty_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_on_a_terminal_is_utf8), cmocka_unit_test(text_in_a_file_stays),
                                       cmocka_unit_test(commits), cmocka_unit_test(nothing_until_committed), cmocka_unit_test(signals),
                                       cmocka_unit_test(failures), cmocka_unit_test(fifos), cmocka_unit_test(files_peek)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
