#include "bench/result_file.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "bench/plugin_tools.h"
#include "generated/commit.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/files.h"
#include "runtime/load/device.h"

namespace warpfuse::host::bench {
namespace {

std::string today() {
  const auto now = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  const std::chrono::year_month_day date(now);
  return fmt::format("{:04}-{:02}-{:02}", int(date.year()), unsigned(date.month()),
                     unsigned(date.day()));
}

Json versions_of(const Plugin& plugin, const CudaRuntime* runtime) {
  Json versions{{"warpfuse", plugin.version},
                {"commit", kCommit},
                {"libtorch", running_libtorch()},
                {"cuda", Json()},
                {"driver", Json()}};
  if (runtime != nullptr) {
    versions["cuda"] = libtorch_cuda().value_or("");
    versions["driver"] = runtime->device().driver;
  }
  return versions;
}

}  // namespace

Json identity_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime) {
  return {{"date", today()},
          {"command", command},
          {"versions", versions_of(plugin, runtime)},
          {"device", runtime != nullptr ? describe_gpu(*runtime) : describe_cpu()}};
}

Json head_of(const std::string& command, const Plugin& plugin, const CudaRuntime* runtime,
             Timer& timer, const Timer::LargeCopy& copy) {
  Json head = identity_of(command, plugin, runtime);
  head["timing"] = timer.method();
  head["large_copy"] = {
      {"bytes", copy.bytes}, {"p50_us", copy.p50_us}, {"gb_per_s", copy.bytes_per_us() / 1e3}};
  if (const std::optional<double> empty_us = timer.empty_kernel_us()) {
    head["empty_kernel_us"] = *empty_us;
  }
  head["tuning"] = tuning_text();
  return head;
}

ResultFile::ResultFile(const char* format, const Json& head,
                       std::initializer_list<const char*> lists, std::optional<std::string> path)
    : document_{{"format", format}, {"complete", false}}, path_(std::move(path)) {
  document_.update(head);
  for (const char* list : lists) {
    document_[list] = Json::array();
  }
  save();
}

void ResultFile::add(const char* list, Json row) {
  document_[list].push_back(std::move(row));
  save();
}

void ResultFile::set_complete() {
  document_["complete"] = true;
  save();
}

void ResultFile::save() const {
  if (path_) {
    replace_file(*path_, document_.dump(1) + "\n");
  }
}

}  // namespace warpfuse::host::bench
