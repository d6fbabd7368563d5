
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "commands/commands.h"
#include "runtime/files.h"
#include "runtime/output.h"
#include "runtime/threads.h"
#include "serve/server.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kMaxServedRows = 4096;
constexpr int64_t kMaxQueue = 4096;
constexpr int64_t kRehearsedTokens = 4;
constexpr int64_t kSpareConnections = 8;
constexpr long kSignalPollNanoseconds = 100'000'000;

constexpr Option kServeOptions[] = {
    {"m,model", "BUNDLE", "bundle folder"},
    {"host", "ADDRESS", "address to listen on; needs --api-key-file unless it is loopback",
     "127.0.0.1"},
    {"port", "PORT", "port to listen on; 0: any free port", "8080"},
    {"batch", "N", "sequences that are continued at the same time", "32"},
    {"queue", "N", "requests that may wait; more are answered 429", "256"},
    {"api-key-file", "F", "requests must send the key in the first line of this file"},
    {"timeout-s", "S", "how long a client may take to send or take, and requests to end at SIGTERM",
     "60"},
    kRewriteSwitch,
};

// Whether a header can hold the key as it is.
bool can_be_sent(const std::string& key) {
  return !std::isspace(static_cast<unsigned char>(key.front())) &&
         !std::isspace(static_cast<unsigned char>(key.back())) &&
         std::ranges::none_of(key, [](unsigned char c) { return std::iscntrl(c) != 0; });
}

Access access_of(const Arguments& arguments) {
  Access access{.host = arguments.text("host"), .api_key = {}};
  if (arguments.has("api-key-file")) {
    const std::string file = arguments.text("api-key-file");
    const std::string text = read_file(file, ExitCode::usage);
    access.api_key = text.substr(0, text.find_first_of("\r\n"));
    if (access.api_key.empty()) {
      fail(ExitCode::usage, "--api-key-file {}: the first line is empty", file);
    }
    if (!can_be_sent(access.api_key)) {
      fail(ExitCode::usage,
           "--api-key-file {}: the first line is no key that a client can send: it begins or ends "
           "with white space, or holds a control character",
           file);
    }
  } else if (!access.is_loopback()) {
    fail(ExitCode::usage,
         "--host {}: others can reach this address, so --api-key-file is needed (see --help)",
         access.host);
  }
  return access;
}

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

bool stop_signal_came() {
  const sigset_t signals = stop_signals();
  const timespec patience{.tv_sec = 0, .tv_nsec = kSignalPollNanoseconds};
  return sigtimedwait(&signals, nullptr, &patience) > 0;
}

// What has ended by itself.
struct Ended {
  std::atomic<bool> model = false;
  std::atomic<bool> http = false;
};

// Until the first signal, or the model fails; then until all requests have ended and their answers
// are sent, the time is up, or a second signal ends the process.
void watch(Scheduler& scheduler, CompletionServer& server, const Ended& ended,
           std::chrono::seconds timeout) {
  while (!ended.model && !stop_signal_came()) {
  }
  scheduler.drain();
  const auto deadline = Job::Clock::now() + timeout;
  while (!ended.model || !ended.http) {
    if (stop_signal_came()) {
      std::_Exit(static_cast<int>(ExitCode::interrupted));
    }
    if (Job::Clock::now() > deadline) {
      scheduler.cancel_all();
    }
    if (ended.model && !scheduler.has_jobs()) {
      server.stop();  // which ends streams where they are
    }
  }
}

// So that the first requests take no longer than later ones.
void prepare(DecodeLoop& loop, const LanguageModel& model) {
  loop.prepare();
  if (!loop.steps().graph_failure().empty()) {
    print_error("note: no CUDA graphs: {}\n", loop.steps().graph_failure());
  }
  const std::vector<int64_t> ids{0};
  const int64_t tokens = std::min(kRehearsedTokens, model.spec().context);
  uncounted_softmax_calls([&] { loop.rehearse(ids, tokens); });
}

ExitCode run_serve(const Arguments& arguments) {
  const int64_t rows = arguments.integer("batch", 1, kMaxServedRows);
  const int64_t queue = arguments.integer("queue", 1, kMaxQueue);
  const ServerOptions options{
      .access = access_of(arguments),
      .port = static_cast<int>(arguments.integer("port", 0, UINT16_MAX)),
      .threads = rows + queue + kSpareConnections,
      .timeout = std::chrono::seconds(arguments.integer("timeout-s", 1, 86'400))};
  const std::filesystem::path folder = arguments.text("model");
  const Bundle bundle = read_bundle(folder);
  const std::string name = std::filesystem::canonical(folder).filename().string();

  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // in the threads of libtorch, too
  choose_threads(arguments.threads(), /*watched=*/true);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const Session session = open_session(arguments, {bundle}, {"warpfuse::sample_tokens"});
  CompletionServer server(options);
  const LanguageModel model = load_language_model(bundle, session.device, arguments.has("rewrite"));
  const std::unique_ptr<CudaRuntime> runtime = open_cuda_runtime(session.device);
  DecodeLoop loop(model,
                  {.rows = rows, .sampling = {}, .top_logprobs = kMaxServedLogprobs, .mixed = true},
                  runtime.get());
  // Before graphs are captured: it counts the softmax calls in them.
  Scheduler scheduler(model, tokenizer, end_tokens_of(model.spec(), tokenizer), loop, rows, queue);
  if (runtime != nullptr) {
    prepare(loop, model);
  }

  // Before there are threads, which an exception beside them would end the process with. Clients
  // can connect already.
  print("warpfuse: {} on {}\n", name, options.access.url(server.port()));
  flush_output();
  Ended ended;
  std::exception_ptr failure;
  std::thread model_thread([&] {
    try {
      scheduler.run();
    } catch (...) {
      failure = std::current_exception();
    }
    ended.model = true;
  });
  bool listened = false;
  std::thread http_thread([&] {
    listened = server.listen(scheduler, name, model.spec(), tokenizer);
    scheduler.drain();  // also where nobody has asked for the end
    ended.http = true;
  });
  watch(scheduler, server, ended, options.timeout);
  model_thread.join();
  http_thread.join();
  if (failure) {
    std::rethrow_exception(failure);
  }
  if (!listened) {
    fail(ExitCode::check_failed, "serve: no more connections can be accepted");
  }
  return ExitCode::ok;
}

}  // namespace

Command serve_command() {
  return {.name = "serve",
          .summary = "answer requests of OpenAI's completions protocol",
          .help = "Serves a model over OpenAI's completions protocol.\n",
          .examples =
              "  warpfuse serve -m bundles/wikitext-small/fused-float32\n"
              "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"The river\"}'\n",
          .options = {{kServeOptions}, {kDeviceOptions}, {kPluginOptions}, {kTuningOption}},
          .run = run_serve};
}

}  // namespace warpfuse::host
