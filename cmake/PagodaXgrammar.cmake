# pagoda_xgrammar, where scripts/fetch-xgrammar has got the sources of XGrammar 0.2.8: its C++ core, which tests hold
# Pagoda's masks against. Nothing else is linked with it.
set(PAGODA_XGRAMMAR_DIR "${PROJECT_SOURCE_DIR}/build/third_party/xgrammar-0.2.8" CACHE PATH "Sources of XGrammar 0.2.8, for tests")
if(NOT EXISTS ${PAGODA_XGRAMMAR_DIR}/cpp/grammar_compiler.cc)
  message(STATUS "Masks are not held against XGrammar's (no sources of it; scripts/fetch-xgrammar)")
  return()
endif()

file(GLOB_RECURSE sources RELATIVE ${PAGODA_XGRAMMAR_DIR} ${PAGODA_XGRAMMAR_DIR}/cpp/*.cc)
list(FILTER sources EXCLUDE REGEX "^cpp/tvm_ffi/")
list(TRANSFORM sources PREPEND ${PAGODA_XGRAMMAR_DIR}/)
add_library(pagoda_xgrammar STATIC EXCLUDE_FROM_ALL ${sources})
target_include_directories(pagoda_xgrammar SYSTEM
                           PRIVATE ${PAGODA_XGRAMMAR_DIR}/include ${PAGODA_XGRAMMAR_DIR}/3rdparty/dlpack/include
                                   ${PAGODA_XGRAMMAR_DIR}/3rdparty/picojson)
target_compile_definitions(pagoda_xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
target_compile_options(pagoda_xgrammar PRIVATE -w) # its warnings are not ours
# What turns other notations into grammars is linked and never called, and takes minutes to optimise.
set(unused ${sources})
list(FILTER unused INCLUDE REGEX "/(json_schema_converter|lark_converter|structural_tag|converter_ext/[a-z0-9_]*).cc$")
set_source_files_properties(${unused} PROPERTIES COMPILE_OPTIONS "-O0")
if(PAGODA_SANITIZE)
  target_compile_options(pagoda_xgrammar PRIVATE -fsanitize=${PAGODA_SANITIZE} -fno-omit-frame-pointer)
endif()
target_link_libraries(pagoda_xgrammar PUBLIC Threads::Threads)
