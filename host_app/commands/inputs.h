#pragma once

#include "commands/arguments.h"
#include "runtime/load/model.h"
#include "runtime/score/draws.h"

namespace warpfuse::host {

// The options of commands that make a model's inputs at random.
inline constexpr Option kInputOptions[] = {
    {"input", "INPUT",
     "an argument of forward, in order: SIZES[:DTYPE[:LOW..HIGH]], such as B,T:int64:0..50257; B "
     "takes the values of --batch, T those of --lengths; floats (float32 if not named) are "
     "normal, integers at least LOW and below HIGH",
     nullptr, true},
    {"batch", "LIST", "values of B, such as 1,3", "1"},
    {"lengths", "LIST", "values of T, such as 1,2,7,64,1024"},
};

// An argument of forward. The sizes are numbers, B or T; `values` has everything but the shape.
struct RandomInput {
  std::vector<std::string> sizes;
  InputSpec values;
};

// "B,T" in its parts. Throws Error(usage), as the others do.
std::vector<std::string> parse_sizes(const std::string& text);

// The inputs of --input, or else what the bundle of one of `models` says, the first that has one:
// of a language model token ids [B, T]. Models in no bundle need the option.
std::vector<RandomInput> random_inputs_of(const Arguments& arguments,
                                          const std::vector<ModelPath>& models);

std::vector<RewriteArgument> rewrite_arguments(const std::vector<RandomInput>& inputs);

// One draw for each batch and length that the sizes name; as many as `fixed` where they name none.
std::vector<Draw> draws_of(const Arguments& arguments, const std::vector<RandomInput>& inputs,
                           int64_t fixed);

}  // namespace warpfuse::host
