// The table that the library comes with; docs/performance.md has the measurements behind it.

#include "rowwise/tuning.h"

namespace warpfuse {
namespace {

constexpr const char* kDefault = R"(
limit shared_bytes 232448
limit cluster_blocks 16

# direction bytes packs rows  tier    threads lane_packs blocks
forward  2    256     *      warp    128     8          1
forward  2    1024    *      block   256     4          1
forward  2    2048    *      block   512     4          1
forward  2    4096    *      block   512     0          1
forward  2    8192    *      cluster 512     0          2
forward  2    16384   *      cluster 512     0          4
forward  2    32768   *      cluster 512     0          8
forward  2    131072  *      cluster 1024    0          16
forward  2    *       *      stream  1024    0          0

forward  4    256     *      warp    128     8          1
forward  4    2048    *      block   512     4          1
forward  4    4096    *      block   512     8          1
forward  4    8192    *      cluster 512     0          2
forward  4    16384   *      cluster 512     0          4
forward  4    32768   *      cluster 512     0          8
forward  4    131072  *      cluster 1024    0          16
forward  4    *       *      stream  1024    0          0

forward  8    256     *      warp    128     8          1
forward  8    2048    *      block   512     4          1
forward  8    8192    *      block   1024    0          1
forward  8    65536   *      cluster 1024    0          8
forward  8    *       *      stream  1024    0          0

backward 2    256     *      warp    128     8          1
backward 2    1024    *      block   256     4          1
backward 2    2048    *      block   512     4          1
backward 2    4096    *      cluster 512     0          2
backward 2    8192    *      cluster 512     0          4
backward 2    16384   *      cluster 512     0          8
backward 2    65536   *      cluster 1024    0          16
backward 2    *       *      stream  1024    0          0

backward 4    256     *      warp    128     8          1
backward 4    2048    *      block   512     4          1
backward 4    4096    *      cluster 512     0          2
backward 4    8192    *      cluster 512     0          4
backward 4    16384   *      cluster 512     0          8
backward 4    65536   *      cluster 1024    0          16
backward 4    *       *      stream  1024    0          0

backward 8    256     *      warp    128     8          1
backward 8    2048    *      block   512     4          1
backward 8    4096    *      block   1024    0          1
backward 8    65536   *      cluster 1024    0          16
backward 8    *       *      stream  1024    0          0
)";

}  // namespace

Tuning default_tuning() { return parse_tuning(kDefault); }

}  // namespace warpfuse
