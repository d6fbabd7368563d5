#include "bench/algorithms.h"

#include <fmt/ranges.h>

#include "runtime/parse.h"

namespace warpfuse::host::bench {
namespace {

// Where the algorithms run unless --algorithms says so: the shape that they are compared on.
bool is_ladder(const Shape& shape) { return shape == Shape{{1024, 8192}}; }

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Of another library, which may know any name.
bool takes_any_name(const Case& c) {
  return !c.op->algorithms.empty() && c.op->algorithm_names == nullptr;
}

}  // namespace

Algorithms::Algorithms(const std::optional<std::string>& asked, bool cuda,
                       const std::vector<Case>& cases)
    : cuda_(cuda), everywhere_(asked.has_value()) {
  for (const Case& c : cases) {
    if (known_.empty() && c.op->algorithm_names != nullptr) {
      known_ = c.op->algorithm_names(cuda);
    }
  }
  if (!asked || *asked == "all") {
    return;
  }
  list_.emplace();
  if (*asked == "none") {
    return;
  }
  list_ = split_list(*asked);
  if (std::ranges::any_of(cases, takes_any_name)) {
    return;
  }
  for (const std::string& name : *list_) {
    if (!contains(known_, name)) {
      fail(ExitCode::usage, "--algorithms: expected all, none{}{}, got '{}'",
           known_.empty() ? "" : " or a list of ", fmt::join(known_, ", "), name);
    }
  }
}

std::vector<std::string> Algorithms::of(const Case& c) const {
  if (!c.is_forward() || c.op->algorithms.empty() || !(everywhere_ || is_ladder(c.shape))) {
    return {};
  }
  const bool any = takes_any_name(c);
  if (!list_) {
    return any ? std::vector<std::string>{} : c.op->algorithm_names(cuda_);
  }
  // In a run of both kinds of operators each takes its own names.
  std::vector<std::string> names;
  std::ranges::copy_if(*list_, std::back_inserter(names),
                       [&](const std::string& name) { return contains(known_, name) != any; });
  return names;
}

std::vector<std::string> Algorithms::operators(const std::vector<Case>& cases) const {
  std::vector<std::string> names;
  for (const Case& c : cases) {
    if (!of(c).empty()) {
      add_once(names, std::string(c.op->algorithms));
    }
  }
  return names;
}

}  // namespace warpfuse::host::bench
