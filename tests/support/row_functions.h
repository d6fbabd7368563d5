#pragma once

// Every function that the GPU's row engine computes of rows, with what is expected of it, for tests
// that aim at one kernel after the other.

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "row_engine.h"

/// Normal values on `device`, their first element `offset` elements behind an aligned address.
at::Tensor random_at(int64_t offset, at::IntArrayRef sizes, at::ScalarType dtype,
                     const at::Device& device);

struct RowFunction {
  std::string name;
  warpfuse::RowKind kind;
  at::Tensor rows;  // whose rows and alignment decide the plan
  bool span;        // the tier span can take them
  std::function<at::Tensor()> run;
  std::function<Expected()> expected;
  bool chunk = true;  // the tier chunk can take them
};

/// How the tensors of a case lie to 16-byte boundaries: elements behind one. They end where their
/// allocation does.
struct Offsets {
  int64_t input = 0;     // of the forward's input, and of the output that a backward takes
  int64_t second = 0;    // of the gradient that a backward takes, and of masks
  bool on_host = false;  // tensors and expectations are made there: no other kernel touches them
};

/// softmax, log_softmax, scaled_masked_softmax with each kind of mask, and their backwards, of
/// attention's scores [1, heads, queries, keys].
std::vector<RowFunction> row_functions(int64_t heads, int64_t queries, int64_t keys,
                                       at::ScalarType dtype, const at::Device& device,
                                       const Offsets& offsets);

/// Ways to run in each tier, for tuning_with: in registers, with the next row on its way, in shared
/// memory, in one piece, split; without clusters where there are none.
std::vector<std::string> runs_of_all_tiers();

/// Whether its rules alone have no kernels for these rows, so that those of mask tensors run them.
bool runs_by_mask_tensor(const RowFunction& function);

/// The plan of the table in use for its rows.
warpfuse::RowPlan plan_of(const RowFunction& function);

/// Runs it on poisoned memory and checks the result; and that the launches were those of its plan.
void check_row_function(const RowFunction& function, const warpfuse::RowPlan& plan);
