# Decides whether the CUDA kernels are built and for which GPUs.
#
# in:  WARPFUSE_WITH_CUDA (AUTO|ON|OFF), WARPFUSE_CUDA_ARCHITECTURES
# out: WARPFUSE_CUDA (ON|OFF), WARPFUSE_CUDA_ARCHITECTURES (a list such as 8.0;9.0a),
#      WARPFUSE_GPUS (the architectures of the GPUs of this machine), CMAKE_CUDA_ARCHITECTURES, the
#      enabled language CUDA

set(WARPFUSE_RELEASE_ARCHITECTURES 8.0 8.9 9.0a 10.0 12.0+PTX)

# Kernels of 9.0 are built as 9.0a, which adds the instructions that only Hopper has.
function(warpfuse_detect_gpus result)
  set(${result} "" PARENT_SCOPE)
  find_program(NVIDIA_SMI nvidia-smi)
  if(NOT NVIDIA_SMI)
    return()
  endif()
  execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed OR NOT found MATCHES "^[0-9]")
    return()
  endif()
  string(REPLACE "\n" ";" found "${found}")
  list(TRANSFORM found STRIP)
  list(REMOVE_DUPLICATES found)
  list(TRANSFORM found REPLACE "^9\\.0$" "9.0a")
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# 8.0 -> 80-real; 12.0+PTX -> 120 (machine code and PTX)
function(warpfuse_to_cmake_architectures result)
  set(list "")
  foreach(architecture ${ARGN})
    if(NOT architecture MATCHES "^[0-9]+\\.[0-9][af]?(\\+PTX)?$")
      message(FATAL_ERROR "WARPFUSE_CUDA_ARCHITECTURES: expected entries such as 8.0, 9.0a or "
                          "12.0+PTX, got '${architecture}'")
    endif()
    string(REPLACE "." "" number "${architecture}")
    if(number MATCHES "\\+PTX$")
      string(REPLACE "+PTX" "" number "${number}")
    else()
      string(APPEND number "-real")
    endif()
    list(APPEND list ${number})
  endforeach()
  set(${result} "${list}" PARENT_SCOPE)
endfunction()

set(WARPFUSE_CUDA OFF)
set(WARPFUSE_CUDA_DESCRIPTION "off")
if(NOT WARPFUSE_WITH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "WARPFUSE_WITH_CUDA: expected AUTO, ON or OFF, got '${WARPFUSE_WITH_CUDA}'")
endif()

if(NOT WARPFUSE_WITH_CUDA STREQUAL "OFF")
  warpfuse_detect_gpus(WARPFUSE_GPUS)
  if(WARPFUSE_CUDA_ARCHITECTURES STREQUAL "release")
    set(WARPFUSE_CUDA_ARCHITECTURES ${WARPFUSE_RELEASE_ARCHITECTURES})
  elseif(NOT WARPFUSE_CUDA_ARCHITECTURES AND WARPFUSE_GPUS)
    set(WARPFUSE_CUDA_ARCHITECTURES ${WARPFUSE_GPUS})
  elseif(NOT WARPFUSE_CUDA_ARCHITECTURES)
    set(WARPFUSE_CUDA_ARCHITECTURES 9.0a)
  endif()
  warpfuse_to_cmake_architectures(CMAKE_CUDA_ARCHITECTURES ${WARPFUSE_CUDA_ARCHITECTURES})

  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(WARPFUSE_CUDA ON)
    set(WARPFUSE_CUDA_DESCRIPTION "${CUDAToolkit_VERSION} for ${WARPFUSE_CUDA_ARCHITECTURES}")
  elseif(WARPFUSE_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "WARPFUSE_WITH_CUDA=ON, but no CUDA compiler was found; set CUDACXX to an nvcc")
  endif()
endif()
