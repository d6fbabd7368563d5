# Installs warpfuse, builds the consumer project against the install tree with a linker that drops
# what is not used, and runs it:
#   cmake -DBUILD=... -DSOURCE=... -DWORK=... -DPYTHON=... -DCOMPILER=... -P check.cmake

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(failed)
    message(FATAL_ERROR "${ARGN}: ${failed}\n${text}")
  endif()
  set(text "${text}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/install)
file(GLOB_RECURSE license ${WORK}/install/*/LICENSE)
if(NOT license)
  message(FATAL_ERROR "no LICENSE in the install tree")
endif()
file(GLOB_RECURSE installed ${WORK}/install/bin/* ${WORK}/install/*.so)
foreach(file ${installed})
  run(readelf -d ${file})
  if(NOT text MATCHES "RUNPATH[^\n]*\\[\\$ORIGIN")
    message(FATAL_ERROR "${file} looks for libraries in its own tree last, or not at all:\n${text}")
  endif()
endforeach()
run(${PYTHON} ${SOURCE}/examples.py ${WORK}/examples.inc ${DOCUMENTS})
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja
    -DCMAKE_MAKE_PROGRAM=${NINJA}
    -DCMAKE_PREFIX_PATH=${WORK}/install
    -DCMAKE_CXX_COMPILER=${COMPILER}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed
    -DEXAMPLES=${WORK})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(readelf -d ${WORK}/build/consumer)
if(NOT text MATCHES "NEEDED[^\n]*libwarpfuse\\.so")
  message(FATAL_ERROR "the linker dropped libwarpfuse.so:\n${text}")
endif()
run(${WORK}/build/consumer)
message("${text}")
