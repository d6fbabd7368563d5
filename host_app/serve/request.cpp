#include "serve/request.h"

#include <random>

#include "runtime/parse.h"
#include "serve/api_error.h"

namespace warpfuse::host {
namespace {

using RequestJson = nlohmann::json;

constexpr int64_t kMaxStopTexts = 4;
constexpr const char* kParameters =
    "model,prompt,max_tokens,temperature,top_p,top_k,min_p,seed,n,stop,stream,stream_options,"
    "logprobs,echo,user,best_of,suffix,logit_bias,presence_penalty,frequency_penalty";

[[noreturn]] void refuse(const std::string& name, const std::string& expected,
                         const RequestJson& found) {
  throw ApiError(400, fmt::format("'{}': expected {}, got {}", name, expected, excerpt(found)),
                 name);
}

// The parameters of one request, or the members of one that is an object; `prefix` is before their
// names in messages. Null counts as not given.
class Parameters {
 public:
  explicit Parameters(RequestJson json, std::string prefix = "")
      : json_(std::move(json)), prefix_(std::move(prefix)) {}

  const RequestJson* find(const std::string& name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  bool boolean(const std::string& name) const {
    const RequestJson* value = find(name);
    if (value != nullptr && !value->is_boolean()) {
      refuse(prefix_ + name, "true or false", *value);
    }
    return value != nullptr && value->get<bool>();
  }
  int64_t integer(const std::string& name, int64_t otherwise, int64_t low, int64_t high) const {
    const RequestJson* value = find(name);
    if (value != nullptr && !is_integer_within(*value, low, high)) {
      refuse(prefix_ + name, fmt::format("an integer of {}..{}", low, high), *value);
    }
    return value == nullptr ? otherwise : value->get<int64_t>();
  }
  double number(const std::string& name, double otherwise, double low, double high) const {
    const RequestJson* value = find(name);
    if (value != nullptr && (!value->is_number() || *value < low || *value > high)) {
      refuse(prefix_ + name, fmt::format("a number of {}..{}", low, high), *value);
    }
    return value == nullptr ? otherwise : value->get<double>();
  }
  // A parameter that is known and not served, but for a value that changes nothing.
  void require_noop(const std::string& name, const std::vector<RequestJson>& noops) const {
    const RequestJson* value = find(name);
    if (value != nullptr && std::ranges::find(noops, *value) == noops.end()) {
      throw ApiError(400, fmt::format("'{}' is not served", name), name, "unsupported_parameter");
    }
  }
  void require_known(const std::vector<std::string>& known) const {
    for (const auto& [name, value] : json_.items()) {
      if (std::ranges::find(known, name) == known.end()) {
        const std::string whole = prefix_ + name;
        throw ApiError(400, fmt::format("unknown parameter '{}'", whole), whole,
                       "unknown_parameter");
      }
    }
  }

 private:
  RequestJson json_;
  std::string prefix_;
};

std::vector<int64_t> ids_of(const RequestJson& prompt, const LanguageModelSpec& spec,
                            const Tokenizer& tokenizer) {
  const int64_t largest = std::min(spec.vocab_size, tokenizer.size()) - 1;
  std::vector<int64_t> ids;
  for (const RequestJson& id : prompt) {
    if (!is_integer_within(id, 0, largest) || !tokenizer.has(id.get<int64_t>())) {
      refuse("prompt", fmt::format("ids of tokens, within 0..{}", largest), id);
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

std::vector<std::vector<int64_t>> prompts_of_request(const Parameters& parameters,
                                                     const LanguageModelSpec& spec,
                                                     const Tokenizer& tokenizer) {
  static constexpr const char* kExpected =
      "a text, an array of texts, of token ids, or of arrays of token ids";
  const RequestJson* prompt = parameters.find("prompt");
  if (prompt == nullptr) {
    throw ApiError(400, "'prompt' is missing", "prompt");
  }
  const auto one = [&](const RequestJson& given) {
    if (given.is_string()) {
      return tokenizer.encode_prompt(given.get_ref<const std::string&>());
    }
    if (!given.is_array() || given.empty()) {
      refuse("prompt", kExpected, given);
    }
    return ids_of(given, spec, tokenizer);
  };
  std::vector<std::vector<int64_t>> prompts;
  if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number()) {
    if (prompt->size() > static_cast<size_t>(kMaxChoices)) {
      throw ApiError(
          400,
          fmt::format("'prompt': {} prompts, at most {} are served", prompt->size(), kMaxChoices),
          "prompt");
    }
    std::ranges::transform(*prompt, std::back_inserter(prompts), one);
  } else {
    prompts.push_back(one(*prompt));
  }
  for (const std::vector<int64_t>& ids : prompts) {
    if (static_cast<int64_t>(ids.size()) > spec.context) {
      throw ApiError(400,
                     fmt::format("the prompt has {} tokens, the model's context is {}", ids.size(),
                                 spec.context),
                     "prompt", "context_length_exceeded");
    }
    ids_of(ids, spec, tokenizer);  // the tokenizer may know more than the model
  }
  return prompts;
}

std::vector<std::string> stop_texts_of(const Parameters& parameters) {
  const RequestJson* stop = parameters.find("stop");
  if (stop == nullptr) {
    return {};
  }
  const RequestJson texts = stop->is_array() ? *stop : RequestJson::array({*stop});
  const auto is_text = [](const RequestJson& text) {
    return text.is_string() && !text.get_ref<const std::string&>().empty();
  };
  if (texts.size() > kMaxStopTexts || !std::ranges::all_of(texts, is_text)) {
    refuse("stop", fmt::format("a text, or up to {} texts, none of them empty", kMaxStopTexts),
           *stop);
  }
  return texts.get<std::vector<std::string>>();
}

// A random one, far from those of requests with a seed, with room for all choices behind it.
int64_t random_stream() {
  std::random_device device;
  return std::uniform_int_distribution(INT64_MAX / 2, INT64_MAX - kMaxChoices)(device);
}

Sampling sampling_of_request(const Parameters& parameters) {
  Sampling sampling{.temperature = parameters.number("temperature", 1.0, 0.0, 2.0),
                    .top_k = parameters.integer("top_k", 0, 0, INT32_MAX),
                    .top_p = parameters.number("top_p", 1.0, 0.0, 1.0),
                    .min_p = parameters.number("min_p", 0.0, 0.0, 1.0),
                    .seed = 0};
  if (sampling.top_p == 0.0) {
    refuse("top_p", "a number above 0", 0.0);
  }
  sampling.seed = parameters.integer("seed", 0, 0, INT64_MAX);
  return sampling;
}

}  // namespace

int64_t CompletionRequest::prompt_tokens() const {
  int64_t tokens = 0;
  for (const std::vector<int64_t>& ids : prompts) {
    tokens += static_cast<int64_t>(ids.size());
  }
  return tokens;
}

CompletionRequest parse_completion(std::string_view body, const std::string& model_name,
                                   const LanguageModelSpec& spec, const Tokenizer& tokenizer) {
  RequestJson json;
  try {
    json = parse_json(body, ExitCode::usage, "the body");
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
  if (!json.is_object()) {
    throw ApiError(400, "the body is no JSON object in UTF-8");
  }
  const Parameters parameters(std::move(json));
  static const std::vector<std::string> kKnown = split_list(kParameters);
  parameters.require_known(kKnown);
  parameters.require_noop("best_of", {1});
  parameters.require_noop("suffix", {""});
  parameters.require_noop("logit_bias", {RequestJson::object()});
  parameters.require_noop("presence_penalty", {0});
  parameters.require_noop("frequency_penalty", {0});
  if (const RequestJson* name = parameters.find("model"); name != nullptr) {
    if (!name->is_string()) {
      refuse("model", "a text", *name);
    }
    if (*name != model_name) {
      throw ApiError(404,
                     fmt::format("the model {} is not served, '{}' is", name->dump(), model_name),
                     "model", "model_not_found");
    }
  }
  if (const RequestJson* user = parameters.find("user"); user != nullptr && !user->is_string()) {
    refuse("user", "a text", *user);
  }
  CompletionRequest request;
  request.prompts = prompts_of_request(parameters, spec, tokenizer);
  request.max_tokens = parameters.integer("max_tokens", 16, 0, INT32_MAX);
  request.n = parameters.integer("n", 1, 1, kMaxChoices);
  request.sampling = sampling_of_request(parameters);
  if (parameters.find("seed") == nullptr) {
    // One seed for all, so that rows that are drawn alike are drawn together.
    request.first_stream = random_stream();
  }
  request.stop_texts = stop_texts_of(parameters);
  request.echo = parameters.boolean("echo");
  request.stream = parameters.boolean("stream");
  if (parameters.find("logprobs") != nullptr) {
    request.logprobs = parameters.integer("logprobs", 0, 0, kMaxServedLogprobs);
  }
  if (const RequestJson* options = parameters.find("stream_options"); options != nullptr) {
    if (!options->is_object() || !request.stream) {
      refuse("stream_options", "an object, with 'stream': true", *options);
    }
    const Parameters members(*options, "stream_options.");
    members.require_known({"include_usage"});
    request.include_usage = members.boolean("include_usage");
  }
  if (request.max_tokens == 0 && !request.echo) {
    throw ApiError(400, "'max_tokens': 0 needs 'echo': true", "max_tokens");
  }
  if (request.choices() > static_cast<size_t>(kMaxChoices)) {
    throw ApiError(400,
                   fmt::format("'n': {} choices of {} prompts, at most {} together are served",
                               request.n, request.prompts.size(), kMaxChoices),
                   "n");
  }
  return request;
}

}  // namespace warpfuse::host
