#pragma once

/// Makes messages with visit_fields inspectable for CAF, which sees each as the bytes of engine/step/codec.hpp.
/// Messages inside a process are never turned into bytes.

#include <cstddef>
#include <vector>

#include "actors/caf_compat.hpp"
#include "engine/step/codec.hpp"

namespace pagoda {

template <class Inspector, HasFields Message>
auto inspect(Inspector& inspector, Message& message) {
#ifdef CAF_VERSION_MAJOR
  const auto get = [&] { return encode(message); };
  const auto set = [&](const std::vector<std::byte>& bytes) { return decode(bytes, message); };
  return inspector.object(message).fields(inspector.field("bytes", get, set));
#else
  std::vector<char> bytes;
  if constexpr (Inspector::reads_state) {
    for (const std::byte byte : encode(message)) bytes.push_back(static_cast<char>(byte));
    return inspector(bytes);
  } else {
    const auto load = [&]() -> caf::error {
      const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
      if (decode({first, bytes.size()}, message)) return {};
      return caf::make_error(caf::sec::runtime_error, "the message is damaged, or is from another version");
    };
    return inspector(bytes, caf::meta::load_callback(load));
  }
#endif
}

namespace actors {
using pagoda::inspect;
}

}  // namespace pagoda
