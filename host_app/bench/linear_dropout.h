#pragma once

#include <string>
#include <vector>

#include "bench/case.h"
#include "bench/traffic.h"
#include "bench/variants.h"

namespace warpfuse::host::bench {

// linear_dropout_softmax in the benchmark, with a bias and kDropoutP. `Direction::both` is a
// training step: the forward, and the gradients of input, weight and bias for a given gradient of
// its result, by the operators that autograd calls.

// A row's shape, rows x in x out.
struct LinearSizes {
  int64_t rows, in, out;
};
LinearSizes linear_sizes_of(const Shape& shape);

// "warpfuse"; "aten", at::linear, native_dropout and softmax with the backward kernels that
// autograd calls for them; and "linear", at::linear alone and its gradients, so that the difference
// is what dropout and softmax cost. Results are the forward's, or the gradients of weight, input
// and bias and the forward's.
//
// The reference takes the logits as at::linear gives them, in the row's precision, and what follows
// in double. The plugin may have a product of its own, which does not round the logits: in half
// precision its result is compared with that of logits in float32 too, and the nearer one counts.
// Of a gradient the size of an element's terms is the sum over the products of |input|, or
// |weight|, with the size that the logits' gradient has. "linear" is compared with a product in
// double; its size is that of |input| and |weight|.
std::vector<Variant> linear_dropout_variants(const Case& c);

// The plugin's operators that those call.
std::vector<std::string> linear_dropout_operators(Direction direction);

// Bytes, as a model. A forward reads input, weight and bias and writes n results, as one kernel for
// all of it does; fused behind a matrix product it has the logits written by that, read and written
// once more; unfused there are two kernels after that product, 4 n, and a mask of 1 byte an
// element. The backward reads result and gradient, and input and weight once more, and writes the
// three gradients; fused it has the logits' gradient written and read by two products and a sum;
// unfused two kernels, 8 n, and the mask.
Traffic linear_dropout_traffic(const Case& c);
int64_t linear_input_bytes(const Case& c);

}  // namespace warpfuse::host::bench
