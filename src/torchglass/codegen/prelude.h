#include <stdint.h>

#define INFINITY (__builtin_inff ())

#define NAN (__builtin_nanf (""))

typedef uint8_t bool8;

typedef uint16_t bf16;

typedef uint16_t f16; /* not _Float16: GCC makes vectors of it for few processors */

#define ALIGNED __attribute__((aligned(64)))

#define OPAQUE(x) __asm__("" : "+r"(x)) /* the compiler no longer knows its value */

#define INLINE static inline __attribute__((always_inline))

INLINE float tg_bits_f32(int32_t x) { float y; __builtin_memcpy(&y, &x, 4); return y; }

INLINE int32_t tg_bits_i32(float x) { int32_t y; __builtin_memcpy(&y, &x, 4); return y; }

INLINE float tg_from_bf16(bf16 x) { return tg_bits_f32((int32_t)((uint32_t)x << 16)); }

/* The nearest bfloat16 is the upper half. */
INLINE uint32_t tg_rounded(float x)
{
    uint32_t u = (uint32_t)tg_bits_i32(x);
    return x != x ? 0x7fc00000 : u + 0x7fff + ((u >> 16) & 1);
}

INLINE bf16 tg_to_bf16(float x) { return (bf16)(tg_rounded(x) >> 16); }

INLINE float tg_near_bf16(float x) { return tg_bits_f32((int32_t)(tg_rounded(x) & 0xffff0000)); }

/* An exponent of 8 bits for one of 5. The smallest numbers have none: they are multiples of 2^-24. */
INLINE float tg_from_f16(f16 x)
{
    uint32_t u = (uint32_t)(x & 0x7fff) << 13;
    float small = tg_bits_f32((int32_t)(u + 0x38800000)) - 0x1p-14f;
    uint32_t normal = u + (u < 0x0f800000 ? 0x38000000 : 0x70000000);
    uint32_t magnitude = u < 0x00800000 ? (uint32_t)tg_bits_i32(small) : normal;
    return tg_bits_f32((int32_t)(magnitude | (uint32_t)(x & 0x8000) << 16));
}

/* Adding a half rounds to a multiple of 2^-24. What is nearer to 2^16 than to the largest number is infinite. */
INLINE f16 tg_to_f16(float x)
{
    uint32_t u = (uint32_t)tg_bits_i32(x) & 0x7fffffff;
    uint32_t normal = (u - 0x38000000 + 0x0fff + ((u >> 13) & 1)) >> 13;
    uint32_t small = (uint32_t)tg_bits_i32(tg_bits_f32((int32_t)u) + 0.5f) - 0x3f000000;
    uint32_t magnitude = u < 0x38800000 ? small : normal;
    magnitude = u < 0x477ff000 ? magnitude : x == x ? 0x7c00 : 0x7e00;
    return (f16)(magnitude | ((uint32_t)tg_bits_i32(x) >> 16 & 0x8000));
}

INLINE float tg_near_f16(float x) { return tg_from_f16(tg_to_f16(x)); }

/* Two neighbours of bfloat16 as one word: the second is its upper half. */
typedef uint32_t pair __attribute__((may_alias, aligned(2)));
#define PAIR(x) (*(pair*)&(x))
INLINE float tg_first(uint32_t x) { return tg_bits_f32((int32_t)(x << 16)); }
INLINE float tg_second(uint32_t x) { return tg_bits_f32((int32_t)(x & 0xffff0000)); }
INLINE uint32_t tg_pair(float x, float y) { return tg_rounded(x) >> 16 | (tg_rounded(y) & 0xffff0000); }

/* Numbers out of range give the smallest integer, as the processor's conversion does. */
INLINE int32_t tg_i32_of_f32(float x) { return __builtin_fabsf(x) < 0x1p31f ? (int32_t)x : INT32_MIN; }
INLINE int32_t tg_i32_of_f64(double x) { return __builtin_fabs(x) < 0x1p31 ? (int32_t)x : INT32_MIN; }
INLINE int64_t tg_i64_of_f32(float x) { return __builtin_fabsf(x) < 0x1p63f ? (int64_t)x : INT64_MIN; }
INLINE int64_t tg_i64_of_f64(double x) { return __builtin_fabs(x) < 0x1p63 ? (int64_t)x : INT64_MIN; }

INLINE int64_t tg_floordiv_i64(int64_t a, int64_t b) { int64_t q = a / b; return q - ((a % b != 0) & ((a < 0) != (b < 0))); }

INLINE int64_t tg_mod_i64(int64_t a, int64_t b) { int64_t r = a % b; return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r; }

/* Of two sizes. */
INLINE int64_t tg_larger(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t tg_smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* An index out of range: error number + 1, index, size, dimension. The wrapper looks here and raises. */
int64_t tg_failed[4];
static __attribute__((noinline, cold)) void tg_fail(int64_t index, int64_t size, int64_t error, int64_t dim)
{
    tg_failed[1] = index; tg_failed[2] = size; tg_failed[3] = dim; tg_failed[0] = error + 1;
}
INLINE int64_t tg_bound(int64_t index, int64_t size, int64_t error, int64_t dim)
{
    if (__builtin_expect((uint64_t)index >= (uint64_t)size, 0)) { tg_fail(index, size, error, dim); return 0; }
    return index;
}

/* The sum of a vector's numbers, halves upon halves. Parts of a vector, not loops: they compile in half the time. */
typedef __attribute__((vector_size(16), may_alias)) float f32x4;
typedef __attribute__((vector_size(32), may_alias)) float f32x8;
typedef __attribute__((vector_size(64), may_alias)) float f32x16;
INLINE float tg_sum_f32x4(f32x4 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
INLINE float tg_sum_f32x8(f32x8 v) { f32x4* half = (f32x4*)&v; return tg_sum_f32x4(half[0] + half[1]); }
INLINE float tg_sum_f32x16(f32x16 v) { f32x8* half = (f32x8*)&v; return tg_sum_f32x8(half[0] + half[1]); }

/* Asks for memory that is read soon. */
INLINE void tg_fetch(const void* from, int64_t bytes)
{
    for (int64_t k = 0; k < bytes; k += 64) __builtin_prefetch((const char*)from + k);
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

/* A matrix turned: to[c * ld + r] = from[r * step + c] for r < rows, c < columns. Square blocks go through registers, in
   log2(lanes) rounds: round d swaps, in rows r and r + d, the elements whose column has bit d (r) or has not (r + d).
   What is left at the edges goes by ``rest``, which has smaller blocks. */
#if defined(__AVX512BW__)
#define REGISTER 64
#elif defined(__AVX2__)
#define REGISTER 32
#else
#define REGISTER 16
#endif
#ifdef __clang__
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif
#define PICK(c, d, up, n) ((c) & (d) ? (n) + (c) - (up ? 0 : (d)) : (c) + (up ? (d) : 0))
#define PICK2(c, d, up, n) PICK(c, d, up, n), PICK((c) + 1, d, up, n)
#define PICK4(c, d, up, n) PICK2(c, d, up, n), PICK2((c) + 2, d, up, n)
#define PICK8(c, d, up, n) PICK4(c, d, up, n), PICK4((c) + 4, d, up, n)
#define PICK16(c, d, up, n) PICK8(c, d, up, n), PICK8((c) + 8, d, up, n)
#define PICK32(c, d, up, n) PICK16(c, d, up, n), PICK16((c) + 16, d, up, n)
#define UNROLLED _Pragma("GCC unroll 32")
#define ROUND(type, n, pick, d)                                                                             \
    UNROLLED for (int k = 0; k < n; ++k) if (d < n && !(k & d)) {                           \
        type a = block[k], b = block[(k + d) % n];                                                          \
        block[k] = SHUFFLE(type, a, b, pick(0, d % n, 0, n));                                               \
        block[(k + d) % n] = SHUFFLE(type, a, b, pick(0, d % n, 1, n));                                     \
    }
#define EDGE(bits)                                                                                          \
    typedef int##bits##_t turned##bits __attribute__((may_alias));                                          \
    INLINE void tg_edge_##bits(void* tile, int64_t ld, const void* matrix, int64_t step, int64_t rows, int64_t columns)\
    {                                                                                                       \
        turned##bits* to = (turned##bits*)tile;                                                             \
        const turned##bits* from = (const turned##bits*)matrix;                                             \
        for (int64_t r = 0; r < rows; ++r)                                                                  \
            for (int64_t c = 0; c < columns; ++c) to[c * ld + r] = from[r * step + c];                      \
    }
#define TURN(name, bits, n, pick, rest)                                                                     \
    typedef int##bits##_t name##_lanes __attribute__((vector_size(n * bits / 8), may_alias));               \
    typedef int##bits##_t name##_loose __attribute__((vector_size(n * bits / 8), aligned(bits / 8), may_alias));\
    INLINE void name##_block(turned##bits* to, int64_t ld, const turned##bits* from, int64_t step)          \
    {                                                                                                       \
        name##_lanes block[n];                                                                              \
        UNROLLED for (int k = 0; k < n; ++k) block[k] = *(const name##_loose*)(from + k * step);            \
        ROUND(name##_lanes, n, pick, 1) ROUND(name##_lanes, n, pick, 2) ROUND(name##_lanes, n, pick, 4)     \
        ROUND(name##_lanes, n, pick, 8) ROUND(name##_lanes, n, pick, 16)                                    \
        UNROLLED for (int k = 0; k < n; ++k) *(name##_loose*)(to + k * ld) = block[k];                      \
    }                                                                                                       \
    INLINE void name(void* tile, int64_t ld, const void* matrix, int64_t step, int64_t rows, int64_t columns)\
    {                                                                                                       \
        turned##bits* to = (turned##bits*)tile;                                                             \
        const turned##bits* from = (const turned##bits*)matrix;                                             \
        const int64_t high = rows / n * n, wide = columns / n * n;                                          \
        for (int64_t r = 0; r < high; r += n)                                                               \
            for (int64_t c = 0; c < wide; c += n) name##_block(to + c * ld + r, ld, from + r * step + c, step);\
        if (wide < columns) rest(to + wide * ld, ld, from + wide, step, high, columns - wide);              \
        if (high < rows) rest(to + high, ld, from + high * step, step, rows - high, columns);               \
    }
EDGE(8) EDGE(16) EDGE(32) EDGE(64)
TURN(tg_turn_8, 8, 8, PICK8, tg_edge_8)
#if REGISTER == 64
TURN(tg_few_16, 16, 8, PICK8, tg_edge_16)
TURN(tg_turn_16, 16, 32, PICK32, tg_few_16) /* three quarters of the time of blocks of 8 */
TURN(tg_turn_32, 32, 16, PICK16, tg_edge_32)
TURN(tg_turn_64, 64, 8, PICK8, tg_edge_64)
#else
TURN(tg_turn_16, 16, 8, PICK8, tg_edge_16)
#if REGISTER == 32
TURN(tg_turn_32, 32, 8, PICK8, tg_edge_32)
TURN(tg_turn_64, 64, 4, PICK4, tg_edge_64)
#else
TURN(tg_turn_32, 32, 4, PICK4, tg_edge_32)
TURN(tg_turn_64, 64, 2, PICK2, tg_edge_64)
#endif
#endif

/* libm functions that glibc has in vector form (libmvec, at most 4 ulp); the rest runs one element at a time. */
#if defined(__x86_64__) && defined(__GLIBC__)
#define VECTOR __attribute__((simd("notinbranch"), const))
VECTOR float sinf(float); VECTOR float cosf(float); VECTOR float powf(float, float);
VECTOR double exp(double); VECTOR double log(double); VECTOR double sin(double); VECTOR double cos(double);
VECTOR double pow(double, double);
#if __GLIBC_PREREQ(2, 35)
#define VECTOR_OF(name) VECTOR float name##f(float); VECTOR double name(double);
VECTOR_OF(acos) VECTOR_OF(acosh) VECTOR_OF(asin) VECTOR_OF(asinh) VECTOR_OF(atan) VECTOR_OF(atanh) VECTOR_OF(cosh)
VECTOR_OF(erfc) VECTOR_OF(exp2) VECTOR_OF(log10) VECTOR_OF(log2) VECTOR_OF(sinh) VECTOR_OF(tan)
VECTOR double erf(double); VECTOR double expm1(double); VECTOR double log1p(double); VECTOR double tanh(double);
VECTOR float atan2f(float, float); VECTOR double atan2(double, double);
/* As exact as ours and faster; libmvec's expf, logf and erff are neither. */
VECTOR float tanhf(float); VECTOR float expm1f(float); VECTOR float log1pf(float);
#define LIBMVEC_HAS_THEM
INLINE float tg_tanh_f32(float x) { return tanhf(x); }
INLINE float tg_expm1_f32(float x) { return expm1f(x); }
INLINE float tg_log1p_f32(float x) { return log1pf(x); }
#endif
#endif

/* The remainder of a division, exact as the C library's, in the vectors that loops call (names are the vector ABI's). Each
   round takes from r the multiple of y that float division finds: what is left is exact, since it has the last bits of
   both and at least 24 (53) bits less than r; it is negative where the quotient was rounded up. One round is enough up
   to a quotient of 2^24. Where r / y is no number of the type, the lane ends as NaN and the C library is asked. */
#ifdef VECTOR
VECTOR float fmodf(float, float); VECTOR double fmod(double, double);
float tg_one_fmodf(float, float) __asm__("fmodf"); /* one that no loop calls in vectors */
double tg_one_fmod(double, double) __asm__("fmod");
#define FMOD(abi, n, type, f)                                                                               \
    typedef type tg_fmod##f##_##abi##_lanes __attribute__((vector_size(n * sizeof(type)), may_alias));      \
    static __attribute__((used)) tg_fmod##f##_##abi##_lanes tg_fmod##f##_##abi(                             \
        tg_fmod##f##_##abi##_lanes, tg_fmod##f##_##abi##_lanes) __asm__("_ZGV" #abi "N" #n "vv_fmod" #f);   \
    static tg_fmod##f##_##abi##_lanes tg_fmod##f##_##abi(                                                   \
        tg_fmod##f##_##abi##_lanes numerators, tg_fmod##f##_##abi##_lanes divisors)                         \
    {                                                                                                       \
        ALIGNED type a[n], b[n], r[n];                                                                      \
        __builtin_memcpy(a, &numerators, sizeof a); __builtin_memcpy(b, &divisors, sizeof b);               \
        int more = 0, lost = 0;                                                                             \
        _Pragma("omp simd") for (int k = 0; k < n; ++k) r[k] = __builtin_fabs##f(a[k]);                     \
        do {                                                                                                \
            more = 0;                                                                                       \
            _Pragma("omp simd reduction(|:more)") for (int k = 0; k < n; ++k) {                             \
                type y = __builtin_fabs##f(b[k]), q = __builtin_trunc##f(r[k] / y);                         \
                type less = __builtin_fma##f(-q, y, r[k]);                                                  \
                r[k] = __builtin_fabs##f(r[k]) < y ? r[k] : less;                                           \
                more |= __builtin_fabs##f(r[k]) >= y;                                                       \
            }                                                                                               \
        } while (more);                                                                                     \
        _Pragma("omp simd reduction(|:lost)") for (int k = 0; k < n; ++k) {                                 \
            type y = __builtin_fabs##f(b[k]), rest = r[k] < 0 ? r[k] + y : r[k];                            \
            r[k] = __builtin_copysign##f(rest, a[k]);                                                       \
            lost |= (rest != rest) & (__builtin_fabs##f(a[k]) < INFINITY) & (y > 0);                        \
        }                                                                                                   \
        if (lost) for (int k = 0; k < n; ++k) if (r[k] != r[k]) r[k] = tg_one_fmod##f(a[k], b[k]);          \
        tg_fmod##f##_##abi##_lanes found;                                                                   \
        __builtin_memcpy(&found, r, sizeof found);                                                          \
        return found;                                                                                       \
    }
#if defined(__AVX512F__)
FMOD(e, 16, float, f) FMOD(e, 8, double, )
#endif
#if defined(__AVX2__)
FMOD(d, 8, float, f) FMOD(d, 4, double, )
#elif defined(__AVX__)
FMOD(c, 8, float, f) FMOD(c, 4, double, )
#endif
FMOD(b, 4, float, f) FMOD(b, 2, double, )
#endif

INLINE float tg_mod_f32(float a, float b)
{
    float r = fmodf(a, b);
    return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r;
}

INLINE double tg_mod_f64(double a, double b)
{
    double r = fmod(a, b);
    return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r;
}

INLINE float tg_floordiv_f32(float a, float b)
{
    float r = fmodf(a, b), q = (a - r) / b, all = a / b;
    q = (r != 0) & ((b < 0) != (r < 0)) ? q - 1 : q;
    float f = __builtin_floorf(q);
    f = q - f > 0.5f ? f + 1 : f;
    f = q == 0 ? __builtin_copysignf(0.0f, all) : f;
    return b == 0 ? all : f;
}

INLINE double tg_floordiv_f64(double a, double b)
{
    double r = fmod(a, b), q = (a - r) / b, all = a / b;
    q = (r != 0) & ((b < 0) != (r < 0)) ? q - 1 : q;
    double f = __builtin_floor(q);
    f = q - f > 0.5 ? f + 1 : f;
    f = q == 0 ? __builtin_copysign(0.0, all) : f;
    return b == 0 ? all : f;
}

/* This and the float functions below have no branches, so that loops around them vectorize. Polynomials: minimax fits.
   e^x - 1 for |x| <= ln2 / 2 */
INLINE float tg_expm1_core(float r)
{
    float p = 1.99075740e-4f;
    p = __builtin_fmaf(p, r, 1.39336501e-3f);
    p = __builtin_fmaf(p, r, 8.33328602e-3f);
    p = __builtin_fmaf(p, r, 4.16664649e-2f);
    p = __builtin_fmaf(p, r, 1.66666668e-1f);
    p = __builtin_fmaf(p, r, 5.00000001e-1f);
    return __builtin_fmaf(p, r * r, r);
}

/* x = n ln2 + r; 2^n is applied in two steps so that subnormal results and overflow come out right. t's last bits are
   the integer n + 254, since a float past 2^23 has no bits for less: two exponents with their bias of 127.
   What is 0 anyway (masked scores, mostly) is kept from underflowing, which the processor does slowly: with AVX-512 by
   the mask of the last product. */
INLINE float tg_exp_f32(float x)
{
    int gone = x < -104.0f;
    x = x > 95.0f ? 95.0f : x;
#ifndef __AVX512F__
    x = gone ? 0.0f : x;
#endif
    float t = __builtin_fmaf(x, 1.44269504f, 12583166.0f), n = t - 12583166.0f; /* 1.5 * 2^23 + 254 */
    float r = __builtin_fmaf(n, -0.693145752f, x);
    r = __builtin_fmaf(n, -1.42860677e-6f, r);
    float p = tg_expm1_core(r) + 1.0f;
    int32_t m = tg_bits_i32(t), h = m >> 1;
    return gone ? 0.0f : p * tg_bits_f32(h << 23) * tg_bits_f32((m - h) << 23);
}

/* x = 2^e m, m in [sqrt(1/2), sqrt(2)), f = m - 1 */
INLINE float tg_log_f32(float x)
{
    int tiny = x < 1.17549435e-38f;
    float y = tiny ? x * 8388608.0f : x;
    int32_t i = tg_bits_i32(y) - 0x3f3504f3;
    float e = (float)(i >> 23) - (tiny ? 23.0f : 0.0f);
    float f = tg_bits_f32((i & 0x7fffff) + 0x3f3504f3) - 1.0f;
    float q = 6.91778372e-2f;
    q = __builtin_fmaf(q, f, -1.17797722e-1f);
    q = __builtin_fmaf(q, f, 1.18661887e-1f);
    q = __builtin_fmaf(q, f, -1.23857915e-1f);
    q = __builtin_fmaf(q, f, 1.42198956e-1f);
    q = __builtin_fmaf(q, f, -1.66691970e-1f);
    q = __builtin_fmaf(q, f, 2.00021526e-1f);
    q = __builtin_fmaf(q, f, -2.49999869e-1f);
    q = __builtin_fmaf(q, f, 3.33333118e-1f);
    float s = f * f;
    float low = __builtin_fmaf(e, 1.42860677e-6f, q * f * s);
    low = __builtin_fmaf(s, -0.5f, low);
    float z = __builtin_fmaf(e, 0.693145752f, f + low);
    z = x == INFINITY ? x : z;
    z = x == 0.0f ? -INFINITY : z;
    return (x < 0.0f) | (x != x) ? NAN : z;
}

/* 2^q for q <= 0; what is no normal number any more is 0. t's last bits are n + 127, as in tg_exp_f32. */
INLINE float tg_exp2_down(float q)
{
    q = q < -127.0f ? -127.0f : q;
    float t = q + 12583039.0f, r = q - (t - 12583039.0f);
    float p = 0.000153458124f;
    p = __builtin_fmaf(p, r, 0.00133999309f);
    p = __builtin_fmaf(p, r, 0.00961848907f);
    p = __builtin_fmaf(p, r, 0.0555032864f);
    p = __builtin_fmaf(p, r, 0.240226462f);
    p = __builtin_fmaf(p, r, 0.693147182f);
    p = __builtin_fmaf(p, r, 1.0f);
    return p * tg_bits_f32(tg_bits_i32(t) << 23);
}

/* |x| < 0.9: x p(x^2); beyond: 1 - erfc, whose binary logarithm is a polynomial up to 4, where erf is 1 in float */
INLINE float tg_erf_f32(float x)
{
    float t = __builtin_fabsf(x), s = x * x;
    float p = -6.09055668e-4f;
    p = __builtin_fmaf(p, s, 5.01200668e-3f);
    p = __builtin_fmaf(p, s, -2.67789447e-2f);
    p = __builtin_fmaf(p, s, 1.12821421e-1f);
    p = __builtin_fmaf(p, s, -3.76125235e-1f);
    p = __builtin_fmaf(p, s, 1.28379154e-1f);
    float c = t > 4.0f ? 4.0f : t;
    float q = 0.000239537694f;
    q = __builtin_fmaf(q, c, -0.00400258414f);
    q = __builtin_fmaf(q, c, 0.03065091f);
    q = __builtin_fmaf(q, c, -0.147253782f);
    q = __builtin_fmaf(q, c, -0.922061443f);
    q = __builtin_fmaf(q, c, -1.62537003f);
    q = __builtin_fmaf(q, c, -0.000619354076f);
    float big = 1.0f - tg_exp2_down(q);
    return t < 0.9f ? __builtin_fmaf(p, x, x) : __builtin_copysignf(big, x);
}

/* The normal distribution below x, (1 + erf(x / sqrt 2)) / 2 without its loss far to the left: its binary logarithm at
   -|x| is a polynomial up to 6.5; beyond, that falls faster still. */
INLINE float tg_ndtr_f32(float x)
{
    float t = __builtin_fabsf(x);
    float q = -2.03850217e-08f;
    q = __builtin_fmaf(q, t, 6.56630561e-07f);
    q = __builtin_fmaf(q, t, -8.96886559e-06f);
    q = __builtin_fmaf(q, t, 6.58638019e-05f);
    q = __builtin_fmaf(q, t, -0.000246853771f);
    q = __builtin_fmaf(q, t, -6.07862021e-05f);
    q = __builtin_fmaf(q, t, 0.00701316493f);
    q = __builtin_fmaf(q, t, -0.0524813943f);
    q = __builtin_fmaf(q, t, -0.459208906f);
    q = __builtin_fmaf(q, t, -1.15110552f);
    q = __builtin_fmaf(q, t, -1.0f);
    float h = tg_exp2_down(q);
    return x < 0.0f ? h : 1.0f - h;
}

INLINE double tg_ndtr_f64(double x) { return 0.5 * erfc(x * -0.70710678118654752); }

INLINE float tg_sigmoid_f32(float x) { return 1.0f / (1.0f + tg_exp_f32(-x)); }

INLINE double tg_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }

#ifndef LIBMVEC_HAS_THEM
INLINE float tg_expm1_f32(float x)
{
    float y = x < -20.0f ? -20.0f : x;
    y = y > 95.0f ? 95.0f : y;
    float n = __builtin_rintf(y * 1.44269504f);
    float r = __builtin_fmaf(n, -0.693145752f, y);
    r = __builtin_fmaf(n, -1.42860677e-6f, r);
    float half = tg_bits_f32(((int32_t)(n > 127.0f ? 127.0f : n) + 126) << 23); /* 2^(n-1) */
    float z = __builtin_fmaf(half, tg_expm1_core(r), half - 0.5f) * 2.0f;
    z = n == 0.0f ? tg_expm1_core(y) : z;
    z = y > 88.0f ? tg_exp_f32(y) : z;
    return x == 0.0f ? x : z;
}
#endif

#ifndef LIBMVEC_HAS_THEM
INLINE float tg_log1p_f32(float x)
{
    float u = 1.0f + x;
    float lost = (x - (u - 1.0f)) / u;
    float z = tg_log_f32(u);
    float all = (u == INFINITY) | (u <= 0.0f) ? 0.0f : lost;
    return u == 1.0f ? x : z + all;
}
#endif

/* The logarithm of e^a + e^b. */
INLINE float tg_logaddexp_f32(float a, float b)
{
    float high = a > b ? a : b, low = a > b ? b : a;
    float sum = high + tg_log1p_f32(tg_exp_f32(low - high));
    return (low == high) & (__builtin_fabsf(high) == INFINITY) ? high : sum;
}
INLINE double tg_logaddexp_f64(double a, double b)
{
    double high = a > b ? a : b, low = a > b ? b : a;
    double sum = high + log1p(exp(low - high));
    return (low == high) & (__builtin_fabs(high) == INFINITY) ? high : sum;
}

/* The same of a line, as the largest so far and the sum of e^(x - largest): the exponential waits for nothing. */
INLINE void tg_add_exp_f32(float* largest, float* sum, float x)
{
    float t = tg_exp_f32(x == *largest ? 0.0f : -__builtin_fabsf(x - *largest));
    *sum = x <= *largest ? *sum + t : *sum * t + 1.0f;
    *largest = x > *largest ? x : *largest;
}
INLINE void tg_add_exp_f64(double* largest, double* sum, double x)
{
    double t = exp(x == *largest ? 0.0 : -__builtin_fabs(x - *largest));
    *sum = x <= *largest ? *sum + t : *sum * t + 1.0;
    *largest = x > *largest ? x : *largest;
}

#ifndef LIBMVEC_HAS_THEM
INLINE float tg_tanh_f32(float x)
{
    float t = __builtin_fabsf(x), s = x * x;
    float big = 1.0f - 2.0f / (tg_exp_f32(2.0f * t) + 1.0f);
    float p = -5.72509455e-3f;
    p = __builtin_fmaf(p, s, 2.06648193e-2f);
    p = __builtin_fmaf(p, s, -5.37507223e-2f);
    p = __builtin_fmaf(p, s, 1.33316270e-1f);
    p = __builtin_fmaf(p, s, -3.33332919e-1f);
    float small = __builtin_fmaf(p * s, t, t);
    return __builtin_copysignf(t < 0.625f ? small : big, x);
}
#endif
