#include "commands/inputs.h"

#include "bench/plan.h"
#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kMaxSize = 1'000'000'000;
constexpr const char* kBatch = "B";
constexpr const char* kLength = "T";

// Takes what is before the next colon.
std::string take_part(std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  std::string part = text.substr(0, colon);
  text.erase(0, colon + 1);
  return part;
}

[[noreturn]] void refuse_input(const std::string& text) {
  fail(ExitCode::usage,
       "--input: expected SIZES[:DTYPE[:LOW..HIGH]] with sizes in numbers, B or T, and a range for "
       "integers, such as B,T:int64:0..50257, got '{}'",
       text);
}

// LOW..HIGH; a bool needs none.
void read_range(InputSpec& values, const std::string& range, const std::string& text) {
  if (range.empty() && values.dtype == at::kBool) {
    values.high = 2;
    return;
  }
  const size_t dots = range.find("..");
  const std::optional<int64_t> low = parse_number(range.substr(0, dots));
  const std::optional<int64_t> high =
      dots == std::string::npos ? std::nullopt : parse_number(range.substr(dots + 2));
  if (!low || !high || *low >= *high) {
    refuse_input(text);
  }
  values.low = *low;
  values.high = *high;
}

RandomInput parse_input(const std::string& text) {
  std::string rest = text;
  RandomInput input{.sizes = parse_sizes(take_part(rest)), .values = {}};
  const std::string dtype = take_part(rest);
  const std::optional<c10::ScalarType> named = dtype_named(dtype.empty() ? "float32" : dtype);
  const auto is_size = [](const std::string& size) {
    const std::optional<int64_t> number = parse_number(size);
    return size == kBatch || size == kLength || (number && *number >= 0 && *number <= kMaxSize);
  };
  if (!named || !std::ranges::all_of(input.sizes, is_size)) {
    refuse_input(text);
  }
  input.values.dtype = *named;
  if (!c10::isFloatingType(*named)) {
    read_range(input.values, rest, text);
  } else if (!rest.empty()) {
    refuse_input(text);
  }
  return input;
}

RandomInput declared_input(const InputSpec& spec) {
  RandomInput input{.sizes = {}, .values = spec};
  for (const int64_t size : spec.shape) {
    input.sizes.push_back(std::to_string(size));
  }
  return input;
}

// The values of a size: none of its own where no input has it.
std::vector<int64_t> values_of(const Arguments& arguments, const char* option, const char* size,
                               const std::vector<RandomInput>& inputs) {
  const bool is_used = std::ranges::any_of(inputs, [&](const RandomInput& input) {
    return std::ranges::find(input.sizes, size) != input.sizes.end();
  });
  if (!is_used && arguments.has(option)) {
    fail(ExitCode::usage, "--{}: no input has the size {} (see --input)", option, size);
  }
  return is_used ? bench::integer_list(fmt::format("--{}", option),
                                       split_list(arguments.text(option)), kMaxSize)
                 : std::vector<int64_t>();
}

Draw sized(const std::vector<RandomInput>& inputs, std::string name, int64_t batch,
           int64_t length) {
  Draw draw{.name = std::move(name), .inputs = {}};
  for (const RandomInput& input : inputs) {
    InputSpec& spec = draw.inputs.emplace_back(input.values);
    spec.shape.clear();
    for (const std::string& size : input.sizes) {
      spec.shape.push_back(size == kBatch    ? batch
                           : size == kLength ? length
                                             : parse_number(size).value_or(0));
    }
  }
  return draw;
}

}  // namespace

std::vector<std::string> parse_sizes(const std::string& text) {
  std::vector<std::string> sizes = split_list(text);
  for (const std::string& size : sizes) {
    if (size.empty() || size.find(' ') != std::string::npos) {
      fail(ExitCode::usage, "--input: expected sizes such as B,T, got '{}'", text);
    }
  }
  return sizes;
}

std::vector<RandomInput> random_inputs_of(const Arguments& arguments,
                                          const std::vector<ModelPath>& models) {
  std::vector<RandomInput> inputs;
  for (const std::string& text : arguments.texts("input")) {
    inputs.push_back(parse_input(text));
  }
  for (const ModelPath& model : models) {
    const Bundle* language_model = model.language_model();
    if (language_model != nullptr && !inputs.empty()) {
      fail(ExitCode::usage, "--input: the bundle of a language model says what it takes");
    }
    if (language_model != nullptr) {
      const InputSpec ids{.name = "ids",
                          .shape = {},
                          .dtype = at::kLong,
                          .high = language_model_of(*language_model).vocab_size};
      return {{.sizes = {kBatch, kLength}, .values = ids}};
    }
    if (model.bundle && inputs.empty()) {
      std::ranges::transform(model.bundle->inputs, std::back_inserter(inputs), declared_input);
      return inputs;
    }
  }
  if (inputs.empty()) {
    fail(ExitCode::usage,
         "{} is in no bundle that says what it takes: give each argument of forward, such as "
         "--input B,T:int64:0..50257 --lengths 1,7,64 for token ids",
         models.front().path.string());
  }
  return inputs;
}

std::vector<RewriteArgument> rewrite_arguments(const std::vector<RandomInput>& inputs) {
  std::vector<RewriteArgument> arguments;
  std::ranges::transform(inputs, std::back_inserter(arguments), [](const RandomInput& input) {
    return RewriteArgument{.sizes = input.sizes, .dtype = input.values.dtype};
  });
  return arguments;
}

std::vector<Draw> draws_of(const Arguments& arguments, const std::vector<RandomInput>& inputs,
                           int64_t fixed) {
  const std::vector<int64_t> batches = values_of(arguments, "batch", kBatch, inputs);
  const std::vector<int64_t> lengths = values_of(arguments, "lengths", kLength, inputs);
  std::vector<Draw> draws;
  if (batches.empty() && lengths.empty()) {
    for (int64_t i = 1; i <= fixed; ++i) {
      draws.push_back(sized(inputs, fmt::format("draw {}", i), 0, 0));
    }
    return draws;
  }
  for (const int64_t batch : batches.empty() ? std::vector<int64_t>{0} : batches) {
    for (const int64_t length : lengths.empty() ? std::vector<int64_t>{0} : lengths) {
      std::string name = batches.empty() ? "" : fmt::format("B={}", batch);
      name += name.empty() || lengths.empty() ? "" : " ";
      name += lengths.empty() ? "" : fmt::format("T={}", length);
      draws.push_back(sized(inputs, name, batch, length));
    }
  }
  return draws;
}

}  // namespace warpfuse::host
