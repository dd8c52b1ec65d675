# Floating point is stated once, here: no contraction, no fast math, on the host and on the device.
add_library(gradledger_options INTERFACE)
target_compile_features(gradledger_options INTERFACE cxx_std_20)
target_compile_options(gradledger_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -Wall -Wextra -Werror=switch -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers>
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-ffp-contract=off>)
set(CMAKE_CXX_EXTENSIONS OFF)

if(GRADLEDGER_SANITIZE STREQUAL "thread")
  target_compile_options(gradledger_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread -fno-omit-frame-pointer>)
  target_link_options(gradledger_options INTERFACE -fsanitize=thread)
elseif(GRADLEDGER_SANITIZE)
  # Without `vptr`, which reads memory through a pipe and so reports falsely where a test has used up all files, and `null`, which the
  # address sanitizer sees as well and which takes a sixth of the compilation.
  target_compile_options(gradledger_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize=vptr,null -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(gradledger_options INTERFACE -fsanitize=address,undefined)
  # A pointer can be misaligned where bytes are read as numbers. In the other libraries the check takes a quarter of the compilation; the preset `dev` has it everywhere.
  if(GRADLEDGER_TESTS_SHORT)
    target_compile_options(gradledger_options INTERFACE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:GRADLEDGER_READS_BYTES>>>>:-fno-sanitize=alignment>)
  endif()
endif()
if(GRADLEDGER_FUZZ)
  target_compile_options(gradledger_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(gradledger_options INTERFACE -fsanitize=address,undefined)
endif()
