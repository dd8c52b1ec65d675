# The CUDA part: compiled where the toolkit is there, quietly absent where it is not.
set(GRADLEDGER_HAS_CUDA OFF)
if(GRADLEDGER_CUDA STREQUAL "OFF")
  return()
endif()

# CMake 3.25's module for nvcc knows no C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_EXTENSIONS OFF)

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(GRADLEDGER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "GRADLEDGER_CUDA is ON, but no CUDA compiler was found; put nvcc on PATH or set CMAKE_CUDA_COMPILER")
  endif()
  message(STATUS "No CUDA compiler: the CUDA part is left out")
  return()
endif()
enable_language(CUDA)
set(GRADLEDGER_HAS_CUDA ON)
