# Cross-building for a 64-bit ARM Android device with Google's NDK, which is found through ANDROID_NDK_HOME or
# ANDROID_NDK. Android 12 (API 31) is the oldest that can run the result.
if(DEFINED ENV{ANDROID_NDK_HOME})
  set(_ndk "$ENV{ANDROID_NDK_HOME}")
elseif(DEFINED ENV{ANDROID_NDK})
  set(_ndk "$ENV{ANDROID_NDK}")
else()
  set(_ndk "")
endif()
if(_ndk STREQUAL "")
  message(FATAL_ERROR "The preset android-arm64 needs Google's NDK: set ANDROID_NDK_HOME to its folder.")
endif()
if(NOT EXISTS "${_ndk}/build/cmake/android.toolchain.cmake")
  message(FATAL_ERROR "No NDK in '${_ndk}': there is no build/cmake/android.toolchain.cmake below it.")
endif()

set(ANDROID_ABI arm64-v8a)
set(ANDROID_PLATFORM android-31)
# One file to copy: the C++ library is part of the program.
set(ANDROID_STL c++_static)
include("${_ndk}/build/cmake/android.toolchain.cmake")
