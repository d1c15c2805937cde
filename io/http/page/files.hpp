#pragma once

#include <span>
#include <string_view>

namespace pagoda::http::page {

/// A file of the page, as it is served. The build makes them of io/http/page/files (cmake/PagodaPage.cmake).
struct File {
  std::string_view name;  ///< as main.js
  std::string_view body;
  std::string_view etag;  ///< with its quotes
};

/// index.html is one of them.
std::span<const File> files();

}  // namespace pagoda::http::page
