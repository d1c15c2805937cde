#pragma once

#include <cstddef>

namespace pagoda::jinja {

/// Limits on what one template may use. A template is untrusted code: within these limits it cannot hang, overflow the
/// stack or exhaust the machine's memory.
struct Limits {
  // Limits on parsing.
  std::size_t max_source_bytes = std::size_t{4} << 20U;
  int max_nesting = 150;      ///< nesting of brackets and blocks
  int max_tree_height = 500;  ///< height of an expression, also of a long chain such as a + b + c

  // Limits on rendering.
  std::size_t max_steps = 50'000'000;                    ///< expressions, statements, items, and bytes read / 64
  std::size_t max_bytes_made = std::size_t{512} << 20U;  ///< bytes of values created during one render, inputs included
  std::size_t max_output_bytes = std::size_t{128} << 20U;  ///< bytes of the output
  int max_depth = 600;        ///< depth of nested evaluation: calls in calls, blocks in blocks
  int max_value_depth = 200;  ///< depth of lists in lists
};

}  // namespace pagoda::jinja
