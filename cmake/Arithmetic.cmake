# Floating point is stated once, here: no contraction, no fast math, on the host and on the device.
add_library(gradledger_options INTERFACE)
target_compile_features(gradledger_options INTERFACE cxx_std_20)
target_compile_options(gradledger_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -Wall -Wextra -Werror=switch -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers>
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-ffp-contract=off>)
set(CMAKE_CXX_EXTENSIONS OFF)

# GCC spends a tenth of a compilation on finding memory that it could use again. Where every job has 3 GiB, and Ninja starts two more than
# there are processors, it need not look before it has taken 1 GiB.
cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR mib_a_job "${memory_mib} / (${processors} + 2)")
if(mib_a_job GREATER_EQUAL 3072)
  target_compile_options(gradledger_options INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=1048576>")
endif()

# GCC would load two numbers at once that were stored one by one just before, which stalls until the stores are through: the search is a twentieth slower.
target_compile_options(gradledger_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-tree-slp-vectorize>)

if(GRADLEDGER_SANITIZE STREQUAL "thread")
  target_compile_options(gradledger_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread -fno-omit-frame-pointer>)
  target_link_options(gradledger_options INTERFACE -fsanitize=thread)
elseif(GRADLEDGER_SANITIZE)
  # Without `vptr`, which reads memory through a pipe and so reports falsely where a test has used up all files, and `null`, which the
  # address sanitizer sees as well and which takes a sixth of the compilation.
  target_compile_options(gradledger_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize=vptr,null -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(gradledger_options INTERFACE -fsanitize=address,undefined)
  # A fifth to a third of the compilation is checks that others make as well; the preset `dev` has them. A pointer out of its object is seen by the address
  # sanitizer where it is used, a function without a return by the compiler. Pointers can be misaligned where bytes are read as numbers.
  if(GRADLEDGER_TESTS_SHORT)
    target_compile_options(gradledger_options INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=object-size,pointer-overflow,nonnull-attribute,returns-nonnull-attribute,return,unreachable -Werror=return-type>
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:$<TARGET_PROPERTY:GRADLEDGER_READS_BYTES>>>>:-fno-sanitize=alignment>)
  endif()
  # Last, for of two options the last holds.
  target_compile_options(gradledger_options INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:$<TARGET_PROPERTY:GRADLEDGER_ADDRESSES_ALONE>>>:-fno-sanitize=undefined>)
endif()
if(GRADLEDGER_FUZZ)
  target_compile_options(gradledger_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(gradledger_options INTERFACE -fsanitize=address,undefined)
endif()
