// Attention of float32 in one pass over blocks that stay in cache: see attention.cpp.
#pragma once

#include <stdint.h>

namespace torchglass {

// What one call computes: output = softmax(scale * query key^T + mask) value, a head at a time. Strides count floats;
// the innermost ones are 1 but the mask's.
struct Attention {
  const float *query, *key, *value;
  const float* mask;    // null: none
  float* output;
  float* logsumexp;     // null: not wanted
  int64_t batch, heads, queries, keys, depth, width;  // width: of a value
  int64_t query_strides[3], key_strides[3], value_strides[3];  // batch, head, position
  int64_t mask_strides[4];                                     // batch, head, query, key
  int64_t output_strides[3], logsumexp_strides[3];
  bool causal;  // query i sees the keys 0 to i
  float scale;
};

constexpr int64_t PANEL = 32;  // queries that are worked on at once

// Panels of queries in all heads: what threads divide up.
inline int64_t attention_panels(const Attention& a) { return (a.queries + PANEL - 1) / PANEL; }

// Floats of memory that a thread needs, 64-byte aligned.
int64_t attention_scratch(const Attention& a);

// Computes the tasks first to last of batch * heads * panels, heads outermost.
void attend(const Attention& a, int64_t first, int64_t last, float* scratch);

}  // namespace torchglass
