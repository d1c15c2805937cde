# `cmake --install` gives headers, libraries, the command and a CMake package: find_package(pagoda).
include(CMakePackageConfigHelpers)

# With PAGODA_SHARED also one shared library, which shows the symbols of namespace pagoda alone. Its name has the version
# that it is compatible with.
if(PAGODA_SHARED)
  file(WRITE ${PROJECT_BINARY_DIR}/shared.cpp "")
  file(WRITE ${PROJECT_BINARY_DIR}/shared.map [[
{
  global:
    extern "C++" {
      pagoda::*;
      "typeinfo for pagoda::*";
      "typeinfo name for pagoda::*";
      "vtable for pagoda::*";
    };
  local:
    *;
};
]])
  add_library(pagoda_shared SHARED ${PROJECT_BINARY_DIR}/shared.cpp)
  add_library(pagoda::shared ALIAS pagoda_shared)
  # All of our libraries as a whole; named again as a target, pagoda_pagoda brings the libraries that they use.
  set(parts pagoda_pagoda pagoda_io pagoda_actors pagoda_engine pagoda_kernels)
  list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE archives)
  add_dependencies(pagoda_shared ${parts})
  target_link_libraries(pagoda_shared PRIVATE "-Wl,--whole-archive" ${archives} "-Wl,--no-whole-archive" pagoda_pagoda)
  target_link_libraries(pagoda_shared PUBLIC CAF::core tl::expected Threads::Threads)
  target_compile_features(pagoda_shared PUBLIC cxx_std_20)
  target_include_directories(pagoda_shared PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/pagoda>)
  target_link_options(pagoda_shared PRIVATE LINKER:--version-script=${PROJECT_BINARY_DIR}/shared.map LINKER:--gc-sections)
  set_target_properties(
    pagoda_shared PROPERTIES OUTPUT_NAME pagoda EXPORT_NAME shared VERSION ${PROJECT_VERSION}
                             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  install(
    TARGETS pagoda_shared
    EXPORT pagodaTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
endif()

set(pagoda_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pagoda)
install(
  TARGETS pagoda_kernels pagoda_engine pagoda_actors pagoda_io pagoda_pagoda
  EXPORT pagodaTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
# pagoda_headers_of(OUT HEADERS...): these headers of the project, and all that they include.
function(pagoda_headers_of out)
  set(found "")
  set(open ${ARGN})
  while(open)
    list(POP_FRONT open header)
    if(header IN_LIST found OR NOT EXISTS ${PROJECT_SOURCE_DIR}/${header})
      continue()
    endif()
    list(APPEND found ${header})
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"")
    list(TRANSFORM includes REPLACE "^#include \"([^\"]+)\".*" "\\1")
    list(APPEND open ${includes})
  endwhile()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# The public API: the library, its actors, and what the examples use of chat templates, model folders and sessions.
pagoda_headers_of(public_headers pagoda/engine.hpp pagoda/spawn_engine.hpp io/chat/chat_prompts.hpp
                  io/model_files/model_files.hpp io/serving/session.hpp)
foreach(header ${public_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pagoda/${folder}
          COMPONENT development)
endforeach()
install(
  EXPORT pagodaTargets
  NAMESPACE pagoda::
  DESTINATION ${pagoda_package_dir}
  COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/pagodaConfig.cmake.in ${PROJECT_BINARY_DIR}/pagodaConfig.cmake
                              INSTALL_DESTINATION ${pagoda_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pagodaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pagodaConfig.cmake ${PROJECT_BINARY_DIR}/pagodaConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindCAF.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindSentencePiece.cmake
        DESTINATION ${pagoda_package_dir} COMPONENT development)
if(TARGET pagoda_command)
  install(TARGETS pagoda_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
endif()
# A package is for machines that are not this one.
if(PAGODA_HAS_CUDA AND PAGODA_CUDA_ARCHITECTURES MATCHES "^(AUTO|native)$")
  install(CODE "message(STATUS \"CUDA code for ${PAGODA_CUDA_BUILT_FOR} alone: a package needs -DPAGODA_CUDA_ARCHITECTURES=all\")")
endif()
