#pragma once

#include <string>

namespace warpfuse {

/// The GPUs of this machine as a JSON array; [] in a build without CUDA or where there is none.
std::string gpus_json();

}  // namespace warpfuse
