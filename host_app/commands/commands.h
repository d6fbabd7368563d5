#pragma once

#include <array>
#include <string_view>

#include "runtime/errors.h"

namespace warpfuse::host {

// Each command takes the program's arguments from its own name on. They throw Error, and what
// libtorch throws.
ExitCode run_bench(int argc, const char* const* argv);
ExitCode run_bench_generate(int argc, const char* const* argv);
ExitCode run_bench_module(int argc, const char* const* argv);
ExitCode run_bench_overhead(int argc, const char* const* argv);
ExitCode run_info(int argc, const char* const* argv);
ExitCode run_generate(int argc, const char* const* argv);
ExitCode run_perplexity(int argc, const char* const* argv);
ExitCode run_rewrite(int argc, const char* const* argv);
ExitCode run_selftest(int argc, const char* const* argv);
ExitCode run_serve(int argc, const char* const* argv);
ExitCode run_tune(int argc, const char* const* argv);
ExitCode run_tokenize(int argc, const char* const* argv);
ExitCode run_verify(int argc, const char* const* argv);

struct Command {
  std::string_view name;
  std::string_view summary;
  ExitCode (*run)(int argc, const char* const* argv);
};

inline constexpr std::array<Command, 10> kCommands{{
    {"generate", "continue a prompt with a traced language model", run_generate},
    {"serve", "answer requests of OpenAI's completions protocol", run_serve},
    {"perplexity", "score a text with a traced language model", run_perplexity},
    {"tokenize", "turn lines of text into token ids, and back", run_tokenize},
    {"verify", "compare the outputs of two models on the same inputs", run_verify},
    {"rewrite", "route a TorchScript file's softmax calls to the plugin", run_rewrite},
    {"bench", "time the operators against ATen and a copy of the same bytes", run_bench},
    {"tune", "find the fastest kernels for this GPU, and write a table of them", run_tune},
    {"selftest", "compare the operators with this libtorch's, after an upgrade", run_selftest},
    {"info", "show versions, GPUs and the operators of the plugin", run_info},
}};

}  // namespace warpfuse::host
