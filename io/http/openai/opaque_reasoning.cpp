#include "io/http/openai/opaque_reasoning.hpp"

#include <cstddef>
#include <limits>

#include <openssl/evp.h>

namespace pagoda::http::openai {
namespace {

constexpr std::string_view kMark = "pagoda1:";
constexpr std::size_t kBytesOfGroup = 3;
constexpr std::size_t kLettersOfGroup = 4;
constexpr std::size_t kMaxBytes = std::numeric_limits<int>::max() / 2;  ///< OpenSSL takes the size as an int

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());  // NOLINT: OpenSSL's type of bytes
}
unsigned char* bytes_of(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());  // NOLINT: OpenSSL's type of bytes
}

}  // namespace

std::string opaque_reasoning(std::string_view reasoning) {
  if (reasoning.size() > kMaxBytes) return {};
  const auto groups = (reasoning.size() + kBytesOfGroup - 1) / kBytesOfGroup;
  std::string letters(groups * kLettersOfGroup + 1, '\0');  // OpenSSL adds a NUL
  EVP_EncodeBlock(bytes_of(letters), bytes_of(reasoning), static_cast<int>(reasoning.size()));
  letters.pop_back();
  return std::string(kMark) + letters;
}

std::optional<std::string> read_opaque_reasoning(std::string_view opaque) {
  if (!opaque.starts_with(kMark)) return std::nullopt;
  opaque.remove_prefix(kMark.size());
  if (opaque.empty()) return std::string();
  if (opaque.size() % kLettersOfGroup != 0 || opaque.size() > kMaxBytes) return std::nullopt;
  std::string reasoning(opaque.size() / kLettersOfGroup * kBytesOfGroup, '\0');
  if (EVP_DecodeBlock(bytes_of(reasoning), bytes_of(opaque), static_cast<int>(opaque.size())) < 0) return std::nullopt;
  const auto padding = opaque.ends_with("==") ? 2U : opaque.ends_with('=') ? 1U : 0U;
  reasoning.resize(reasoning.size() - padding);
  return reasoning;
}

}  // namespace pagoda::http::openai
