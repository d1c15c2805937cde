# PAGODA_CUDA = AUTO | ON | OFF -> PAGODA_HAS_CUDA, and the CUDA language and CUDA:: targets where it is true.
#
# PAGODA_CUDA_ARCHITECTURES says which GPUs the kernels are compiled for; each architecture costs its own compilation.
#   AUTO     CMAKE_CUDA_ARCHITECTURES or CUDAARCHS where one is given, else the GPUs of this machine, else kPortable
#   native   the GPUs of this machine; an error where there is none
#   all      kEvery: for packages, for continuous integration, and for what is built here and run elsewhere
#   a list   as CMAKE_CUDA_ARCHITECTURES
# PAGODA_CUDA_BUILT_FOR (in the cache, to be read) is what was chosen.
set(PAGODA_CUDA_ARCHITECTURES "AUTO" CACHE STRING "GPUs to compile for: AUTO, native, all, or a list as CMAKE_CUDA_ARCHITECTURES")

# PTX of the newest alone: what later devices compile for themselves, whatever else is there.
set(kEvery 80-real 89-real 90)
# One architecture that every supported GPU runs: the code of 8.0 is that of all 8.x, and the driver compiles the PTX for
# newer GPUs when the program first starts there (and keeps it). On those, kernels do not start before the one before them
# has ended (launch.hpp). Not PTX alone, which nobody assembles before a GPU is there: a mistake in it would pass the build.
set(kPortable 80)
set(kOldest 80)

# GPUs of this machine that Pagoda supports and nvcc can compile for, as CMAKE_CUDA_ARCHITECTURES; empty without any.
function(pagoda_native_architectures out)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  set(found)
  foreach(architecture ${CMAKE_CUDA_ARCHITECTURES_NATIVE})  # what CMake saw when it tried the compiler
    string(REGEX MATCH "^[0-9]+" number "${architecture}")
    if(number AND number GREATER_EQUAL kOldest AND known MATCHES "compute_${number}[^0-9]")
      list(APPEND found ${number}-real)
    endif()
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

set(PAGODA_HAS_CUDA OFF)
if(NOT PAGODA_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(given "")
    if(NOT PAGODA_CUDA_ARCHITECTURES MATCHES "^(AUTO|native|all)$")
      set(given ${PAGODA_CUDA_ARCHITECTURES})
    elseif(PAGODA_CUDA_ARCHITECTURES STREQUAL "all")
      set(given ${kEvery})
    elseif(PAGODA_CUDA_ARCHITECTURES STREQUAL "AUTO" AND DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(given ${CMAKE_CUDA_ARCHITECTURES})
    elseif(PAGODA_CUDA_ARCHITECTURES STREQUAL "AUTO" AND DEFINED ENV{CUDAARCHS})
      set(given $ENV{CUDAARCHS})
      set(CMAKE_CUDA_ARCHITECTURES ${given} CACHE STRING "CUDA architectures")  # CMake too takes it once only
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${kPortable})
    enable_language(CUDA)
    if(given)
      set(CMAKE_CUDA_ARCHITECTURES ${given})
      set(reason "as asked for")
    else()
      pagoda_native_architectures(native)
      if(native)
        set(CMAKE_CUDA_ARCHITECTURES ${native})
        set(reason "the GPUs of this machine")
      elseif(PAGODA_CUDA_ARCHITECTURES STREQUAL "native")
        message(FATAL_ERROR "PAGODA_CUDA_ARCHITECTURES is native, but there is no GPU here that Pagoda supports")
      else()
        string(CONCAT reason "no GPU was found here: one that all supported ones can run, those after 8.x once they have "
                             "compiled it at the first start. For packages: -DPAGODA_CUDA_ARCHITECTURES=all")
      endif()
    endif()
    set(PAGODA_CUDA_BUILT_FOR "${CMAKE_CUDA_ARCHITECTURES}" CACHE INTERNAL "GPUs that the kernels are compiled for")
    message(STATUS "CUDA architectures: ${CMAKE_CUDA_ARCHITECTURES} (${reason})")
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      # CMake 3.25 does not know how nvcc spells C++20.
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    find_package(CUDAToolkit REQUIRED)
    # Where the toolkit has it as an archive, the program needs no library of the toolkit to run.
    if(TARGET CUDA::cublasLt_static)
      set(PAGODA_CUBLASLT CUDA::cublasLt_static)
    else()
      set(PAGODA_CUBLASLT CUDA::cublasLt)
    endif()
    if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
    endif()
    set(PAGODA_HAS_CUDA ON)
  elseif(PAGODA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PAGODA_CUDA is ON but no CUDA compiler (nvcc) was found")
  endif()
endif()
message(STATUS "CUDA backend: ${PAGODA_HAS_CUDA}")
