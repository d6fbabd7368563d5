#include "runtime/load/bundle.h"

#include <algorithm>

#include "runtime/files.h"
#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kFormat = 2;
constexpr int64_t kLargestSize =
    2'147'483'648;  // a bound on what a bad file can make this program allocate

// Reads the fields of one JSON object; every error names the file, the field, what was expected and
// what was found.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(const char* name) const { return object_.contains(name); }

  // A value for which `is_expected` holds; `expected` says in words what that is.
  template <typename Predicate>
  const json& value(const char* name, std::string_view expected, Predicate is_expected) const {
    const auto found = object_.find(name);
    if (found == object_.end()) {
      fail(ExitCode::model, "{}: field '{}' is missing", where_, name);
    }
    if (!is_expected(*found)) {
      fail(ExitCode::model, "{}: field '{}': expected {}, got {}", where_, name, expected,
           excerpt(*found));
    }
    return *found;
  }

  std::string text(const char* name) const {
    return value(name, "a string", [](const json& found) { return found.is_string(); });
  }

  int64_t integer(const char* name, int64_t low, int64_t high = kLargestSize) const {
    const std::string expected =
        low == high ? std::to_string(low) : fmt::format("an integer of {}..{}", low, high);
    return value(name, expected,
                 [&](const json& found) { return is_integer_within(found, low, high); });
  }

  double positive_number(const char* name) const {
    return value(name, "a number above 0",
                 [](const json& found) { return found.is_number() && found > 0; });
  }

  template <typename Predicate>
  const json& array(const char* name, std::string_view expected, Predicate is_element) const {
    return value(name, expected, [&](const json& found) {
      return found.is_array() && std::ranges::all_of(found, is_element);
    });
  }

  Fields object(const char* name) const {
    return {value(name, "an object", [](const json& found) { return found.is_object(); }),
            fmt::format("{}: {}", where_, name)};
  }

  c10::ScalarType dtype(const char* name) const {
    const json& found = value(
        name, "float32, float16, bfloat16, float64, int64, int32 or bool",
        [](const json& dtype) { return dtype.is_string() && dtype_named(dtype).has_value(); });
    return dtype_named(found).value_or(at::kFloat);
  }

 private:
  const json& object_;
  std::string where_;
};

LanguageModelSpec read_language_model(const Fields& fields) {
  LanguageModelSpec spec{.context = fields.integer("context", 1),
                         .layers = fields.integer("layers", 1),
                         .heads = fields.integer("heads", 1),
                         .head_dim = fields.integer("head_dim", 1),
                         .vocab_size = fields.integer("vocab_size", 1),
                         .end_tokens = std::nullopt};
  if (fields.has("end_tokens")) {
    const auto is_token = [&](const json& id) {
      return is_integer_within(id, 0, spec.vocab_size - 1);
    };
    spec.end_tokens =
        fields.array("end_tokens", "an array of token ids", is_token).get<std::vector<int64_t>>();
  }
  return spec;
}

InputSpec read_input(const Fields& fields) {
  InputSpec input{.name = fields.text("name"), .shape = {}, .dtype = fields.dtype("dtype")};
  const auto is_size = [](const json& size) { return is_integer_within(size, 0, kLargestSize); };
  input.shape = fields.array("shape", "an array of sizes", is_size).get<std::vector<int64_t>>();
  if (c10::isFloatingType(input.dtype)) {
    input.standard_deviation = fields.positive_number("std");
  } else {
    input.low = fields.integer("low", -kLargestSize);
    input.high = fields.integer("high", input.low + 1);
  }
  return input;
}

std::vector<InputSpec> read_inputs(const Fields& fields, const std::string& where) {
  const auto is_object = [](const json& input) { return input.is_object(); };
  std::vector<InputSpec> inputs;
  for (const json& input : fields.array("inputs", "an array of objects", is_object)) {
    inputs.push_back(read_input({input, fmt::format("{}: inputs[{}]", where, inputs.size())}));
  }
  return inputs;
}

bool is_operator_name(const json& name) {
  return name.is_string() && name.get_ref<const std::string&>().find("::") != std::string::npos;
}

}  // namespace

std::optional<c10::ScalarType> dtype_named(const std::string& name) {
  static const std::map<std::string, c10::ScalarType> kTypes{
      {"float32", at::kFloat},  {"float16", at::kHalf}, {"bfloat16", at::kBFloat16},
      {"float64", at::kDouble}, {"int64", at::kLong},   {"int32", at::kInt},
      {"bool", at::kBool}};
  const auto found = kTypes.find(name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->second);
}

Bundle read_bundle(const fs::path& folder) {
  const fs::path file = folder / "bundle.json";
  const json root = read_json_object(
      file,
      " (a model is a folder with bundle.json and model.pt, as traced_models/export.py writes it)");
  const std::string where = file.string();
  const Fields fields(root, where);
  fields.integer("format", kFormat, kFormat);
  Bundle bundle{.folder = folder,
                .model = fields.text("model"),
                .variant = fields.text("variant"),
                .dtype = fields.dtype("dtype"),
                .schema_version = fields.integer("schema_version", 1),
                .operators = fields.array("operators", "an array of 'namespace::name' strings",
                                          is_operator_name),
                .model_sha256 = fields.object("sha256").text("model.pt"),
                .language_model = std::nullopt,
                .inputs = {}};
  const auto is_kind = [](const json& kind) { return kind == "causal_lm" || kind == "module"; };
  if (fields.value("kind", "'causal_lm' or 'module'", is_kind) == "module") {
    bundle.inputs = read_inputs(fields, where);
  } else {
    bundle.language_model = read_language_model(fields);
  }
  return bundle;
}

std::map<std::string, std::vector<RewriteArgument>> language_model_arguments() {
  const RewriteArgument tokens{.sizes = {"B", "T"}, .dtype = at::kLong}, rows{.sizes = {"B"}},
      cache{.sizes = {"L", "2", "B", "H", "S", "D"}};
  return {{"forward", {tokens, tokens, cache}},
          {"prefill", {tokens, tokens, rows, cache}},
          {"decode", {tokens, tokens, cache}},
          {kNextMethod, {tokens, tokens, cache}}};
}

std::map<std::string, std::vector<RewriteArgument>> module_arguments(const Bundle& bundle) {
  std::vector<RewriteArgument> arguments;
  for (const InputSpec& input : bundle.inputs) {
    RewriteArgument& argument = arguments.emplace_back();
    for (size_t dim = 0; dim < input.shape.size(); ++dim) {
      argument.sizes.push_back(input.name + "." + std::to_string(dim));
    }
  }
  return {{"forward", arguments}};
}

LanguageModelSpec language_model_of(const Bundle& bundle) {
  if (!bundle.language_model) {
    fail(ExitCode::model, "{}: no language model (its bundle.json says kind 'module')",
         bundle.folder.string());
  }
  return *bundle.language_model;
}

}  // namespace warpfuse::host
