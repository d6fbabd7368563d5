#pragma once

#include <string>

/// Records that the running test case cannot run here, and why; the caller then returns. A run with
/// a skipped test case and no failure exits with 77, so that ctest reports it as skipped. (Catch2
/// v2 has no SKIP.)
void skip_test(const std::string& reason);

/// That of a run: Catch2's own is the number of failures, of which 77 would be a skip and 2 an
/// empty selection.
int exit_code(int failures, bool has_run, bool has_skipped);
