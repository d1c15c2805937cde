#include "io/json_lines/output_queue.hpp"

#include "io/json_lines/protocol.hpp"

namespace pagoda::json_lines {
namespace {

constexpr std::size_t kLineBytes = 64;     // keys and punctuation of a delta line
constexpr std::size_t kTokenIdBytes = 6;   // digits and comma
constexpr std::size_t kLogprobBytes = 80;  // one candidate

std::size_t estimated_bytes(const SequenceDelta& delta) {
  std::size_t bytes = delta.text.size() + delta.token_ids.size() * kTokenIdBytes;
  return bytes + delta.logprobs.num_logprobs() * kLogprobBytes;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

std::size_t OutputQueue::bytes() const {
  // Only the text of the last chunk grows. The text of a chunk is added to chunk_bytes_ when the next chunk is added.
  return text_.size() + chunk_bytes_ + (chunks_.empty() ? 0 : chunks_.back().text.size());
}

void OutputQueue::add_delta(std::uint64_t tag, std::string_view id, const SequenceDelta& delta) {
  if (chunks_.empty() && text_.size() < coalesce_bytes_) {
    append_delta(text_, id, delta);
    return;
  }
  const auto [it, is_new] = chunk_of_.try_emplace({tag, delta.index}, chunks_.size());
  if (is_new) {
    if (!chunks_.empty()) chunk_bytes_ += chunks_.back().text.size();
    chunks_.push_back({std::string(id), delta, {}});
    chunk_bytes_ += kLineBytes + id.size() + estimated_bytes(delta);
    return;
  }
  auto& merged = chunks_[it->second].delta;
  merged.text += delta.text;
  append(merged.token_ids, delta.token_ids);
  merged.logprobs.add(delta.logprobs);
  chunk_bytes_ += estimated_bytes(delta);
}

void OutputQueue::take(std::string& out) {
  out.clear();
  out.swap(text_);
  for (const auto& chunk : chunks_) {
    append_delta(out, chunk.id, chunk.delta);
    out += chunk.text;
  }
  clear();
}

void OutputQueue::clear() {
  text_.clear();
  chunks_.clear();
  chunk_of_.clear();
  chunk_bytes_ = 0;
}

}  // namespace pagoda::json_lines
