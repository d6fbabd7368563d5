#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define WARPFUSE_STEP_FUNCTION __host__ __device__
#else
#define WARPFUSE_STEP_FUNCTION
#endif

namespace warpfuse::host {

// Steps whose tokens the host may not have read yet.
inline constexpr int64_t kRingSteps = 64;

// The state that a decode step of `rows` sequences reads and leaves for the next one, on the
// device, and the tokens for the host.
struct StepState {
  int64_t rows;
  int64_t* ids;        // [rows], the tokens that the next step reads
  int64_t* positions;  // [rows], and where they stand
  int64_t* draws;      // [rows], tokens sampled in this sequence
  int64_t* names;      // [rows], of the sequences
  int64_t* active;     // [rows], 1, or 0: the row stays at its position
  int64_t* count;      // [1], steps so far
  int64_t* ring;       // [kRingSteps, rows], tokens of step i in row i % kRingSteps
  int64_t* published;  // [1], steps whose tokens are in the ring
};

// Takes the token sampled in a row of step `step`. A token of -1 comes from logits with a NaN,
// which the host reports; until then the row goes on with token 0.
WARPFUSE_STEP_FUNCTION inline void advance_row(const StepState& state, int64_t step, int64_t row,
                                               int64_t token) {
  state.ring[step % kRingSteps * state.rows + row] = token;
  state.ids[row] = token < 0 ? 0 : token;
  state.positions[row] += state.active[row];
  state.draws[row] += 1;
}

// Sequences whose prompts are in, with their first tokens.
struct FirstTokens {
  int64_t count = 0;
  const int64_t* rows = nullptr;       // [count], which become active
  const int64_t* positions = nullptr;  // [count], of the tokens
  const int64_t* names = nullptr;      // [count]
  const int64_t* tokens = nullptr;     // [count]
  bool published = false;              // as those of a step, in which other rows have no meaning
};

WARPFUSE_STEP_FUNCTION inline void begin_row(const StepState& state, int64_t step,
                                             const FirstTokens& first, int64_t i) {
  const int64_t row = first.rows[i];
  state.positions[row] = first.positions[i];
  state.draws[row] = 0;
  state.names[row] = first.names[i];
  state.active[row] = 0;
  advance_row(state, step, row, first.tokens[i]);
  state.active[row] = 1;
}

// On the CPU.
inline void begin(const StepState& state, const FirstTokens& first) {
  const int64_t step = *state.count;
  for (int64_t i = 0; i < first.count; ++i) {
    begin_row(state, step, first, i);
  }
  if (first.published) {
    *state.count = step + 1;
    *state.published = step + 1;
  }
}

// The first `rows` rows, on the CPU.
inline void advance(const StepState& state, const int64_t* tokens, int64_t rows) {
  const int64_t step = *state.count;
  for (int64_t row = 0; row < rows; ++row) {
    advance_row(state, step, row, tokens[row]);
  }
  *state.count = step + 1;
  *state.published = step + 1;
}

}  // namespace warpfuse::host
