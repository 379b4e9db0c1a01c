/* CPUID and XGETBV on x86, hwcaps on AArch64. What an instruction set needs is what the Makefile's FLAGS_<isa> let the compiler use. */
#include "cpu/detect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/suggest.h"
#include "cpu/cgroup.h"
#include "cpu/kernels.h"

#if defined __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#elif defined __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define FILL_PROTOTYPE(isa) void llm_fill_##isa(struct llm_kernels *k);
FILL_PROTOTYPE(scalar)

static int always(void) { return 1; }

#if defined __x86_64__
FILL_PROTOTYPE(avx2)
FILL_PROTOTYPE(avxvnni)
FILL_PROTOTYPE(avx512)
FILL_PROTOTYPE(avx512vnni)
FILL_PROTOTYPE(avx512bf16)
FILL_PROTOTYPE(amx)

struct leaf { unsigned a, b, c, d; };

static struct leaf leaf(unsigned number, unsigned sub)
{
    struct leaf l = {0};
    if (!__get_cpuid_count(number, sub, &l.a, &l.b, &l.c, &l.d)) return (struct leaf){0};
    return l;
}

static int has(unsigned word, int bit) { return (int)(word >> bit & 1); }

/* All state components of `mask` are kept by the operating system. */
static int os_keeps(unsigned mask)
{
    unsigned low, high;
    if (!has(leaf(1, 0).c, 27)) return 0; /* OSXSAVE */
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & mask) == mask;
}

static int avx2(void)
{
    unsigned c = leaf(1, 0).c, b = leaf(7, 0).b;
    return os_keeps(0x6) && has(c, 12) && has(c, 29) && has(b, 5) && has(b, 8) && has(b, 3); /* FMA F16C AVX2 BMI2 BMI1 */
}

static int avxvnni(void)
{
    return avx2() && has(leaf(7, 1).a, 4); /* AVX-VNNI */
}

static int avx512(void)
{
    unsigned b = leaf(7, 0).b;
    return avx2() && os_keeps(0xe6) && has(b, 16) && has(b, 17) && has(b, 28) && has(b, 30) && has(b, 31); /* F DQ CD BW VL */
}

static int avx512vnni(void)
{
    return avx512() && has(leaf(7, 0).c, 11); /* VNNI */
}

static int avx512bf16(void)
{
    return avx512vnni() && has(leaf(7, 1).a, 5); /* BF16 */
}

/* Tile data is 8 KiB of state that Linux gives a process only when it asks (Documentation/arch/x86/xstate.rst). */
static int amx(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    static int asked, granted;
    unsigned d = leaf(7, 0).d;
    if (!avx512bf16() || !has(d, 22) || !has(d, 24) || !has(d, 25) || !os_keeps(0x60000)) return 0; /* BF16 TILE INT8 */
    if (!asked) {
        granted = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
        asked = 1;
    }
    return granted;
}

#elif defined __aarch64__
FILL_PROTOTYPE(neon)
FILL_PROTOTYPE(i8mm)

static int neon(void)
{
    unsigned long need = HWCAP_ASIMD | HWCAP_ASIMDDP | HWCAP_ASIMDHP | HWCAP_FPHP;
    return (getauxval(AT_HWCAP) & need) == need && (getauxval(AT_HWCAP2) & HWCAP2_BF16);
}

static int i8mm(void)
{
    return neon() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM);
}
#endif

const struct llm_isa llm_isas[] = {
    {"scalar", always, llm_fill_scalar},
#if defined __x86_64__
    {"avx2", avx2, llm_fill_avx2},
    {"avxvnni", avxvnni, llm_fill_avxvnni},
    {"avx512", avx512, llm_fill_avx512},
    {"avx512vnni", avx512vnni, llm_fill_avx512vnni},
    {"avx512bf16", avx512bf16, llm_fill_avx512bf16},
    {"amx", amx, llm_fill_amx},
#elif defined __aarch64__
    {"neon", neon, llm_fill_neon},
    {"i8mm", i8mm, llm_fill_i8mm},
#endif
    {0}};

static int choose(const char *wanted, const struct llm_isa **chosen, struct llm_err *e)
{
    char names[128] = "";
    struct llm_suggest near;
    llm_suggest_begin(&near, wanted ? wanted : "");
    for (const struct llm_isa *i = llm_isas; i->name; i++) {
        llm_suggest_add(&near, i->name, i->name);
        if (!wanted && i->usable()) *chosen = i;
        if (wanted && strcmp(wanted, i->name) == 0) *chosen = i;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", i->name);
    }
    if (!*chosen) return llm_fail(e, LLM_EX_USAGE, "LLM_ISA: expected one of %s, found '%s'%s", names, wanted, llm_suggest_text(&near, ""));
    if (!(*chosen)->usable())
        return llm_fail(e, EX_UNAVAILABLE, "LLM_ISA: this processor or operating system has no %s", wanted);
    return 0;
}

int llm_kernels_init(struct llm_err *e)
{
    const char *wanted = getenv("LLM_ISA");
    const struct llm_isa *chosen = NULL;
    if (llm_k.isa) return 0;
    if (choose(wanted && *wanted ? wanted : NULL, &chosen, e) < 0) return -1;
    chosen->fill(&llm_k);
    llm_k.isa = chosen->name;
    return 0;
}

const char *llm_isa_name(void) { return llm_k.isa ? llm_k.isa : "none"; }

void llm_cpu_name(char *text, size_t n)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    snprintf(text, n, "unknown CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value) continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(text, n, "%s", value);
        break;
    }
    if (f) fclose(f);
}

double llm_memory_available(void)
{
    char line[256];
    double kib = -1;
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %lf kB", &kib) != 1) kib = -1;
    if (f) fclose(f);
    if (kib < 0) return 0;
    const double left = llm_cgroup_self().memory_left;
    return left < kib * 1024 ? left : kib * 1024;
}

double llm_memory_own(void)
{
    double size, resident, of_files, pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%lf %lf %lf", &size, &resident, &of_files) == 3) pages = resident - of_files;
    if (f) fclose(f);
    return pages * (double)sysconf(_SC_PAGESIZE);
}

size_t llm_machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    double all = pages > 0 && size > 0 ? (double)pages * (double)size : (double)((size_t)16 << 30), limit = llm_cgroup_self().memory;
    return (size_t)(limit < all ? limit : all);
}
