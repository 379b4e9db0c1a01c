/* Limits of control groups, read from folders as the kernel makes them: versions 2 and 1, parents, no limits, no files. */
#include "isas.h"
#include <float.h>
#include <sys/stat.h>
#include "cpu/cgroup.h"

static void put(const char *path, const char *text)
{
    char whole[400];
    snprintf(whole, sizeof whole, "groups/%s", path);
    for (char *slash = whole; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(whole, 0777);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static struct llm_cgroup of(const char *self)
{
    put("self", self);
    return llm_cgroup_read("groups", "groups/self");
}

static int folder(void **state)
{
    static char name[] = "/tmp/llm-cgroup-XXXXXX";
    (void)state;
    return !mkdtemp(name) || chdir(name);
}

static int remove_folder(void **state)
{
    (void)state;
    return system("rm -r \"$PWD\"/groups && rmdir \"$PWD\"");
}

static void test_none(void **state)
{
    (void)state;
    struct llm_cgroup c = llm_cgroup_read("nowhere", "nowhere/self");
    assert_true(c.cpus == INT64_MAX && c.memory == DBL_MAX && c.memory_left == DBL_MAX);
    c = of("0::/\n1:memory:/a\nnonsense\n\n2:cpu\n");
    assert_true(c.cpus == INT64_MAX && c.memory == DBL_MAX && c.memory_left == DBL_MAX);
}

static void test_version_2(void **state)
{
    (void)state;
    put("cpu.max", "max 100000\n");
    put("a/cpu.max", "250000 100000\n"); /* two and a half: three threads can use it */
    put("a/memory.max", "4000000\n");
    put("a/memory.current", "1000000\n");
    put("a/b/cpu.max", "max 100000\n");
    put("a/b/memory.max", "max\n");
    put("a/b/memory.current", "900000\n");
    put("a/c/memory.max", "5000000\n");
    put("a/c/memory.current", "4500000\n");
    struct llm_cgroup c = of("0::/a/b\n");
    assert_int_equal(c.cpus, 3);
    assert_true(c.memory == 4000000 && c.memory_left == 3000000);
    c = of("0::/a/c\n"); /* the parent has the least limit, the group the least that is left */
    assert_true(c.memory == 4000000 && c.memory_left == 500000);
    put("a/c/memory.current", "6000000\n");
    assert_true(of("0::/a/c\n").memory_left == 0);
    put("a/cpu.max", "-5 0\n");
    assert_true(of("0::/a\n").cpus == INT64_MAX);
    put("memory.max", "100\n"); /* of the root, as in a container that sees only its own group */
    assert_true(of("0::/\n").memory == 100);
    put("memory.max", "max\n");
}

static void test_version_1(void **state)
{
    (void)state;
    put("cpu/x/cpu.cfs_quota_us", "-1\n");
    put("cpu/x/cpu.cfs_period_us", "100000\n");
    put("cpu/cpu.cfs_quota_us", "200000\n");
    put("cpu/cpu.cfs_period_us", "100000\n");
    put("memory/x/memory.limit_in_bytes", "7000000\n");
    put("memory/x/memory.usage_in_bytes", "100\n");
    struct llm_cgroup c = of("3:cpu,cpuacct:/x\n4:memory:/x\n");
    assert_int_equal(c.cpus, 2);
    assert_true(c.memory == 7000000 && c.memory_left == 6999900);
    put("memory/x/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    assert_true(of("4:memory:/x\n").memory > 1e18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_none), cmocka_unit_test(test_version_2), cmocka_unit_test(test_version_1)};
    return cmocka_run_group_tests(tests, folder, remove_folder);
}
