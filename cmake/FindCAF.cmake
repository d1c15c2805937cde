# Finds the C++ Actor Framework where the package ships no CMake config (Debian ships none).
#
#   find_package(CAF REQUIRED COMPONENTS core [io])
#
# Defines CAF::core (and CAF::io), CAF_FOUND, CAF_VERSION (the raw CAF_VERSION macro of caf/config.hpp on 0.17,
# major.minor.patch where the newer macros exist).
find_path(CAF_INCLUDE_DIR NAMES caf/all.hpp caf/actor_system.hpp)
mark_as_advanced(CAF_INCLUDE_DIR)

if(CAF_INCLUDE_DIR)
  foreach(header config.hpp detail/build_config.hpp)
    set(file "${CAF_INCLUDE_DIR}/caf/${header}")
    if(EXISTS "${file}")
      file(STRINGS "${file}" line REGEX "^#define CAF_VERSION[ \t]+[0-9]+")
      if(line MATCHES "CAF_VERSION[ \t]+([0-9]+)")
        set(CAF_VERSION "${CMAKE_MATCH_1}")
      endif()
    endif()
  endforeach()
endif()

foreach(component ${CAF_FIND_COMPONENTS})
  find_library(CAF_${component}_LIBRARY NAMES caf_${component})
  mark_as_advanced(CAF_${component}_LIBRARY)
  if(CAF_INCLUDE_DIR AND CAF_${component}_LIBRARY)
    set(CAF_${component}_FOUND TRUE)
    if(NOT TARGET CAF::${component})
      add_library(CAF::${component} UNKNOWN IMPORTED)
      set_target_properties(
        CAF::${component}
        PROPERTIES IMPORTED_LOCATION "${CAF_${component}_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}"
                   INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}")
    endif()
  endif()
endforeach()
if(TARGET CAF::io AND TARGET CAF::core)
  set_property(TARGET CAF::io APPEND PROPERTY INTERFACE_LINK_LIBRARIES CAF::core)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  CAF
  REQUIRED_VARS CAF_INCLUDE_DIR
  VERSION_VAR CAF_VERSION
  HANDLE_COMPONENTS)
