# Stops where a file in the caller's folder that matches the pattern is not among the further arguments:
# what a list forgets would be left out of a build or a test run without a word. `how` is GLOB or
# GLOB_RECURSE.
function(warpfuse_all_listed how pattern)
  file(${how} forgotten RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ${pattern})
  list(REMOVE_ITEM forgotten ${ARGN})
  if(forgotten)
    message(FATAL_ERROR "in no list of ${CMAKE_CURRENT_SOURCE_DIR}/CMakeLists.txt: ${forgotten}")
  endif()
endfunction()
