#include "io/model_files/folder_spec.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/model_files/checkpoint.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/hf_config.hpp"
#include "io/model_files/tensor_names.hpp"

namespace pagoda::io {
namespace {

/// Returns whether the folder holds a head, plain or quantised.
bool has_head(const Checkpoint& checkpoint) {
  constexpr std::array kWeights{"lm_head.weight", "lm_head.qweight", "lm_head.weight_packed"};
  return std::ranges::any_of(kWeights, [&](const char* name) { return checkpoint.contains(name); });
}

bool head_is_embedding(const Checkpoint& checkpoint) {
  constexpr std::array kEmbeddings{"model.embed_tokens.weight", "transformer.wte.weight", "wte.weight",
                                   "model.decoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
  return std::ranges::any_of(kEmbeddings,
                             [&](const char* name) { return checkpoint.same_bytes("lm_head.weight", name); });
}

/// Returns a sentence that lists the tensors that are left out; empty when there are none.
std::string left_out(const Checkpoint& checkpoint) {
  constexpr std::size_t kMaxNamed = 4;
  std::vector<std::string> names;
  for (const std::string& name : checkpoint.tensor_names()) {
    if (is_beside_language_model(name)) names.emplace_back(checkpoint.stored_name(name));
  }
  if (names.empty()) return {};
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNamed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMaxNamed) text += " and " + std::to_string(names.size() - kMaxNamed) + " more";
  return "tensors that generating has no use for are left out: " + text;
}

/// Facts from a folder's config and its tensors.
struct FolderFacts {
  bool config_ties_head = false;
  bool has_own_head = false;  ///< whether there is a head that differs from the embedding
  std::unique_ptr<Checkpoint> checkpoint = nullptr;

  bool agrees() const { return checkpoint == nullptr || has_own_head != config_ties_head; }
};

FolderFacts facts_of(const std::filesystem::path& folder, const models::ModelSpec& spec) {
  FolderFacts facts{.config_ties_head = spec.tie_word_embeddings};
  auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint) return facts;  // loading the weights reports the error
  facts.checkpoint = std::move(*checkpoint);
  facts.has_own_head = has_head(*facts.checkpoint) && !(facts.config_ties_head && head_is_embedding(*facts.checkpoint));
  return facts;
}

/// Reads the tokens that a draft head drafts from the tensor d2t: d2t[i] is the distance from its token i to that of
/// the model. Errors: bad_file.
Status read_draft_tokens(const Checkpoint& checkpoint, std::int64_t vocab_size, models::DraftHeadFacts& facts) {
  constexpr const char* kName = "d2t";
  const auto bad = [&](const std::string& reason) {
    return fail(ErrorCode::bad_file, checkpoint.path_of(kName) + ": tensor \"d2t\" " + reason);
  };
  if (!checkpoint.contains(kName)) {
    return facts.draft_vocab_size == vocab_size
               ? Status()
               : bad("is missing: it has the model's token for each token of a smaller draft vocabulary");
  }
  const auto stored = checkpoint.stored(kName);
  const auto size = static_cast<std::size_t>(facts.draft_vocab_size);
  if (!stored || stored->dtype != "I64" || !std::ranges::equal(stored->shape, std::array{facts.draft_vocab_size}) ||
      stored->data.size() != size * sizeof(std::int64_t)) {
    return bad("must be " + std::to_string(size) + " numbers of type I64");
  }
  facts.tokens.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    std::int64_t distance = 0;
    std::memcpy(&distance, stored->data.data() + i * sizeof(distance), sizeof(distance));
    const auto own = static_cast<std::int64_t>(i);
    if (distance < -own || distance >= vocab_size - own) {
      return bad("leads from token " + std::to_string(i) + " out of the vocabulary");
    }
    facts.tokens[i] = static_cast<TokenId>(own + distance);
  }
  return {};
}

}  // namespace

Result<models::ModelSpec> load_folder_spec(const std::filesystem::path& folder) {
  auto spec = load_hf_config(folder);
  if (!spec) return spec;
  if (spec->draft_head) {
    const auto checkpoint = Checkpoint::open(folder);
    if (!checkpoint) return spec;  // loading the weights reports the error
    const Status read = read_draft_tokens(**checkpoint, spec->vocab_size, *spec->draft_head);
    if (!read) return fail(read.error());
    return spec;
  }
  const FolderFacts facts = facts_of(folder, *spec);
  if (facts.checkpoint != nullptr && facts.checkpoint->embedding_is_head() && !facts.config_ties_head) {
    return fail(ErrorCode::bad_file, folder.string() + ": the weights have a head, lm_head.weight, and no embedding");
  }
  return facts.agrees() ? std::move(spec) : load_hf_config(folder, StoredQuantization::checked, !facts.has_own_head);
}

std::vector<std::string> folder_remarks(const std::filesystem::path& folder) {
  const auto spec = load_hf_config(folder);
  if (!spec) return {};
  const FolderFacts facts = facts_of(folder, *spec);
  if (facts.checkpoint == nullptr) return {};
  std::vector<std::string> remarks;
  const std::string where = folder.string() + ": ";
  if (!facts.agrees() && facts.has_own_head) {
    remarks.push_back(where +
                      "config.json ties the head to the embedding, but the weights have another lm_head: it is used, "
                      "as in transformers");
  } else if (!facts.agrees()) {
    remarks.push_back(where +
                      "the weights have no lm_head, although config.json does not tie it to the embedding: the "
                      "embedding is used, as in vLLM");
  }
  if (const auto text = left_out(*facts.checkpoint); !text.empty()) remarks.push_back(where + text);
  return remarks;
}

}  // namespace pagoda::io
