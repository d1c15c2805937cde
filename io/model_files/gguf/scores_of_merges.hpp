#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::io {

/// The scores that make SentencePiece's BPE cut a text as these merges do: it joins the two neighbours whose token has
/// the highest score. `tokens`: by id; `merged`: those that merges may make, others have no score. `merges`: by rank.
/// Errors: unsupported, where no scores do: a token can be made of two others without there being such a merge, or its
/// merges have ranks of another token's between them.
Result<std::vector<float>> scores_of_merges(const std::vector<std::string>& tokens, const std::vector<bool>& merged,
                                            const std::vector<std::pair<std::string, std::string>>& merges);

}  // namespace pagoda::io
