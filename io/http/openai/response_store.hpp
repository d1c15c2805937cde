#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "io/http/request.hpp"

namespace pagoda::http::openai {

/// Stored answers of /v1/responses, in memory only. Above a limit the oldest answers are removed. Thread-safe.
class ResponseStore {
 public:
  struct Limits {
    std::size_t max_responses = 1024;
    std::size_t max_bytes = 64 << 20;  ///< bytes of ids and texts only
  };

  /// Id of the principal whose key the request had; empty for a request without a key. Other owners cannot see the
  /// answer.
  using Owner = std::string;
  static Owner owner_of(const Request& request) { return request.principal ? request.principal->id : Owner(); }

  struct Stored {
    std::string body;      ///< the response as it was sent
    std::string messages;  ///< the conversation including this response, as JSON; previous_response_id continues it
  };

  ResponseStore() : ResponseStore(Limits()) {}
  explicit ResponseStore(Limits limits) : limits_(limits) {}

  /// Stores a response. Replaces an earlier response with that id. A response larger than max_bytes is not stored.
  void put(const Owner& owner, const std::string& id, Stored stored);

  /// Returns the response, or null if there is none.
  std::shared_ptr<const Stored> find(const Owner& owner, const std::string& id) const;

  /// Removes the response. Returns whether it existed.
  bool erase(const Owner& owner, const std::string& id);

 private:
  using Key = std::pair<Owner, std::string>;
  struct Entry {
    Key key;
    std::shared_ptr<const Stored> stored;
    std::size_t bytes() const { return key.second.size() + stored->body.size() + stored->messages.size(); }
  };
  using Entries = std::list<Entry>;
  void erase(std::map<Key, Entries::iterator>::iterator it);

  const Limits limits_;
  mutable std::mutex mutex_;
  Entries entries_;  ///< oldest first
  std::map<Key, Entries::iterator> by_key_;
  std::size_t bytes_ = 0;
};

}  // namespace pagoda::http::openai
