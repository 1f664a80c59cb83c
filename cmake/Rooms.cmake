# One CMake library per folder of src/, its tests beside its sources.

add_library(kazeia_flags INTERFACE)
target_compile_options(kazeia_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual -Werror)
target_include_directories(kazeia_flags INTERFACE "${CMAKE_SOURCE_DIR}/src")
if(KAZEIA_SANITIZE)
  target_compile_options(kazeia_flags INTERFACE -fsanitize=${KAZEIA_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -g)
  target_link_options(kazeia_flags INTERFACE -fsanitize=${KAZEIA_SANITIZE})
endif()

# GCC 12 has no <format>; fmt is used header-only so that one copy of it exists.
if(CMAKE_CROSSCOMPILING)
  include(cmake/CrossDependencies.cmake)
else()
  find_package(fmt REQUIRED)
endif()

# kazeia_room(<name> SOURCES ... [LINK <public dependencies>] [PRIVATE <private dependencies>])
function(kazeia_room name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK;PRIVATE" ${ARGN})
  add_library(kazeia_${name} STATIC ${A_SOURCES})
  target_link_libraries(kazeia_${name} PUBLIC kazeia_flags fmt::fmt-header-only ${A_LINK} PRIVATE ${A_PRIVATE})
endfunction()

if(KAZEIA_TESTS AND NOT KAZEIA_FUZZ)
  enable_testing()
  if(NOT CMAKE_CROSSCOMPILING)
    find_package(GTest REQUIRED)
  endif()
  include(GoogleTest)
endif()

# kazeia_test(<name> LABEL unit|model|npu|device SOURCES ... LINK ...)
#   One executable; every TEST in it becomes one ctest entry. Tests find the shipped models through
#   the environment variable KAZEIA_MODELS and the program through KAZEIA_PROGRAM.
function(kazeia_test name)
  if(NOT KAZEIA_TESTS OR KAZEIA_FUZZ)
    return()
  endif()
  cmake_parse_arguments(A "SERIAL" "LABEL;TIMEOUT" "SOURCES;LINK" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  add_executable(${name} ${A_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${A_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  if(A_LABEL STREQUAL npu)
    # Upstream loads the driver by name, and finds the emulated one beside the test.
    set_target_properties(${name} PROPERTIES BUILD_RPATH "${CMAKE_BINARY_DIR}/emulated_dsp")
  endif()
  gtest_discover_tests(${name}
    DISCOVERY_MODE PRE_TEST
    PROPERTIES
      LABELS "${A_LABEL}"
      TIMEOUT "${A_TIMEOUT}"
      RUN_SERIAL "${A_SERIAL}"
      # Two properties, because a list in one of them is torn apart on its way through test discovery.
      ENVIRONMENT "KAZEIA_MODELS=${CMAKE_SOURCE_DIR}/models"
      ENVIRONMENT_MODIFICATION "KAZEIA_PROGRAM=set:${CMAKE_BINARY_DIR}/kazeia")
endfunction()
