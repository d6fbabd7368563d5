#include "runtime/load/rewriting.h"

#include <algorithm>
#include <utility>

#include "runtime/errors.h"
#include "runtime/output.h"
#include "runtime/status_line.h"

namespace warpfuse::host {

std::string summary_of(const RewriteReport& report) {
  const std::vector<RewrittenSoftmax> chains = report.grid_sample_chains();
  const int64_t routed_chains = std::ranges::count_if(chains, &RewrittenSoftmax::routed);
  const size_t softmaxes = report.softmaxes.size() - chains.size();
  std::string text;
  if (softmaxes > 0 || chains.empty()) {
    text = fmt::format("{} of {} softmax calls", report.routed() - routed_chains, softmaxes);
  }
  if (!chains.empty()) {
    text += fmt::format("{}{} of {} grid_sample chains", text.empty() ? "" : " and ", routed_chains,
                        chains.size());
  }
  text += " routed to the plugin";
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
