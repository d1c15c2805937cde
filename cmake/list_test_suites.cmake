# cmake -D PROGRAM=... -D PREFIX=... -D LIST=... -P list_test_suites.cmake: writes the file LIST with a ctest entry for each
# suite of the GoogleTest program PROGRAM.
execute_process(
  COMMAND "${PROGRAM}" --gtest_list_tests
  OUTPUT_VARIABLE output
  COMMAND_ERROR_IS_FATAL ANY
  TIMEOUT 60)
string(REGEX MATCHALL "[^\n]+" lines "${output}")
set(entries "")
foreach(line IN LISTS lines)
  # "Suite." or "Instantiation/Suite.  # TypeParam = ..."; tests are indented.
  if(line MATCHES "^([^ #]+)\\.( .*)?$")
    set(suite "${CMAKE_MATCH_1}")
    # Ranks wait for each other: beside another test they take up to five times as long as alone.
    set(processors 1)
    if(suite MATCHES "^On[A-Za-z]+(Ranks|Stages)")
      set(processors 2)
    endif()
    string(
      APPEND
      entries
      "add_test([==[${PREFIX}.${suite}]==] [==[${PROGRAM}]==] [==[--gtest_filter=${suite}.*]==] --gtest_brief=1)\n"
      "set_tests_properties([==[${PREFIX}.${suite}]==] PROPERTIES TIMEOUT 1500 SKIP_RETURN_CODE 77 PROCESSORS ${processors})\n")
  endif()
endforeach()
file(WRITE "${LIST}" "${entries}")
