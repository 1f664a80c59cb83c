# What a cross build uses in place of the machine's own packages: fmt's headers, and GoogleTest built from the
# sources of Debian's package `googletest`. Both must come from a folder of their own: /usr/include as a whole holds
# the headers of the wrong C library.

set(_headers "${CMAKE_BINARY_DIR}/headers")
file(MAKE_DIRECTORY "${_headers}")
if(NOT EXISTS /usr/include/fmt/format.h)
  message(FATAL_ERROR "No fmt headers in /usr/include/fmt. Run `scripts/setup aarch64`.")
endif()
file(CREATE_LINK /usr/include/fmt "${_headers}/fmt" SYMBOLIC)
add_library(fmt::fmt-header-only INTERFACE IMPORTED GLOBAL)
target_include_directories(fmt::fmt-header-only SYSTEM INTERFACE "${_headers}")
target_compile_definitions(fmt::fmt-header-only INTERFACE FMT_HEADER_ONLY=1)

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
