# Upstream llama.cpp as a separate build, one tree per variant under build/upstream/.
#
# Why a separate build and not add_subdirectory: the sanitizer presets instrument our code only and
# share one upstream build (6 minutes on two cores), and `kazeia versus` needs a second ggml that is
# configured the way upstream ships it, which cannot live in one CMake project with ours.

include(ExternalProject)

set(KAZEIA_LLAMA_CPP_DIR "${CMAKE_SOURCE_DIR}/node_modules/llama.rn/vendor/llama.cpp" CACHE PATH
    "llama.cpp checkout to build against (default: the one pinned by package-lock.json)")
if(NOT EXISTS "${KAZEIA_LLAMA_CPP_DIR}/include/llama.h")
  message(FATAL_ERROR "No llama.cpp sources in ${KAZEIA_LLAMA_CPP_DIR}. "
                      "Run `make setup`, or pass -DKAZEIA_LLAMA_CPP_DIR=<llama.cpp checkout>.")
endif()

# A build tree belongs to one checkout: another directory gets a tree of its own.
string(MD5 _kazeia_upstream_key "${KAZEIA_LLAMA_CPP_DIR}|${CMAKE_C_COMPILER}|${CMAKE_TOOLCHAIN_FILE}")
string(SUBSTRING "${_kazeia_upstream_key}" 0 8 _kazeia_upstream_key)

# kazeia_upstream(<variant> [COMMON] [ARGS <cmake args>...])
#   Defines the imported interface library upstream::<variant>: include directories, static
#   libraries in link order, and the build step that makes them.
function(kazeia_upstream variant)
  cmake_parse_arguments(A "COMMON" "" "ARGS;TARGETS" ${ARGN})
  set(dir "${CMAKE_SOURCE_DIR}/build/upstream/${variant}-${_kazeia_upstream_key}")
  set(libs src/libllama.a ggml/src/libggml.a ggml/src/libggml-cpu.a ggml/src/libggml-base.a)
  set(common OFF)
  if(A_COMMON)
    set(common ON)
    list(PREPEND libs common/libllama-common.a common/libllama-common-base.a
                      vendor/cpp-httplib/libcpp-httplib.a)
  endif()
  list(TRANSFORM libs PREPEND "${dir}/")

  set(forward)
  foreach(v CMAKE_C_COMPILER CMAKE_CXX_COMPILER CMAKE_TOOLCHAIN_FILE CMAKE_C_COMPILER_LAUNCHER
            CMAKE_CXX_COMPILER_LAUNCHER)
    if(DEFINED ${v} AND NOT "${${v}}" STREQUAL "")
      list(APPEND forward "-D${v}=${${v}}")
    endif()
  endforeach()

  ExternalProject_Add(upstream_${variant}
    # Every folder of the step lies in the shared tree: what it depends on is the same for every preset.
    PREFIX "${dir}"
    DOWNLOAD_DIR "${dir}"
    SOURCE_DIR "${KAZEIA_LLAMA_CPP_DIR}"
    BINARY_DIR "${dir}"
    STAMP_DIR "${dir}/stamps"
    TMP_DIR "${dir}/tmp"
    EXCLUDE_FROM_ALL ON
    DOWNLOAD_COMMAND ""
    UPDATE_COMMAND ""
    INSTALL_COMMAND ""
    CMAKE_GENERATOR Ninja
    CMAKE_ARGS
      ${forward}
      -DCMAKE_BUILD_TYPE=Release
      -DBUILD_SHARED_LIBS=OFF
      -DCMAKE_POSITION_INDEPENDENT_CODE=ON
      -DCMAKE_C_VISIBILITY_PRESET=hidden
      -DCMAKE_CXX_VISIBILITY_PRESET=hidden
      -DCMAKE_VISIBILITY_INLINES_HIDDEN=ON
      -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF
      -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_COMMON=${common}
      -DLLAMA_OPENSSL=OFF -DGGML_CCACHE=OFF -Wno-dev
      # Otherwise upstream asks git and finds our commit, and every commit of ours recompiles it.
      -DLLAMA_BUILD_NUMBER=0 -DLLAMA_BUILD_COMMIT=unknown -DGIT_EXE=0
      ${A_ARGS}
    # Two presets that build at once take turns here instead of writing the same objects.
    BUILD_COMMAND flock "${dir}/tmp/lock" ${CMAKE_COMMAND} --build "${dir}"
    BUILD_BYPRODUCTS ${libs}
    USES_TERMINAL_CONFIGURE OFF
    LOG_CONFIGURE ON
    LOG_OUTPUT_ON_FAILURE ON
    USES_TERMINAL_BUILD ON)

  find_package(Threads REQUIRED)
  add_library(upstream_${variant}_lib INTERFACE)
  add_library(upstream::${variant} ALIAS upstream_${variant}_lib)
  add_dependencies(upstream_${variant}_lib upstream_${variant})
  target_include_directories(upstream_${variant}_lib SYSTEM INTERFACE
    "${KAZEIA_LLAMA_CPP_DIR}/include"
    "${KAZEIA_LLAMA_CPP_DIR}/ggml/include"
    "${KAZEIA_LLAMA_CPP_DIR}/ggml/src"
    "${KAZEIA_LLAMA_CPP_DIR}/src"
    "${KAZEIA_LLAMA_CPP_DIR}/common"
    "${KAZEIA_LLAMA_CPP_DIR}/vendor"
    "${KAZEIA_LLAMA_CPP_DIR}")
  target_link_libraries(upstream_${variant}_lib INTERFACE ${libs} Threads::Threads ${CMAKE_DL_LIBS} m)
endfunction()
