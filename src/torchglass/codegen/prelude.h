#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <omp.h>

typedef uint8_t bool8;
typedef uint16_t bf16;
#ifdef __FLT16_MAX__
typedef _Float16 f16;
#endif
#define ALIGNED __attribute__((aligned(64)))
#define INLINE static inline __attribute__((always_inline))

INLINE float tg_bits_f32(int32_t x) { float y; memcpy(&y, &x, 4); return y; }
INLINE int32_t tg_bits_i32(float x) { int32_t y; memcpy(&y, &x, 4); return y; }
INLINE float tg_from_bf16(bf16 x) { return tg_bits_f32((int32_t)((uint32_t)x << 16)); }
INLINE bf16 tg_to_bf16(float x)
{
    uint32_t u = (uint32_t)tg_bits_i32(x);
    return x != x ? 0x7fc0 : (bf16)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

INLINE int64_t tg_floordiv_i64(int64_t a, int64_t b) { int64_t q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0))); }
INLINE int64_t tg_mod_i64(int64_t a, int64_t b) { int64_t r = a % b; return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r; }
INLINE float tg_mod_f32(float a, float b) { float r = fmodf(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
INLINE double tg_mod_f64(double a, double b) { double r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
INLINE float tg_floordiv_f32(float a, float b)
{
    if (b == 0) return a / b;
    float r = fmodf(a, b), q = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) q -= 1;
    if (q == 0) return copysignf(0.0f, a / b);
    float f = floorf(q);
    return q - f > 0.5f ? f + 1 : f;
}
INLINE double tg_floordiv_f64(double a, double b)
{
    if (b == 0) return a / b;
    double r = fmod(a, b), q = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) q -= 1;
    if (q == 0) return copysign(0.0, a / b);
    double f = floor(q);
    return q - f > 0.5 ? f + 1 : f;
}

/* A thread's own block for long scratch rows; it grows and is kept. */
static _Thread_local char* tg_block;
static _Thread_local int64_t tg_block_bytes;
static char* tg_scratch(int64_t bytes)
{
    if (tg_block_bytes < bytes) {
        free(tg_block);
        tg_block = aligned_alloc(64, (bytes + 63) / 64 * 64);
        tg_block_bytes = bytes;
    }
    return tg_block;
}

/* exp: 2^n * p(r) with r = x - n*ln2 in [-ln2/2, ln2/2], scaled in two steps so that subnormals and overflow come right. */
INLINE float tg_exp_f32(float x)
{
    float z = x * 1.44269504088896341f;
    z = z < -160.0f ? -160.0f : z;
    z = z > 160.0f ? 160.0f : z;
    float n = __builtin_rintf(z);
    float r = __builtin_fmaf(n, -0.693145752f, x);
    r = __builtin_fmaf(n, -1.42860677e-6f, r);
    float p = 1.98752738e-4f;
    p = __builtin_fmaf(p, r, 1.39304728e-3f);
    p = __builtin_fmaf(p, r, 8.33336114e-3f);
    p = __builtin_fmaf(p, r, 4.16664109e-2f);
    p = __builtin_fmaf(p, r, 1.66666666e-1f);
    p = __builtin_fmaf(p, r, 5.00000000e-1f);
    p = __builtin_fmaf(p, r * r, r) + 1.0f;
    int32_t m = (int32_t)n, h = m >> 1;
    return p * tg_bits_f32((h + 127) << 23) * tg_bits_f32((m - h + 127) << 23);
}
INLINE float tg_log_f32(float x) { return logf(x); }
INLINE float tg_tanh_f32(float x) { return tanhf(x); }
INLINE float tg_erf_f32(float x) { return erff(x); }
INLINE float tg_expm1_f32(float x) { return expm1f(x); }
INLINE float tg_log1p_f32(float x) { return log1pf(x); }
INLINE float tg_sigmoid_f32(float x) { return 1.0f / (1.0f + tg_exp_f32(-x)); }
INLINE double tg_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
