#pragma once

namespace warpfuse {

/// Whether the page of `address` is in memory: one that is not is zeroed, through the caches, when
/// it is first touched. True where the system does not say.
bool is_resident(const void* address);

}  // namespace warpfuse
