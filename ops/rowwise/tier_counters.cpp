#include "rowwise/tier_counters.h"

namespace warpfuse {
namespace {

Counter warp_launches("tier.warp");
Counter block_launches("tier.block");
Counter stream_launches("tier.stream");
Counter column_launches("tier.column");
Counter naive_launches("tier.naive");

}  // namespace

Counter& tier_counter(Tier tier) {
  switch (tier) {
    case Tier::warp:
      return warp_launches;
    case Tier::block:
      return block_launches;
    case Tier::stream:
      return stream_launches;
    default:
      return column_launches;
  }
}

Counter& naive_counter() { return naive_launches; }

}  // namespace warpfuse
