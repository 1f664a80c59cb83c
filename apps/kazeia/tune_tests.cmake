kazeia_test(tune_test LABEL unit
  SOURCES tune_plan_test.cpp tune_report_test.cpp tune_plan.cpp tune_report.cpp options.cpp run_settings.cpp terminal.cpp
  LINK kazeia_base kazeia_plan kazeia_npu kazeia_engine kazeia_session kazeia_bench CLI11::CLI11)
if(TARGET tune_test)
  target_include_directories(tune_test PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_include_directories(tune_test SYSTEM PRIVATE "${KAZEIA_LLAMA_CPP_DIR}/vendor")
endif()
