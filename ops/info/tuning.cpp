// The tuning table and the log of kernel launches, for programs that look at them or replace them.

#include "rowwise/tuning.h"

#include <stdexcept>

#include "common/check.h"
#include "common/registration.h"
#include "rowwise/launch_log.h"

namespace warpfuse {
namespace {

void replace_tuning(c10::string_view text) {
  if (text.empty()) {
    set_tuning(default_tuning());
    return;
  }
  try {
    set_tuning(parse_tuning(std::string(text)));
  } catch (const std::invalid_argument& error) {
    WARPFUSE_CHECK(false, "_set_tuning", "text", "a tuning table as warpfuse::tuning() gives it",
                   error.what());
  }
}

WARPFUSE_LIBRARY_IMPL(CompositeExplicitAutograd, m) {
  m.impl("tuning", [] { return tuning().to_string(); });
  m.impl("_set_tuning", replace_tuning);
  m.impl("_record_launches", LaunchLog::record);
  m.impl("_launches", LaunchLog::json);
}

}  // namespace
}  // namespace warpfuse
