// The table that the library comes with, measured on an NVIDIA H200: docs/performance.md.

#include "rowwise/tuning.h"

namespace warpfuse {
namespace {

constexpr const char* kDefault = R"(
limit shared_bytes 232448
limit cluster_blocks 16

# A function follows the first line that it has a kernel for (kernel_set.h): attention has none of
# the lines with 2 packs per lane or `ahead`, and goes on to the next. Lines with a suffix are for
# some functions alone (tuning.h). The tier chunk is for rows that are not aligned; lane_packs are
# elements there.
# direction bytes packs rows  tier    threads lane_packs blocks ahead
forward  2     32     264   warp     64      1          1      0
forward  2     8      *     chunk    64      32         1      0
forward_no_tensor 2 16     *     chunk    64      32         1      0
forward_plain 2 30     *     chunk    64      32         1      0
forward  2     32     *     warp     64      4          1      0
forward  2     128    132   span     128     1          1      0
forward  2     128    *     span     128     4          1      0
forward  2     256    *     span     64      4          1      0
forward  2     512    *     span     128     4          1      0
forward  2     1024   *     span     256     4          1      0
forward  2     128    264   block    128     1          1      0
forward_dropout 2 128  *     warp     64      8          1      0
forward  2     128    2112  block    64      2          1      0
forward  2     128    *     warp     64      4          1      0
forward  2     256    132   block    256     1          1      0
forward  2     256    *     block    64      4          1      0
forward  2     512    132   block    256     2          1      0
forward  2     512    132   block    512     1          1      0
forward  2     512    *     block    128     4          1      0
forward  2     1024   132   block    512     2          1      0
forward  2     1024   132   block    1024    1          1      0
forward  2     1024   1056  block    256     4          1      1
forward  2     1024   *     block    256     4          1      0
forward  2     2048   16    cluster  256     1          8      0
forward_dropout 2 2048 32   cluster  256     2          4      0
forward  2     2048   *     block    512     4          1      0
forward  2     4096   32    cluster  256     2          8      0
forward  2     4096   64    cluster  512     4          2      0
forward  2     4096   132   block    1024    4          1      0
forward  2     4096   *     block    512     8          1      1
forward  2     8192   32    cluster  256     4          8      0
forward  2     8192   64    cluster  1024    4          2      0
forward  2     16384  2     cluster  512     2          16     0
forward  2     16384  16    cluster  512     4          8      0
forward  2     16384  32    cluster  256     4          16     0
forward  2     13312  *     block    512     0          1      1
forward  2     16384  *     cluster  256     0          4      1
forward  2     32768  16    cluster  512     4          16     0
forward  2     32768  *     cluster  256     0          8      1
forward  2     65536  4     cluster  1024    4          16     0
forward  2     65536  *     cluster  256     0          16     1
forward  2     4096   *     block    1024    4          1      0
forward  2     8192   *     cluster  1024    4          2      0
forward  2     16384  *     cluster  1024    4          4      0
forward  2     32768  *     cluster  1024    4          8      0
forward  2     65536  *     cluster  1024    4          16     0
forward  2     *      *     stream   512     0          0      1
forward  2     *      *     stream   256     0          0      0
forward  2     128    *     column   256     8          1      0
forward  2     512    *     column   512     8          1      0
forward  2     8192   512   column   512     8          4      0
forward  2     2048   *     column   512     16         1      1
forward  2     8192   *     column   512     16         2      1
forward  2     8192   *     column   512     8          4      0
forward  2     *      *     column   512     16         8      1
forward  2     *      *     column   512     8          1      0
forward  2     *      *     column   512     8          4      0
forward  2     *      *     column   512     8          16     0
forward  2     *      *     column   512     0          1      0

forward  4     32     264   warp     64      1          1      0
forward_no_tensor 4 15     *     chunk    64      32         1      0
forward_plain 4 31     *     chunk    64      32         1      0
forward  4     32     *     warp     64      4          1      0
forward  4     128    132   span     128     1          1      0
forward  4     128    *     span     128     4          1      0
forward  4     256    *     span     64      4          1      0
forward  4     512    *     span     128     4          1      0
forward  4     1024   *     span     256     4          1      0
forward  4     128    264   block    128     1          1      0
forward  4     128    *     warp     64      4          1      0
forward  4     256    132   block    256     1          1      0
forward_plain 4 240    *     chunk    64      32         1      0
forward_dropout 4 256  *     warp     64      8          1      0
forward  4     256    *     block    64      4          1      0
forward  4     512    132   block    256     2          1      0
forward  4     512    132   block    512     1          1      0
forward  4     512    *     block    128     4          1      0
forward  4     1024   *     block    256     4          1      0
forward  4     2048   16    cluster  256     1          8      0
forward  4     2048   *     block    512     4          1      0
forward  4     4096   32    cluster  256     2          8      0
forward  4     4096   132   block    1024    4          1      0
forward  4     8192   64    cluster  256     4          8      0
forward  4     8192   *     block    1024    8          1      1
forward  4     16384  2     cluster  512     2          16     0
forward  4     16384  16    cluster  512     4          8      0
forward  4     16384  32    cluster  256     4          16     0
forward  4     13312  *     block    1024    0          1      1
forward  4     16384  64    cluster  512     4          8      0
forward  4     16384  *     cluster  1024    8          2      1
forward  4     32768  16    cluster  512     4          16     0
forward  4     32768  *     cluster  1024    8          4      1
forward  4     65536  4     cluster  1024    4          16     0
forward  4     65536  *     cluster  256     0          16     1
forward  4     131072 *     cluster  512     0          16     1
forward  4     4096   *     block    1024    4          1      0
forward  4     8192   *     cluster  1024    4          2      0
forward  4     16384  *     cluster  1024    4          4      0
forward  4     32768  *     cluster  1024    4          8      0
forward  4     65536  *     cluster  1024    4          16     0
forward  4     *      *     stream   512     0          0      1
forward  4     *      *     stream   256     0          0      0
forward  4     128    *     column   256     8          1      0
forward  4     512    *     column   512     8          1      0
forward  4     8192   512   column   512     8          4      0
forward  4     2048   *     column   512     16         1      1
forward  4     4096   *     column   512     16         2      1
forward  4     8192   *     column   512     16         4      1
forward  4     8192   *     column   512     8          4      0
forward  4     *      *     column   512     16         8      1
forward  4     *      *     column   512     8          1      0
forward  4     *      *     column   512     8          4      0
forward  4     *      *     column   512     8          16     0
forward  4     *      *     column   512     0          1      0

forward  8     128    *     warp     64      4          1      0
forward  8     256    *     block    64      4          1      0
forward  8     512    *     block    128     4          1      0
forward  8     1024   *     block    256     4          1      0
forward  8     2048   *     block    512     4          1      0
forward  8     4096   *     block    1024    4          1      0
forward  8     8192   *     cluster  1024    4          2      0
forward  8     16384  *     cluster  1024    4          4      0
forward  8     32768  *     cluster  1024    4          8      0
forward  8     65536  *     cluster  1024    4          16     0
forward  8     *      *     stream   256     0          0      0
forward  8     128    *     column   256     8          1      0
forward  8     512    *     column   512     8          1      0
forward  8     8192   512   column   512     8          4      0
forward  8     2048   *     column   512     16         1      1
forward  8     4096   *     column   512     16         2      1
forward  8     8192   *     column   512     16         4      1
forward  8     8192   *     column   512     8          4      0
forward  8     *      *     column   512     16         8      1
forward  8     *      *     column   512     8          1      0
forward  8     *      *     column   512     8          4      0
forward  8     *      *     column   512     8          16     0
forward  8     *      *     column   512     0          1      0

backward 2     32     264   warp     64      1          1      0
backward 2     8      *     chunk    64      16         1      0
backward_no_tensor 2 15     *     chunk    64      16         1      0
backward_plain 2 16     *     chunk    64      16         1      0
backward 2     32     *     warp     64      4          1      0
backward 2     128    132   span     128     1          1      0
backward 2     128    *     span     128     4          1      0
backward 2     512    *     span     64      8          1      0
backward 2     1024   *     span     128     8          1      0
backward 2     128    264   block    128     1          1      0
backward_dropout 2 128 *     warp     64      4          1      0
backward 2     64     *     warp     128     2          1      0
backward 2     128    *     block    64      4          1      0
backward 2     256    132   block    256     1          1      0
backward 2     256    *     block    128     2          1      0
backward 2     256    *     block    64      4          1      0
backward 2     512    132   block    256     2          1      0
backward 2     512    132   block    512     1          1      0
backward 2     512    *     block    128     4          1      0
backward 2     1024   *     block    256     4          1      0
backward 2     2048   16    cluster  256     1          8      0
backward 2     2048   *     block    512     4          1      0
backward 2     4096   32    cluster  256     2          8      0
backward 2     4096   *     block    1024    4          1      0
backward 2     8192   32    cluster  256     4          8      0
backward 2     8192   48    cluster  512     4          4      0
backward 2     8192   64    cluster  1024    4          2      0
backward 2     6656   *     cluster  256     0          2      1
backward 2     8192   *     cluster  512     4          4      1
backward 2     16384  2     cluster  512     2          16     0
backward 2     16384  16    cluster  512     4          8      0
backward 2     16384  32    cluster  512     2          16     0
backward 2     16384  *     cluster  512     8          4      1
backward 2     32768  12    cluster  512     4          16     0
backward 2     32768  *     cluster  256     8          16     1
backward 2     65536  *     cluster  1024    4          16     1
backward 2     8192   *     cluster  1024    4          2      0
backward 2     16384  *     cluster  1024    4          4      0
backward 2     32768  *     cluster  1024    4          8      0
backward 2     65536  *     cluster  1024    4          16     0
backward 2     *      *     stream   512     0          0      1
backward 2     *      *     stream   256     0          0      0
backward 2     128    *     column   256     8          1      0
backward 2     512    *     column   512     8          2      0
backward 2     8192   512   column   512     8          8      0
backward 2     1024   *     column   512     8          1      1
backward 2     2048   *     column   512     8          2      1
backward 2     4096   *     column   512     8          4      1
backward 2     *      *     column   512     8          8      0
backward 2     *      *     column   512     8          1      0
backward 2     *      *     column   512     8          16     0
backward 2     *      *     column   512     0          1      0

backward 4     32     264   warp     64      1          1      0
backward_no_tensor 4 15     *     chunk    64      16         1      0
backward_plain 4 23     *     chunk    64      16         1      0
backward 4     32     *     warp     64      4          1      0
backward 4     128    132   span     128     1          1      0
backward 4     128    *     span     128     4          1      0
backward 4     256    *     span     64      4          1      0
backward 4     512    *     span     128     4          1      0
backward 4     1024   *     span     256     4          1      0
backward 4     128    264   block    128     1          1      0
backward 4     63     *     chunk    64      16         1      0
backward_no_tensor 4 95     *     chunk    64      16         1      0
backward 4     128    *     block    128     1          1      0
backward_dropout 4 256 *     block    64      4          1      0
backward 4     512    132   block    256     2          1      0
backward 4     512    132   block    512     1          1      0
backward 4     512    *     block    128     4          1      0
backward 4     2048   *     block    512     4          1      0
backward 4     4096   32    cluster  256     2          8      0
backward 4     4096   132   cluster  512     4          2      0
backward 4     4096   *     block    1024    4          1      0
backward 4     8192   32    cluster  256     4          8      0
backward 4     8192   48    cluster  512     4          4      0
backward 4     8192   64    cluster  1024    4          2      0
backward 4     8192   *     cluster  512     4          4      0
backward 4     16384  2     cluster  512     2          16     0
backward 4     16384  16    cluster  512     4          8      0
backward 4     16384  32    cluster  512     2          16     0
backward 4     13312  *     cluster  512     0          2      1
backward 4     16384  *     cluster  1024    4          4      1
backward 4     32768  12    cluster  512     4          16     0
backward 4     32768  *     cluster  256     8          16     1
backward 4     65536  *     cluster  1024    4          16     1
backward 4     16384  *     cluster  1024    4          4      0
backward 4     32768  *     cluster  1024    4          8      0
backward 4     65536  *     cluster  1024    4          16     0
backward 4     *      *     stream   512     0          0      1
backward 4     *      *     stream   256     0          0      0
backward 4     128    *     column   256     8          1      0
backward 4     512    *     column   512     8          2      0
backward 4     8192   512   column   512     8          8      0
backward 4     1024   *     column   512     8          1      1
backward 4     2048   *     column   512     8          2      1
backward 4     4096   *     column   512     8          4      1
backward 4     8192   *     column   512     8          8      1
backward 4     *      *     column   512     8          8      0
backward 4     *      *     column   512     8          1      0
backward 4     *      *     column   512     8          16     0
backward 4     *      *     column   512     0          1      0

backward 8     128    *     warp     64      4          1      0
backward 8     256    *     block    64      4          1      0
backward 8     512    *     block    128     4          1      0
backward 8     1024   *     block    256     4          1      0
backward 8     2048   *     block    512     4          1      0
backward 8     4096   *     block    1024    4          1      0
backward 8     8192   *     cluster  1024    4          2      0
backward 8     16384  *     cluster  1024    4          4      0
backward 8     32768  *     cluster  1024    4          8      0
backward 8     65536  *     cluster  1024    4          16     0
backward 8     *      *     stream   256     0          0      0
backward 8     128    *     column   256     8          1      0
backward 8     512    *     column   512     8          2      0
backward 8     8192   512   column   512     8          8      0
backward 8     1024   *     column   512     8          1      1
backward 8     2048   *     column   512     8          2      1
backward 8     4096   *     column   512     8          4      1
backward 8     8192   *     column   512     8          8      1
backward 8     *      *     column   512     8          8      0
backward 8     *      *     column   512     8          1      0
backward 8     *      *     column   512     8          16     0
backward 8     *      *     column   512     0          1      0
)";

}  // namespace

Tuning default_tuning() { return parse_tuning(kDefault); }

}  // namespace warpfuse
