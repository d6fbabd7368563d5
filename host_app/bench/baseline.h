#pragma once

#include <string>
#include <vector>

#include "bench/case.h"

namespace warpfuse::host::bench {

// The plugin's figure in one row, now and in an earlier run: the ratio of the same-size copy's time
// to the variant's, so that a faster memory does not pass for a better kernel.
struct Compared {
  Json key;
  double before;
  double now;  // 0 where the plugin's result is wrong or missing
  double relative() const { return now / before; }
};

struct Comparison {
  std::vector<Compared> rows;
  std::vector<Json> without_counterpart;  // keys of rows that the earlier run does not have
};

// Matches rows by operator, direction, shape, dim, dtype and mask.
Comparison compare_with(const Json& baseline, const Json& rows);

// Throws Error(usage) when none of the rows to come is in the baseline.
void require_common_row(const Json& baseline, const std::vector<Case>& cases,
                        const std::string& path);

// Prints the rows, and which are below the limit. True when none is.
bool report_comparison(const Comparison& comparison, double limit);

}  // namespace warpfuse::host::bench
