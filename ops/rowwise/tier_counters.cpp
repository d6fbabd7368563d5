#include "rowwise/tier_counters.h"

namespace warpfuse {
namespace {

// In the order of Tier.
Counter counters[] = {Counter("tier.warp"),   Counter("tier.chunk"),   Counter("tier.span"),
                      Counter("tier.block"),  Counter("tier.cluster"), Counter("tier.stream"),
                      Counter("tier.column"), Counter("tier.naive"),   Counter("tier.elements"),
                      Counter("tier.tile")};
Counter units("chunk.units");
Counter draws_ahead("draws.ahead");

}  // namespace

Counter& tier_counter(Tier tier) { return counters[static_cast<int>(tier)]; }
Counter& units_counter() { return units; }
Counter& draws_ahead_counter() { return draws_ahead; }

}  // namespace warpfuse
