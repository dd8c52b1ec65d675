# The allocator of programs, not of libraries: what others link or load takes theirs. A run is many small pieces of memory that live as long as an event:
# with jemalloc it takes four fifths of the time (docs/results.md). Linked statically, so that a program that is carried needs no library for it.
#
# GRADLEDGER_ALLOCATOR: what to link, or nothing. Sanitizers have allocators of their own.
set(GRADLEDGER_JEMALLOC AUTO CACHE STRING "jemalloc as the allocator of the command: AUTO (where its static library is found), ON, OFF")
set(GRADLEDGER_ALLOCATOR "")
set(GRADLEDGER_HAS_JEMALLOC OFF)
if(GRADLEDGER_JEMALLOC STREQUAL "OFF" OR GRADLEDGER_SANITIZE OR GRADLEDGER_FUZZ)
  return()
endif()

find_library(GRADLEDGER_JEMALLOC_ARCHIVE NAMES libjemalloc_pic.a libjemalloc.a)
if(GRADLEDGER_JEMALLOC_ARCHIVE)
  set(GRADLEDGER_HAS_JEMALLOC ON)
  set(GRADLEDGER_ALLOCATOR ${GRADLEDGER_JEMALLOC_ARCHIVE} Threads::Threads ${CMAKE_DL_LIBS})
elseif(GRADLEDGER_JEMALLOC STREQUAL "ON")
  message(FATAL_ERROR "GRADLEDGER_JEMALLOC is ON, but its static library was not found; install libjemalloc-dev")
else()
  message(STATUS "No static jemalloc: the command takes the C library's allocator, and a quarter longer")
endif()
