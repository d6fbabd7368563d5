// Prompts that enter a running batch by pieces, as on the CPU, and padded and in graphs with a
// runtime that plays a GPU.

#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>

#include "fake_language_model.h"
#include "fake_runtime.h"
#include "plugin_under_test.h"
#include "runtime/decode/decode_loop.h"
#include "support/catch.h"

using namespace warpfuse::host;

namespace {

constexpr int64_t kTokens = 211;
constexpr int64_t kLongContext = 300;  // no multiple of a piece

using Ids = std::vector<int64_t>;

Ids prompt_of(int64_t length, int64_t first = 7) {
  Ids ids(static_cast<size_t>(length));
  std::iota(ids.begin(), ids.end(), first);
  std::ranges::for_each(ids, [](int64_t& id) { id = id * id % kTokens; });
  return ids;
}

// What summing_model says.
Ids expected(const Ids& prompt, int64_t tokens) {
  int64_t sum = std::accumulate(prompt.begin(), prompt.end(), static_cast<int64_t>(prompt.size()));
  Ids said;
  for (int64_t i = 0; i < tokens; ++i) {
    said.push_back((sum + 1) % kTokens);
    sum += said.back() + 1;
  }
  return said;
}

DecodeOptions mixed(int64_t rows) {
  return {.rows = rows, .sampling = {}, .top_logprobs = 2, .mixed = true};
}

class Client {
 public:
  explicit Client(DecodeLoop& loop) : loop_(loop) {}
  void take() {
    for (SequenceToken& token : loop_.next()) {
      said[token.sequence].push_back(token.choice.id);
      if (!token.prompt_logprobs.empty()) {
        prompt_logprobs[token.sequence] = std::move(token.prompt_logprobs);
      }
    }
  }
  void take_all(int64_t rows) {
    for (int i = 0; loop_.free_rows() < rows; ++i) {
      REQUIRE(i < 10'000);
      take();
    }
  }

  std::map<int64_t, Ids> said;
  std::map<int64_t, std::vector<double>> prompt_logprobs;

 private:
  DecodeLoop& loop_;
};

// With a runtime and without.
void on_both(int64_t rows, const std::function<void(DecodeLoop&, Client&)>& check,
             int64_t nan = -1) {
  load_plugin_under_test();
  for (const bool graphs : {false, true}) {
    CAPTURE(graphs);
    FakeRuntime runtime;
    DecodeLoop loop(summing_model(kTokens, kLongContext, nan), mixed(rows),
                    graphs ? &runtime : nullptr);
    Client client(loop);
    check(loop, client);
  }
}

}  // namespace

TEST_CASE("prompts of all lengths enter by pieces beside running ones", "[decode]") {
  constexpr int64_t kRows = 5;
  on_both(kRows, [](DecodeLoop& loop, Client& client) {
    std::map<int64_t, Ids> prompts;
    for (const int64_t length :
         {1, 2, 31, 32, 33, 40, 127, 128, 129, 160, 161, 256, 257, 299, 300}) {
      prompts[length] = prompt_of(length, length);
      while (loop.free_rows() == 0) {
        client.take();
      }
      loop.enter({.name = length,
                  .ids = prompts[length],
                  .tokens = std::min(int64_t{9}, kLongContext - length + 1)});
    }
    client.take_all(kRows);
    for (const auto& [length, prompt] : prompts) {
      CAPTURE(length);
      CHECK(client.said[length] ==
            expected(prompt, std::min(int64_t{9}, kLongContext - length + 1)));
    }
  });
}

TEST_CASE("a step runs between two pieces of a prompt", "[decode]") {
  on_both(2, [](DecodeLoop& loop, Client& client) {
    const Ids running = prompt_of(5), entering = prompt_of(300);
    loop.enter({.name = 0, .ids = running, .tokens = 40});
    while (client.said[0].size() < 10) {
      client.take();
    }
    loop.enter({.name = 1, .ids = entering, .tokens = 1});
    const size_t before = client.said[0].size();
    while (client.said[1].empty()) {
      client.take();
    }
    // Three pieces with two steps between them, and as many steps as were launched already.
    CHECK(client.said[0].size() >= before + 2);
    CHECK(client.said[0].size() <= before + 6);
    client.take_all(2);
    CHECK(client.said[0] == expected(running, 40));
    CHECK(client.said[1] == expected(entering, 1));
  });
}

TEST_CASE("a row that has ended is drawn no more beside one of other rules", "[decode]") {
  on_both(2, [](DecodeLoop& loop, Client& client) {
    const Ids prompt = prompt_of(5);
    loop.enter({.name = 0, .ids = prompt, .tokens = 9});
    loop.enter({.name = 1, .ids = prompt, .tokens = 2, .draw = {.sampling = {.temperature = 1}}});
    client.take_all(2);
    CHECK(client.said[0] == expected(prompt, 9));
    CHECK(client.said[1].size() == 2);
  });
}

TEST_CASE("short prompts that wait together enter together, in graphs that were made before",
          "[decode]") {
  load_plugin_under_test();
  constexpr int64_t kRows = 20;
  FakeRuntime runtime;
  DecodeLoop loop(summing_model(kTokens, 64), mixed(kRows), &runtime);
  loop.prepare();
  CHECK(loop.steps().graph_failure().empty());
  const int captures = runtime.captures;
  loop.rehearse(Ids{7}, 3);  // which leaves nothing behind
  Client client(loop);
  std::vector<Ids> prompts;
  for (int64_t i = 0; i < kRows; ++i) {
    prompts.push_back(prompt_of(3 + i % 5, i));
  }
  for (int round = 0; round < 2; ++round) {
    client.said.clear();
    for (int64_t i = 0; i < kRows; ++i) {
      loop.enter({.name = i, .ids = prompts[i], .tokens = 3});
    }
    client.take();
    CHECK(client.said.size() == 16);
    client.take_all(kRows);
    for (int64_t i = 0; i < kRows; ++i) {
      CHECK(client.said[i] == expected(prompts[i], 3));
    }
  }
  CHECK(runtime.captures == captures);
}

TEST_CASE("a short prompt waits for others while rows run, but not for long", "[decode]") {
  load_plugin_under_test();
  constexpr int64_t kRows = 20, kRunning = 12;
  FakeRuntime runtime;
  DecodeLoop loop(summing_model(kTokens, 64), mixed(kRows), &runtime);
  Client client(loop);
  const Ids prompt = prompt_of(5);
  const auto enter = [&](int64_t name, int64_t tokens) {
    loop.enter({.name = name, .ids = prompt, .tokens = tokens});
  };
  for (int64_t i = 0; i < kRunning; ++i) {
    enter(i, 40);
  }
  client.take();
  CHECK(client.said.size() == kRunning);
  // Of the 12 rows half must be outweighed: by one prompt in 6 steps, by three in 2.
  const auto steps_until = [&](int64_t name) {
    const size_t before = client.said[0].size();
    while (client.said[name].empty()) {
      client.take();
    }
    return client.said[0].size() - before;
  };
  constexpr size_t kAhead = 3;  // steps that are launched already
  enter(20, 1);
  const size_t alone = steps_until(20);
  CHECK(alone >= 6);
  CHECK(alone <= 6 + kAhead);
  for (const int64_t name : {21, 22, 23}) {
    enter(name, 1);
  }
  const size_t together = steps_until(21);
  CHECK(together >= 2);
  CHECK(together <= 2 + kAhead);
  CHECK(client.said[22].size() == 1);
  CHECK(client.said[23].size() == 1);
  client.take_all(kRows);
  for (int64_t i = 0; i < kRunning; ++i) {
    CHECK(client.said[i] == expected(prompt, 40));
  }
}

TEST_CASE("a prompt is scored by pieces", "[decode]") {
  on_both(3, [](DecodeLoop& loop, Client& client) {
    for (const int64_t length : {1, 2, 32, 130, 300}) {
      CAPTURE(length);
      Ids prompt = prompt_of(length, length);
      for (size_t i = 1; i < prompt.size(); i += 3) {
        prompt[i] = expected({prompt.begin(), prompt.begin() + static_cast<int64_t>(i)}, 1).front();
      }
      const Ids beside = prompt_of(40);
      client.said.clear();
      client.prompt_logprobs.clear();
      loop.enter({.name = 0, .ids = prompt, .tokens = 0, .prompt_scored = true});
      loop.enter({.name = 1, .ids = beside, .tokens = 4});
      loop.enter({.name = 2, .ids = prompt, .tokens = 1, .prompt_scored = true});
      client.take_all(3);
      CHECK(client.said[0].size() == 1);  // no choice, but the end
      CHECK(client.said[1] == expected(beside, 4));
      CHECK(client.said[2] == expected(prompt, 1));
      // Logits are 1 for the token that is said and 0 for the others.
      const double norm = std::log(std::numbers::e + kTokens - 1);
      std::vector<double> wanted;
      for (size_t i = 1; i < prompt.size(); ++i) {
        const Ids before(prompt.begin(), prompt.begin() + static_cast<int64_t>(i));
        wanted.push_back((prompt[i] == expected(before, 1).front() ? 1 : 0) - norm);
      }
      for (const int64_t name : {0, 2}) {
        const std::vector<double>& scores = client.prompt_logprobs[name];
        REQUIRE(scores.size() == wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
          CHECK(std::abs(scores[i] - wanted[i]) < 1e-5);
        }
      }
    }
  });
}

TEST_CASE("a prompt that is stopped half in leaves nothing behind", "[decode]") {
  on_both(2, [](DecodeLoop& loop, Client& client) {
    const Ids stopped = prompt_of(290), next = prompt_of(200, 3), beside = prompt_of(4);
    loop.enter({.name = 0, .ids = beside, .tokens = 30});
    client.take();
    loop.enter({.name = 1, .ids = stopped, .tokens = 5});
    client.take();
    client.take();
    loop.stop(1);
    CHECK(loop.free_rows() == 1);
    loop.enter({.name = 2, .ids = next, .tokens = 5});
    client.take_all(2);
    CHECK(client.said[0] == expected(beside, 30));
    CHECK(client.said.count(1) == 0);
    CHECK(client.said[2] == expected(next, 5));
  });
}

TEST_CASE("a NaN does not outlive its sequence in the caches", "[decode]") {
  constexpr int64_t kNan = kTokens - 1;
  const auto check = [](DecodeLoop& loop, Client& client) {
    Ids poison = prompt_of(20);
    poison.back() = kNan;
    loop.enter({.name = 0, .ids = poison, .tokens = 5});
    client.take();
    CHECK(client.said[0] == Ids{-1});
    loop.stop_poisoned(0);
    loop.rehearse(Ids{kNan}, 2);
    const Ids next = prompt_of(3);
    loop.enter({.name = 1, .ids = next, .tokens = 30});
    client.take_all(1);
    CHECK(client.said[1] == expected(next, 30));
  };
  on_both(1, check, kNan);
}

TEST_CASE("a sequence that gave NaN leaves a prompt that is half in alone", "[decode]") {
  on_both(2, [](DecodeLoop& loop, Client& client) {
    const Ids poisoned = prompt_of(4), entering = prompt_of(290);
    loop.enter({.name = 0, .ids = poisoned, .tokens = 30});
    client.take();
    loop.enter({.name = 1, .ids = entering, .tokens = 5});
    client.take();
    loop.stop_poisoned(0);
    client.take_all(2);
    CHECK(client.said[1] == expected(entering, 5));
  });
}
