# PAGODA_GRAMMAR = AUTO | ON | OFF -> PAGODA_HAS_GRAMMAR, and pagoda_xgrammar where it is true: structured output (JSON
# schemas, regexes, grammars). XGrammar's C++ core is compiled from the sources that scripts/fetch-xgrammar gets.
set(PAGODA_XGRAMMAR_DIR "${PROJECT_SOURCE_DIR}/build/third_party/xgrammar-0.2.8" CACHE PATH "Sources of XGrammar 0.2.8")
set(PAGODA_HAS_GRAMMAR OFF)
if(NOT PAGODA_GRAMMAR STREQUAL "OFF")
  if(EXISTS ${PAGODA_XGRAMMAR_DIR}/cpp/grammar_compiler.cc)
    set(PAGODA_HAS_GRAMMAR ON)
  elseif(PAGODA_GRAMMAR STREQUAL "ON")
    message(FATAL_ERROR "PAGODA_GRAMMAR is ON but ${PAGODA_XGRAMMAR_DIR} has no sources: scripts/fetch-xgrammar gets them")
  endif()
endif()
if(NOT PAGODA_HAS_GRAMMAR)
  message(STATUS "Structured output: left out (no sources of XGrammar; scripts/fetch-xgrammar)")
  return()
endif()
message(STATUS "Structured output: XGrammar in ${PAGODA_XGRAMMAR_DIR}")

file(GLOB_RECURSE sources RELATIVE ${PAGODA_XGRAMMAR_DIR} ${PAGODA_XGRAMMAR_DIR}/cpp/*.cc)
list(FILTER sources EXCLUDE REGEX "^cpp/tvm_ffi/")
list(TRANSFORM sources PREPEND ${PAGODA_XGRAMMAR_DIR}/)
add_library(pagoda_xgrammar STATIC ${sources})
set_target_properties(pagoda_xgrammar PROPERTIES EXPORT_NAME xgrammar)
target_include_directories(
  pagoda_xgrammar SYSTEM
  PUBLIC $<BUILD_INTERFACE:${PAGODA_XGRAMMAR_DIR}/include> $<BUILD_INTERFACE:${PAGODA_XGRAMMAR_DIR}/3rdparty/dlpack/include>
  PRIVATE ${PAGODA_XGRAMMAR_DIR}/3rdparty/picojson)
target_compile_definitions(pagoda_xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
target_compile_options(pagoda_xgrammar PRIVATE -w) # its warnings are not ours
# What turns other notations into grammars is linked and never called (engine/grammar does that), and takes minutes to
# optimise.
set(unused ${sources})
list(FILTER unused INCLUDE REGEX "/(json_schema_converter|lark_converter|structural_tag|converter_ext/[a-z0-9_]*).cc$")
set_source_files_properties(${unused} PROPERTIES COMPILE_OPTIONS "-O0")
if(PAGODA_SANITIZE)
  target_compile_options(pagoda_xgrammar PRIVATE -fsanitize=${PAGODA_SANITIZE} -fno-omit-frame-pointer)
endif()
target_link_libraries(pagoda_xgrammar PUBLIC Threads::Threads)
