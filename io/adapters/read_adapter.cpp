#include "io/adapters/read_adapter.hpp"

#include <system_error>

#include "io/adapters/gguf_adapter.hpp"
#include "io/adapters/peft_adapter.hpp"

namespace pagoda::io {

namespace {

Result<adapters::Adapter> read(const std::filesystem::path& path, std::int64_t head_dim) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return read_peft_adapter(path);
  if (path.extension() == ".gguf") return read_gguf_adapter(path, head_dim);
  const bool exists = std::filesystem::exists(path, ignored);
  return fail(exists ? ErrorCode::unsupported : ErrorCode::io_failed,
              path.string() + (exists ? ": an adapter is a PEFT folder or a GGUF file (*.gguf)" : ": no such adapter"));
}

}  // namespace

Result<adapters::Adapter> read_adapter(const std::filesystem::path& path, std::int64_t head_dim) {
  auto adapter = read(path, head_dim);
  if (adapter) adapter->fingerprint = adapters::fingerprint_of(*adapter);
  return adapter;
}

}  // namespace pagoda::io
