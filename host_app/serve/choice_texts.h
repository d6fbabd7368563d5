#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/text/text_output.h"
#include "runtime/text/tokenizer.h"
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

}  // namespace warpfuse::host
