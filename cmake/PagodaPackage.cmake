# `cpack -G DEB` in a build folder gives pagoda (the command, its service, manual pages, completions) and libpagoda-dev
# (headers, libraries, the CMake package). What the command says of itself is made by the command that was built.
set(PAGODA_PACKAGE_CONTACT "The Pagoda authors <pagoda@example.org>" CACHE STRING "Maintainer of packages: NAME <ADDRESS>")
find_program(GZIP_PROGRAM gzip)

set(PAGODA_HAS_PACKAGE OFF)
if(NOT PROJECT_IS_TOP_LEVEL OR NOT TARGET pagoda_command OR CMAKE_CROSSCOMPILING OR NOT GZIP_PROGRAM)
  return()
endif()
set(PAGODA_HAS_PACKAGE ON)
set(generated ${PROJECT_BINARY_DIR}/packaging)

# Debian's own changelog says of each version that there is one; CHANGELOG.md says what is new.
string(TIMESTAMP PAGODA_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${PROJECT_SOURCE_DIR}/packaging/debian/changelog.in ${generated}/changelog @ONLY)

# Manual pages and completions, from the command's own tree of flags.
add_custom_command(
  OUTPUT ${generated}/made
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${generated}/man ${generated}/bash ${generated}/zsh
  COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}/bash ${generated}/zsh
  COMMAND pagoda_command manual --out ${generated}/man
  COMMAND sh -c "${GZIP_PROGRAM} -9n ${generated}/man/*.1"
  COMMAND pagoda_command completion bash > ${generated}/bash/pagoda
  COMMAND pagoda_command completion zsh > ${generated}/zsh/_pagoda
  COMMAND sh -c "${GZIP_PROGRAM} -9nc ${generated}/changelog > ${generated}/changelog.gz"
  COMMAND sh -c "${GZIP_PROGRAM} -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md > ${generated}/CHANGELOG.md.gz"
  COMMAND ${CMAKE_COMMAND} -E touch ${generated}/made
  DEPENDS pagoda_command ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  COMMENT "Manual pages and completions"
  VERBATIM)
add_custom_target(pagoda_manual ALL DEPENDS ${generated}/made)

set(zsh_folder site-functions)
if(EXISTS /etc/debian_version)
  set(zsh_folder vendor-completions)
endif()
install(DIRECTORY ${generated}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
install(FILES ${generated}/bash/pagoda DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)
install(FILES ${generated}/zsh/_pagoda DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${zsh_folder} COMPONENT command)

install(FILES ${PROJECT_SOURCE_DIR}/packaging/debian/libpagoda-dev.lintian-overrides
        DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides RENAME libpagoda-dev COMPONENT development)

# The service and its config: paths are those of the installation, which cpack chooses anew. What lies in /usr is
# configured in /etc; a package there has the license from its system.
install(
  CODE "
set(PAGODA_COMMAND \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/pagoda\")
set(PAGODA_DOC_DIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/doc/pagoda\")
if(CMAKE_INSTALL_PREFIX STREQUAL /usr)
  set(config_folder /etc/pagoda)
else()
  set(config_folder \"\${CMAKE_INSTALL_PREFIX}/etc/pagoda\")
  file(INSTALL \"${PROJECT_SOURCE_DIR}/LICENSE\" DESTINATION \"\${PAGODA_DOC_DIR}\")
endif()
set(PAGODA_CONFIG \"\${config_folder}/serve.json\")
configure_file(\"${PROJECT_SOURCE_DIR}/packaging/systemd/pagoda.service.in\" \"${generated}/pagoda.service\" @ONLY)
file(INSTALL \"${PROJECT_SOURCE_DIR}/packaging/serve.json\" DESTINATION \"\${config_folder}\")"
  COMPONENT command)
install(FILES ${generated}/pagoda.service DESTINATION lib/systemd/system COMPONENT command)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/systemd/gpu.conf DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/pagoda
        COMPONENT command)

# What Debian wants of each package.
configure_file(${PROJECT_SOURCE_DIR}/packaging/debian/copyright.in ${generated}/copyright @ONLY)
foreach(package pagoda libpagoda-dev)
  set(component command)
  if(package STREQUAL libpagoda-dev)
    set(component development)
  endif()
  install(FILES ${generated}/copyright ${generated}/changelog.gz ${generated}/CHANGELOG.md.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
          COMPONENT ${component})
endforeach()

set(CPACK_PACKAGE_NAME pagoda)
set(CPACK_PACKAGE_VENDOR "Pagoda")
set(CPACK_PACKAGE_CONTACT "${PAGODA_PACKAGE_CONTACT}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL command development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME pagoda)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_COMMAND_DESCRIPTION
    "Runs language models in Hugging Face's format and GGUF files on a processor or
an NVIDIA GPU, with paged attention, continuous batching and prefix caching.
Serves them through the HTTP APIs of OpenAI, Anthropic and Ollama, and JSON
lines over TCP.

The service pagoda.service is installed and not started: it wants a model,
which /etc/pagoda/serve.json names.")
set(CPACK_DEBIAN_COMMAND_PACKAGE_CONTROL_EXTRA
    "${PROJECT_SOURCE_DIR}/packaging/debian/postinst;${PROJECT_SOURCE_DIR}/packaging/debian/prerm;\
${PROJECT_SOURCE_DIR}/packaging/debian/postrm;${PROJECT_SOURCE_DIR}/packaging/debian/conffiles")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libpagoda-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
string(CONCAT CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
              "libcaf-dev, libboost-dev, nlohmann-json3-dev, libspdlog-dev, libexpected-dev, libpcre2-dev, libutf8proc-dev, "
              "libsentencepiece-dev, libssl-dev, libxxhash-dev")
if(PAGODA_HAS_HWLOC)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libhwloc-dev")
endif()
if(PAGODA_HAS_ZMQ)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libzmq3-dev")
endif()
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
    "Headers, static libraries and the CMake package of Pagoda, with which a C++
program runs and serves language models itself, alone or inside its own actor
system.")
include(CPack)
