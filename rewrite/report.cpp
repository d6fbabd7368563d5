#include "report.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "emit.h"

namespace warpfuse {

namespace jit = torch::jit;

namespace rewriting {
namespace {

std::string mask_name(const Mask& mask) {
  std::string name;
  const auto add = [&](bool is_there, const char* what) {
    name += is_there ? (name.empty() ? "" : " + ") + std::string(what) : "";
  };
  add(mask.is_none(), "none");
  add(mask.is_causal, "causal");
  add(mask.positions != nullptr, "query positions");
  add(mask.kind == Mask::Kind::boolean, mask.fill ? "boolean, filled" : "boolean");
  add(mask.kind == Mask::Kind::additive, "additive");
  return name;
}

std::string module_of(const jit::Node* node) {
  std::string path;
  if (const auto stack = node->callstack()) {
    for (const auto& [function, range, instance] : (*stack)->vec()) {
      if (instance && !instance->instance_name().empty() && instance->instance_name() != "SELF") {
        path += (path.empty() ? "" : ".") + instance->instance_name();
      }
    }
  }
  return path;
}

// "file:line". A trace's range is Python's stack, innermost call first, as "file(line): function".
std::string source_of(const jit::Node* node) {
  jit::SourceRange range = node->sourceRange();
  if (const auto original = range.findSourceRangeThatGenerated()) {
    range = *original;
  }
  std::istringstream stack(range.text().str());
  for (std::string line; std::getline(stack, line);) {
    const size_t open = line.find('('), close = line.find("): ");
    if (open != std::string::npos && close != std::string::npos && open < close &&
        line.find("/torch/nn/functional.py") == std::string::npos) {
      return line.substr(0, open) + ":" + line.substr(open + 1, close - open - 1);
    }
  }
  const auto place = range.file_line_col();
  return place ? std::get<0>(*place) + ":" + std::to_string(std::get<1>(*place)) : "";
}

}  // namespace

RewrittenSoftmax told(const std::string& method, const jit::Node* before, const char* after,
                      const std::vector<std::string>& form, const std::string& note) {
  RewrittenSoftmax result{.method = method,
                          .module = module_of(before),
                          .source = source_of(before),
                          .operator_before = before->kind().toQualString(),
                          .operator_after = after,
                          .form = {},
                          .mask = mask_name({}),
                          .note = note};
  for (const std::string& each : form) {
    result.form += (result.form.empty() ? "" : ", ") + each;
  }
  return result;
}

RewrittenSoftmax told(const std::string& method, const Chain& chain) {
  RewrittenSoftmax result =
      told(method, chain.softmax, emitted_operator(chain), chain.form, chain.note);
  result.mask = mask_name(chain.mask);
  if (chain.mask.may_hide_rows) {
    result.note += (result.note.empty() ? "" : "; ");
    result.note += "rows hidden throughout become 0";
  }
  return result;
}

}  // namespace rewriting

int64_t RewriteReport::routed() const {
  return std::ranges::count_if(softmaxes, &RewrittenSoftmax::routed);
}

std::vector<RewrittenSoftmax> RewriteReport::grid_sample_chains() const {
  std::vector<RewrittenSoftmax> chains;
  std::ranges::copy_if(softmaxes, std::back_inserter(chains), [](const RewrittenSoftmax& each) {
    return each.operator_before.starts_with("aten::grid_sampler");
  });
  return chains;
}

}  // namespace warpfuse
