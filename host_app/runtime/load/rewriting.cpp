#include "runtime/load/rewriting.h"

#include <utility>

#include "runtime/errors.h"
#include "runtime/output.h"
#include "runtime/status_line.h"

namespace warpfuse::host {

std::string summary_of(const RewriteReport& report) {
  std::string text = fmt::format("{} of {} softmax calls routed to the plugin", report.routed(),
                                 report.softmaxes.size());
  if (report.sdpa_calls > 0 && report.softmaxes.empty()) {
    text = fmt::format("0 of {}: exported with SDPA, nothing to gain", report.sdpa_calls);
  } else if (report.sdpa_calls > 0) {
    text += fmt::format(", {} of SDPA left as they are", report.sdpa_calls);
  }
  if (report.already_routed > 0) {
    text += fmt::format(", {} were there", report.already_routed);
  }
  if (report.retargeted_devices > 0) {
    text += fmt::format("; {} device literals replaced", report.retargeted_devices);
  }
  return text;
}

void rewrite_loaded(torch::jit::Module& module, const std::string& name, c10::Device device,
                    std::map<std::string, std::vector<RewriteArgument>> arguments) {
  RewriteOptions options;
  options.arguments = std::move(arguments);
  options.device = device;
  const RewriteReport report =
      translating_errors(ExitCode::model, name, [&] { return rewrite(module, options); });
  StatusLine().clear();  // of a command that shows one
  print_error("{}: {}\n", name, summary_of(report));
}

}  // namespace warpfuse::host
