# ctest entries for GoogleTest programs: one for each test suite. A process for each test would spend more time on starting
# than on testing.
include_guard()

# pagoda_discover_suites(TARGET PREFIX): after each link of TARGET its suites become the tests PREFIX.SUITE. A suite in
# which every test was skipped counts as skipped: the program ends with 77 (tests/support/main.cpp).
function(pagoda_discover_suites target prefix)
  set(list "${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake")
  add_custom_command(
    TARGET ${target}
    POST_BUILD
    BYPRODUCTS "${list}"
    COMMAND ${CMAKE_COMMAND} -D "PROGRAM=$<TARGET_FILE:${target}>" -D "PREFIX=${prefix}" -D "LIST=${list}" -P
            "${PROJECT_SOURCE_DIR}/cmake/list_test_suites.cmake"
    VERBATIM)
  # Until the program is built ctest has one test, which fails and says so.
  set(include "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
  file(
    WRITE "${include}"
    "if(EXISTS \"${list}\")\n  include(\"${list}\")\nelse()\n  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include}")
endfunction()
