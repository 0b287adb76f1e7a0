// The ops of bench/peer_ops at small sizes, at which calls take little, and the dim of each that is a batch.
#pragma once
#include <vector>

#include "expr/index/dims.h"

namespace xhat::bench {

struct SmallOp {
  const char* op;  // bench/peer_ops/<op>.xh
  DimValues dims;
  const char* batch = "N";
};
inline const std::vector<SmallOp>& small_ops() {
  static const DimValues images = {{"N", 2}, {"C", 16}, {"H", 28}, {"W", 28}};
  static const std::vector<SmallOp> table = {
      {"adam_step", {{"N", 1 << 16}}},
      {"attention", {{"B", 1}, {"H", 4}, {"S", 128}, {"T", 128}, {"D", 64}}, "B"},
      {"batch_norm_train", images},
      {"bce_with_logits", {{"N", 1 << 16}}},
      {"bilateral3x3", {{"N", 1}, {"H", 64}, {"W", 64}}},
      {"box_blur3x3", {{"N", 1}, {"H", 256}, {"W", 256}}},
      {"conv3x3_bias_relu", {{"N", 2}, {"C", 16}, {"H", 28}, {"W", 28}, {"K", 16}}},
      {"cross_entropy", {{"N", 64}, {"C", 1000}}},
      {"dense_gelu", {{"N", 64}, {"I", 256}, {"O", 256}}},
      {"depthwise_conv3x3", images},
      {"embedding_sum", {{"V", 1000}, {"D", 64}, {"B", 64}, {"L", 16}}, "B"},
      {"gelu_tanh_bias", {{"N", 64}, {"C", 1024}}},
      {"group_norm", {{"N", 2}, {"G", 8}, {"H", 28}, {"W", 28}}},
      {"huber", {{"N", 1 << 16}}},
      {"layer_norm", {{"N", 64}, {"D", 1024}}},
      {"lstm_cell", {{"B", 32}, {"I", 128}, {"H", 128}}, "B"},
      {"matmul_chain_512", {{"M", 128}, {"K", 128}, {"P", 128}, {"Q", 128}}, "M"},
      {"matmul_chain_8x8_b1024", {{"N", 64}}},
      {"maxpool2x2", {{"N", 2}, {"C", 16}, {"H", 14}, {"W", 14}}},
      {"mish", {{"N", 1 << 16}}},
      {"mlp2", {{"N", 64}, {"I", 256}, {"H", 256}, {"O", 64}}},
      {"normalize_bgr", {{"N", 2}, {"C", 3}, {"H", 56}, {"W", 56}}},
      {"rms_norm", {{"N", 64}, {"D", 1024}}},
      {"rope", {{"B", 1}, {"T", 64}, {"H", 8}, {"K", 32}}, "B"},
      {"silu", {{"N", 1 << 16}}},
      {"softmax", {{"N", 64}, {"D", 1024}}},
      {"softplus", {{"N", 1 << 16}}},
      {"swiglu", {{"N", 64}, {"D", 1024}}},
      {"tanh", {{"N", 1 << 16}}},
  };
  return table;
}

}  // namespace xhat::bench
