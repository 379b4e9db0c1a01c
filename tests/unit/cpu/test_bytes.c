/* Classes of bytes: every instruction set against the definition, every byte at every place, memory that ends at a guard page. */
#include "isas.h"

static uint64_t bit(int set, int at) { return (uint64_t)(set != 0) << at; }

static void classes(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        unsigned char *p = guarded(64);
        uint64_t seed = 1;
        for (int round = 0; round < 4096; round++) {
            struct llm_byte_masks m, want = {0};
            for (int i = 0; i < 64; i++) {
                unsigned char c = round < 256 ? (unsigned char)(round + i) : (unsigned char)(noise(&seed) * 1e6f);
                p[i] = c;
                want.upper |= bit(c >= 'A' && c <= 'Z', i);
                want.lower |= bit(c >= 'a' && c <= 'z', i);
                want.digit |= bit(c >= '0' && c <= '9', i);
                want.space |= bit(c == ' ' || (c >= 9 && c <= 13), i);
                want.blank |= bit(c == ' ', i);
                want.newline |= bit(c == '\n' || c == '\r', i);
                want.quote |= bit(c == '\'', i);
                want.slash |= bit(c == '/', i);
                want.high |= bit(c >= 128, i);
            }
            memset(&m, 0xAA, sizeof m);
            llm_k.bytes.classify(&m, p);
            assert_memory_equal(&m, &want, sizeof m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
