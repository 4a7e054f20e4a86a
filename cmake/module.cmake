# SPDX-License-Identifier: Apache-2.0
#
# tessera_module(NAME SOURCES ... [DEPS ...])   one static library per module
# tessera_test(NAME SOURCES ... [DEPS ...] [SLOW])   one test binary per module
# tessera_fuzz(NAME SOURCES ... [DEPS ...] CORPUS DIR [CANARY])   a libFuzzer target; its test runs
#   the corpus once. CANARY builds NAME_canary too, with TESSERA_FUZZ_CANARY defined, where the
#   harness claims something false: its test passes when it crashes.

# Exactness rests on these: no contraction the source did not write (every fma is explicit), and
# never a -ffast-math flag. x86-64-v3 gives the FMA that the scalar kernels need.
set(TESSERA_COMPILE_OPTIONS -march=x86-64-v3 -ffp-contract=off -fno-math-errno)
set(TESSERA_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-psabi)
if(TESSERA_DEVELOPER)
  list(APPEND TESSERA_WARNINGS -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND TESSERA_WARNINGS -Wthread-safety)
endif()
if(TESSERA_SANITIZE)
  list(APPEND TESSERA_COMPILE_OPTIONS -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer)
  if(TESSERA_SANITIZE MATCHES "undefined")
    list(APPEND TESSERA_COMPILE_OPTIONS -fno-sanitize-recover=all)
  endif()
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
  # Between its own checks GCC 12 takes moves of std::variant and std::regex for reads of what nobody
  # wrote.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND TESSERA_WARNINGS -Wno-maybe-uninitialized)
  endif()
endif()

# For the few files that may use AVX-512; nothing in them runs unless the CPU has all of these. GCC
# 12's own headers start many intrinsics from an "undefined" register that it then warns about (GCC
# 105593).
set(TESSERA_AVX512_OPTIONS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mavx512vnni
  -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND TESSERA_AVX512_OPTIONS -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
# Code that is unrolled as far as the kernels costs GCC minutes and gigabytes when every access is
# instrumented.
set(TESSERA_UNROLLED_OPTIONS)
if(TESSERA_SANITIZE)
  set(TESSERA_UNROLLED_OPTIONS -fno-sanitize=all -O2 -g0)
endif()

function(tessera_target_options target)
  target_compile_options(${target} PRIVATE ${TESSERA_COMPILE_OPTIONS} ${TESSERA_WARNINGS})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
endfunction()

function(tessera_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(tessera_${name} STATIC ${ARG_SOURCES})
  tessera_target_options(tessera_${name})
  target_link_libraries(tessera_${name} PUBLIC ${ARG_DEPS})
endfunction()

function(tessera_test name)
  if(NOT TESSERA_DEVELOPER OR TESSERA_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "SLOW" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  tessera_target_options(${name})
  set_target_properties(${name} PROPERTIES CXX_CLANG_TIDY "")  # the analyser is for the product
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  if(ARG_SLOW)
    set_tests_properties(${name} PROPERTIES LABELS slow)
  endif()
endfunction()

function(tessera_fuzz name)
  if(NOT TESSERA_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "CANARY" "CORPUS" "SOURCES;DEPS" ${ARGN})
  get_filename_component(corpus ${ARG_CORPUS} ABSOLUTE)  # beside the sources
  set(targets ${name})
  if(ARG_CANARY)
    list(APPEND targets ${name}_canary)
  endif()
  foreach(target IN LISTS targets)
    add_executable(${target} ${ARG_SOURCES})
    add_dependencies(fuzzers ${target})
    tessera_target_options(${target})
    # The sources are instrumented by TESSERA_SANITIZE; this adds libFuzzer's main.
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${target} PRIVATE ${ARG_DEPS})
    add_test(NAME ${target} COMMAND ${target} -runs=0 ${corpus})
  endforeach()
  if(ARG_CANARY)
    target_compile_definitions(${name}_canary PRIVATE TESSERA_FUZZ_CANARY)
    set_tests_properties(${name}_canary PROPERTIES PASS_REGULAR_EXPRESSION "check failed")
  endif()
endfunction()
