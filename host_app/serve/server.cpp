#include "serve/server.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "runtime/errors.h"
#include "runtime/parse.h"
#include "serve/answers.h"
#include "serve/connection.h"
#include "serve/page.h"

namespace warpfuse::host {
namespace {

using httplib::Request;
using httplib::Response;

constexpr size_t kMaxBodyBytes = size_t{1} << 20;
constexpr size_t kMaxHeadBytes = size_t{1} << 16;
constexpr std::chrono::milliseconds kLookForClient{20};
constexpr const char* kJsonType = "application/json";

void answer(Response& response, const AnswerJson& json, int status = 200) {
  response.status = status;
  response.set_content(dump(json), kJsonType);
}

void answer(Response& response, const ApiError& error) {
  if (error.status == 429) {
    response.set_header("Retry-After", "1");
  }
  if (error.status == 401) {
    response.set_header("WWW-Authenticate", "Bearer");
  }
  answer(response, error_json(error), error.status);
}

// What a job says next to a client that waits for it; nothing: the client is gone, or the job
// failed.
std::vector<Event> next_events(Job& job, const Connection& connection) {
  while (!connection.gone() && !job.failure()) {
    if (std::vector<Event> events = job.take(kLookForClient); !events.empty()) {
      return events;
    }
  }
  return {};
}

// Counts how a request ended, and frees its rows if its answer ended before it.
class Outcome {
 public:
  Outcome(std::shared_ptr<Job> job, Metrics& metrics) : job_(std::move(job)), metrics_(metrics) {}
  ~Outcome() {
    metrics_.count_request(ok ? "ok" : job_->failure() ? "error" : "cancelled");
    job_->cancel();
  }
  Outcome(const Outcome&) = delete;
  Outcome& operator=(const Outcome&) = delete;

  bool ok = false;

 private:
  std::shared_ptr<Job> job_;
  Metrics& metrics_;
};

void send_whole(const std::shared_ptr<Job>& job, ChoiceTexts& texts, Answer& answers,
                Metrics& metrics, Response& response) {
  Outcome outcome(job, metrics);
  while (!answers.finished()) {
    std::vector<Event> events = next_events(*job, *Connection::current());
    if (events.empty()) {
      throw ApiError(500, job->failure().value_or("the client has closed the connection"));
    }
    for (Event& event : events) {
      if (const std::optional<Piece> piece = texts.next(std::move(event))) {
        answers.add(*piece);
      }
    }
  }
  outcome.ok = true;
  answer(response, answers.whole());
}

// Sends what there is; false: the stream ends here without its end.
bool send_events(Job& job, ChoiceTexts& texts, Answer& answers, httplib::DataSink& sink) {
  std::string sent;
  const auto add = [&](const std::string& data) { sent += "data: " + data + "\n\n"; };
  const auto send = [&] { return sent.empty() || sink.write(sent.data(), sent.size()); };
  std::vector<Event> events = next_events(job, *Connection::current());
  if (events.empty()) {
    if (const std::optional<std::string> failure = job.failure()) {
      add(dump(error_json(ApiError(500, *failure))));
      send();
    }
    return false;
  }
  for (Event& event : events) {
    if (const std::optional<Piece> piece = texts.next(std::move(event))) {
      add(answers.chunk(*piece));
    }
  }
  if (answers.finished()) {
    if (job.request.include_usage) {
      add(dump(answers.usage_chunk()));
    }
    add("[DONE]");
  }
  if (!send()) {
    return false;
  }
  if (answers.finished()) {
    sink.done();
  }
  return true;
}

void send_stream(const std::shared_ptr<Job>& job, const std::shared_ptr<ChoiceTexts>& texts,
                 const std::shared_ptr<Answer>& answers, Metrics& metrics, Response& response) {
  const auto outcome = std::make_shared<Outcome>(job, metrics);
  response.set_header("Cache-Control", "no-cache");
  response.set_chunked_content_provider(
      "text/event-stream", [=](size_t /*offset*/, httplib::DataSink& sink) {
        const bool goes_on = send_events(*job, *texts, *answers, sink);
        outcome->ok = goes_on && answers->finished();
        return goes_on;
      });
}

void report_failure(const std::exception_ptr& failure, Response& response) {
  try {
    std::rethrow_exception(failure);
  } catch (const ApiError& error) {
    answer(response, error);
  } catch (...) {
    answer(response, ApiError(500, describe(failure, ExitCode::check_failed).message));
  }
}

}  // namespace

struct CompletionServer::Implementation {
  explicit Implementation(const ServerOptions& options)
      : access(options.access), server(kMaxBodyBytes + kMaxHeadBytes, options.timeout) {}

  void bind(const ServerOptions& options);
  void route_fixed(Scheduler& scheduler, const std::string& model_name);
  void handle_errors();

  Access access;
  BoundedServer server;
  int port = 0;
};

void CompletionServer::Implementation::bind(const ServerOptions& options) {
  server.new_task_queue = [threads = options.threads] {
    return new httplib::ThreadPool(static_cast<size_t>(threads));  // the server's own
  };
  // httplib's own choice, SO_REUSEPORT, would let two servers share a port.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server.set_tcp_nodelay(true);
  server.set_payload_max_length(kMaxBodyBytes);
  server.set_keep_alive_max_count(SIZE_MAX);
  errno = 0;
  port = options.port;
  const bool bound = port != 0 ? server.bind_to_port(access.host, port)
                               : (port = server.bind_to_any_port(access.host)) > 0;
  if (!bound || !server.let_many_connect()) {
    fail(ExitCode::usage, "--host {} --port {}: cannot be listened on: {}", access.host,
         options.port, std::error_code(errno, std::generic_category()).message());
  }
}

void CompletionServer::Implementation::route_fixed(Scheduler& scheduler,
                                                   const std::string& model_name) {
  server.set_pre_routing_handler([this](const Request& request, Response& response) {
    try {
      if (request.get_header_value_count("Host") > 1) {
        throw ApiError(400, "the header Host is there more than once");
      }
      access.require_same_site(request.get_header_value("Host"),
                               request.get_header_value("Origin"));
      if (request.path != "/health" && request.path != "/") {
        access.require_key(request.get_header_value("Authorization"));
      }
      return httplib::Server::HandlerResponse::Unhandled;
    } catch (const ApiError& error) {
      answer(response, error);
      return httplib::Server::HandlerResponse::Handled;
    }
  });
  server.Get("/", [](const Request&, Response& response) {
    response.set_header("Content-Security-Policy",
                        "default-src 'none'; style-src 'unsafe-inline'; script-src "
                        "'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'");
    response.set_content(kPage, "text/html; charset=utf-8");
  });
  server.Get("/health", [&](const Request&, Response& response) {
    const bool healthy = scheduler.healthy();
    answer(response, {{"status", healthy ? "ok" : "shutting down"}}, healthy ? 200 : 503);
  });
  server.Get("/metrics", [&](const Request&, Response& response) {
    response.set_content(scheduler.metrics_text(), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.Get("/v1/models", [model_name](const Request&, Response& response) {
    const AnswerJson model{
        {"id", model_name}, {"object", "model"}, {"created", 0}, {"owned_by", "warpfuse"}};
    answer(response, {{"object", "list"}, {"data", AnswerJson::array({model})}});
  });
  server.Post("/v1/chat/completions", [](const Request&, Response&) {
    throw ApiError(404, "chat is not served, /v1/completions is", "", "unsupported_endpoint");
  });
}

void CompletionServer::Implementation::handle_errors() {
  server.set_exception_handler(
      [](const Request&, Response& response, const std::exception_ptr& failure) {
        report_failure(failure, response);
      });
  // What httplib itself refuses.
  server.set_error_handler([](const Request& request, Response& response) {
    if (!response.body.empty()) {
      return;
    }
    const Connection* connection = Connection::current();
    if (connection != nullptr && connection->sent_too_much()) {
      response.status = 413;
    }
    const std::string message =
        response.status == 413   ? fmt::format("a body of more than {} bytes", kMaxBodyBytes)
        : response.status == 404 ? "there is no " + request.method + " " + request.path
                                 : "the request is not understood";
    answer(response, ApiError(response.status, message));
  });
}

CompletionServer::CompletionServer(const ServerOptions& options)
    : implementation_(std::make_unique<Implementation>(options)) {
  implementation_->bind(options);
}

CompletionServer::~CompletionServer() = default;

int CompletionServer::port() const { return implementation_->port; }

void CompletionServer::listen(Scheduler& scheduler, const std::string& model_name,
                              const LanguageModelSpec& spec, const Tokenizer& tokenizer) {
  implementation_->route_fixed(scheduler, model_name);
  implementation_->handle_errors();
  implementation_->server.Post("/v1/completions", [&](const Request& request, Response& response) {
    std::shared_ptr<Job> job;
    try {
      job = scheduler.submit(parse_completion(request.body, model_name, spec, tokenizer));
    } catch (...) {
      scheduler.metrics().count_request("refused");
      throw;
    }
    const auto texts = std::make_shared<ChoiceTexts>(*job, tokenizer);
    const auto answers = std::make_shared<Answer>(*job, tokenizer, model_name);
    if (job->request.stream) {
      send_stream(job, texts, answers, scheduler.metrics(), response);
    } else {
      send_whole(job, *texts, *answers, scheduler.metrics(), response);
    }
  });
  implementation_->server.listen_after_bind();
}

void CompletionServer::stop() { implementation_->server.stop(); }

}  // namespace warpfuse::host
