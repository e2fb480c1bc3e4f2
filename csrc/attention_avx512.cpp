// The loops of attention.cpp, for processors with AVX-512. Nothing but C's headers: whatever this file defines is
// compiled for these processors alone.
//
// A task is a panel of 32 queries of one head. Scores lie by keys, scores[key][query], so that a vector holds 16
// queries: the softmax over keys goes down vectors and never across one, and the next product reads 8 queries of a key
// side by side.
//
//   turned[d][query] = query[query][d]
//   scores[key][query] = scale * sum over d of key[key][d] * turned[d][query]  (+ mask), the largest of each query
//   scores = exp(scores - largest), their sums
//   output[query][d] = sum over keys of scores[key][query] * value[key][d], over the sum
#include "attention.h"

#if defined(__x86_64__) && defined(__GNUC__)

#pragma GCC target("avx512f,avx512dq,avx512vl,fma")

#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of GCC 12 for its own undefined vectors

#include <immintrin.h>
#include <math.h>
#include <string.h>

namespace torchglass {
namespace {

typedef __m512 Vector;

constexpr int64_t LANES = 16;
constexpr int64_t BLOCK = 8;    // keys, and queries of the second product, that sums in registers are kept of
constexpr int64_t WIDE = 32;    // numbers of a value that they are kept of
constexpr int64_t CHAIN = 256;  // numbers that are added up one after the other; more are added up by parts

#define INLINE static inline __attribute__((always_inline))

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t rounded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
INLINE __mmask16 first_lanes(int64_t n) { return n >= LANES ? 0xffff : n <= 0 ? 0 : (1 << n) - 1; }

// One number in all lanes; the barrier keeps it in a register, where each product would load it again.
INLINE Vector repeated(const float* at) {
  Vector x = _mm512_set1_ps(*at);
  __asm__("" : "+v"(x));
  return x;
}

// e^x for x <= 0, within 1 ulp; 0 below the normal numbers. Cody and Waite's reduction, Taylor's polynomial.
INLINE Vector exponential(Vector x) {
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ);  // and NaN
  const Vector n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
  Vector r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  Vector p = _mm512_set1_ps(1.0f / 720);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
  p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(normal, p, n);
}

// to[column][row] = from[row][column] of 16 x 16 numbers.
INLINE void turn(const float* from, int64_t step, float* to, int64_t to_step) {
  Vector a[16], b[16];
  for (int k = 0; k < 16; ++k) a[k] = _mm512_loadu_ps(from + k * step);
  for (int k = 0; k < 16; k += 2) {
    b[k] = _mm512_unpacklo_ps(a[k], a[k + 1]);
    b[k + 1] = _mm512_unpackhi_ps(a[k], a[k + 1]);
  }
  for (int k = 0; k < 16; k += 4) {
    for (int m = 0; m < 2; ++m) {
      const __m512d low = _mm512_castps_pd(b[k + m]), high = _mm512_castps_pd(b[k + 2 + m]);
      a[k + 2 * m] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      a[k + 2 * m + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  }
  for (int k = 0; k < 4; ++k) {
    for (int m = 0; m < 16; m += 8) {
      b[m + k] = _mm512_shuffle_f32x4(a[m + k], a[m + 4 + k], 0x88);
      b[m + 4 + k] = _mm512_shuffle_f32x4(a[m + k], a[m + 4 + k], 0xdd);
    }
  }
  for (int k = 0; k < 8; ++k) {
    _mm512_storeu_ps(to + k * to_step, _mm512_shuffle_f32x4(b[k], b[k + 8], 0x88));
    _mm512_storeu_ps(to + (k + 8) * to_step, _mm512_shuffle_f32x4(b[k], b[k + 8], 0xdd));
  }
}

// to[column][row] of PANEL rows, of which `rows` are there and the others 0.
void turn_panel(const float* from, int64_t step, int64_t rows, int64_t columns, float* to) {
  for (int64_t c = 0; c < columns; c += LANES) {
    for (int64_t r = 0; r < PANEL; r += LANES) {
      if (c + LANES <= columns && r + LANES <= rows) {
        turn(from + r * step + c, step, to + c * PANEL + r, PANEL);
        continue;
      }
      for (int64_t d = c; d < least(c + LANES, columns); ++d) {
        for (int64_t k = r; k < r + LANES; ++k) to[d * PANEL + k] = k < rows ? from[k * step + d] : 0.0f;
      }
    }
  }
}

// The mask of a panel, by keys.
void turn_mask(const float* mask, const int64_t* strides, int64_t rows, int64_t keys, float* to) {
  if (strides[2] != 0 && strides[3] == 1) return turn_panel(mask, strides[2], rows, keys, to);
  for (int64_t j = 0; j < keys; ++j) {
    for (int64_t r = 0; r < PANEL; ++r) to[j * PANEL + r] = mask[least(r, rows - 1) * strides[2] + j * strides[3]];
  }
}

// The sums of BLOCK keys with the queries of a panel.
INLINE void sum_scores(const float* const* keys, const float* turned, int64_t count, Vector (&sums)[BLOCK][2]) {
  for (int r = 0; r < BLOCK; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  for (int64_t d = 0; d < count; ++d) {
    const Vector low = _mm512_load_ps(turned + d * PANEL), high = _mm512_load_ps(turned + d * PANEL + LANES);
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK; ++r) {
      const Vector x = repeated(keys[r] + d);
      sums[r][0] = _mm512_fmadd_ps(x, low, sums[r][0]);
      sums[r][1] = _mm512_fmadd_ps(x, high, sums[r][1]);
    }
  }
}

// The scores of a panel whose first query is `first`, and the largest of each query; with a mask, it lies in them.
template <bool MASKED>
void score(const Attention& a, const float* key, const float* turned, int64_t first, int64_t count, float* scores,
           Vector (&largest)[2]) {
  const Vector scale = _mm512_set1_ps(a.scale);
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int half = 0; half < 2; ++half) largest[half] = _mm512_set1_ps(-INFINITY);
  for (int64_t j = 0; j < count; j += BLOCK) {
    const float* rows[BLOCK];
    for (int r = 0; r < BLOCK; ++r) rows[r] = key + least(j + r, count - 1) * a.key_strides[2];
    Vector sums[BLOCK][2], parts[BLOCK][2];
    sum_scores(rows, turned, least(a.depth, CHAIN), sums);
    for (int64_t d = CHAIN; d < a.depth; d += CHAIN) {
      for (int r = 0; r < BLOCK; ++r) rows[r] += CHAIN;
      sum_scores(rows, turned + d * PANEL, least(a.depth - d, CHAIN), parts);
      for (int r = 0; r < BLOCK; ++r)
        for (int half = 0; half < 2; ++half) sums[r][half] = _mm512_add_ps(sums[r][half], parts[r][half]);
    }
    const bool crosses = a.causal && j + BLOCK > first + 1;
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK; ++r) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        if (j + r >= count) continue;
        float* at = scores + (j + r) * PANEL + half * LANES;
        Vector x = MASKED ? _mm512_fmadd_ps(sums[r][half], scale, _mm512_load_ps(at)) : _mm512_mul_ps(sums[r][half], scale);
        if (crosses) {
          const __m512i query = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)(first + half * LANES - j)));
          x = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), _mm512_cmpge_epi32_mask(query, _mm512_set1_epi32(r)), x);
        }
        _mm512_store_ps(at, x);
        largest[half] = _mm512_max_ps(x, largest[half]);  // the second, if x is NaN
      }
    }
  }
}

// Scores to exponentials; `over`: one over their sums, 1 where there is none.
void exponentials(int64_t count, float* scores, const Vector (&largest)[2], float* over, float* sums) {
  for (int half = 0; half < 2; ++half) {
    const __mmask16 none = _mm512_cmp_ps_mask(largest[half], _mm512_set1_ps(-INFINITY), _CMP_EQ_OQ);
    const Vector top = _mm512_mask_mov_ps(largest[half], none, _mm512_setzero_ps());
    Vector total = _mm512_setzero_ps();
    for (int64_t from = 0; from < count; from += CHAIN) {
      Vector sum = _mm512_setzero_ps();
      for (int64_t j = from; j < least(count, from + CHAIN); ++j) {
        float* at = scores + j * PANEL + half * LANES;
        const Vector x = exponential(_mm512_sub_ps(_mm512_load_ps(at), top));
        sum = _mm512_add_ps(sum, x);
        _mm512_store_ps(at, x);
      }
      total = _mm512_add_ps(total, sum);
    }
    const __mmask16 empty = _mm512_cmp_ps_mask(total, _mm512_setzero_ps(), _CMP_EQ_OQ);
    const Vector one = _mm512_set1_ps(1.0f);
    _mm512_storeu_ps(sums + half * LANES, _mm512_mask_mov_ps(total, empty, one));
    _mm512_storeu_ps(over + half * LANES, _mm512_div_ps(one, _mm512_mask_mov_ps(total, empty, one)));
  }
}

// Values in panels of WIDE numbers: to[panel][key][number], 0 past the last.
void pack_values(const Attention& a, const float* value, float* to) {
  for (int64_t d = 0; d < a.width; d += WIDE) {
    const __mmask16 low = first_lanes(a.width - d), high = first_lanes(a.width - d - LANES);
    for (int64_t j = 0; j < a.keys; ++j, to += WIDE) {
      const float* from = value + j * a.value_strides[2] + d;
      _mm512_store_ps(to, _mm512_maskz_loadu_ps(low, from));
      _mm512_store_ps(to + LANES, _mm512_maskz_loadu_ps(high, from + LANES));
    }
  }
}

// BLOCK queries' sums over keys of one panel of values.
INLINE void sum_values(const float* scores, const float* values, int64_t count, Vector (&sums)[BLOCK][2]) {
  for (int r = 0; r < BLOCK; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_ps();
  for (int64_t j = 0; j < count; ++j) {
    const Vector low = _mm512_load_ps(values + j * WIDE), high = _mm512_load_ps(values + j * WIDE + LANES);
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK; ++r) {
      const Vector x = repeated(scores + j * PANEL + r);
      sums[r][0] = _mm512_fmadd_ps(x, low, sums[r][0]);
      sums[r][1] = _mm512_fmadd_ps(x, high, sums[r][1]);
    }
  }
}

// The output of BLOCK queries of a panel, `count` of which are there; `keys`: that they see.
void weigh(const Attention& a, const float* scores, const float* values, int64_t keys, int64_t count,
           const float* over, float* output) {
  for (int64_t d = 0; d < a.width; d += WIDE, values += a.keys * WIDE) {
    Vector sums[BLOCK][2], parts[BLOCK][2];
    sum_values(scores, values, least(keys, CHAIN), sums);
    for (int64_t j = CHAIN; j < keys; j += CHAIN) {
      sum_values(scores + j * PANEL, values + j * WIDE, least(keys - j, CHAIN), parts);
      for (int r = 0; r < BLOCK; ++r)
        for (int half = 0; half < 2; ++half) sums[r][half] = _mm512_add_ps(sums[r][half], parts[r][half]);
    }
    const __mmask16 low = first_lanes(a.width - d), high = first_lanes(a.width - d - LANES);
#pragma GCC unroll 8
    for (int r = 0; r < BLOCK; ++r) {
      if (r >= count) continue;
      const Vector factor = _mm512_set1_ps(over[r]);
      float* to = output + r * a.output_strides[2] + d;
      _mm512_mask_storeu_ps(to, low, _mm512_mul_ps(sums[r][0], factor));
      _mm512_mask_storeu_ps(to + LANES, high, _mm512_mul_ps(sums[r][1], factor));
    }
  }
}

}  // namespace

int64_t attention_scratch(const Attention& a) {
  return rounded(a.depth, LANES) * PANEL + rounded(a.keys, BLOCK) * PANEL + rounded(a.width, WIDE) * a.keys;
}

void attend(const Attention& a, int64_t from, int64_t to, float* scratch) {
  const int64_t panels = attention_panels(a);
  float* turned = scratch;
  float* scores = turned + rounded(a.depth, LANES) * PANEL;
  float* values = scores + rounded(a.keys, BLOCK) * PANEL;
  int64_t packed = -1;
  for (int64_t task = from; task < to; ++task) {
    const int64_t head = task / panels, b = head / a.heads, h = head % a.heads;
    // from both ends in turn, as a causal head's later panels take longer
    const int64_t n = task % panels, first = (n % 2 ? panels - 1 - n / 2 : n / 2) * PANEL;
    const int64_t rows = least(PANEL, a.queries - first), keys = a.causal ? least(a.keys, first + rows) : a.keys;
    if (head != packed) pack_values(a, a.value + b * a.value_strides[0] + h * a.value_strides[1], values);
    packed = head;

    const float* query = a.query + b * a.query_strides[0] + h * a.query_strides[1] + first * a.query_strides[2];
    turn_panel(query, a.query_strides[2], rows, a.depth, turned);
    const float* key = a.key + b * a.key_strides[0] + h * a.key_strides[1];
    Vector largest[2];
    if (a.mask != nullptr) {
      const float* mask = a.mask + b * a.mask_strides[0] + h * a.mask_strides[1] + first * a.mask_strides[2];
      turn_mask(mask, a.mask_strides, rows, keys, scores);
      score<true>(a, key, turned, first, keys, scores, largest);
    } else {
      score<false>(a, key, turned, first, keys, scores, largest);
    }
    float over[PANEL], sums[PANEL], top[PANEL];
    exponentials(keys, scores, largest, over, sums);
    for (int64_t r = 0; r < rows; r += BLOCK) {
      float* output = a.output + b * a.output_strides[0] + h * a.output_strides[1] + (first + r) * a.output_strides[2];
      const int64_t seen = a.causal ? least(keys, first + r + BLOCK) : keys;
      weigh(a, scores + r, values, seen, least(BLOCK, rows - r), over + r, output);
    }
    if (a.logsumexp == nullptr) continue;
    _mm512_storeu_ps(top, largest[0]);
    _mm512_storeu_ps(top + LANES, largest[1]);
    for (int64_t r = 0; r < rows; ++r) {
      float* at = a.logsumexp + b * a.logsumexp_strides[0] + h * a.logsumexp_strides[1] + (first + r) * a.logsumexp_strides[2];
      *at = (top[r] == -INFINITY ? 0.0f : top[r]) + logf(sums[r]);  // 0 where all keys are masked, as PyTorch has it
    }
  }
}

}  // namespace torchglass

#else

namespace torchglass {
int64_t attention_scratch(const Attention&) { return 0; }
void attend(const Attention&, int64_t, int64_t, float*) {}
}  // namespace torchglass

#endif
