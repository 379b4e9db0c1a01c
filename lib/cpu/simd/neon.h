/* Vectors of 4 elements: AArch64 Advanced SIMD. Part of cpu/simd.h, which has the contracts. */
#ifndef LLM_CPU_SIMD_NEON_H
#define LLM_CPU_SIMD_NEON_H

#include <arm_neon.h>

#define VN 4
typedef float32x4_t V;
typedef int32x4_t VI;
typedef uint32x4_t M; /* all bits of a lane */

static inline V v_zero(void) { return vdupq_n_f32(0); }
static inline V v_set1(float x) { return vdupq_n_f32(x); }
static inline V v_in_register(V x)
{
    __asm__("" : "+w"(x));
    return x;
}
static inline V v_load(const float *p) { return vld1q_f32(p); }
static inline void v_store(float *p, V x) { vst1q_f32(p, x); }
static inline V v_iota(void)
{
    const float t[4] = {0, 1, 2, 3};
    return vld1q_f32(t);
}
static inline V v_load_n(const float *p, size_t n)
{
    if (n >= 4) return vld1q_f32(p);
    float t[4] = {0};
    memcpy(t, p, n * sizeof *p);
    return vld1q_f32(t);
}
static inline void v_store_n(float *p, V x, size_t n)
{
    if (n >= 4) {
        vst1q_f32(p, x);
        return;
    }
    float t[4];
    vst1q_f32(t, x);
    memcpy(p, t, n * sizeof *p);
}

static inline V v_add(V a, V b) { return vaddq_f32(a, b); }
static inline V v_sub(V a, V b) { return vsubq_f32(a, b); }
static inline V v_mul(V a, V b) { return vmulq_f32(a, b); }
static inline V v_div(V a, V b) { return vdivq_f32(a, b); }
static inline V v_fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
static inline V v_fnma(V a, V b, V c) { return vfmsq_f32(c, a, b); }
static inline V v_max(V a, V b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline V v_min(V a, V b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline V v_sqrt(V a) { return vsqrtq_f32(a); }
static inline V v_round(V a) { return vrndnq_f32(a); }

static inline VI v_bits(V a) { return vreinterpretq_s32_f32(a); }
static inline V v_from_bits(VI a) { return vreinterpretq_f32_s32(a); }
static inline VI v_to_i32(V a) { return vcvtnq_s32_f32(a); }
static inline V v_from_i32(VI a) { return vcvtq_f32_s32(a); }

static inline float v_sum(V a)
{
    float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
static inline float v_hmax(V a) { return vmaxvq_f32(a); }

static inline M v_lt(V a, V b) { return vcltq_f32(a, b); }
static inline M v_le(V a, V b) { return vcleq_f32(a, b); }
static inline M v_eq(V a, V b) { return vceqq_f32(a, b); }
static inline V v_select(M m, V a, V b) { return vbslq_f32(m, a, b); }
static inline M m_and(M a, M b) { return vandq_u32(a, b); }
static inline M m_or(M a, M b) { return vorrq_u32(a, b); }
static inline M m_not(M a) { return vmvnq_u32(a); }
static inline int m_any(M a) { return vmaxvq_u32(a) != 0; }

static inline VI vi_set1(int32_t x) { return vdupq_n_s32(x); }
static inline VI vi_iota(void)
{
    const int32_t t[4] = {0, 1, 2, 3};
    return vld1q_s32(t);
}
static inline VI vi_load(const int32_t *p) { return vld1q_s32(p); }
static inline void vi_store(int32_t *p, VI x) { vst1q_s32(p, x); }
static inline VI vi_load_n(const int32_t *p, size_t n)
{
    int32_t t[4] = {0};
    memcpy(t, p, (n < 4 ? n : 4) * sizeof *p);
    return vld1q_s32(t);
}
static inline VI vi_add(VI a, VI b) { return vaddq_s32(a, b); }
static inline VI vi_sub(VI a, VI b) { return vsubq_s32(a, b); }
static inline VI vi_mul(VI a, VI b) { return vmulq_s32(a, b); }
static inline VI vi_and(VI a, VI b) { return vandq_s32(a, b); }
static inline VI vi_or(VI a, VI b) { return vorrq_s32(a, b); }
static inline VI vi_xor(VI a, VI b) { return veorq_s32(a, b); }
#define vi_shl(a, bits) vshlq_n_s32(a, bits)
#define vi_shr(a, bits) vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), bits))
#define vi_sar(a, bits) vshrq_n_s32(a, bits)
static inline int32_t vi_sum(VI a) { return vaddvq_s32(a); }
static inline void vi_store_i8(int8_t *p, VI x)
{
    int8_t t[8];
    vst1_s8(t, vmovn_s16(vcombine_s16(vmovn_s32(x), vdup_n_s16(0))));
    memcpy(p, t, 4);
}
static inline VI vi_shrv(VI a, VI bits) { return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vnegq_s32(bits))); }
static inline VI vi_lookup(const uint8_t *table, VI index)
{
    return vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8(table), vreinterpretq_u8_s32(index)));
}
static inline VI vi_table(const uint32_t *table, VI i)
{
    const uint8_t *t = (const uint8_t *)(const void *)table;
    uint32x4_t bytes = vmulq_n_u32(vandq_u32(vreinterpretq_u32_s32(i), vdupq_n_u32(7)), 0x04040404);
    return vreinterpretq_s32_u8(vqtbl2q_u8(vld1q_u8_x2(t), vreinterpretq_u8_u32(vaddq_u32(bytes, vdupq_n_u32(0x03020100)))));
}
static inline VI vi_bytes(VI x, VI i)
{
    static const uint32_t lane[4] = {0, 0x04040404, 0x08080808, 0x0c0c0c0c};
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(x), vreinterpretq_u8_u32(vorrq_u32(vreinterpretq_u32_s32(i), vld1q_u32(lane)))));
}
static inline VI vi_chosen(const int8_t *p, VI i)
{
    return vreinterpretq_s32_s8(vqtbl1q_s8(vcombine_s8(vld1_s8(p), vld1_s8(p)), vreinterpretq_u8_s32(i)));
}
static inline M vi_lt(VI a, VI b) { return vcltq_s32(a, b); }
static inline M vi_eq(VI a, VI b) { return vceqq_s32(a, b); }
static inline VI vi_select(M m, VI a, VI b) { return vbslq_s32(m, a, b); }
static inline M m_first(size_t n) { return vi_lt(vi_iota(), vi_set1(n >= 4 ? 4 : (int32_t)n)); }

static inline uint16x4_t v_load16_n_(const uint16_t *p, size_t n)
{
    uint16_t t[4] = {0};
    memcpy(t, p, (n < 4 ? n : 4) * sizeof *p);
    return vld1_u16(t);
}
static inline void v_store16_n_(uint16_t *p, uint16x4_t x, size_t n)
{
    uint16_t t[4];
    vst1_u16(t, x);
    memcpy(p, t, (n < 4 ? n : 4) * sizeof *p);
}
static inline V v_widen_bf16_(uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); }
static inline uint16x4_t v_narrow_bf16_(V x)
{
    uint32x4_t u = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vshrq_n_u32(vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    uint32x4_t quiet = vorrq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet));
}
static inline V v_load_bf16(const uint16_t *p) { return v_widen_bf16_(vld1_u16(p)); }
static inline V v_load_bf16_n(const uint16_t *p, size_t n) { return v_widen_bf16_(v_load16_n_(p, n)); }
static inline void v_store_bf16(uint16_t *p, V x) { vst1_u16(p, v_narrow_bf16_(x)); }
static inline void v_store_bf16_n(uint16_t *p, V x, size_t n) { v_store16_n_(p, v_narrow_bf16_(x), n); }
static inline V v_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline V v_load_f16_n(const uint16_t *p, size_t n) { return vcvt_f32_f16(vreinterpret_f16_u16(v_load16_n_(p, n))); }
static inline V v_set1_f16(const uint16_t *p) { return v_set1(llm_f16_decode(*p)); }
static inline void v_store_f16(uint16_t *p, V x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }
static inline void v_store_f16_n(uint16_t *p, V x, size_t n) { v_store16_n_(p, vreinterpret_u16_f16(vcvt_f16_f32(x)), n); }
static inline V v_load_i8_n(const int8_t *p, size_t n)
{
    int8_t t[8] = {0};
    memcpy(t, p, n < 4 ? n : 4);
    return v_from_i32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(t)))));
}
static inline V v_load_i8(const int8_t *p) { return v_load_i8_n(p, 4); }

#endif
