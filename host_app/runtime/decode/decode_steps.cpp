#include "runtime/decode/decode_steps.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <numeric>

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

// Maximum tokens per call of the model: bounds the memory of a prompt's scores.
constexpr int64_t kPrefillTokens = 8192;
// Enough to keep a GPU busy while the host reads tokens, few to discard when a row ends.
constexpr int64_t kStepsAhead = 4;
// Where others wait for a row: a prompt comes behind the steps that are launched already.
constexpr int64_t kStepsAheadMixed = 3;

// On a GPU those of the context: the strides of a smaller cache may change cuBLAS's sums, and so
// the text with the number of tokens that are asked for.
int64_t slots_of(const LanguageModel& model, const DecodeOptions& options) {
  const int64_t context = model.spec().context;
  const bool all = model.device().is_cuda() || options.max_length == 0;
  return all ? context : std::min(options.max_length, context);
}

void require_memory(const LanguageModel& model, const DecodeOptions& options, int64_t slots,
                    CudaRuntime& runtime) {
  const int64_t beside = options.mixed ? PromptPieces::cache_bytes(model) : 0;
  const int64_t needed = model.cache_bytes(options.rows, slots);
  const auto free_bytes = [&] {
    return std::max(runtime.device().free_bytes - beside, int64_t{0});
  };
  if (needed > free_bytes()) {
    runtime.release_memory();  // what libtorch keeps, of earlier caches for one, is free too
  }
  if (const int64_t free = free_bytes(); needed > free) {
    fail(ExitCode::device,
         "out of GPU memory: the keys and values of {} sequences take {:.2f} GB, {:.2f} GB are "
         "free; {} sequences would fit",
         options.rows, static_cast<double>(needed) / 1e9, static_cast<double>(free) / 1e9,
         free / model.cache_bytes(1, slots));
  }
}

}  // namespace

DecodeSteps::DecodeSteps(const LanguageModel& model, const DecodeOptions& options,
                         CudaRuntime* runtime)
    : model_(model),
      options_(options),
      top_logprobs_(std::min(options.top_logprobs.value_or(0), model.spec().vocab_size)),
      runtime_(runtime),
      graphs_(options.graphs ? runtime : nullptr),
      memory_(options.rows, model.device(), runtime, /*steps_vary=*/options.mixed),
      greedy_({DrawRules{}}, model.device()) {
  const c10::InferenceMode inference;
  const int64_t slots = slots_of(model, options);
  if (runtime_ != nullptr) {
    require_memory(model, options, slots, *runtime_);
  }
  cache_ = model.make_cache(options.rows, slots);
  scores_ = at::zeros({options.rows, score_columns(top_logprobs_)},
                      at::TensorOptions(at::kFloat).device(model.device()));
  no_draws_ = at::zeros({1}, at::TensorOptions(at::kLong).device(model.device()));
  rules_.resize(options.rows);
  if (options.mixed) {
    pieces_ = std::make_unique<PromptPieces>(model, graphs_, /*with_graphs=*/runtime != nullptr);
  } else {
    std::ranges::fill(rules_, DrawRules{.sampling = options.sampling,
                                        .scored = options.top_logprobs.has_value()});
  }
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
    const at::Tensor part = ids.narrow(1, begin, taken);
    logits =
        model_.prefill(part, positions_of(part, begin), at::full({count}, taken - 1, ids.options()),
                       cache_.rows(row, count).slots(model_.slots_for(begin + taken)));
  }
  return logits;
}

at::Tensor DecodeSteps::activate(const std::vector<int64_t>& rows,
                                 const std::vector<Sequence>& sequences, const at::Tensor& logits,
                                 bool publish) {
  std::vector<std::optional<DrawRules>> rules;
  std::vector<int64_t> staged = rows;  // then positions, then names
  for (const Sequence& sequence : sequences) {
    staged.push_back(static_cast<int64_t>(sequence.ids.size()));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (options_.mixed) {
      rules_[rows[i]] = sequences[i].draw;
      row_draws_.reset();
    }
    rules.push_back(rules_[rows[i]]);
    staged.push_back(options_.mixed ? sequences[i].draw.stream : sequences[i].name);
    idle_.erase(rows[i]);
  }
  const auto count = static_cast<int64_t>(rows.size());
  const at::Tensor columns = to_device(staged, model_.device());
  const auto* data = columns.const_data_ptr<int64_t>();
  const RowDraws how(rules, model_.device());
  const at::Tensor tokens = how.tokens(logits, no_draws_, columns.narrow(0, 2 * count, count));
  memory_.begin({.count = count,
                 .rows = data,
                 .positions = data + count,
                 .names = data + 2 * count,
                 .tokens = tokens.const_data_ptr<int64_t>(),
                 .published = publish});
  if (how.scored()) {
    const at::Tensor scores = at::zeros({count, scores_.size(1)}, scores_.options());
    how.score(logits, tokens, top_logprobs_, scores);
    scores_.index_copy_(0, columns.narrow(0, 0, count), scores);
  }
  return tokens;
}

std::vector<Choice> DecodeSteps::start(int64_t row, const std::vector<Sequence>& sequences) {
  const c10::InferenceMode inference;
  std::vector<int64_t> rows(sequences.size());
  std::iota(rows.begin(), rows.end(), row);
  const at::Tensor tokens =
      activate(rows, sequences, prefill(row, sequences), /*publish=*/false).to(at::kCPU);
  const auto* first = tokens.const_data_ptr<int64_t>();
  const std::vector<int64_t> ids(first, first + tokens.numel());
  return read_choices(ids,
                      draws().scored() ? scores_.narrow(0, row, tokens.numel()) : at::Tensor());
}

std::vector<PromptPieces::Prompt> DecodeSteps::launch_piece() {
  const c10::InferenceMode inference;
  PromptPieces::Done done = pieces().next(cache_);
  if (done.prompts.empty()) {
    return {};
  }
  Unread unread{.prompt_scores = done.prompt_scores};
  if (done.prompts.front().sequence.tokens > 0) {
    std::vector<int64_t> rows;
    std::vector<Sequence> sequences;
    for (const PromptPieces::Prompt& prompt : done.prompts) {
      rows.push_back(prompt.row);
      sequences.push_back(prompt.sequence);
      unread.scored = unread.scored || prompt.sequence.draw.scored;
    }
    activate(rows, sequences, done.logits, /*publish=*/true);
  } else {
    memory_.begin({.published = true});
  }
  unread_.push_back(std::move(unread));
  return std::move(done.prompts);
}

void DecodeSteps::apply_idle() {
  if (idle_.empty()) {
    return;
  }
  memory_.deactivate(to_device({idle_.begin(), idle_.end()}, model_.device()));
  if (options_.mixed) {
    std::ranges::for_each(idle_, [this](int64_t row) { rules_[row].reset(); });
    row_draws_.reset();
  }
  idle_.clear();
}

void DecodeSteps::clear(int64_t row) {
  const c10::InferenceMode inference;
  cache_.rows(row, 1).entries.zero_();
  pieces().clear();
}

// --- a step -----------------------------------------------------------------------------------

const RowDraws& DecodeSteps::draws() {
  if (!row_draws_) {
    row_draws_.emplace(rules_, model_.device());
  }
  return *row_draws_;
}

at::Tensor DecodeSteps::decode(int64_t slots, int64_t rows) const {
  return model_.decode(memory_.ids(rows), memory_.positions(rows),
                       cache_.rows(0, rows).slots(slots));
}

at::Tensor DecodeSteps::draw(const RowDraws& how, const at::Tensor& logits) {
  const int64_t rows = logits.size(0);
  at::Tensor tokens = how.tokens(logits, memory_.draws(rows), memory_.names(rows));
  how.score(logits, tokens, top_logprobs_, scores_);
  return tokens;
}

at::Tensor DecodeSteps::next_tokens(int64_t slots, int64_t rows) {
  const RowDraws& how = options_.mixed ? greedy_ : draws();
  if (!how.greedy() || how.scored() || !model_.has_next()) {
    return draw(how, decode(slots, rows));
  }
  return model_.next(memory_.ids(rows), memory_.positions(rows), cache_.rows(0, rows).slots(slots));
}

GraphCache::Work DecodeSteps::whole_step(int64_t slots, int64_t rows) {
  return {.key = {GraphCache::Kind::whole_step, rows, 1, slots},
          .run = [=, this] { memory_.advance_by(next_tokens(slots, rows)); },
          .warm_up = [=, this] { next_tokens(slots, rows); }};
}

GraphCache::Work DecodeSteps::step_to_logits(int64_t slots, int64_t rows) {
  const auto work = [=, this] {
    const at::Tensor logits = decode(slots, rows);
    if (!logits_.defined()) {
      logits_ = at::empty({options_.rows, logits.size(1)}, logits.options());
    }
    logits_.narrow(0, 0, rows).copy_(logits);
  };
  return {.key = {GraphCache::Kind::step_to_logits, rows, 1, slots}, .run = work, .warm_up = work};
}

void DecodeSteps::prepare() {
  const c10::InferenceMode inference;
  if (runtime_ == nullptr) {
    return;
  }
  const int64_t most_slots = model_.slots_for(model_.spec().context);
  for (int64_t slots = model_.slots_for(1);; slots = model_.slots_for(slots + 1)) {
    graphs_.prepare(whole_step(slots, options_.rows));
    graphs_.prepare(step_to_logits(slots, options_.rows));
    if (slots == most_slots) {
      break;
    }
  }
  pieces().prepare();
}

int64_t DecodeSteps::max_ahead() {
  // The scores of a step are those of the last one.
  if (runtime_ == nullptr || draws().scored()) {
    return 1;
  }
  return options_.mixed ? kStepsAheadMixed : kStepsAhead;
}

void DecodeSteps::launch(int64_t length, int64_t rows) {
  const c10::InferenceMode inference;
  apply_idle();
  const int64_t slots = model_.slots_for(length);
  const int64_t computed = runtime_ == nullptr ? rows : options_.rows;
  if (!options_.mixed || (draws().greedy() && !draws().scored())) {
    kernels_per_step_ = graphs_.run(whole_step(slots, computed));
  } else {
    kernels_per_step_ = graphs_.run(step_to_logits(slots, computed));
    memory_.advance_by(draw(draws(), logits_.narrow(0, 0, computed)));
  }
  unread_.push_back({.scored = draws().scored()});
}

DecodeSteps::Result DecodeSteps::read() {
  const c10::InferenceMode inference;
  const std::vector<int64_t> ids = memory_.read();
  const Unread unread = std::move(unread_.front());
  unread_.pop_front();
  Result result{.choices = read_choices(ids, unread.scored ? scores_ : at::Tensor())};
  if (unread.prompt_scores.defined()) {
    const auto* scores = unread.prompt_scores.const_data_ptr<float>();
    result.prompt_logprobs.assign(scores, scores + unread.prompt_scores.numel());
  }
  return result;
}

}  // namespace warpfuse::host
