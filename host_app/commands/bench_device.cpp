#include "commands/bench_device.h"

#include "runtime/load/session.h"

namespace warpfuse::host {

BenchDevice open_bench_device(const Arguments& arguments, bool with_table) {
  const Session session = open_session(arguments.plugin_options(with_table),
                                       arguments.text("device"), {}, {"warpfuse::build_info"});
  return {session.loaded_plugin(), session.device, open_cuda_runtime(session.device)};
}

}  // namespace warpfuse::host
