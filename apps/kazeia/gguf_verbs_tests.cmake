kazeia_test(gguf_verbs_test LABEL model
  SOURCES inspect_test.cpp synth_test.cpp "${CMAKE_SOURCE_DIR}/tests/cli_program.cpp"
  LINK kazeia_gguf upstream::cpu)
if(TARGET gguf_verbs_test)
  target_include_directories(gguf_verbs_test PRIVATE "${CMAKE_SOURCE_DIR}/tests")
  add_dependencies(gguf_verbs_test kazeia)
endif()
