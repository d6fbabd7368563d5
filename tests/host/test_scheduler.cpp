// The scheduler of `warpfuse serve` with a model that only counts: what readers hear, and what it
// costs the model's thread to tell them.

#include <ctime>
#include <iostream>
#include <thread>

#include "fake_language_model.h"
#include "plugin_under_test.h"
#include "serve/answers.h"
#include "serve/scheduler.h"
#include "support/catch.h"
#include "temporary_folder.h"
#include "toy_vocabulary.h"

using namespace warpfuse::host;

namespace {

constexpr int64_t kServedContext = 1024;
constexpr std::chrono::milliseconds kPatience{20};

Tokenizer byte_tokenizer() {
  const TemporaryFolder folder;
  folder.write("vocab.json", toy_vocabulary());
  folder.write("merges.txt", "#version: 0.2\n");
  return Tokenizer::load(folder.path());
}

CompletionRequest request_of(const std::string& prompt, int64_t tokens) {
  CompletionRequest request;
  request.prompts = {{prompt.begin(), prompt.end()}};
  request.max_tokens = tokens;
  request.sampling = {};
  return request;
}

// A scheduler that runs.
class Served {
 public:
  Served(int64_t rows, int64_t queue)
      : loop_(model_, {.rows = rows, .sampling = {}, .top_logprobs = 2, .mixed = true}, nullptr),
        scheduler(model_, tokenizer, {}, loop_, rows, queue),
        thread_([this] {
          scheduler.run();
          timespec used{};
          clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
          cpu_seconds = static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
        }) {}
  ~Served() { end(); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  void end() {
    scheduler.drain();
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  // The text of a job's only choice, and why it ended.
  std::pair<std::string, FinishReason> read(Job& job) const {
    ChoiceTexts texts(job, tokenizer);
    std::string text;
    while (true) {
      for (Event& event : job.take(kPatience)) {
        if (const auto piece = texts.next(std::move(event))) {
          text += piece->text;
          if (piece->finish_reason) {
            return {text, *piece->finish_reason};
          }
        }
      }
      if (job.failure()) {
        return {*job.failure(), FinishReason::error};
      }
    }
  }

  const Tokenizer tokenizer = byte_tokenizer();
  double cpu_seconds = 0;  // of the model's thread, once it has ended

 private:
  const LanguageModel model_ = counting_model(257, kServedContext);
  DecodeLoop loop_;

 public:
  Scheduler scheduler;

 private:
  std::thread thread_;
};

}  // namespace

TEST_CASE("readers of all kinds hear their text to its end", "[serve]") {
  load_plugin_under_test();
  Served served(3, 64);
  std::vector<std::thread> readers;
  for (int i = 0; i < 24; ++i) {
    readers.emplace_back([&served, i] {
      CompletionRequest request = request_of("xyzA", 20);
      request.stream = i % 2 == 0;
      request.echo = i % 3 == 0;
      if (i % 4 == 0) {
        request.stop_texts = {"never", "HIJ"};
      }
      const std::string said = i % 4 == 0 ? "BCDEFG" : "BCDEFGHIJKLMNOPQRSTU";
      const auto [text, reason] = served.read(*served.scheduler.submit(std::move(request)));
      // Catch2's macros belong to one thread.
      if (text != (i % 3 == 0 ? "xyzA" : "") + said ||
          reason != (i % 4 == 0 ? FinishReason::stop_text : FinishReason::length)) {
        throw std::runtime_error(text);  // ends the program
      }
    });
  }
  std::ranges::for_each(readers, &std::thread::join);
  served.end();
  CHECK(served.scheduler.metrics_text().find("\nwarpfuse_rows_in_use 0\n") != std::string::npos);
}

TEST_CASE("a prompt is scored between the steps of others", "[serve]") {
  load_plugin_under_test();
  Served served(2, 4);
  const auto beside = served.scheduler.submit(request_of("A", 900));
  CompletionRequest request = request_of(std::string(1000, 'a'), 0);
  request.echo = true;
  request.logprobs = 0;
  const auto scored = served.scheduler.submit(std::move(request));
  const std::vector<Event> events = [&] {
    while (true) {
      if (std::vector<Event> taken = scored->take(kPatience); !taken.empty()) {
        return taken;
      }
    }
  }();
  REQUIRE(events.size() == 1);
  CHECK(events.front().prompt_logprobs.size() == 999);
  CHECK(events.front().finish_reason == FinishReason::length);
  CHECK(served.read(*beside).first.size() > 900);  // some of the bytes are no text
}

TEST_CASE("when the model fails, a job that has no row does so too", "[serve]") {
  load_plugin_under_test();
  const std::string fails =
      "\n        assert ids.max() < 0, 'broken'\n        return self.table[ids[:, 0]]\n";
  const LanguageModel model =
      table_model(257, 64,
                  "    def decode(self, ids, pos, cache):" + fails +
                      "    def prefill(self, ids, pos, last, cache):" + fails +
                      "    def forward(self, ids, pos, cache):" + fails);
  const Tokenizer tokenizer = byte_tokenizer();
  DecodeLoop loop(model, {.rows = 2, .sampling = {}, .top_logprobs = 2, .mixed = true}, nullptr);
  Scheduler scheduler(model, tokenizer, {}, loop, 2, 4);
  const auto in_row = scheduler.submit(request_of("A", 5));
  CompletionRequest request = request_of("B", 0);
  request.echo = true;
  const auto echoed = scheduler.submit(std::move(request));
  CHECK_THROWS(scheduler.run());
  CHECK(in_row->failure().value_or("").find("broken") != std::string::npos);
  CHECK(echoed->failure() == in_row->failure());
}

TEST_CASE("a row that nobody waits for is free within a step", "[serve]") {
  load_plugin_under_test();
  Served served(1, 4);
  const auto metric = [&](const std::string& name) {
    const std::string text = served.scheduler.metrics_text();
    return std::stod(text.substr(text.find("\nwarpfuse_" + name + " ") + name.size() + 11));
  };
  const auto left = served.scheduler.submit(request_of("A", 900));
  while (metric("tokens_total") == 0) {
    std::this_thread::yield();
  }
  left->cancel();
  const double before = metric("tokens_total");
  while (metric("rows_in_use") > 0) {
    std::this_thread::yield();
  }
  CHECK(metric("tokens_total") <= before + 1);
  CHECK(served.read(*served.scheduler.submit(request_of("A", 3))).first == "BCD");
}

// Not a test of something: says how long the model's thread works per step for 128 readers.
// build/cpu-only/bin/warpfuse_host_tests "[cost]"
TEST_CASE("the cost of a step at 128 rows", "[.cost]") {
  load_plugin_under_test();
  constexpr int64_t kRows = 128, kSteps = 900;
  const auto loop_alone = [] {
    double seconds = 0;
    std::thread([&] {
      DecodeLoop loop(counting_model(257, kServedContext),
                      {.rows = kRows, .sampling = {}, .top_logprobs = 2, .mixed = true}, nullptr);
      const std::vector<int64_t> prompt(32, 65);
      for (int64_t row = 0; row < kRows; ++row) {
        loop.enter({.name = row, .ids = prompt, .tokens = kSteps});
      }
      while (loop.free_rows() < kRows) {
        loop.next();
      }
      timespec used{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
      seconds = static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
    }).join();
    return seconds;
  };
  loop_alone();  // warms up
  const double alone = loop_alone();
  for (const bool stream : {false, true}) {
    Served served(kRows, kRows);
    std::vector<std::thread> readers;
    for (int64_t row = 0; row < kRows; ++row) {
      readers.emplace_back([&served, stream] {
        CompletionRequest request = request_of(std::string(32, 'A'), kSteps);
        request.stream = stream;
        served.read(*served.scheduler.submit(std::move(request)));
      });
    }
    std::ranges::for_each(readers, &std::thread::join);
    served.end();
    std::cout << (stream ? "streamed" : "in one piece") << ": "
              << (served.cpu_seconds - alone) / (kSteps + kRows) * 1e6 << " us per step of "
              << kRows << " rows, beside " << alone / (kSteps + kRows) * 1e6
              << " us of the loop itself\n";
  }
}
