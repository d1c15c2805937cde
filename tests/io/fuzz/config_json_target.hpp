#pragma once

#include <string_view>

#include "io/model_files/hf_config.hpp"
#include "tests/io/fuzz/fuzz_folder.hpp"

namespace pagoda::io::testing {

/// Reads `bytes` as a config.json. Whatever they are, there is a one-line error or a model with sizes that can be.
inline void try_config_json(std::string_view bytes) {
  const auto spec = parse_hf_config({bytes, "config.json"}, nullptr);
  if (!spec) return check_error(spec.error());
  PAGODA_ASSERT(spec->vocab_size > 0 && spec->max_position_embeddings > 0 && spec->position_limit > 0,
                "sizes are sizes");
  for (const TokenId token : spec->eos_token_ids) PAGODA_ASSERT(token >= 0 && token < spec->vocab_size, "ids are ids");
  PAGODA_ASSERT(spec->kv_layout(16, DType::f32).block_bytes() > 0, "a block has bytes");
}

}  // namespace pagoda::io::testing
