# One static library per folder, and one test program per folder of tests/.

# Warnings, sanitizers and invariant checks for our own code.
function(pagoda_compile_options target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                           -Wno-sign-conversion -Wnon-virtual-dtor -Wold-style-cast>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 reports "a" + std::string as overlapping copies (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  if(PAGODA_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
  if(PAGODA_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${PAGODA_SANITIZE}
                                             -fno-omit-frame-pointer -fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC -fsanitize=${PAGODA_SANITIZE})
    if(PAGODA_SANITIZE MATCHES "address" AND NOT target STREQUAL "pagoda_kernels")
      # This nearly halves the time to compile. AddressSanitizer, too, stops at null pointers and at objects that are too
      # small. With -Og kernels would run too slowly.
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Og -fno-sanitize=null,object-size>)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # GCC takes moved variants for uninitialised in sanitized code. The debug build has the warning.
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND PAGODA_SANITIZE MATCHES "thread")
      # Boost.Asio's fences beside its locks, which the sanitizer does understand.
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
    endif()
  endif()
endfunction()

# pagoda_optimise(TARGET LEVEL): a level of optimisation of its own for release builds. Code that serves requests and
# reads files runs for microseconds per token: -Os makes it a third smaller than -O2, compiles a seventh faster, and
# costs nothing that can be measured (docs/benchmarks/serving.md). The linker leaves functions out that a program does
# not call.
function(pagoda_optimise target level)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${level}
                                           -ffunction-sections -fdata-sections>)
endfunction()

# pagoda_batch(TARGET): with PAGODA_UNITY, several sources become one translation unit. Their unnamed namespaces are then
# one, so names in them must not clash. A source with options or definitions of its own stays alone.
function(pagoda_batch target)
  if(PAGODA_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    # The first takes a source for a header; GCC 12 inlines more in a batch, and then takes moved variants for
    # uninitialised. The debug build, without batches, has both.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-maybe-uninitialized)
  endif()
endfunction()

# pagoda_library(NAME): library pagoda_NAME (alias pagoda::NAME) from every .cpp below the current folder.
function(pagoda_library name)
  # Relative: where the project itself lies does not matter to the filters.
  file(GLOB_RECURSE sources RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS "*.cpp")
  list(FILTER sources EXCLUDE REGEX "(^|/)cuda/")
  add_library(pagoda_${name} STATIC ${sources})
  add_library(pagoda::${name} ALIAS pagoda_${name})
  set_target_properties(pagoda_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(pagoda_${name} PUBLIC cxx_std_20)
  target_include_directories(pagoda_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/pagoda>)
  if(PAGODA_CHECK_INVARIANTS OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    target_compile_definitions(pagoda_${name} PRIVATE PAGODA_CHECK_INVARIANTS=1)
  endif()
  pagoda_compile_options(pagoda_${name})
endfunction()

# pagoda_test_helpers(NAME FOLDER LIBS...): objects pagoda_NAME from every .cpp below tests/FOLDER that is no test, which
# several programs share.
function(pagoda_test_helpers name folder)
  file(GLOB_RECURSE sources RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS "${folder}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "_test.cpp$|/cuda_emulator/")
  add_library(pagoda_${name} OBJECT ${sources})
  target_link_libraries(pagoda_${name} PRIVATE ${ARGN} GTest::gtest)
  pagoda_test_definitions(pagoda_${name})
  pagoda_compile_options(pagoda_${name})
  pagoda_batch(pagoda_${name})
endfunction()

function(pagoda_test_definitions target)
  target_compile_definitions(
    ${target} PRIVATE PAGODA_SOURCE_DIR="${PROJECT_SOURCE_DIR}" PAGODA_SHARED_DIR="${PROJECT_SOURCE_DIR}/../shared"
                      PAGODA_BINARY_DIR="${PROJECT_BINARY_DIR}")
endfunction()

# pagoda_test(FOLDER LIBS...): program pagoda_FOLDER_test from every .cpp below tests/FOLDER and the helpers of
# tests/support; of tests/engine only the tests, as its helpers are objects too.
function(pagoda_test folder)
  file(GLOB_RECURSE sources RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS "${folder}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/(fuzz|consumer)/")
  if(NOT sources)
    return()
  endif()
  set(helpers $<TARGET_OBJECTS:pagoda_test_support>)
  if(TARGET pagoda_${folder}_helpers)
    list(FILTER sources INCLUDE REGEX "_test.cpp$")
    list(APPEND helpers $<TARGET_OBJECTS:pagoda_${folder}_helpers>)
  endif()
  set(target pagoda_${folder}_test)
  add_executable(${target} ${sources} ${helpers})
  target_link_libraries(${target} PRIVATE ${ARGN} GTest::gmock GTest::gtest pagoda_test_main)
  pagoda_test_definitions(${target})
  pagoda_compile_options(${target})
  # Tests take longer to optimise than to run: only what runs long (the helpers, and the names here) is worth -O3. No
  # precompiled headers: with ccache 4.7 one whose headers have changed may be taken for the old one.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  set(long ${sources})
  list(FILTER sources INCLUDE REGEX "_test.cpp$")
  list(FILTER sources EXCLUDE REGEX "/(simulation|sample_distribution|thread_pool|block_space_model)_test.cpp$")
  list(REMOVE_ITEM long ${sources})
  set_source_files_properties(${long} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
  pagoda_batch(${target})
  pagoda_discover_suites(${target} ${folder})
endfunction()
