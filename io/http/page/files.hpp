#pragma once

#include <span>
#include <string_view>

namespace pagoda::http::page {

/// A file of the page. The build makes the files from io/http/page/files (cmake/PagodaPage.cmake).
struct File {
  std::string_view name;  ///< for example main.js
  std::string_view body;
  std::string_view etag;  ///< with its quotes
};

/// Returns all files of the page, including index.html.
std::span<const File> files();

}  // namespace pagoda::http::page
