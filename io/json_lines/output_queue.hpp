#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request/output.hpp"

namespace pagoda::json_lines {

/// Lines that wait for a connection's socket. While few bytes wait, every event becomes text at once. When more than
/// `coalesce_bytes` wait, the deltas of a sequence are merged into one until take(), so a slow reader gets fewer and
/// longer lines. A request's terminal line always follows its deltas. Not thread-safe.
class OutputQueue {
 public:
  explicit OutputQueue(std::size_t coalesce_bytes) : coalesce_bytes_(coalesce_bytes) {}

  /// Adds output of a sequence. `tag`: tag of its request; `id`: the client's id of the request.
  void add_delta(std::uint64_t tag, std::string_view id, const SequenceDelta& delta);

  /// Returns the text that the next whole line must be appended to.
  std::string& line() { return chunks_.empty() ? text_ : chunks_.back().text; }

  bool empty() const { return text_.empty() && chunks_.empty(); }

  /// Returns about how many bytes the lines will take.
  std::size_t bytes() const;

  /// Moves all waiting output, as text, into `out`; replaces its contents.
  void take(std::string& out);

  void clear();

 private:
  /// A merged delta and the lines that came after it.
  struct Chunk {
    std::string id;
    SequenceDelta delta;
    std::string text;
  };

  std::size_t coalesce_bytes_;
  std::string text_;
  std::vector<Chunk> chunks_;
  std::map<std::pair<std::uint64_t, std::int32_t>, std::size_t> chunk_of_;  ///< (tag, sequence) -> its chunk
  std::size_t chunk_bytes_ = 0;  ///< bytes of the merged deltas, without Chunk::text
};

}  // namespace pagoda::json_lines
