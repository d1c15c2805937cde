#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Returns scores with which SentencePiece's BPE cuts a text as `merges` do: it joins the two neighbours whose token
/// has the highest score. `tokens` and `merged` are by id; `merged` marks the tokens that merges may make, the others
/// have no score. `merges` is by rank. Errors: unsupported, where no such scores exist: two tokens form a token without
/// a merge for them, or ranks of another token lie between the ranks of a token's merges.
Result<std::vector<float>> scores_of_merges(const std::vector<std::string>& tokens, const std::vector<bool>& merged,
                                            const std::vector<std::pair<std::string, std::string>>& merges);

}  // namespace pagoda::io
