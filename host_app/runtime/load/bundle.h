#pragma once

#include <c10/core/ScalarType.h>
#include <warpfuse/rewrite.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace warpfuse::host {

// An input of a traced module that is no language model, and how to make it at random.
struct InputSpec {
  std::string name;
  std::vector<int64_t> shape;
  c10::ScalarType dtype;
  double standard_deviation = 1.0;  // for floats: normal, mean 0
  int64_t low = 0;                  // for integers: uniform in [low, high)
  int64_t high = 0;
};

// The sizes of a language model, which the cache follows, and where its texts end.
struct LanguageModelSpec {
  int64_t context;
  int64_t layers;
  int64_t heads;
  int64_t head_dim;
  int64_t vocab_size;
  // A sequence ends after any of these; none given: after the tokenizer's <|endoftext|>.
  std::optional<std::vector<int64_t>> end_tokens;
};

// The methods of a language model, in every variant.
inline constexpr std::array<const char*, 3> kLanguageModelMethods = {"prefill", "decode",
                                                                     "forward"};
// That of some variants: the most probable token after a decode step, without logits in memory.
inline constexpr const char* kNextMethod = "next";

// The bundle.json of a model folder.
struct Bundle {
  std::filesystem::path folder;
  std::string model;
  std::string variant;
  c10::ScalarType dtype;
  int64_t schema_version;
  std::vector<std::string> operators;  // that model.pt needs, except ATen's, as "namespace::name"
  std::string model_sha256;
  std::optional<LanguageModelSpec> language_model;  // "kind": "causal_lm"
  std::vector<InputSpec> inputs;                    // "kind": "module"

  std::filesystem::path model_file() const { return folder / "model.pt"; }
};

// Of an input: float32, float16, bfloat16, float64, int64, int32 or bool. Empty for another name.
std::optional<c10::ScalarType> dtype_named(const std::string& name);

// Reads and checks bundle.json. Throws Error(model) naming the file and the field.
Bundle read_bundle(const std::filesystem::path& folder);

// The arguments of a language model's methods, by method.
std::map<std::string, std::vector<RewriteArgument>> language_model_arguments();

// The arguments of a module's forward: how many dimensions each has.
std::map<std::string, std::vector<RewriteArgument>> module_arguments(const Bundle& bundle);

// Throws Error(model) when the bundle is no language model.
LanguageModelSpec language_model_of(const Bundle& bundle);

}  // namespace warpfuse::host
