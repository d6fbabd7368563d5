#include "runtime/decode/decode_steps.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <warpfuse/sample_tokens.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

// Maximum tokens per call of the model: bounds the memory of a prompt's scores.
constexpr int64_t kPrefillTokens = 8192;
// Enough to keep a GPU busy while the host reads tokens, few to discard when a row ends.
constexpr int64_t kStepsAhead = 4;
// Enough calls for lazy library initialisation, which cannot be captured.
constexpr int kWarmUps = 3;
constexpr std::chrono::microseconds kPollInterval{20};
constexpr int kPollsBetweenChecks = 1000;

void require_memory(const LanguageModel& model, int64_t rows, const CudaRuntime& runtime) {
  const int64_t slots = model.spec().context;
  const int64_t free = runtime.device().free_bytes;
  if (model.cache_bytes(rows, slots) > free) {
    fail(ExitCode::device,
         "out of GPU memory: the keys and values of {} sequences take {:.2f} GB, {:.2f} GB are "
         "free; {} sequences would fit",
         rows, static_cast<double>(model.cache_bytes(rows, slots)) / 1e9,
         static_cast<double>(free) / 1e9, free / model.cache_bytes(1, slots));
  }
}

at::Tensor to_device(const std::vector<int64_t>& values, c10::Device device) {
  return at::tensor(values, at::kLong).to(device);
}

}  // namespace

DecodeSteps::DecodeSteps(const LanguageModel& model, const DecodeOptions& options,
                         CudaRuntime* runtime)
    : model_(model), options_(options), runtime_(runtime) {
  const c10::InferenceMode inference;
  if (runtime_ != nullptr) {
    require_memory(model, options.rows, *runtime_);
  }
  cache_ = model.make_cache(options.rows, model.spec().context);
  const at::TensorOptions integers = at::TensorOptions(at::kLong).device(model.device());
  const at::TensorOptions shared =
      at::TensorOptions(at::kLong).pinned_memory(model.device().is_cuda());
  ids_ = at::zeros({options.rows, 1}, integers);
  positions_ = at::zeros({options.rows, 1}, integers);
  draws_ = at::zeros({options.rows}, integers);
  names_ = at::zeros({options.rows}, integers);
  active_ = at::zeros({options.rows}, integers);
  count_ = at::zeros({1}, integers);
  ring_ = at::zeros({kRingSteps, options.rows}, shared);
  published_ = at::zeros({1}, shared);
  scores_ = at::zeros({options.rows, score_columns(options.top_logprobs.value_or(0))},
                      integers.dtype(at::kFloat));
  draw_of_.resize(options.rows);
  const auto data = [](const at::Tensor& tensor) { return tensor.mutable_data_ptr<int64_t>(); };
  state_ = {.rows = options.rows,
            .ids = data(ids_),
            .positions = data(positions_),
            .draws = data(draws_),
            .active = data(active_),
            .count = data(count_),
            .ring = data(ring_),
            .published = data(published_)};
}

DecodeSteps::~DecodeSteps() {
  if (runtime_ != nullptr) {
    // The GPU writes into the ring until its last step is done.
    try {
      runtime_->synchronize();
    } catch (const c10::Error&) {
      return;  // read() reports it
    }
  }
}

// --- a sequence begins and ends ---------------------------------------------------------------

at::Tensor DecodeSteps::prefill(int64_t row, const std::vector<Sequence>& sequences) const {
  const auto count = static_cast<int64_t>(sequences.size());
  const auto length = static_cast<int64_t>(sequences.front().ids.size());
  const int64_t chunk = std::max(kPrefillTokens / count, int64_t{1});
  std::vector<int64_t> tokens;
  tokens.reserve(count * length);
  for (const Sequence& sequence : sequences) {
    tokens.insert(tokens.end(), sequence.ids.begin(), sequence.ids.end());
  }
  const at::Tensor ids = to_device(tokens, model_.device()).view({count, length});
  at::Tensor logits;
  for (int64_t begin = 0; begin < length; begin += chunk) {
    const int64_t taken = std::min(chunk, length - begin);
    logits = prefill_piece(row, ids, begin, begin + taken);
  }
  return logits;
}

at::Tensor DecodeSteps::prefill_piece(int64_t row, const at::Tensor& ids, int64_t begin,
                                      int64_t end) const {
  const int64_t count = ids.size(0);
  const at::Tensor positions = at::arange(begin, end, ids.options()).expand({count, end - begin});
  return model_.prefill(ids.narrow(1, begin, end - begin), positions,
                        at::full({count}, end - begin - 1, ids.options()),
                        cache_.rows(row, count).slots(model_.slots_for(end)));
}

at::Tensor DecodeSteps::sample(const Sampling& how, const at::Tensor& logits,
                               const at::Tensor& draws, const at::Tensor& names) const {
  return translating_errors(ExitCode::model, "sample_tokens", [&] {
    return sample_tokens(logits, draws, how.seed, how.temperature, how.top_k, how.top_p, how.min_p,
                         names);
  });
}

std::vector<Choice> DecodeSteps::start(int64_t row, const std::vector<Sequence>& sequences) {
  const c10::InferenceMode inference;
  return activate(row, sequences, prefill(row, sequences));
}

std::optional<Choice> DecodeSteps::start_piece(int64_t row, const Sequence& sequence, int64_t begin,
                                               int64_t end) {
  const c10::InferenceMode inference;
  const at::Tensor ids =
      to_device({sequence.ids.begin(), sequence.ids.end()}, model_.device()).unsqueeze(0);
  const at::Tensor logits = prefill_piece(row, ids, begin, end);
  if (end == ids.size(1)) {
    return std::move(activate(row, {sequence}, logits).front());
  }
  // A step writes keys and values of inactive rows too: where the next piece will overwrite them.
  positions_.narrow(0, row, 1).fill_(end);
  return std::nullopt;
}

std::vector<Choice> DecodeSteps::activate(int64_t row, const std::vector<Sequence>& sequences,
                                          const at::Tensor& logits) {
  const auto count = static_cast<int64_t>(sequences.size());
  std::vector<int64_t> names;
  names.reserve(sequences.size());
  for (const Sequence& sequence : sequences) {
    draw_of_[row + names.size()] = sequence.draw;
    names.push_back(options_.mixed ? sequence.draw.stream : sequence.name);
  }
  draw_groups_.clear();
  const auto rows = [&](const at::Tensor& of_all) { return of_all.narrow(0, row, count); };
  rows(names_).copy_(to_device(names, model_.device()));
  rows(draws_).fill_(0);
  const Sampling& how = options_.mixed ? sequences.front().draw.sampling : options_.sampling;
  const at::Tensor tokens = sample(how, logits, rows(draws_), rows(names_));
  rows(ids_).copy_(tokens.clamp_min(0).unsqueeze(1));
  rows(positions_).fill_(static_cast<int64_t>(sequences.front().ids.size()));
  rows(draws_).fill_(1);
  rows(active_).fill_(1);
  at::Tensor scores;
  if (scores_wanted()) {
    scores = score_choices(logits, tokens, options_.top_logprobs.value_or(0));
  }
  const at::Tensor on_host = tokens.to(at::kCPU);
  const auto* first = on_host.const_data_ptr<int64_t>();
  return choices_of({first, first + count}, scores);
}

void DecodeSteps::deactivate(int64_t row) {
  const c10::InferenceMode inference;
  active_.narrow(0, row, 1).fill_(0);
  positions_.narrow(0, row, 1).fill_(0);
  draw_of_[row].reset();
  draw_groups_.clear();
}

// --- a step -----------------------------------------------------------------------------------

at::Tensor DecodeSteps::decode(int64_t slots, int64_t rows) const {
  const auto first = [&](const at::Tensor& of_all) { return of_all.narrow(0, 0, rows); };
  return model_.decode(first(ids_), first(positions_), cache_.rows(0, rows).slots(slots));
}

at::Tensor DecodeSteps::draw(const at::Tensor& logits) {
  const int64_t rows = logits.size(0);
  const auto first = [&](const at::Tensor& of_all) { return of_all.narrow(0, 0, rows); };
  if (!options_.mixed) {
    return sample(options_.sampling, logits, first(draws_), first(names_));
  }
  if (draw_groups_.empty()) {
    group_draws();
  }
  if (draw_groups_.size() == 1) {
    return sample(draw_groups_.front().first, logits, first(draws_), first(names_));
  }
  const at::Tensor tokens = at::zeros({rows}, names_.options());
  for (const auto& [how, group] : draw_groups_) {
    tokens.index_copy_(0, group,
                       sample(how, logits.index_select(0, group), draws_.index_select(0, group),
                              names_.index_select(0, group)));
  }
  return tokens;
}

void DecodeSteps::group_draws() {
  std::vector<std::pair<Sampling, std::vector<int64_t>>> groups;
  for (size_t row = 0; row < draw_of_.size(); ++row) {
    const std::optional<DrawRules>& draw = draw_of_[row];
    if (!draw) {
      continue;
    }
    const Sampling& how = draw->sampling;
    auto group = std::ranges::find(groups, how, [](const auto& each) { return each.first; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {how, {}});
    }
    group->second.push_back(static_cast<int64_t>(row));
  }
  for (const auto& [how, members] : groups) {
    draw_groups_.emplace_back(how, to_device(members, model_.device()));
  }
}

bool DecodeSteps::scores_wanted() const {
  return options_.top_logprobs &&
         (!options_.mixed ||
          std::ranges::any_of(
              draw_of_, [](const std::optional<DrawRules>& draw) { return draw && draw->scored; }));
}

at::Tensor DecodeSteps::draw_and_score(const at::Tensor& logits) {
  at::Tensor tokens = draw(logits);
  if (scores_wanted()) {
    scores_.narrow(0, 0, logits.size(0))
        .copy_(score_choices(logits, tokens, options_.top_logprobs.value_or(0)));
  }
  return tokens;
}

void DecodeSteps::advance_by(const at::Tensor& tokens) {
  const auto* sampled = tokens.const_data_ptr<int64_t>();
  if (runtime_ != nullptr) {
    runtime_->launch_advance(state_, sampled);
  } else {
    advance(state_, sampled, tokens.size(0));
  }
}

at::Tensor DecodeSteps::next_tokens(int64_t slots, int64_t rows) {
  const bool is_greedy =
      !options_.mixed && options_.sampling.temperature == 0 && !options_.top_logprobs;
  if (!is_greedy || !model_.has_next()) {
    return draw_and_score(decode(slots, rows));
  }
  return model_.next(ids_.narrow(0, 0, rows), positions_.narrow(0, 0, rows),
                     cache_.rows(0, rows).slots(slots));
}

void DecodeSteps::step(int64_t slots, int64_t rows, bool advancing) {
  const at::Tensor tokens = next_tokens(slots, rows);
  if (advancing) {
    advance_by(tokens);
  }
}

const DecodeSteps::StepGraph* DecodeSteps::graph_of(int64_t slots) {
  if (runtime_ == nullptr || !options_.graphs || !graph_failure_.empty()) {
    return nullptr;
  }
  const auto found = graphs_.find(slots);
  if (found != graphs_.end()) {
    return &found->second;
  }
  StepGraph made;
  try {
    uncounted_softmax_calls([&] {
      runtime_->warm_up([&] {
        for (int i = 0; i < kWarmUps; ++i) {
          if (options_.mixed) {
            const at::Tensor logits = decode(slots, options_.rows);
            logits_ = logits_.defined() ? logits_ : at::empty_like(logits);
          } else {
            step(slots, options_.rows, /*advancing=*/false);
          }
        }
      });
    });
    made.softmax_calls = uncounted_softmax_calls([&] {
      const CudaGraph* memory_of = graphs_.empty() ? nullptr : graphs_.begin()->second.graph.get();
      made.graph = runtime_->capture(
          [&, this] {
            if (options_.mixed) {
              // Replays of all graphs share memory, so the logits are copied out of it.
              logits_.copy_(decode(slots, options_.rows));
            } else {
              step(slots, options_.rows, /*advancing=*/true);
            }
          },
          memory_of);
    });
  } catch (...) {
    graph_failure_ = describe(std::current_exception(), ExitCode::device).message;
    return nullptr;
  }
  return &graphs_.emplace(slots, std::move(made)).first->second;
}

int64_t DecodeSteps::max_ahead() const {
  // The scores of a step are those of the last one.
  return runtime_ == nullptr || scores_wanted() ? 1 : kStepsAhead;
}

void DecodeSteps::launch(int64_t length, int64_t rows) {
  const c10::InferenceMode inference;
  const int64_t slots = model_.slots_for(length);
  kernels_per_step_ = 0;
  if (const StepGraph* graph = graph_of(slots)) {
    graph->graph->replay();
    add_softmax_calls(graph->softmax_calls);
    if (options_.mixed) {
      advance_by(draw_and_score(logits_));
    }
    kernels_per_step_ = graph->graph->kernels();
  } else {
    step(slots, runtime_ == nullptr ? rows : options_.rows, /*advancing=*/true);
  }
}

// Sleeps until the token is due, then polls: a poll costs the host as much as launching a step.
void DecodeSteps::wait_for(int64_t step) {
  using Clock = StepClock::Clock;
  const std::atomic_ref<int64_t> published(*state_.published);
  const auto is_there = [&] { return published.load(std::memory_order_acquire) > step; };
  const Clock::time_point due = clock_.due();
  if (is_there()) {
    return clock_.arrived(std::min(due, Clock::now()));
  }
  std::this_thread::sleep_until(due);
  if (is_there()) {
    return clock_.arrived(due);
  }
  for (int polls = 1; !is_there(); ++polls) {
    if (polls % kPollsBetweenChecks == 0) {
      const bool idle =
          translating_errors(ExitCode::device, "decode", [&] { return runtime_->idle(); });
      if (idle && !is_there()) {
        fail(ExitCode::device, "decode: the GPU ended step {} without a token", step);
      }
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  clock_.arrived(Clock::now());
}

std::vector<Choice> DecodeSteps::read() {
  const c10::InferenceMode inference;
  wait_for(read_);
  const int64_t* first = state_.ring + read_ % kRingSteps * state_.rows;
  ++read_;
  return choices_of({first, first + state_.rows}, scores_);
}

std::vector<Choice> DecodeSteps::choices_of(const std::vector<int64_t>& tokens,
                                            const at::Tensor& scores) const {
  if (scores_wanted()) {
    return read_choices(scores, tokens);
  }
  std::vector<Choice> choices(tokens.size());
  for (size_t row = 0; row < tokens.size(); ++row) {
    choices[row].id = tokens[row];
  }
  return choices;
}

}  // namespace warpfuse::host
