# What all of our own code is compiled with: warpfuse::compile_options.
add_library(warpfuse_compile_options INTERFACE)
add_library(warpfuse::compile_options ALIAS warpfuse_compile_options)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# A compiler that nobody has tried yet may warn of something new: an error for developers and CI alone.
if(WARPFUSE_WERROR)
  set(werror -Werror)
  set(werror_cuda -Werror=all-warnings -Xcompiler=-Werror)
endif()
# nvcc compresses large device code alone, unless it is told to compress all.
target_compile_options(warpfuse_compile_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;${werror}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;${werror_cuda};--expt-relaxed-constexpr;-Xfatbin=-compress-all>")

# For code that waits for libtorch and files, the host program and the tests: it compiles in a fifth to
# a third less time than with -O3. There g++ 12 sees std::string out of its bounds.
add_library(warpfuse_calling_code INTERFACE)
add_library(warpfuse::calling_code ALIAS warpfuse_calling_code)
target_compile_options(warpfuse_calling_code INTERFACE
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1;-Wno-array-bounds>")

# Compiles sources as one unit: libtorch's headers take longer than what most sources add to them. Names in
# unnamed namespaces are therefore unique within a unit.
option(WARPFUSE_UNITY "Compile many sources as one unit" ON)
function(warpfuse_compile_as_one target unit)
  if(WARPFUSE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${unit})
  endif()
endfunction()

# The same, a unit for each folder and those in it: each unit pays seconds for the precompiled header.
function(warpfuse_compile_by_folder target)
  foreach(source ${ARGN})
    string(REGEX MATCH "^[^/]+/" folder ${source})  # empty: beside the CMakeLists.txt
    warpfuse_compile_as_one(${target} "all/${folder}" ${source})
  endforeach()
endfunction()

# The environment in which a python of no sanitizer loads what is built here: with the sanitizer's
# runtime from its start, libstdc++ beside it so that exceptions are seen, and not blamed for leaks.
set(WARPFUSE_PYTHON_ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)

if(WARPFUSE_SANITIZE)
  # vptr: some of libtorch's classes hide the type information that this check reads.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  set(sanitizer_runtime asan)
  if(WARPFUSE_SANITIZE STREQUAL "thread")
    set(sanitizers -fsanitize=thread)
    set(sanitizer_runtime tsan)
  endif()
  # g++ 12 calls the standard library's <regex> and std::optional uninitialised under -fsanitize.
  target_compile_options(warpfuse_compile_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:${sanitizers};-fno-omit-frame-pointer;-Wno-maybe-uninitialized>)
  target_link_options(warpfuse_compile_options INTERFACE ${sanitizers})

  foreach(runtime ${sanitizer_runtime} stdc++)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${runtime}.so
                    OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND runtimes ${file})
  endforeach()
  list(JOIN runtimes ":" runtimes)
  list(APPEND WARPFUSE_PYTHON_ENVIRONMENT LD_PRELOAD=${runtimes} ASAN_OPTIONS=detect_leaks=0)
endif()
