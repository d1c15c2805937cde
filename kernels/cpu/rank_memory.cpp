#include "kernels/cpu/rank_memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/spin.hpp"

namespace pagoda::kernels {
namespace {

using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free, "processes share these");
static_assert(std::endian::native == std::endian::little, "the futex is the first half of the 64 bits that change");

/// A waiting rank looks at least this often whether another rank has left or failed.
constexpr std::timespec kLongestSleep{.tv_sec = 0, .tv_nsec = 50'000'000};

// Points of a step are numbered: the number of the step, then, in the low bits, that of the collective. The half that
// the futex compares has bits of both.
constexpr int kCollectiveBits = 24;

void wait_for_change(const std::atomic<std::uint64_t>& point, std::uint64_t old) {
  ::syscall(SYS_futex, &point, FUTEX_WAIT, static_cast<std::uint32_t>(old), &kLongestSleep, nullptr, 0);
}

void wake_all(const std::atomic<std::uint64_t>& point) {
  ::syscall(SYS_futex, &point, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::int64_t part_bytes(const RankMemoryShape& shape) {
  constexpr auto kAlignment = static_cast<std::int64_t>(kFileAlignment);
  const std::int64_t bytes = shape.floats * std::int64_t{sizeof(float)};
  return std::max<std::int64_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
}

}  // namespace

/// The state of a rank that the others see. A cache line of its own, so that ranks that wait for another do not slow it
/// down.
struct alignas(128) RankMemory::RankState {
  std::atomic<std::uint64_t> arrived;      ///< the last point of a step that the rank has reached
  std::atomic<std::uint64_t> failed_step;  ///< number of the last step that the rank could not compute, plus one
  Word num_waiting;                        ///< ranks that sleep until `arrived` changes
  Word has_left;
};

class RankMemory::Connection final : public Communicator {
 public:
  Connection(std::shared_ptr<RankMemory> memory, int rank) : memory_(std::move(memory)), rank_(rank) {
    for (int which = 0; which < 2; ++which) {
      for (int other = 0; other < num_ranks(); ++other) {
        parts_[static_cast<std::size_t>(which)].push_back(memory_->part(other, which));
      }
    }
  }

  int rank() const override { return rank_; }
  int num_ranks() const override { return memory_->shape_.num_ranks; }

  Status begin_step(std::int64_t step) override {
    step_ = static_cast<std::uint64_t>(step);
    point_ = step_ << kCollectiveBits;
    has_failed_ = false;
    return meet();
  }

  void fail_step() override {
    has_failed_ = true;
    own().failed_step.store(step_ + 1, std::memory_order_seq_cst);
    wake_all(own().arrived);
  }

  void leave() override {
    own().has_left.store(1, std::memory_order_seq_cst);
    wake_all(own().arrived);
  }

  float* part(std::int64_t count) override {
    PAGODA_ASSERT(count <= memory_->shape_.floats, "a part of a collective fits the memory of the ranks");
    return memory_->part(rank_, which());
  }

  Status all_reduce(const Ops& ops, Stream& stream, std::int64_t count, float* out, bool accumulate) override {
    auto parts = exchange();
    if (!parts) return fail(std::move(parts.error()));
    constexpr std::int64_t kTaskFloats = 16384;
    return for_pieces(ops, stream, count, kTaskFloats, [&, accumulate](std::int64_t first, std::int64_t end) {
      sum(*parts, first, end, out, accumulate);
    });
  }

  Status all_gather(const Ops& ops, Stream& stream, std::int64_t num_rows, std::span<const std::int64_t> widths,
                    float* out) override {
    auto parts = exchange();
    if (!parts) return fail(std::move(parts.error()));
    std::int64_t width_of_out = 0;
    for (const std::int64_t width : widths) width_of_out += width;
    return for_pieces(ops, stream, num_rows, 1, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t row = first; row < end; ++row) {
        float* to = out + row * width_of_out;
        for (std::size_t r = 0; r < widths.size(); to += widths[r], ++r) {
          std::copy_n((*parts)[r] + row * widths[r], widths[r], to);
        }
      }
    });
  }

 private:
  RankState& own() const { return memory_->state(rank_); }
  int which() const { return static_cast<int>(point_ & 1U); }

  /// Returns the parts of all ranks when all have filled theirs.
  Result<std::span<const float* const>> exchange() {
    const std::span<const float* const> parts = parts_[static_cast<std::size_t>(which())];
    ++point_;
    PAGODA_ASSERT(step_ > 0 && point_ >> kCollectiveBits == step_, "a collective is one of a step that has begun");
    if (Status met = meet(); !met) return fail(std::move(met.error()));
    return parts;
  }

  /// Waits until all ranks have come to this point of the step.
  Status meet() {
    own().arrived.store(point_, std::memory_order_seq_cst);
    if (own().num_waiting.load(std::memory_order_seq_cst) > 0) wake_all(own().arrived);
    for (int rank = 0; rank < num_ranks() && !has_failed_; ++rank) {
      if (rank == rank_ || wait_for(rank)) continue;
      fail_step();  // the ranks that wait for this one must not wait either
      if (has_left()) break;
      return fail(ErrorCode::device_failed, "rank " + std::to_string(rank) + " of " + std::to_string(num_ranks()) +
                                                " has not computed its part of the step");
    }
    if (!has_failed_ && !has_left()) return {};
    return fail(ErrorCode::device_failed, "rank " + std::to_string(rank_) + " of " + std::to_string(num_ranks()) +
                                              (has_left() ? " has left the others" : " has failed in the step"));
  }

  bool has_left() const { return own().has_left.load(std::memory_order_relaxed) != 0; }

  /// Returns false if the other rank will not come to this point, or has failed in this step.
  bool wait_for(int rank) const {
    RankState& other = memory_->state(rank);
    const auto has_arrived = [&] { return other.arrived.load(std::memory_order_acquire) >= point_; };
    const auto has_failed = [&] { return other.failed_step.load(std::memory_order_acquire) == step_ + 1; };
    bool arrived = spin_until(has_arrived);
    while (!arrived && !has_failed() && other.has_left.load() == 0 && !has_left()) {
      other.num_waiting.fetch_add(1, std::memory_order_seq_cst);
      const std::uint64_t seen = other.arrived.load(std::memory_order_seq_cst);
      if (seen < point_) wait_for_change(other.arrived, seen);
      other.num_waiting.fetch_sub(1, std::memory_order_seq_cst);
      arrived = has_arrived();
    }
    return arrived && !has_failed();
  }

  /// Sums of fixed order: that of the ranks, then the present value.
  static void sum(std::span<const float* const> parts, std::int64_t first, std::int64_t end, float* out,
                  bool accumulate) {
    constexpr std::int64_t kBlock = 1024;  // floats whose sum stays in the fastest cache
    float sums[kBlock];
    for (std::int64_t begin = first; begin < end; begin += kBlock) {
      const std::int64_t count = std::min(kBlock, end - begin);
      std::fill_n(sums, count, 0.0F);
      for (const float* part : parts) {
        for (std::int64_t i = 0; i < count; ++i) sums[i] += part[begin + i];
      }
      float* const to = out + begin;
      if (accumulate) {
        for (std::int64_t i = 0; i < count; ++i) to[i] += sums[i];
      } else {
        std::copy_n(sums, count, to);
      }
    }
  }

  template <class Body>
  static Status for_pieces(const Ops& ops, Stream& stream, std::int64_t count, std::int64_t piece, const Body& body) {
    if (count <= 2 * piece) {
      body(0, count);
      return {};
    }
    return ops.host_work(stream, {.num_tasks = (count + piece - 1) / piece, .run = [&](std::int64_t task) {
                                    body(task * piece, std::min(count, (task + 1) * piece));
                                  }});
  }

  std::shared_ptr<RankMemory> memory_;
  int rank_;
  std::array<std::vector<const float*>, 2> parts_;  // of all ranks, of both kinds that collectives use in turn
  bool has_failed_ = false;
  std::uint64_t step_ = 0;
  std::uint64_t point_ = 0;  // of a step, that the rank has reached
};

RankMemory::RankState& RankMemory::state(int rank) const {
  return memory_.as<RankState>()[rank];
}

float* RankMemory::part(int rank, int which) const {
  const std::int64_t offset = static_cast<std::int64_t>(kFileAlignment) + (2 * rank + which) * part_bytes(shape_);
  return reinterpret_cast<float*>(memory_.as<std::byte>() + offset);
}

std::int64_t RankMemory::bytes(const RankMemoryShape& shape) {
  return static_cast<std::int64_t>(kFileAlignment) + 2 * shape.num_ranks * part_bytes(shape);
}

Result<std::shared_ptr<RankMemory>> RankMemory::map(int file, const RankMemoryShape& shape) {
  PAGODA_ASSERT(shape.num_ranks > 0 && static_cast<std::size_t>(shape.num_ranks) * sizeof(RankState) <= kFileAlignment,
                "the states of all ranks fit the first piece");
  auto memory = map_cpu_memory(file, 0, static_cast<std::size_t>(bytes(shape)));
  if (!memory) return fail(std::move(memory.error()));
  return std::shared_ptr<RankMemory>(new RankMemory(shape, -1, std::move(*memory)));
}

Result<std::shared_ptr<RankMemory>> RankMemory::create(const RankMemoryShape& shape) {
  const int file = ::memfd_create("pagoda-ranks", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, bytes(shape)) < 0) {
    const std::string reason = std::strerror(errno);
    if (file >= 0) ::close(file);
    return fail(ErrorCode::io_failed, "memory for the ranks of a group cannot be made: " + reason);
  }
  auto mapped = map(file, shape);
  if (!mapped) {
    ::close(file);
    return mapped;
  }
  (*mapped)->file_ = file;
  for (int rank = 0; rank < shape.num_ranks; ++rank) (*mapped)->reset(rank);
  return mapped;
}

RankMemory::~RankMemory() {
  if (file_ >= 0) ::close(file_);
}

void RankMemory::reset(int rank) {
  RankState& own = state(rank);
  own.arrived.store(0);  // before every point of a step
  own.num_waiting.store(0);
  own.failed_step.store(0);
  own.has_left.store(0);
}

std::unique_ptr<Communicator> RankMemory::communicator(int rank) {
  return std::make_unique<Connection>(shared_from_this(), rank);
}

}  // namespace pagoda::kernels
