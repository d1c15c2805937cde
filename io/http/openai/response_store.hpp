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

/// The answers of /v1/responses that clients asked to keep. In memory, so they are gone when the server is. Of what is
/// over a limit the oldest goes first. Thread-safe.
class ResponseStore {
 public:
  struct Limits {
    std::size_t max_responses = 1024;
    std::size_t max_bytes = 64 << 20;  ///< texts alone
  };

  /// The tenant whose key an answer was asked for with: nobody else sees it. Empty: whoever brings none.
  using Owner = std::string;
  static Owner owner_of(const Request& request) { return request.principal ? request.principal->id : Owner(); }

  struct Stored {
    std::string body;      ///< the response as it was answered
    std::string messages;  ///< the conversation up to and with it, as JSON: what previous_response_id goes on from
  };

  ResponseStore() : ResponseStore(Limits()) {}
  explicit ResponseStore(Limits limits) : limits_(limits) {}

  /// Takes the place of an earlier one of that id. One that is over max_bytes alone is not kept.
  void put(const Owner& owner, const std::string& id, Stored stored);

  /// Null when there is none.
  std::shared_ptr<const Stored> find(const Owner& owner, const std::string& id) const;

  /// Whether there was one.
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
