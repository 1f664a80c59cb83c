# Run in the source folder with HEADER and GIT set; see Commit.cmake.
set(commit "")
set(dirty 0)
if(GIT)
  execute_process(COMMAND "${GIT}" rev-parse --show-toplevel OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET RESULT_VARIABLE failed)
  get_filename_component(here "." REALPATH)
  get_filename_component(top "${top}" REALPATH)
  # An unpacked archive inside somebody else's repository has no commit of its own.
  if(NOT failed AND top STREQUAL here)
    execute_process(COMMAND "${GIT}" rev-parse HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    # Of what a program is made: a changed document does not make another program. Without a lock on the index, which
    # somebody may be committing with.
    execute_process(COMMAND "${GIT}" --no-optional-locks diff --quiet HEAD -- src apps cmake CMakeLists.txt
      CMakePresets.json package-lock.json RESULT_VARIABLE changed ERROR_QUIET)
    if(changed)
      set(dirty 1)
    endif()
  endif()
endif()
if(NOT commit MATCHES "^[0-9a-f]+$")
  set(commit "")
  set(dirty 0)
endif()
set(text "// Written by the build.\n#define KAZEIA_COMMIT \"${commit}\"\n#define KAZEIA_DIRTY ${dirty}\n")
set(before "")
if(EXISTS "${HEADER}")
  file(READ "${HEADER}" before)
endif()
if(NOT before STREQUAL text)
  file(WRITE "${HEADER}" "${text}")
endif()
