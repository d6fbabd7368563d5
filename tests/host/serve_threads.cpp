// The server's own threads under ThreadSanitizer: 16 clients that ask for whole answers, streams
// and figures, go away, and are there still when the server ends. A decode loop that only counts
// stands for the model (counting/), since libtorch is not built for this sanitizer.

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/decode/decode_loop.h"
#include "serve/connection.h"
#include "serve/server.h"
#include "temporary_folder.h"
#include "toy_vocabulary.h"

using namespace warpfuse::host;

// The sanitizer does not see how that library, which is not built for it, makes its constants.
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
  return "called_from_lib:libcpp-httplib.so\n";
}

namespace {

constexpr int kClients = 16;
constexpr int kRequests = 60;  // of each client
constexpr int kKinds = 6;

std::atomic<int> answered = 0, failed = 0;

void expect(bool holds, const std::string& what) {
  if (!holds) {
    ++failed;
    std::cerr << "failed: " << what << "\n";
  }
}

std::string body_of(const nlohmann::json& more) {
  nlohmann::json body{{"prompt", "a"}, {"max_tokens", 12}, {"temperature", 0}};
  body.update(more);
  return body.dump();
}

void expect_texts(const httplib::Result& result, size_t count, const std::string& text) {
  if (!result || result->status == 429 ||
      (result->status >= 500 && result->body.find("shutting down") != std::string::npos)) {
    return;  // the queue is full, or the server ends
  }
  ++answered;
  const auto choices = nlohmann::json::parse(result->body).at("choices");
  expect(choices.size() == count, result->body);
  for (const auto& choice : choices) {
    expect(choice.at("text") == text, result->body);
  }
}

// Reads the first piece of a stream and goes away.
void leave(httplib::Client& client) {
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.body = body_of({{"stream", true}, {"max_tokens", 200}, {"n", 3}});
  request.content_receiver = [](const char*, size_t, uint64_t, uint64_t) { return false; };
  client.send(request);
}

void ask(httplib::Client& client, int kind) {
  const auto post = [&](const nlohmann::json& more) {
    return client.Post("/v1/completions", body_of(more), "application/json");
  };
  switch (kind) {
    case 0:
      return expect_texts(post(nlohmann::json::object()), 1, "bcdefghijklm");
    case 1:
      return expect_texts(post({{"n", 3}, {"stop", "fg"}}), 3, "bcde");
    case 2:
      return expect_texts(post({{"max_tokens", 0}, {"echo", true}, {"logprobs", 1}}), 1, "a");
    case 3: {
      const httplib::Result result = post({{"stream", true}});
      const bool is_whole =
          !result || result->status != 200 || result->body.ends_with("data: [DONE]\n\n");
      return expect(is_whole, "a stream without its end");
    }
    case 4:
      return leave(client);
    default:
      client.Get("/metrics");
      client.Post("/v1/completions", "{", "application/json");
  }
}

}  // namespace

int main() {
  const TemporaryFolder folder;
  folder.write("vocab.json", toy_vocabulary());
  folder.write("merges.txt", "#version: 0.2\n");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  LanguageModelSpec spec{};
  spec.context = 256;
  spec.vocab_size = 256;
  const LanguageModel model(spec);
  DecodeLoop loop(4);
  Scheduler scheduler(model, tokenizer, {}, loop, 4, 14);
  CompletionServer server({.access = {.host = "127.0.0.1", .api_key = {}},
                           .port = 0,
                           .threads = kClients + 4,
                           .timeout = std::chrono::seconds(5)});
  std::thread model_thread([&] { scheduler.run(); });
  std::thread http_thread([&] { server.listen(scheduler, "counting", model.spec(), tokenizer); });

  std::atomic<int> under_way = kClients;
  std::vector<std::thread> clients;
  for (int number = 0; number < kClients; ++number) {
    clients.emplace_back([&, number] {
      httplib::Client client("127.0.0.1", server.port());
      for (int i = 0; i < kRequests; ++i) {
        ask(client, (number + i) % kKinds);
      }
      --under_way;
      for (int i = 0; i < kRequests && scheduler.healthy(); ++i) {
        ask(client, i % kKinds);
      }
    });
  }
  while (under_way > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  scheduler.drain();
  scheduler.cancel_all();
  server.stop();
  for (std::thread& client : clients) {
    client.join();
  }
  model_thread.join();
  http_thread.join();
  std::cout << answered << " answers, " << failed << " wrong\n";
  return failed == 0 && answered > kClients * kRequests / kKinds ? EXIT_SUCCESS : EXIT_FAILURE;
}
