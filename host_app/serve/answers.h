#pragma once

#include <nlohmann/json.hpp>

#include "runtime/text/text_output.h"
#include "serve/api_error.h"
#include "serve/job.h"

namespace warpfuse::host {

// What an answer says next of a choice.
struct Piece {
  size_t choice = 0;
  std::string text = {};
  bool echoes = false;                             // the text begins with the prompt
  std::vector<double> prompt_logprobs = {};        // of its tokens but the first, where asked
  std::optional<Choice> token = {};                // sampled; not the end token
  std::optional<FinishReason> finish_reason = {};  // the choice's last piece
};

// Makes text of the tokens of a job, and ends a choice at its stop text. The HTTP thread's.
class ChoiceTexts {
 public:
  ChoiceTexts(Job& job, const Tokenizer& tokenizer)
      : job_(job),
        tokenizer_(tokenizer),
        texts_(job.request.choices(), Text{TextOutput(job.request.stop_texts)}) {}

  // None: the choice has ended before.
  std::optional<Piece> next(Event event);

 private:
  struct Text {
    TextOutput output;
    bool begun = false;
    bool ended = false;
  };

  Job& job_;
  const Tokenizer& tokenizer_;
  std::vector<Text> texts_;
};

using AnswerJson = nlohmann::ordered_json;

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
