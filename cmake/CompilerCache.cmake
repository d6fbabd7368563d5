# ccache, where it is installed, for C++ and CUDA.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  foreach(language CXX CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    endif()
  endforeach()
endif()
