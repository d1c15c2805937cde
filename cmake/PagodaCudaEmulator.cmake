# The CUDA backend compiled as C++ for the tests, on the emulator of tests/support/cuda_emulator: needs no toolkit.
#
#   pagoda_cuda_emulated         every source of kernels/cuda/ and the emulator, to be linked by tests of its insides
#   pagoda_emulated_device       create_emulated_cuda_device() in a shared library that shows nothing else, so that a
#                                program may hold the real backend beside it
#   pagoda_cuda_emulator_test    tests of the emulator and of the backend's insides: *_test.cu
find_package(Boost 1.74 REQUIRED COMPONENTS context)

set(emulator_dir ${PROJECT_SOURCE_DIR}/tests/support/cuda_emulator)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu
                                       ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cpp)
file(GLOB emulator_sources CONFIGURE_DEPENDS ${emulator_dir}/*.cpp)
file(GLOB emulator_tests CONFIGURE_DEPENDS ${emulator_dir}/*_test.cu ${CMAKE_CURRENT_SOURCE_DIR}/kernels/cuda/*_test.cu)
list(FILTER emulator_sources EXCLUDE REGEX "/emulated_device.cpp$")
list(FILTER cuda_sources EXCLUDE REGEX "/no_cuda_device.cpp$")
# A source of the emulator's folder stands for the backend's of the same name.
foreach(source ${emulator_sources})
  get_filename_component(name ${source} NAME)
  list(FILTER cuda_sources EXCLUDE REGEX "/${name}$")
endforeach()
set_source_files_properties(${cuda_sources} ${emulator_tests} PROPERTIES LANGUAGE CXX)

add_library(pagoda_cuda_emulated STATIC ${cuda_sources} ${emulator_sources})
target_include_directories(pagoda_cuda_emulated SYSTEM BEFORE PUBLIC ${emulator_dir}/include)
target_compile_definitions(pagoda_cuda_emulated PUBLIC PAGODA_CUDA_EMULATED=1)
target_compile_options(pagoda_cuda_emulated PUBLIC -Wno-unknown-pragmas -fno-strict-aliasing $<$<CONFIG:Debug>:-O1>)
pagoda_compile_options(pagoda_cuda_emulated)
# Kernels are written for nvcc, which is more lenient.
set_source_files_properties(${cuda_sources} ${emulator_tests} PROPERTIES COMPILE_OPTIONS
                                                                         "-Wno-conversion;-Wno-old-style-cast;-Wno-pedantic")
set_target_properties(pagoda_cuda_emulated PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_link_libraries(pagoda_cuda_emulated PUBLIC pagoda::kernels Boost::context)

add_library(pagoda_emulated_device SHARED ${emulator_dir}/emulated_device.cpp)
target_link_libraries(pagoda_emulated_device PRIVATE pagoda_cuda_emulated)
# Names that the emulator and the toolkit, or both builds of the backend, share must not meet.
target_link_options(pagoda_emulated_device PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(pagoda_emulated_device PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
pagoda_compile_options(pagoda_emulated_device)

if(emulator_tests)
  add_executable(pagoda_cuda_emulator_test ${emulator_tests})
  target_link_libraries(pagoda_cuda_emulator_test PRIVATE pagoda_cuda_emulated GTest::gmock GTest::gtest
                                                          pagoda_test_main)
  pagoda_compile_options(pagoda_cuda_emulator_test)
  pagoda_discover_suites(pagoda_cuda_emulator_test cuda_emulator)
endif()
