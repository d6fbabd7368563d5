// The loop of decode steps with a runtime that plays a GPU: graphs, their failure, and a device
// that ends without a token. What real graphs compute is tested with the whole program.

#include "failure_of.h"
#include "fake_language_model.h"
#include "fake_runtime.h"
#include "plugin_under_test.h"
#include "runtime/decode/decode_loop.h"
#include "runtime/decode/generation.h"
#include "support/catch.h"

using namespace warpfuse::host;

namespace {

constexpr int64_t kVocabulary = 50;

DecodeLoop loop_of(int64_t rows, FakeRuntime* runtime,
                   const LanguageModel& model = counting_model(kVocabulary, 64)) {
  return {model, {.rows = rows, .sampling = {}, .top_logprobs = {}}, runtime};
}

// The tokens of a sequence after `prompt`.
std::vector<int64_t> continuation(DecodeLoop& loop, const std::vector<int64_t>& prompt, int count) {
  std::vector<int64_t> tokens;
  for (auto sampled = loop.start({{.name = 0, .ids = prompt, .tokens = count}}); !sampled.empty();
       sampled = loop.next()) {
    tokens.push_back(sampled.front().choice.id);
  }
  return tokens;
}

const std::vector<int64_t> kPrompt{3, 4};
const std::vector<int64_t> kSaid{5, 6, 7, 8, 9, 10};

class Collector : public TokenSink {
 public:
  explicit Collector(size_t prompts) : ids(prompts), reasons(prompts) {}
  bool on_token(size_t prompt, const Choice& choice, bool is_end) override {
    ends += is_end ? 1 : 0;
    ids[prompt].push_back(choice.id);
    if (++tokens == 3 && on_third) {
      on_third();
    }
    return choice.id != stop_at;
  }
  void on_finish(size_t prompt, FinishReason reason) override { reasons[prompt] = reason; }

  int64_t stop_at = -2;
  int tokens = 0;
  int ends = 0;
  std::function<void()> on_third;
  std::vector<std::vector<int64_t>> ids;
  std::vector<FinishReason> reasons;
};

}  // namespace

TEST_CASE("steps are replays of graphs that share memory", "[decode]") {
  load_plugin_under_test();
  FakeRuntime runtime;
  DecodeLoop loop = loop_of(1, &runtime);
  CHECK(continuation(loop, kPrompt, 6) == kSaid);
  CHECK(loop.steps().graph_failure().empty());
  CHECK(loop.steps().kernels_per_step() == 1);
  // On the CPU each length is a size of its own.
  CHECK(runtime.captures >= 5);
  CHECK(runtime.shared_memory == runtime.captures - 1);
}

TEST_CASE("a capture that fails is said in a line, and steps go on without", "[decode]") {
  load_plugin_under_test();
  FakeRuntime runtime;
  runtime.can_capture = false;
  DecodeLoop loop = loop_of(1, &runtime);
  CHECK(continuation(loop, kPrompt, 6) == kSaid);
  CHECK(loop.steps().graph_failure() == "operation not permitted");
  CHECK(runtime.captures == 1);
  CHECK(loop.steps().kernels_per_step() == 0);
}

TEST_CASE("a device that ends without a token is an error, not a wait", "[decode]") {
  load_plugin_under_test();
  FakeRuntime runtime;
  runtime.publishes = false;
  DecodeLoop loop = loop_of(1, &runtime);
  CHECK(failure_of([&] { continuation(loop, kPrompt, 2); }) ==
        "5: decode: the GPU ended step 0 without a token");
}

TEST_CASE("a failure finishes every prompt, so that nothing that was said is lost", "[decode]") {
  load_plugin_under_test();
  FakeRuntime runtime;
  DecodeLoop loop = loop_of(1, &runtime);
  Collector sink(3);
  sink.on_third = [&] { runtime.publishes = false; };
  const std::vector<std::vector<int64_t>> prompts{{1}, {2, 3}, {4}};
  CHECK_THROWS(generate(loop, prompts, 64, {.max_tokens = 2, .end_tokens = {}}, sink));
  CHECK(sink.ids == std::vector<std::vector<int64_t>>{{2}, {4, 5}, {}});
  CHECK(sink.reasons[0] == FinishReason::error);
  CHECK(sink.reasons[1] == FinishReason::length);
  CHECK(sink.reasons[2] == FinishReason::error);
}

TEST_CASE("caches that do not fit are an error that says what would", "[decode]") {
  FakeRuntime runtime;
  runtime.free_bytes = int64_t{20} * 2 * 64 * 2 * 4;  // of 20 sequences, in float32
  CHECK_NOTHROW(loop_of(20, &runtime));
  CHECK(failure_of([&] { loop_of(21, &runtime); }) ==
        "5: out of GPU memory: the keys and values of 21 sequences take 0.00 GB, 0.00 GB are "
        "free; 20 sequences would fit");
  runtime.kept_bytes = int64_t{2} * 64 * 2 * 4;
  CHECK_NOTHROW(loop_of(21, &runtime));
  CHECK(failure_of([] { counting_model(kVocabulary, 64).make_cache(int64_t{1} << 40, 64); }) ==
        "5: out of memory: the keys and values of 1099511627776 sequences of 64 tokens take "
        "0.000 GB each");
}

TEST_CASE("a cache has slots for the longest sequence that is wanted", "[decode]") {
  load_plugin_under_test();
  const LanguageModel model = summing_model(kVocabulary, 64);
  FakeRuntime runtime;
  runtime.free_bytes = int64_t{20} * model.cache_bytes(1, 16);
  const auto loop = [&](int64_t rows, int64_t max_length, FakeRuntime* gpu) {
    return DecodeLoop(
        model, {.rows = rows, .sampling = {}, .top_logprobs = {}, .max_length = max_length}, gpu);
  };
  CHECK_NOTHROW(loop(20, 16, &runtime));
  CHECK_THROWS(loop(20, 17, &runtime));
  DecodeLoop whole = loop(1, 0, nullptr), exact = loop(1, 8, nullptr), most = loop(1, 99, nullptr);
  // The last of 7 tokens needs no slot.
  const std::vector<int64_t> said = continuation(whole, kPrompt, 7);
  CHECK(continuation(exact, kPrompt, 7) == said);
  CHECK(continuation(most, kPrompt, 7) == said);
  DecodeLoop shorter = loop(1, 7, nullptr);
  CHECK_THROWS(continuation(shorter, kPrompt, 7));
}

TEST_CASE("a sequence that was stopped gives no more tokens, and its row goes to the next",
          "[decode]") {
  load_plugin_under_test();
  FakeRuntime runtime;  // with steps ahead
  DecodeLoop loop = loop_of(2, &runtime);
  const std::vector<int64_t> first{3}, second{20}, third{30};
  CHECK(loop.free_rows() == 2);
  loop.start({{.name = 0, .ids = first, .tokens = 9}, {.name = 1, .ids = second, .tokens = 3}});
  CHECK(loop.free_rows() == 0);
  CHECK(loop.next().size() == 2);
  loop.stop(0);
  CHECK(loop.free_rows() == 1);
  CHECK(loop.start({{.name = 2, .ids = third, .tokens = 2}}).front().choice.id == 31);
  const auto rest = loop.next();  // launched before sequence 0 was stopped
  REQUIRE(rest.size() == 1);
  CHECK(rest.front().sequence == 1);
  CHECK(rest.front().choice.id == 23);
  std::vector<int64_t> last;
  while (last.empty()) {
    for (const auto& token : loop.next()) {
      CHECK(token.sequence == 2);
      last.push_back(token.choice.id);
    }
  }
  CHECK(last == std::vector<int64_t>{32});
  CHECK(loop.free_rows() == 2);
  loop.stop(2);  // has ended
}

TEST_CASE("more prompts than rows, ends of all kinds", "[decode]") {
  load_plugin_under_test();
  constexpr int64_t kContext = 20;
  const std::vector<std::vector<int64_t>> prompts{
      {1}, {1, 2, 3, 4, 5, 6}, std::vector<int64_t>(kContext, 30), {44}, {7, 8}, {12, 11}};
  for (const int64_t rows : {1, 2, 3, 6}) {
    CAPTURE(rows);
    DecodeLoop loop = loop_of(rows, nullptr, counting_model(kVocabulary, kContext));
    Collector sink(prompts.size());
    sink.stop_at = 10;
    const auto totals =
        generate(loop, prompts, kContext, {.max_tokens = 17, .end_tokens = {49, 3}}, sink);
    const auto counting = [](int64_t first, int64_t last) {
      std::vector<int64_t> ids;
      for (int64_t id = first; id <= last; ++id) {
        ids.push_back(id);
      }
      return ids;
    };
    CHECK(sink.ids[0] == counting(2, 3));
    CHECK(sink.reasons[0] == FinishReason::end_of_text);
    CHECK(sink.ids[1] == counting(7, 10));
    CHECK(sink.reasons[1] == FinishReason::stop_text);
    CHECK(sink.ids[2] == counting(31, 31));  // the context is full after one
    CHECK(sink.reasons[2] == FinishReason::context);
    CHECK(sink.ids[3] == counting(45, 49));
    CHECK(sink.reasons[3] == FinishReason::end_of_text);
    CHECK(sink.ids[4] == counting(9, 10));
    CHECK(sink.ids[5] == counting(12, 28));
    CHECK(sink.reasons[5] == FinishReason::length);
    CHECK(sink.ends == 2);
    CHECK(totals.full_contexts == 1);
    CHECK(totals.prompt_tokens == 1 + 6 + kContext + 1 + 2 + 2);
    CHECK_FALSE(totals.interrupted);
  }
}

TEST_CASE("a model writes to copies of its arguments", "[decode]") {
  load_plugin_under_test();
  for (const std::string writing :
       {"ids.add_(1000)\n        return self.table[(ids - 1000)[:, 0]]",
        "first = ids.clone()\n        ids.resize_([100000])\n        return self.table[first[:, "
        "0]]",
        "pos.fill_(1000)\n        return self.table[ids[:, 0]]",
        "pos.view([-1]).zero_()\n        return self.table[ids[:, 0]]"}) {
    CAPTURE(writing);
    for (const bool scored : {false, true}) {
      DecodeLoop loop(counting_model(kVocabulary, 64, writing),
                      {.rows = 1,
                       .sampling = {},
                       .top_logprobs = scored ? std::optional<int64_t>(2) : std::nullopt},
                      nullptr);
      CHECK(continuation(loop, kPrompt, 6) == kSaid);
    }
  }
}

TEST_CASE("no more of the most probable tokens are counted than there are", "[decode]") {
  load_plugin_under_test();
  DecodeLoop loop(counting_model(kVocabulary, 64), {.rows = 1, .sampling = {}, .top_logprobs = 100},
                  nullptr);
  const auto sampled = loop.start({{.name = 0, .ids = kPrompt, .tokens = 1}});
  CHECK(sampled.at(0).choice.top_logprobs.size() == kVocabulary);
}

TEST_CASE("logits of another shape are refused", "[decode]") {
  load_plugin_under_test();
  for (const auto& [decode, found] : std::vector<std::pair<std::string, std::string>>{
           {"return self.table[ids]", "Float [1, 1, 50]"},
           {"return self.table[ids[:, 0]][:, :1]", "Float [1, 1]"},
           {"return self.table[:3]", "Float [3, 50]"},
           {"return self.table[:0]", "Float [0, 50]"},
           {"return self.table[0, 0]", "Float []"},
           {"return ids.expand([1, 50])", "Long [1, 50]"}}) {
    DecodeLoop loop = loop_of(1, nullptr, counting_model(kVocabulary, 64, decode));
    CHECK(failure_of([&] { continuation(loop, kPrompt, 2); }) ==
          "3: decode: expected logits [1, 50] on cpu, got " + found + " on cpu");
  }
}
