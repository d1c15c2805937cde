#include "pagoda/journal_size.hpp"

#include "io/journal/journal_file.hpp"
#include "io/serving/recovered_request.hpp"

namespace pagoda {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

/// Returns the largest number of bytes that the codec writes for a token id.
std::size_t token_bytes(std::int64_t vocab_size) {
  std::size_t bytes = 1;
  for (std::int64_t ids = 64; ids < vocab_size; ids *= 128) ++bytes;
  return bytes;
}

std::string in_mib(std::size_t bytes) {
  return std::to_string((bytes + kMiB - 1) / kMiB) + " MiB";
}

}  // namespace

std::size_t max_block_state_bytes(const memory::BlockSpaceConfig& blocks, std::int64_t vocab_size) {
  constexpr std::size_t kCachedBlockBytes = 64;  // two hashes, ids and steps
  constexpr std::size_t kHeldBlockBytes = 8;     // an entry of a block table, and the last step that touched it
  const auto block_size = static_cast<std::size_t>(blocks.layout.block_size());
  const std::size_t tokens = block_size * token_bytes(vocab_size);
  const auto num_device_blocks = static_cast<std::size_t>(blocks.num_device_blocks);
  const auto num_host_blocks = static_cast<std::size_t>(blocks.num_host_blocks);
  const std::size_t cached = blocks.enable_prefix_caching ? num_device_blocks * (kCachedBlockBytes + tokens) : 0;
  return cached + (num_device_blocks + num_host_blocks) * (kHeldBlockBytes + tokens);
}

std::size_t max_resumable_bytes(const routing::AdmissionLimits& limits) {
  constexpr std::size_t kTextBytes = 8;  // a token id, and the end of its text
  const auto num_tokens = static_cast<std::size_t>(limits.max_model_len);
  return serving::kMaxOriginBytes + num_tokens * (token_bytes(limits.vocab_size) + kTextBytes);
}

std::vector<std::string> journal_size_warnings(const EngineConfig& config, const memory::BlockSpaceConfig& blocks,
                                               const routing::AdmissionLimits& limits) {
  std::vector<std::string> warnings;
  if (config.journal.empty()) return warnings;
  const std::size_t room = io::JournalFile::max_state_bytes(config.journal_mib << 20);
  const std::string has_room = ", but journal_mib " + std::to_string(config.journal_mib) + " leaves " +
                               std::to_string(room >> 10U) + " KiB for states: ";
  const auto raise = [](std::size_t bytes) {
    return "; raise journal_mib to " + std::to_string(io::JournalFile::mib_for_states(bytes));
  };
  if (const auto bytes = max_resumable_bytes(limits); config.journal_tokens && bytes > room) {
    warnings.push_back("journal: a resumable request of max_model_len " + std::to_string(limits.max_model_len) +
                       " tokens takes up to " + in_mib(bytes) + has_room + "the longest ones may not be recovered" +
                       raise(bytes));
  }
  if (const auto bytes = max_block_state_bytes(blocks, limits.vocab_size); bytes > room) {
    warnings.push_back("journal: the state of " + std::to_string(blocks.num_device_blocks) + " KV blocks takes up to " +
                       in_mib(bytes) + has_room +
                       "with so many cached blocks, pagoda replay has no state to begin with (resumable requests are "
                       "still recovered)" +
                       raise(bytes));
  }
  return warnings;
}

}  // namespace pagoda
