#pragma once

#include <cstdint>
#include <memory>

#include "kernels/communicator.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// The shape of a group of CPU ranks on one host.
struct RankMemoryShape {
  int num_ranks = 0;            ///< ranks of each stage
  std::int64_t floats = 0;      ///< maximum number of floats in a rank's part of a collective
  int num_stages = 1;           ///< stages, which pass rows from one to the next
  std::int64_t row_floats = 0;  ///< maximum number of floats that a rank passes to the next stage in a step

  int num_ranks_of_all_stages() const { return num_stages * num_ranks; }
};

/// The memory through which the CPU ranks of one host exchange their parts and pass rows to the next stage: a file
/// without a name (memfd) that each rank maps, in one process or in several. A rank writes its part once, and each rank
/// of its stage reads the parts of all. Ranks wait for each other at futexes, after a short time of polling. Functions
/// take the number of a rank in the whole group: stage * num_ranks + rank in the stage.
///
/// Layout: a page with the state of each rank, then for each rank two parts, which collectives use in turn: while a
/// slow rank still reads one, the others fill the next. Then for each rank that has a next stage a ring of two slots
/// for rows: the rank fills one while the next stage reads the other.
class RankMemory : public std::enable_shared_from_this<RankMemory> {
 public:
  /// Returns the bytes of memory that a group may fill, for all ranks of all stages.
  static std::int64_t bytes(const RankMemoryShape& shape);
  /// Creates the file and maps it. Physical memory is allocated as parts are written. Errors: io_failed.
  static Result<std::shared_ptr<RankMemory>> create(const RankMemoryShape& shape);
  /// Maps the file of another process, given its descriptor, which may be closed afterwards. Errors: io_failed.
  static Result<std::shared_ptr<RankMemory>> map(int file, const RankMemoryShape& shape);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  /// Returns the descriptor of the file, to pass to other processes; -1 if the file came from one.
  int file() const { return file_; }
  /// Forgets what an earlier holder of the rank has done. Call for each rank of the group when all earlier holders have
  /// ended, and before any new one begins a step.
  void reset(int rank);
  /// Returns the connection of a rank, which keeps the memory alive.
  std::unique_ptr<Communicator> communicator(int rank);

 private:
  struct RankState;
  class Connection;

  RankMemory(const RankMemoryShape& shape, int file, Buffer memory)
      : shape_(shape), file_(file), memory_(std::move(memory)) {}
  RankState& state(int rank) const;
  /// Returns one of the two parts of a rank.
  float* part(int rank, int which) const;
  /// Returns the rows of one of the two slots in which a rank passes them to the next stage.
  float* rows(int rank, std::uint32_t slot) const;

  RankMemoryShape shape_;
  int file_;
  Buffer memory_;
};

}  // namespace pagoda::kernels
