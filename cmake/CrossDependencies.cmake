# What a cross build uses in place of the machine's own packages: the headers of fmt, CLI11 and xxHash, and GoogleTest
# built from the sources of Debian's package `googletest`. The headers get a folder of their own: /usr/include as a
# whole holds the headers of the wrong C library.

set(_headers "${CMAKE_BINARY_DIR}/headers")
file(MAKE_DIRECTORY "${_headers}")
set(_needed fmt/format.h)
if(NOT KAZEIA_TILES_ONLY)
  list(APPEND _needed CLI/CLI.hpp xxhash.h)
endif()
foreach(_header ${_needed})
  if(NOT EXISTS "/usr/include/${_header}")
    message(FATAL_ERROR "No /usr/include/${_header}. Run `scripts/setup aarch64`.")
  endif()
  string(REGEX REPLACE "/.*" "" _entry "${_header}")
  file(CREATE_LINK "/usr/include/${_entry}" "${_headers}/${_entry}" SYMBOLIC)
endforeach()
add_library(fmt::fmt-header-only INTERFACE IMPORTED GLOBAL)
target_include_directories(fmt::fmt-header-only SYSTEM INTERFACE "${_headers}")
target_compile_definitions(fmt::fmt-header-only INTERFACE FMT_HEADER_ONLY=1)

# Answers find_package(CLI11), which must not look outside the target's own files.
file(WRITE "${CMAKE_FIND_PACKAGE_REDIRECTS_DIR}/CLI11Config.cmake" "
if(NOT TARGET CLI11::CLI11)
  add_library(CLI11::CLI11 INTERFACE IMPORTED GLOBAL)
  target_include_directories(CLI11::CLI11 SYSTEM INTERFACE \"${_headers}\")
endif()
")

if(KAZEIA_TESTS)
  set(KAZEIA_GOOGLETEST_DIR /usr/src/googletest CACHE PATH "GoogleTest's sources, for cross builds")
  if(NOT EXISTS "${KAZEIA_GOOGLETEST_DIR}/CMakeLists.txt")
    message(FATAL_ERROR "No GoogleTest sources in ${KAZEIA_GOOGLETEST_DIR}. Run `scripts/setup aarch64`.")
  endif()
  set(INSTALL_GTEST OFF)
  add_subdirectory("${KAZEIA_GOOGLETEST_DIR}" "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL SYSTEM)
  foreach(_library gtest gmock gtest_main)
    target_compile_options(${_library} PRIVATE -w)
  endforeach()
endif()
