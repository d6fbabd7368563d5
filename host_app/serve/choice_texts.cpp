#include "serve/choice_texts.h"

#include <utility>

namespace warpfuse::host {

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

}  // namespace warpfuse::host
