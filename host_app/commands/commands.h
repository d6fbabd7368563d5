#pragma once

#include "commands/arguments.h"

namespace warpfuse::host {

Command bench_command();
Command bench_generate_command();
Command bench_module_command();
Command bench_overhead_command();
Command generate_command();
Command info_command();
Command perplexity_command();
Command rewrite_command();
Command selftest_command();
Command serve_command();
Command tokenize_command();
Command tune_command();
Command verify_command();

// In the order of --help; a name of two words before its first one alone.
inline constexpr std::array kCommands{generate_command,
                                      serve_command,
                                      perplexity_command,
                                      tokenize_command,
                                      verify_command,
                                      rewrite_command,
                                      bench_generate_command,
                                      bench_module_command,
                                      bench_overhead_command,
                                      bench_command,
                                      tune_command,
                                      selftest_command,
                                      info_command};

}  // namespace warpfuse::host
