#include "serve/answers.h"

#include <ctime>
#include <random>

#include "runtime/parse.h"

namespace warpfuse::host {
namespace {

// A token as the protocol shows it, also where its bytes are no whole code points.
std::string shown_token(const std::string& bytes) {
  Utf8Stream utf8;
  std::string text = utf8.push(bytes) + utf8.finish();
  if (text == bytes) {
    return text;
  }
  text = "bytes:";
  for (const char byte : bytes) {
    text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

size_t characters_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

AnswerJson empty_logprobs() {
  return {{"tokens", AnswerJson::array()},
          {"token_logprobs", AnswerJson::array()},
          {"top_logprobs", AnswerJson::array()},
          {"text_offset", AnswerJson::array()}};
}

AnswerJson reason_of(const Piece& piece) {
  if (!piece.finish_reason) {
    return nullptr;
  }
  const bool is_stop = *piece.finish_reason == FinishReason::end_of_text ||
                       *piece.finish_reason == FinishReason::stop_text;
  return is_stop ? "stop" : "length";
}

}  // namespace

std::optional<Piece> ChoiceTexts::next(Event event) {
  Text& text = texts_[event.choice];
  if (text.ended) {
    return std::nullopt;
  }
  Piece piece{.choice = event.choice,
              .prompt_logprobs = std::move(event.prompt_logprobs),
              .token = std::move(event.token),
              .finish_reason = event.finish_reason};
  if (!std::exchange(text.begun, true) && job_.request.echo) {
    piece.echoes = true;
    piece.text = text.output.show(tokenizer_.decode(job_.request.prompt_of(event.choice)));
  }
  if (piece.token) {
    piece.text += text.output.push(tokenizer_.bytes(piece.token->id));
  }
  if (text.output.stopped()) {
    piece.finish_reason = FinishReason::stop_text;
    job_.stop(event.choice);
  }
  if (piece.finish_reason) {
    piece.text += text.output.finish();
    text.ended = true;
  }
  return piece;
}

AnswerJson error_json(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? AnswerJson(nullptr) : AnswerJson(text);
  };
  const char* type = error.status >= 500   ? "server_error"
                     : error.status == 401 ? "authentication_error"
                     : error.status == 403 ? "permission_error"
                     : error.status == 429 ? "rate_limit_error"
                                           : "invalid_request_error";
  return {{"error",
           {{"message", error.what()},
            {"type", type},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

Answer::Answer(const Job& job, const Tokenizer& tokenizer, std::string model_name)
    : job_(job),
      tokenizer_(tokenizer),
      model_name_(std::move(model_name)),
      id_(fmt::format("cmpl-{:08x}{:08x}", std::random_device()(), std::random_device()())),
      created_(std::time(nullptr)),
      said_(job.request.choices()) {
  for (Said& said : said_) {
    said.logprobs = job.request.logprobs ? empty_logprobs() : AnswerJson(nullptr);
  }
}

AnswerJson Answer::head() const {
  return {
      {"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_name_}};
}

AnswerJson Answer::usage() const {
  const int64_t prompt = job_.request.prompt_tokens();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion_tokens_},
          {"total_tokens", prompt + completion_tokens_}};
}

void Answer::add_prompt_logprobs(const Piece& piece, size_t& offset, AnswerJson& logprobs) const {
  const std::vector<int64_t>& prompt = job_.request.prompt_of(piece.choice);
  for (size_t i = 0; i < prompt.size(); ++i) {
    const std::string token = shown_token(tokenizer_.bytes(prompt[i]));
    logprobs["tokens"].push_back(token);
    logprobs["token_logprobs"].push_back(i == 0 ? AnswerJson(nullptr)
                                                : AnswerJson(piece.prompt_logprobs[i - 1]));
    logprobs["top_logprobs"].push_back(nullptr);
    logprobs["text_offset"].push_back(offset);
    offset += characters_of(tokenizer_.bytes(prompt[i]));
  }
}

AnswerJson Answer::logprobs_of(const Piece& piece, size_t& offset) const {
  if (!job_.request.logprobs) {
    return nullptr;
  }
  AnswerJson logprobs = empty_logprobs();
  if (piece.echoes) {
    add_prompt_logprobs(piece, offset, logprobs);
  }
  if (piece.token) {
    const Choice& choice = *piece.token;
    const std::string& bytes = tokenizer_.bytes(choice.id);
    logprobs["tokens"].push_back(shown_token(bytes));
    logprobs["token_logprobs"].push_back(choice.logprob);
    AnswerJson top = AnswerJson::object();
    const auto count =
        std::min(static_cast<size_t>(*job_.request.logprobs), choice.top_logprobs.size());
    for (size_t i = 0; i < count; ++i) {
      const ScoredToken& token = choice.top_logprobs[i];
      if (tokenizer_.has(token.id)) {
        top[shown_token(tokenizer_.bytes(token.id))] = token.logprob;
      }
    }
    logprobs["top_logprobs"].push_back(count == 0 ? AnswerJson(nullptr) : top);
    logprobs["text_offset"].push_back(offset);
    offset += characters_of(bytes);
  }
  return logprobs;
}

void Answer::count(const Piece& piece) {
  completion_tokens_ += piece.token ? 1 : 0;
  finished_ += piece.finish_reason ? 1 : 0;
}

std::string Answer::chunk(const Piece& piece) {
  if (head_.empty()) {
    head_ = dump(head());
    head_.pop_back();
  }
  count(piece);
  const AnswerJson choice{{"text", piece.text},
                          {"index", piece.choice},
                          {"logprobs", logprobs_of(piece, said_[piece.choice].offset)},
                          {"finish_reason", reason_of(piece)}};
  return head_ + ",\"choices\":[" + dump(choice) + "]}";
}

void Answer::add(const Piece& piece) {
  count(piece);
  Said& said = said_[piece.choice];
  said.text += piece.text;
  said.finish_reason = reason_of(piece);
  if (job_.request.logprobs) {
    const AnswerJson logprobs = logprobs_of(piece, said.offset);
    for (const auto& [name, values] : logprobs.items()) {
      for (const AnswerJson& value : values) {
        said.logprobs[name].push_back(value);
      }
    }
  }
}

AnswerJson Answer::whole() const {
  AnswerJson result = head();
  result["choices"] = AnswerJson::array();
  for (size_t i = 0; i < said_.size(); ++i) {
    result["choices"].push_back({{"text", said_[i].text},
                                 {"index", i},
                                 {"logprobs", said_[i].logprobs},
                                 {"finish_reason", said_[i].finish_reason}});
  }
  result["usage"] = usage();
  return result;
}

AnswerJson Answer::usage_chunk() const {
  AnswerJson result = head();
  result["choices"] = AnswerJson::array();
  result["usage"] = usage();
  return result;
}

}  // namespace warpfuse::host
