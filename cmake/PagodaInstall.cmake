# `cmake --install` gives headers, libraries, the command and a CMake package: find_package(pagoda).
include(CMakePackageConfigHelpers)

set(pagoda_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pagoda)
install(
  TARGETS pagoda_kernels pagoda_engine pagoda_actors pagoda_io pagoda_pagoda
  EXPORT pagodaTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
foreach(folder kernels engine actors io pagoda)
  install(
    DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pagoda
    COMPONENT development
    FILES_MATCHING
    PATTERN "*.hpp")
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
