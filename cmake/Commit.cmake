# The commit that a program was built from, and whether it was changed since, in a header that is written again only when
# it says something else: one small file is then compiled, and nothing else.

find_package(Git QUIET)

# kazeia_commit_header(<header> DEPENDS <files and libraries that the program is made of>)
#   Asked again when one of them changes, and when something is committed or another commit is checked out; so what
#   is not committed is found when it is compiled. Without git or a repository the header names no commit.
function(kazeia_commit_header header)
  cmake_parse_arguments(A "" "" "DEPENDS" ${ARGN})
  set(moves)
  if(GIT_EXECUTABLE)
    foreach(file HEAD logs/HEAD)
      execute_process(COMMAND "${GIT_EXECUTABLE}" rev-parse --git-path ${file} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
        OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      get_filename_component(path "${path}" ABSOLUTE BASE_DIR "${CMAKE_SOURCE_DIR}")
      if(path AND EXISTS "${path}" AND NOT IS_DIRECTORY "${path}")
        list(APPEND moves "${path}")
      endif()
    endforeach()
  endif()
  add_custom_command(OUTPUT "${header}"
    COMMAND ${CMAKE_COMMAND} "-DHEADER=${header}" "-DGIT=${GIT_EXECUTABLE}" -P "${CMAKE_SOURCE_DIR}/cmake/write_commit.cmake"
    WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
    DEPENDS "${CMAKE_SOURCE_DIR}/cmake/write_commit.cmake" ${moves} ${A_DEPENDS}
    COMMENT "Looking up the commit"
    VERBATIM)
endfunction()
