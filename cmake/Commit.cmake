# Run at every build: writes HEADER with the commit of SOURCE, and touches it only where that has changed, so that one file is compiled anew.
# COMMIT: what a packager says instead, for a source tree without its repository.
cmake_minimum_required(VERSION 3.25)

set(commit "${COMMIT}")
if(NOT commit)
  set(commit "unknown")
  find_program(GIT git)
  if(GIT)
    # A tree that was unpacked inside another repository is none of that repository's.
    execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-prefix OUTPUT_VARIABLE prefix RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(failed EQUAL 0 AND prefix STREQUAL "")
      execute_process(COMMAND ${GIT} -C ${SOURCE} --no-optional-locks describe --always --dirty --abbrev=12 --exclude=*
                      OUTPUT_VARIABLE described RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(failed EQUAL 0 AND described)
        set(commit "${described}")
      endif()
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define GRADLEDGER_COMMIT \"@commit@\"\n" @ONLY)
