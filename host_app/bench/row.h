#pragma once

#include <ATen/Context.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "bench/algorithms.h"
#include "bench/case.h"
#include "bench/check.h"
#include "bench/timer.h"

namespace warpfuse::host {
class CudaRuntime;
}

namespace warpfuse::host::bench {

// While one lives, matrix products of float32 may use TF32 if the row is one in tf32; in other rows
// libtorch's setting stays as it is.
class MatmulPrecision {
 public:
  explicit MatmulPrecision(const Case& c) : tf32_(c.tf32) {
    if (tf32_) {
      before_ = at::globalContext().allowTF32CuBLAS();
      at::globalContext().setAllowTF32CuBLAS(true);
    }
  }
  ~MatmulPrecision() {
    if (tf32_) {
      at::globalContext().setAllowTF32CuBLAS(before_);
    }
  }
  MatmulPrecision(const MatmulPrecision&) = delete;
  MatmulPrecision& operator=(const MatmulPrecision&) = delete;

 private:
  bool tf32_;
  bool before_ = false;
};

// Why a variant has times, or has none, and what they come to.
struct VariantResult {
  std::string name;
  Variant::Kind kind;
  Checked check;
  std::optional<Timing> timing;  // where the result is right
};

struct Row {
  Case c;
  Bytes bytes;
  Timer::LargeCopy large_copy;  // of the run
  Timing copy;                  // of the same bytes, the fastest
  std::vector<VariantResult> variants;
};

// Every variant checked, then timed beside a copy of the same bytes. What fails in one variant
// stays in that variant; Error(device) and a lack of memory for the inputs go to the caller.
Row measure_row(const Case& c, const std::vector<std::string>& algorithms, c10::Device device,
                Timer& timer, const Timer::LargeCopy& large_copy);

// Whether a variant of the plugin is wrong, so that the run must fail.
bool has_wrong_result(const Row& row);

Json to_json(const Row& row);

// Calls the variant once for each row that has it, after a warm-up and between the marks that a
// profiler waits for (ncu --profile-from-start off), so that its counters are that call's. Prints
// one JSON object a line: the row's key, the variant and how many kernels the call has. Throws
// Error(usage) for a name that no row has.
void profile_rows(const std::vector<Case>& cases, const std::string& variant,
                  const Algorithms& algorithms, c10::Device device, CudaRuntime& runtime);

}  // namespace warpfuse::host::bench
