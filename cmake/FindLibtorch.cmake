# Finds libtorch and makes imported targets of it:
#   libtorch::cpu   c10 and torch_cpu with their headers
#   libtorch::cuda  the same with c10_cuda and torch_cuda (needs the target CUDA::cudart)
#
# Torch's own package file is not used: with a CUDA build of torch it stops where there is no CUDA
# toolkit, and it overrides CMAKE_CUDA_ARCHITECTURES.
#
# Looked for in this order: LIBTORCH_ROOT, the torch package of WARPFUSE_PYTHON, that of python3,
# CMAKE_PREFIX_PATH. Sets Libtorch_VERSION, Libtorch_ROOT_DIR and Libtorch_PYTHON.

if(TARGET libtorch::cpu)
  set(Libtorch_FOUND TRUE)
  return()
endif()

set(_libtorch_hints ${LIBTORCH_ROOT} $ENV{LIBTORCH_ROOT})
set(Libtorch_PYTHON ${WARPFUSE_PYTHON})
if(NOT Libtorch_PYTHON)
  find_program(Libtorch_PYTHON3 python3)
  set(Libtorch_PYTHON ${Libtorch_PYTHON3})
endif()
if(NOT _libtorch_hints AND Libtorch_PYTHON)
  # find_spec does not import torch, which would take seconds.
  execute_process(
    COMMAND ${Libtorch_PYTHON} -c
            "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE _libtorch_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND _libtorch_hints ${_libtorch_package})
endif()

find_path(Libtorch_ROOT_DIR include/ATen/ATen.h HINTS ${_libtorch_hints} PATH_SUFFIXES libtorch
          NO_CACHE)
cmake_path(SET Libtorch_ROOT_DIR NORMALIZE "${Libtorch_ROOT_DIR}")
string(REGEX REPLACE "/$" "" Libtorch_ROOT_DIR "${Libtorch_ROOT_DIR}")

set(_libtorch_required Libtorch_ROOT_DIR)
foreach(_name c10 torch_cpu torch)
  find_library(Libtorch_${_name}_LIBRARY ${_name} PATHS ${Libtorch_ROOT_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
  list(APPEND _libtorch_required Libtorch_${_name}_LIBRARY)
endforeach()
foreach(_name c10_cuda torch_cuda)
  find_library(Libtorch_${_name}_LIBRARY ${_name} PATHS ${Libtorch_ROOT_DIR}/lib NO_DEFAULT_PATH NO_CACHE)
endforeach()

foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(EXISTS ${Libtorch_ROOT_DIR}/include/${_header})
    file(STRINGS ${Libtorch_ROOT_DIR}/include/${_header} _lines
         REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    if(_lines)
      string(REGEX REPLACE "[^0-9;]+" "" _numbers "${_lines}")
      string(REPLACE ";" "." Libtorch_VERSION "${_numbers}")
      break()
    endif()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Libtorch REQUIRED_VARS ${_libtorch_required} VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "no libtorch: set WARPFUSE_PYTHON to a python that has torch, or LIBTORCH_ROOT")

if(Libtorch_FOUND)
  # The string ABI that this libtorch was built with; wheels of today say 1.
  set(_libtorch_abi 1)
  if(EXISTS ${Libtorch_ROOT_DIR}/share/cmake/Torch/TorchConfig.cmake)
    file(STRINGS ${Libtorch_ROOT_DIR}/share/cmake/Torch/TorchConfig.cmake _abi_line
         REGEX "_GLIBCXX_USE_CXX11_ABI=[01]" LIMIT_COUNT 1)
    if(_abi_line MATCHES "_GLIBCXX_USE_CXX11_ABI=([01])")
      set(_libtorch_abi ${CMAKE_MATCH_1})
    endif()
  endif()

  add_library(libtorch::c10 SHARED IMPORTED)
  set_target_properties(libtorch::c10 PROPERTIES IMPORTED_LOCATION ${Libtorch_c10_LIBRARY})
  add_library(libtorch::cpu SHARED IMPORTED)
  set_target_properties(libtorch::cpu PROPERTIES
    IMPORTED_LOCATION ${Libtorch_torch_cpu_LIBRARY}
    INTERFACE_LINK_LIBRARIES libtorch::c10
    INTERFACE_INCLUDE_DIRECTORIES
      "${Libtorch_ROOT_DIR}/include;${Libtorch_ROOT_DIR}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=${_libtorch_abi}
    INTERFACE_COMPILE_FEATURES cxx_std_20)
  if(Libtorch_torch_cuda_LIBRARY AND TARGET CUDA::cudart)
    add_library(libtorch::c10_cuda SHARED IMPORTED)
    set_target_properties(libtorch::c10_cuda PROPERTIES
      IMPORTED_LOCATION ${Libtorch_c10_cuda_LIBRARY})
    add_library(libtorch::cuda SHARED IMPORTED)
    set_target_properties(libtorch::cuda PROPERTIES
      IMPORTED_LOCATION ${Libtorch_torch_cuda_LIBRARY}
      INTERFACE_LINK_LIBRARIES "libtorch::cpu;libtorch::c10_cuda;CUDA::cudart")
  endif()
endif()
