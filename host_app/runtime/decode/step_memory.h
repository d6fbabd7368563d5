#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/decode/cuda_runtime.h"
#include "runtime/decode/step_clock.h"
#include "runtime/decode/step_state.h"

namespace warpfuse::host {

// What decode steps read and leave for the next one, by row, and the ring by which the host reads
// their tokens. Whatever writes tokens into the ring is a step here, a piece of a prompt too.
class StepMemory {
 public:
  StepMemory(int64_t rows, c10::Device device, CudaRuntime* runtime);

  // Of the first rows: i64[B, 1], i64[B, 1], i64[B], i64[B].
  at::Tensor ids(int64_t rows) const { return columns_[0].narrow(0, 0, rows).unsqueeze(1); }
  at::Tensor positions(int64_t rows) const { return columns_[1].narrow(0, 0, rows).unsqueeze(1); }
  at::Tensor draws(int64_t rows) const { return columns_[2].narrow(0, 0, rows); }
  at::Tensor names(int64_t rows) const { return columns_[3].narrow(0, 0, rows); }

  void begin(const FirstTokens& first);
  void deactivate(const at::Tensor& rows) { columns_.index_fill_(1, rows, 0); }

  // Takes the tokens of the first rows, and publishes them.
  void advance_by(const at::Tensor& tokens);
  // The host has launched what publishes; a replay of a graph does so too.
  void count_launch() { ++launched_; }
  // Waits for the oldest unread step, and returns its tokens by row.
  std::vector<int64_t> read();

 private:
  void wait_for(int64_t step);

  CudaRuntime* runtime_;
  at::Tensor columns_;    // i64[5, B]: ids, positions, draws, names, active
  at::Tensor count_;      // i64[1]
  at::Tensor ring_;       // i64[kRingSteps, B], memory of the host
  at::Tensor published_;  // i64[1], memory of the host
  StepState state_;
  int64_t launched_ = 0;  // steps
  int64_t read_ = 0;
  StepClock clock_;
};

}  // namespace warpfuse::host
