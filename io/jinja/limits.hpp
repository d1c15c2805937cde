#pragma once

#include <cstddef>

namespace pagoda::jinja {

/// What one template may use before it is refused. A template is a program from a stranger: with these bounds it can
/// neither hang, nor overflow the stack, nor take the machine's memory.
struct Limits {
  // Parsing.
  std::size_t max_source_bytes = std::size_t{4} << 20U;
  int max_nesting = 150;      ///< brackets in brackets, blocks in blocks
  int max_tree_height = 500;  ///< of an expression, also of a long chain such as a + b + c

  // Rendering.
  std::size_t max_steps = 50'000'000;                      ///< expressions, statements, items, and bytes looked at / 64
  std::size_t max_bytes_made = std::size_t{512} << 20U;    ///< of values made during one render, inputs included
  std::size_t max_output_bytes = std::size_t{128} << 20U;  ///< of the text
  int max_depth = 600;                                     ///< of nested evaluation: calls in calls, blocks in blocks
  int max_value_depth = 200;                               ///< of lists in lists
};

}  // namespace pagoda::jinja
