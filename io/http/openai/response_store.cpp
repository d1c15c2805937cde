#include "io/http/openai/response_store.hpp"

#include <iterator>

namespace pagoda::http::openai {

void ResponseStore::put(const Owner& owner, const std::string& id, Stored stored) {
  Entry entry{{owner, id}, std::make_shared<const Stored>(std::move(stored))};
  const std::lock_guard lock(mutex_);
  if (const auto it = by_key_.find(entry.key); it != by_key_.end()) erase(it);
  if (entry.bytes() > limits_.max_bytes || limits_.max_responses == 0) return;
  while (entries_.size() >= limits_.max_responses || bytes_ + entry.bytes() > limits_.max_bytes) {
    erase(by_key_.find(entries_.front().key));
  }
  bytes_ += entry.bytes();
  entries_.push_back(std::move(entry));
  by_key_.emplace(entries_.back().key, std::prev(entries_.end()));
}

std::shared_ptr<const ResponseStore::Stored> ResponseStore::find(const Owner& owner, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_key_.find({owner, id});
  return it == by_key_.end() ? nullptr : it->second->stored;
}

bool ResponseStore::erase(const Owner& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto it = by_key_.find({owner, id});
  if (it == by_key_.end()) return false;
  erase(it);
  return true;
}

void ResponseStore::erase(std::map<Key, Entries::iterator>::iterator it) {
  bytes_ -= it->second->bytes();
  entries_.erase(it->second);
  by_key_.erase(it);
}

}  // namespace pagoda::http::openai
