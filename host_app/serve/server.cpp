#include "serve/server.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "runtime/parse.h"
#include "serve/answers.h"
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

// A request that is being answered. Counts how it ended, and frees its rows if its answer ended
// before it.
struct Reply {
  Reply(const std::shared_ptr<Job>& asked, const Tokenizer& tokenizer,
        const std::string& model_name, Metrics& counts)
      : job(asked), texts(*job, tokenizer), answers(*job, tokenizer, model_name), metrics(counts) {}
  ~Reply() {
    metrics.count_request(ok ? "ok" : job->failure() ? "error" : "cancelled");
    job->cancel();
  }
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  std::shared_ptr<Job> job;
  ChoiceTexts texts;
  Answer answers;
  Metrics& metrics;
  bool ok = false;
};

void send_whole(Reply& reply, Response& response) {
  while (!reply.answers.finished()) {
    std::vector<Event> events = next_events(*reply.job, *Connection::current());
    if (events.empty()) {
      throw ApiError(500, reply.job->failure().value_or("the client has closed the connection"));
    }
    for (Event& event : events) {
      if (const std::optional<Piece> piece = reply.texts.next(std::move(event))) {
        reply.answers.add(*piece);
      }
    }
  }
  reply.ok = true;
  answer(response, reply.answers.whole());
}

// Sends what there is; false: the stream ends here without its end.
bool send_events(Reply& reply, httplib::DataSink& sink) {
  auto& [job, texts, answers, metrics, ok] = reply;
  std::string sent;
  const auto add = [&](const std::string& data) { sent += "data: " + data + "\n\n"; };
  const auto send = [&] { return sent.empty() || sink.write(sent.data(), sent.size()); };
  std::vector<Event> events = next_events(*job, *Connection::current());
  if (events.empty()) {
    if (const std::optional<std::string> failure = job->failure()) {
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
    if (job->request.include_usage) {
      add(dump(answers.usage_chunk()));
    }
    add("[DONE]");
  }
  if (!send()) {
    return false;
  }
  if (answers.finished()) {
    ok = true;
    sink.done();
  }
  return true;
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

CompletionServer::CompletionServer(const ServerOptions& options)
    : access_(options.access), server_(kMaxBodyBytes + kMaxHeadBytes, options.timeout) {
  server_.new_task_queue = [threads = options.threads] {
    return new httplib::ThreadPool(static_cast<size_t>(threads));  // the server's own
  };
  // httplib's own choice, SO_REUSEPORT, would let two servers share a port.
  server_.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  server_.set_tcp_nodelay(true);
  server_.set_payload_max_length(kMaxBodyBytes);
  server_.set_keep_alive_max_count(SIZE_MAX);
  errno = 0;
  port_ = options.port;
  const bool bound = port_ != 0 ? server_.bind_to_port(access_.host, port_)
                                : (port_ = server_.bind_to_any_port(access_.host)) > 0;
  if (!bound || !server_.let_many_connect()) {
    fail(ExitCode::usage, "--host {} --port {}: cannot be listened on: {}", access_.host,
         options.port,
         errno == 0 ? "no address of this machine"  // the look-up of a name sets no errno
                    : std::error_code(errno, std::generic_category()).message());
  }
}

void CompletionServer::route_fixed(Scheduler& scheduler, const std::string& model_name) {
  server_.set_pre_routing_handler([this](const Request& request, Response& response) {
    try {
      if (request.get_header_value_count("Host") > 1) {
        throw ApiError(400, "the header Host is there more than once");
      }
      access_.require_same_site(request.get_header_value("Host"),
                                request.get_header_value("Origin"));
      if (request.path != "/health" && request.path != "/") {
        access_.require_key(request.get_header_value("Authorization"));
      }
      // httplib would unpack a body of any size.
      if (request.has_header("Content-Encoding") &&
          request.get_header_value("Content-Encoding") != "identity") {
        throw ApiError(415, "a body with a Content-Encoding is not served");
      }
      return httplib::Server::HandlerResponse::Unhandled;
    } catch (const ApiError& error) {
      answer(response, error);
      return httplib::Server::HandlerResponse::Handled;
    }
  });
  server_.Get("/", [](const Request&, Response& response) {
    response.set_header("Content-Security-Policy",
                        "default-src 'none'; style-src 'unsafe-inline'; script-src "
                        "'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'");
    response.set_content(kPage, "text/html; charset=utf-8");
  });
  server_.Get("/health", [&](const Request&, Response& response) {
    const bool healthy = scheduler.healthy();
    answer(response, {{"status", healthy ? "ok" : "shutting down"}}, healthy ? 200 : 503);
  });
  server_.Get("/metrics", [&](const Request&, Response& response) {
    response.set_content(scheduler.metrics_text(), "text/plain; version=0.0.4; charset=utf-8");
  });
  server_.Get("/v1/models", [model_name](const Request&, Response& response) {
    const AnswerJson model{
        {"id", model_name}, {"object", "model"}, {"created", 0}, {"owned_by", "warpfuse"}};
    answer(response, {{"object", "list"}, {"data", AnswerJson::array({model})}});
  });
  server_.Post("/v1/chat/completions", [](const Request&, Response&) {
    throw ApiError(404, "chat is not served, /v1/completions is", "", "unsupported_endpoint");
  });
}

void CompletionServer::handle_errors() {
  server_.set_exception_handler(
      [](const Request&, Response& response, const std::exception_ptr& failure) {
        report_failure(failure, response);
      });
  // What httplib itself refuses.
  server_.set_error_handler([](const Request& request, Response& response) {
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

bool CompletionServer::listen(Scheduler& scheduler, const std::string& model_name,
                              const LanguageModelSpec& spec, const Tokenizer& tokenizer) {
  route_fixed(scheduler, model_name);
  handle_errors();
  server_.Post("/v1/completions", [&](const Request& request, Response& response) {
    std::shared_ptr<Job> job;
    try {
      job = scheduler.submit(parse_completion(request.body, model_name, spec, tokenizer));
    } catch (...) {
      scheduler.metrics().count_request("refused");
      throw;
    }
    const auto reply = std::make_shared<Reply>(job, tokenizer, model_name, scheduler.metrics());
    if (!job->request.stream) {
      return send_whole(*reply, response);
    }
    response.set_header("Cache-Control", "no-cache");
    const auto events = [reply](size_t /*offset*/, httplib::DataSink& sink) {
      try {
        return send_events(*reply, sink);
      } catch (...) {  // httplib catches what handlers throw, and not what this does
        reply->job->fail(describe(std::current_exception(), ExitCode::check_failed).message);
        return false;
      }
    };
    if (request.version == "HTTP/1.0") {  // it has no chunks: the stream ends with the connection
      response.set_header("Connection", "close");
      Connection::current()->close_after();
      response.set_content_provider("text/event-stream", events);
    } else {
      response.set_chunked_content_provider("text/event-stream", events);
    }
  });
  return server_.run();
}

}  // namespace warpfuse::host
