# Writes a header with the commit that SOURCE is at to OUTPUT, where it changed. Run with cmake -P at
# each build. A tree without git takes the environment variable WARPFUSE_COMMIT.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR NOT commit)
  set(commit "$ENV{WARPFUSE_COMMIT}")
endif()
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
  "#pragma once\n\nnamespace warpfuse::host {\n\n// What this program was built from.\ninline constexpr const char* kCommit = \"@commit@\";\n\n}  // namespace warpfuse::host\n")
