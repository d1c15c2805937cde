#include "engine/request/logprobs.hpp"

#include <algorithm>
#include <string_view>

namespace pagoda {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

void Logprobs::add(const TokenReport& report, std::int64_t text_offset) {
  for (const auto& [token, logprob] : report.top) top_.push_back({token, logprob});
  positions_.push_back({report.token, report.logprob, report.rank, text_offset, top_.size()});
}

void Logprobs::add(const LogprobEntry& entry) {
  top_.insert(top_.end(), entry.top.begin(), entry.top.end());
  positions_.push_back({entry.token_id, entry.logprob, entry.rank, entry.text_offset, top_.size()});
}

void Logprobs::add(const Logprobs& others, std::size_t first, std::size_t last) {
  if (texts_ == nullptr) texts_ = others.texts_;
  for (std::size_t i = first; i < last; ++i) add(others[i]);
}

void Logprobs::blank() {
  positions_.assign(positions_.size(), Position{});
  top_.clear();
}

std::string Logprobs::text_of(TokenId token) const {
  return texts_ == nullptr ? std::string() : texts_->token_piece_text(token);
}

std::string Logprobs::bytes_of(TokenId token) const {
  std::string text = text_of(token);
  if (text.find(kReplacement) == std::string::npos) return text;
  return texts_->token_bytes(token).value_or(std::move(text));
}

bool Logprobs::is_valid() const {
  std::uint64_t before = 0;
  for (const Position& position : positions_) {
    if (position.top_end < before) return false;
    before = position.top_end;
  }
  return before == top_.size();
}

}  // namespace pagoda
