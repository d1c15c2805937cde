#include "engine/text/bpe_model.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

constexpr TokenId kMaxTokenId = (1 << 22) - 1;
constexpr std::size_t kMaxVocabBytes = std::size_t{1} << 30;
constexpr char32_t kDirectCharacters = 0x10000;

std::uint64_t pack(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::string byte_token(int byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[static_cast<std::size_t>(byte >> 4)] +
         kDigits[static_cast<std::size_t>(byte & 15)] + ">";
}

bool is_one_character(std::string_view token) {
  if (token.empty()) return false;
  std::size_t position = 0;
  next_character(token, position);
  return position == token.size();
}

tl::unexpected<Error> bad_vocab(const std::string& message) {
  return fail(ErrorCode::bad_config, message, "model.vocab");
}

}  // namespace

Result<BpeModel> BpeModel::create(const BpeSpec& spec) {
  BpeModel model;
  model.fuse_unk_ = spec.fuse_unk;
  model.ignore_merges_ = spec.ignore_merges;
  if (Status status = model.add_tokens(spec); !status) return fail(status.error());
  if (Status status = model.add_merges(spec); !status) return fail(status.error());
  if (spec.unk_token) {
    model.unk_ = model.find(*spec.unk_token);
    if (!model.unk_) {
      return fail(ErrorCode::bad_config, "unk_token \"" + *spec.unk_token + "\" is not in the vocabulary",
                  "model.unk_token");
    }
  }
  if (spec.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) model.byte_tokens_.push_back(model.find(byte_token(byte)).value_or(-1));
  }
  return model;
}

Status BpeModel::add_tokens(const BpeSpec& spec) {
  if (spec.vocab.empty()) return bad_vocab("the vocabulary is empty");
  TokenId highest = 0;
  std::size_t bytes = 0;
  for (const auto& [text, id] : spec.vocab) {
    if (id < 0 || id > kMaxTokenId) {
      return bad_vocab("token \"" + text + "\" has the id " + std::to_string(id) + ", outside 0.." +
                       std::to_string(kMaxTokenId));
    }
    if (find_invalid_utf8(text) != std::string_view::npos) {
      return bad_vocab("the token with id " + std::to_string(id) + " is not valid UTF-8");
    }
    highest = std::max(highest, id);
    bytes += text.size();
  }
  if (bytes > kMaxVocabBytes) return bad_vocab("the tokens are longer than 1 GiB together");
  std::vector<const std::string*> by_id(static_cast<std::size_t>(highest) + 1, nullptr);
  for (const auto& [text, id] : spec.vocab) {
    const std::string*& slot = by_id[static_cast<std::size_t>(id)];
    if (slot != nullptr) {
      return bad_vocab("tokens \"" + *slot + "\" and \"" + text + "\" have the same id " + std::to_string(id));
    }
    slot = &text;
  }
  size_ = spec.vocab.size();
  texts_.reserve(bytes);
  offsets_.reserve(by_id.size() + 1);
  known_.reserve(by_id.size());
  for (const std::string* text : by_id) {
    offsets_.push_back(static_cast<std::uint32_t>(texts_.size()));
    known_.push_back(text != nullptr);
    if (text != nullptr) texts_ += *text;
  }
  offsets_.push_back(static_cast<std::uint32_t>(texts_.size()));

  tokens_by_hash_.assign(std::bit_ceil(2 * size_), -1);
  characters_.assign(kDirectCharacters, -1);
  const std::size_t mask = tokens_by_hash_.size() - 1;
  for (TokenId id = 0; id < end_id(); ++id) {
    if (!has(id)) continue;
    const std::string_view text = token(id);
    std::size_t slot = std::hash<std::string_view>{}(text)&mask;
    for (; tokens_by_hash_[slot] >= 0; slot = (slot + 1) & mask) {
      if (token(tokens_by_hash_[slot]) == text) {
        return bad_vocab("token \"" + std::string(text) + "\" has two ids, " + std::to_string(tokens_by_hash_[slot]) +
                         " and " + std::to_string(id));
      }
    }
    tokens_by_hash_[slot] = id;
    if (is_one_character(text)) {
      std::size_t position = 0;
      const char32_t character = next_character(text, position);
      if (character < kDirectCharacters) characters_[character] = id;
    }
  }
  return {};
}

Status BpeModel::add_merges(const BpeSpec& spec) {
  if (spec.merges.size() > std::numeric_limits<std::uint32_t>::max() / 4) {
    return fail(ErrorCode::bad_config, "too many merges", "model.merges");
  }
  merges_.assign(std::bit_ceil(2 * std::max<std::size_t>(spec.merges.size(), 1)), MergeSlot{});
  merge_shift_ = 64 - std::countr_zero(merges_.size());
  std::string merged_text;
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left_text, right_text] = spec.merges[rank];
    merged_text = left_text;
    merged_text += right_text;
    const auto left = find(left_text);
    const auto right = find(right_text);
    const auto merged = find(merged_text);
    if (!left || !right || !merged) {
      const std::string& unknown = !left ? left_text : !right ? right_text : merged_text;
      return fail(ErrorCode::bad_config,
                  "merge " + std::to_string(rank) + " needs the token \"" + to_valid_utf8(unknown) +
                      "\", which is not in the vocabulary",
                  "model.merges[" + std::to_string(rank) + "]");
    }
    // A pair that is listed twice has its last rank.
    const std::uint64_t pair = pack(*left, *right);
    merges_[merge_index(pair)] = {pair, static_cast<std::uint32_t>(rank), *merged};
  }
  return {};
}

std::optional<TokenId> BpeModel::find(std::string_view token_text) const {
  const std::size_t mask = tokens_by_hash_.size() - 1;
  std::size_t slot = std::hash<std::string_view>{}(token_text)&mask;
  for (; tokens_by_hash_[slot] >= 0; slot = (slot + 1) & mask) {
    if (token(tokens_by_hash_[slot]) == token_text) return tokens_by_hash_[slot];
  }
  return std::nullopt;
}

std::string_view BpeModel::token(TokenId id) const {
  if (!has(id)) return {};
  const auto index = static_cast<std::size_t>(id);
  return std::string_view(texts_).substr(offsets_[index], offsets_[index + 1] - offsets_[index]);
}

std::size_t BpeModel::merge_index(std::uint64_t pair) const {
  const std::size_t mask = merges_.size() - 1;
  std::size_t slot = (pair * 0x9E3779B97F4A7C15ULL) >> merge_shift_;
  while (merges_[slot].pair != kEmptyPair && merges_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

const BpeModel::MergeSlot* BpeModel::find_merge(TokenId left, TokenId right) const {
  const MergeSlot& slot = merges_[merge_index(pack(left, right))];
  return slot.pair == kEmptyPair ? nullptr : &slot;
}

TokenId BpeModel::character_id(char32_t character, std::string_view utf8) const {
  return character < kDirectCharacters ? characters_[character] : find(utf8).value_or(-1);
}

Status BpeModel::encode_pieces(std::string_view buffer, std::span<const Span> pieces, bool, TokenIds& ids) const {
  Scratch scratch;
  for (const Span& piece : pieces) encode(buffer.substr(piece.begin, piece.end - piece.begin), scratch, ids);
  return {};
}

void BpeModel::encode(std::string_view piece, Scratch& scratch, TokenIds& ids) const {
  if (piece.empty()) return;
  if (ignore_merges_) {
    if (const auto whole = find(piece)) {
      ids.push_back(*whole);
      return;
    }
  }
  push_symbols(piece, scratch.symbols);
  if (scratch.symbols.empty()) return;
  merge_symbols(scratch);
  for (std::int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<std::size_t>(i)].next) {
    ids.push_back(scratch.symbols[static_cast<std::size_t>(i)].id);
  }
}

// Makes one symbol for each character. An unknown token is held back until the next known character, so that neighbours
// can be fused. Byte tokens do not release it, so that ids equal those of the `tokenizers` package.
void BpeModel::push_symbols(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const {
  symbols.clear();
  const auto push = [&](TokenId id) {
    const auto index = static_cast<std::int32_t>(symbols.size());
    if (!symbols.empty()) symbols.back().next = index;
    symbols.push_back({id, index - 1, -1});
  };
  bool unk_waits = false;
  for (std::size_t position = 0; position < piece.size();) {
    const std::size_t begin = position;
    const char32_t character = next_character(piece, position);
    const std::string_view utf8 = piece.substr(begin, position - begin);
    if (const TokenId id = character_id(character, utf8); id >= 0) {
      if (unk_waits) push(*unk_);
      unk_waits = false;
      push(id);
      continue;
    }
    const auto byte_id = [&](char byte) { return byte_tokens_[static_cast<std::uint8_t>(byte)]; };
    if (!byte_tokens_.empty() && std::all_of(utf8.begin(), utf8.end(), [&](char byte) { return byte_id(byte) >= 0; })) {
      for (const char byte : utf8) push(byte_id(byte));
    } else if (unk_) {
      if (unk_waits && !fuse_unk_) push(*unk_);
      unk_waits = true;
    }
  }
  if (unk_waits) push(*unk_);
}

// Merges the pair of lowest rank (leftmost first) until none is left. The queue holds candidates, some of them stale;
// removed symbols have id -1.
void BpeModel::merge_symbols(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  queue.clear();
  const auto later = [](const Scratch::Merge& a, const Scratch::Merge& b) { return a.order > b.order; };
  const auto candidate = [&](std::int32_t left) {
    const Scratch::Symbol& symbol = symbols[static_cast<std::size_t>(left)];
    if (symbol.next < 0) return false;
    const MergeSlot* merge = find_merge(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id);
    if (merge == nullptr) return false;
    queue.push_back({static_cast<std::uint64_t>(merge->rank) << 32 | static_cast<std::uint32_t>(left), merge->merged});
    return true;
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) candidate(i);
  std::make_heap(queue.begin(), queue.end(), later);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const Scratch::Merge top = queue.back();
    queue.pop_back();
    const auto left = static_cast<std::int32_t>(top.order & 0xFFFFFFFFU);
    Scratch::Symbol& symbol = symbols[static_cast<std::size_t>(left)];
    if (symbol.id < 0 || symbol.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<std::size_t>(symbol.next)];
    const MergeSlot* merge = find_merge(symbol.id, right.id);
    if (merge == nullptr || merge->merged != top.merged) continue;
    symbol.id = top.merged;
    symbol.next = right.next;
    right.id = -1;
    if (symbol.next >= 0) symbols[static_cast<std::size_t>(symbol.next)].previous = left;
    const std::int32_t previous = symbol.previous;
    if (previous >= 0 && candidate(previous)) std::push_heap(queue.begin(), queue.end(), later);
    if (candidate(left)) std::push_heap(queue.begin(), queue.end(), later);
  }
}

}  // namespace pagoda::text
