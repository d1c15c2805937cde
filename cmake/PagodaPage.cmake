# The page for browsers as C++: cmake -DFILES=FOLDER -DOUTPUT=FILE -P PagodaPage.cmake writes what io/http/page/files.hpp
# declares. pagoda_page_source(OUTPUT) makes a rule of it.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(pagoda_page_source output)
    set(folder ${PROJECT_SOURCE_DIR}/io/http/page/files)
    file(GLOB files CONFIGURE_DEPENDS "${folder}/*")
    add_custom_command(
      OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -DFILES=${folder} -DOUTPUT=${output} -P ${PROJECT_SOURCE_DIR}/cmake/PagodaPage.cmake
      DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/PagodaPage.cmake
      VERBATIM)
  endfunction()
  return()
endif()

file(GLOB files "${FILES}/*")
set(arrays "")
set(entries "")
set(number 0)
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  file(READ ${file} hex HEX)
  file(SHA256 ${file} digest)
  string(SUBSTRING ${digest} 0 16 digest)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${hex}")
  string(APPEND arrays "constexpr char kFile${number}[] = {${bytes}};\n")
  string(APPEND entries "    {\"${name}\", {kFile${number}, sizeof kFile${number}}, \"\\\"${digest}\\\"\"},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"io/http/page/files.hpp\"

namespace pagoda::http::page {
namespace {

${arrays}
constexpr File kFiles[] = {
${entries}};

}  // namespace

std::span<const File> files() {
  return kFiles;
}

}  // namespace pagoda::http::page
")
