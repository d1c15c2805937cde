#pragma once

#include <string_view>

#include "io/jinja/callable.hpp"

namespace pagoda::jinja {

/// A method of Python's str, list, tuple or dict.
using Method = Value (*)(Interpreter&, const Value& self, const Arguments&);

/// Returns null when values of this kind have no such method, or when it is not supported.
Method find_method(Kind kind, std::string_view name);
/// Calls the method. If `self` is a marked-up text, texts in the result are marked up too.
Value call_method(Interpreter& interpreter, Method method, const Value& self, const Arguments& arguments);
/// Returns whether the sandbox hides the method from templates because it changes its object.
bool is_forbidden_method(Kind kind, std::string_view name);

Method find_text_method(std::string_view name);
/// Finds isdigit() and similar methods that test the kind of all characters.
Method find_text_predicate(std::string_view name);
Method find_list_method(std::string_view name);
Method find_dict_method(std::string_view name);

}  // namespace pagoda::jinja
