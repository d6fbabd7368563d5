#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"
#include "serve/api_error.h"
#include "serve/choice_texts.h"

namespace warpfuse::host {

using AnswerJson = nlohmann::ordered_json;

// One line; text that is no UTF-8 is replaced.
std::string dump(const AnswerJson& json);
AnswerJson error_json(const ApiError& error);

// Turns the pieces of a job into the answers of the completions protocol.
class Answer {
 public:
  Answer(const Job& job, const Tokenizer& tokenizer, std::string model_name);

  // What a stream sends for a piece: an object in one line.
  std::string chunk(const Piece& piece);
  // Takes a piece of an answer that is sent as a whole.
  void add(const Piece& piece);
  AnswerJson whole() const;
  // The last object of a stream that was asked for the usage.
  AnswerJson usage_chunk() const;
  bool finished() const { return finished_ == job_.request.choices(); }

 private:
  struct Said {
    std::string text;
    AnswerJson logprobs;
    AnswerJson finish_reason;
    size_t offset = 0;  // characters of the tokens so far
  };

  AnswerJson head() const;
  void count(const Piece& piece);
  AnswerJson usage() const;
  AnswerJson logprobs_of(const Piece& piece, size_t& offset) const;
  void add_prompt_logprobs(const Piece& piece, size_t& offset, AnswerJson& logprobs) const;

  const Job& job_;
  const Tokenizer& tokenizer_;
  std::string model_name_;
  std::string id_;
  int64_t created_;
  std::string head_;  // that all chunks share
  int64_t completion_tokens_ = 0;
  size_t finished_ = 0;
  std::vector<Said> said_;
};

}  // namespace warpfuse::host
