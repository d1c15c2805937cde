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
static_assert(sizeof(Word) == sizeof(std::uint32_t), "a futex is 32 bits");
static_assert(std::endian::native == std::endian::little, "the futex is the first half of the 64 bits that change");

/// A waiting rank looks at least this often whether another rank has left or failed.
constexpr std::timespec kLongestSleep{.tv_sec = 0, .tv_nsec = 50'000'000};

// Points of a step are numbered: the number of the step, then, in the low bits, that of the collective. The half that
// the futex compares has bits of both.
constexpr int kCollectiveBits = 24;

/// A number that one rank changes and another waits for.
struct Signal {
  Word value;
  Word num_waiting;  ///< ranks that sleep until `value` changes
};

/// Sleeps until the futex, a word or the first half of one, has changed from `old`. May return earlier.
template <class Number>
void wait_for_change(const std::atomic<Number>& futex, Number old) {
  ::syscall(SYS_futex, &futex, FUTEX_WAIT, static_cast<std::uint32_t>(old), &kLongestSleep, nullptr, 0);
}

template <class Number>
void wake_all(const std::atomic<Number>& futex) {
  ::syscall(SYS_futex, &futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void increment(Signal& signal) {
  signal.value.fetch_add(1, std::memory_order_seq_cst);
  if (signal.num_waiting.load(std::memory_order_seq_cst) > 0) wake_all(signal.value);
}

// Slots of a ring: a power of two, so that the counts of messages may overflow.
constexpr std::uint32_t kNumSlots = 2;

/// A message from a rank to the next stage: the rows of a step, or that there are none.
struct Message {
  std::uint64_t step;
  std::int64_t count;  ///< number of floats in the rows of the slot
  bool has_failed;     ///< whether the stage could not compute the step; then there are no rows
};

std::int64_t aligned_bytes(std::int64_t floats) {
  constexpr auto kAlignment = static_cast<std::int64_t>(kFileAlignment);
  const std::int64_t bytes = floats * std::int64_t{sizeof(float)};
  return std::max<std::int64_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
}

/// Returns the offset of the rings, behind the states and the parts.
std::int64_t rings_offset(const RankMemoryShape& shape) {
  return static_cast<std::int64_t>(kFileAlignment) + 2 * shape.num_ranks_of_all_stages() * aligned_bytes(shape.floats);
}

}  // namespace

/// The state of a rank that the others see. Cache lines of its own, so that ranks that wait for another do not slow it
/// down. Only the rank itself changes its state, but for the numbers of waiting ranks.
struct alignas(128) RankMemory::RankState {
  std::atomic<std::uint64_t> arrived;      ///< the last point of a step that the rank has reached
  std::atomic<std::uint64_t> failed_step;  ///< number of the last step that the rank could not compute, plus one
  Word num_waiting;                        ///< ranks that sleep until `arrived` changes
  Word has_left;

  alignas(128) Signal sent;     ///< number of messages that the rank has put into its ring, modulo 2^32
  Message messages[kNumSlots];  ///< the message of number n is in slot n % kNumSlots
  alignas(128) Signal taken;    ///< number of messages that the rank has taken from the ring of the previous stage
};

class RankMemory::Connection final : public Communicator {
 public:
  /// `number` is the rank's in the whole group.
  Connection(std::shared_ptr<RankMemory> memory, int number)
      : memory_(std::move(memory)),
        number_(number),
        rank_(number % memory_->shape_.num_ranks),
        stage_(number / memory_->shape_.num_ranks) {
    for (int which = 0; which < 2; ++which) {
      for (int other = 0; other < num_ranks(); ++other) {
        parts_[static_cast<std::size_t>(which)].push_back(memory_->part(number_of(other), which));
      }
    }
  }

  int rank() const override { return rank_; }
  int num_ranks() const override { return memory_->shape_.num_ranks; }
  int stage() const override { return stage_; }
  int num_stages() const override { return memory_->shape_.num_stages; }

  Status begin_step(std::int64_t step) override {
    step_ = static_cast<std::uint64_t>(step);
    point_ = step_ << kCollectiveBits;
    has_failed_ = false;
    has_sent_ = false;
    has_received_ = false;
    return meet();
  }

  void fail_step() override {
    has_failed_ = true;
    own().failed_step.store(step_ + 1, std::memory_order_seq_cst);
    wake_all(own().arrived);
    if (has_previous()) {
      drop_messages(step_);
      wake_all(own().taken.value);  // the sender of this step need not wait for a slot
    }
    if (!has_next() || has_sent_) return;
    has_sent_ = true;
    if (wait_for_slot() == Slot::free) put({.step = step_, .count = 0, .has_failed = true});
  }

  void leave() override {
    own().has_left.store(1, std::memory_order_seq_cst);
    wake_all(own().arrived);
    wake_all(own().sent.value);
    wake_all(own().taken.value);
  }

  float* part(std::int64_t count) override {
    PAGODA_ASSERT(count <= memory_->shape_.floats, "a part of a collective fits the memory of the ranks");
    return memory_->part(number_, which());
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

  Status send(const Ops& ops, Stream& stream, std::int64_t count, const float* rows) override {
    PAGODA_ASSERT(has_next(), "a stage before the last one sends rows");
    PAGODA_ASSERT(step_ > 0 && (!has_sent_ || has_failed_), "a step sends rows once");
    PAGODA_ASSERT(count <= memory_->shape_.row_floats, "rows for the next stage fit the memory of the ranks");
    if (Status able = check_own(); !able) return able;
    const Slot slot = wait_for_slot();
    if (slot == Slot::has_left) return fail_beside(number_ + num_ranks(), " has left the others");
    if (slot == Slot::not_needed) {
      has_sent_ = true;
      return {};
    }
    if (Status copied = copy(ops, stream, count, rows, memory_->rows(number_, next_slot())); !copied) {
      fail_step();
      return copied;
    }
    has_sent_ = true;
    put({.step = step_, .count = count, .has_failed = false});
    return {};
  }

  Status receive(const Ops& ops, Stream& stream, std::int64_t count, float* rows) override {
    PAGODA_ASSERT(has_previous(), "a stage behind the first one receives rows");
    PAGODA_ASSERT(step_ > 0 && !has_received_, "a step receives rows once");
    has_received_ = true;
    if (Status able = check_own(); !able) return able;
    const int sender = number_ - num_ranks();
    if (!wait_for_message() || first_message()->step > step_) return fail_beside(sender, kNotComputed);
    const Message message = *first_message();
    if (message.has_failed) {
      take();  // first: failing the step may wait for the next stage
      return fail_beside(sender, kNotComputed);
    }
    PAGODA_ASSERT(message.count == count, "both stages pass the same rows");
    Status copied = copy(ops, stream, count, memory_->rows(sender, first_slot()), rows);
    take();
    if (!copied) fail_step();
    return copied;
  }

 private:
  static constexpr const char* kNotComputed = " has not computed its part of the step";

  /// Returns the number in the whole group of a rank of this stage.
  int number_of(int rank) const { return stage_ * num_ranks() + rank; }
  RankState& own() const { return memory_->state(number_); }
  RankState& previous() const { return memory_->state(number_ - num_ranks()); }
  RankState& next() const { return memory_->state(number_ + num_ranks()); }
  bool has_previous() const { return stage_ > 0; }
  bool has_next() const { return stage_ + 1 < num_stages(); }
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
    // A sender of an earlier step need not wait for a slot.
    if (has_previous() && own().taken.num_waiting.load() > 0) wake_all(own().taken.value);
    for (int rank = 0; rank < num_ranks() && !has_failed_; ++rank) {
      if (rank != rank_ && !wait_for(number_of(rank))) return fail_beside(number_of(rank), kNotComputed);
    }
    return check_own();
  }

  bool has_left() const { return own().has_left.load(std::memory_order_relaxed) != 0; }

  /// Returns an error if this rank has failed in the step, or has left.
  Status check_own() const {
    if (!has_failed_ && !has_left()) return {};
    return fail(ErrorCode::device_failed,
                name_of(number_) + (has_left() ? " has left the others" : " has failed in the step"));
  }

  /// Fails the step because of what another rank, or this one by leaving, has done; returns the error.
  Status fail_beside(int other, const char* what) {
    fail_step();  // the ranks that wait for this one must not wait either
    if (has_left()) return check_own();
    return fail(ErrorCode::device_failed, name_of(other) + what);
  }

  /// Returns "rank 0 of 2 in stage 1 of 3" for a number in the whole group, without what there is only one of.
  std::string name_of(int number) const {
    const auto of = [](const char* kind, int index, int count) {
      return kind + std::to_string(index) + " of " + std::to_string(count);
    };
    const std::string rank = of("rank ", number % num_ranks(), num_ranks());
    if (num_stages() == 1) return rank;
    const std::string stage = of("stage ", number / num_ranks(), num_stages());
    return num_ranks() == 1 ? stage : rank + " in " + stage;
  }

  /// Returns false if the other rank, of this stage, will not come to this point, or has failed in this step.
  bool wait_for(int number) const {
    RankState& other = memory_->state(number);
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
    return (arrived || has_arrived()) && !has_failed();  // it may have arrived before it left
  }

  /// Waits until is_enough(value of the signal), which `other` changes. Returns false if one of both ranks has left
  /// before.
  template <class IsEnough>
  bool wait_for_signal(Signal& signal, const RankState& other, const IsEnough& is_enough) const {
    const auto is_reached = [&] { return is_enough(signal.value.load(std::memory_order_acquire)); };
    bool reached = spin_until(is_reached);
    while (!reached && other.has_left.load() == 0 && !has_left()) {
      signal.num_waiting.fetch_add(1, std::memory_order_seq_cst);
      const std::uint32_t seen = signal.value.load(std::memory_order_seq_cst);
      if (!is_enough(seen)) wait_for_change(signal.value, seen);
      signal.num_waiting.fetch_sub(1, std::memory_order_seq_cst);
      reached = is_reached();
    }
    return (reached || is_reached()) && !has_left();  // the other may have reached it before it left
  }

  // The ring to the next stage. This rank is the only one that changes `sent`.
  std::uint32_t num_sent() const { return own().sent.value.load(std::memory_order_relaxed); }
  std::uint32_t next_slot() const { return num_sent() % kNumSlots; }

  enum class Slot {
    free,        ///< the receiver no longer reads the slot of the next message
    not_needed,  ///< the receiver will not take a message of this step
    has_left,    ///< the receiver or this rank has left
  };

  Slot wait_for_slot() const {
    const auto is_free = [&](std::uint32_t taken) { return num_sent() - taken < kNumSlots; };
    const auto is_done = [&](std::uint32_t taken) { return is_free(taken) || !receiver_needs_message(); };
    if (!wait_for_signal(next().taken, next(), is_done) || next().has_left.load() != 0) return Slot::has_left;
    return receiver_needs_message() ? Slot::free : Slot::not_needed;
  }

  /// Returns whether the receiver may still take a message of this step: it has neither failed in the step nor begun a
  /// later one. Otherwise it may have no further step in which it takes messages, so that no slot becomes free.
  bool receiver_needs_message() const {
    return next().failed_step.load(std::memory_order_acquire) <= step_ &&
           next().arrived.load(std::memory_order_acquire) >> kCollectiveBits <= step_;
  }

  void put(const Message& message) {
    own().messages[next_slot()] = message;
    increment(own().sent);
  }

  // The ring from the previous stage. This rank is the only one that changes `taken`.
  std::uint32_t num_taken() const { return own().taken.value.load(std::memory_order_relaxed); }
  std::uint32_t first_slot() const { return num_taken() % kNumSlots; }

  /// Returns the first message that is not taken, or null.
  const Message* first_message() const {
    const bool is_empty = previous().sent.value.load(std::memory_order_acquire) == num_taken();
    return is_empty ? nullptr : &previous().messages[first_slot()];
  }

  void take() { increment(own().taken); }

  /// Takes the messages of steps up to `last` that are there, without their rows: this rank has failed in the steps.
  void drop_messages(std::uint64_t last) {
    for (const Message* message = first_message(); message != nullptr && message->step <= last;
         message = first_message()) {
      take();
    }
  }

  /// Waits for a message of the present step or of a later one. Returns false if one of both ranks has left before.
  bool wait_for_message() {
    do {
      const std::uint32_t taken = num_taken();
      const auto is_there = [&](std::uint32_t sent) { return sent != taken; };
      if (!wait_for_signal(previous().sent, previous(), is_there)) return false;
      drop_messages(step_ - 1);
    } while (first_message() == nullptr);
    return true;
  }

  static Status copy(const Ops& ops, Stream& stream, std::int64_t count, const float* from, float* to) {
    constexpr std::int64_t kTaskFloats = 32768;
    return for_pieces(ops, stream, count, kTaskFloats,
                      [=](std::int64_t first, std::int64_t end) { std::copy(from + first, from + end, to + first); });
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
  int number_;  // of the rank in the whole group
  int rank_;
  int stage_;
  std::array<std::vector<const float*>, 2> parts_;  // of all ranks of the stage, both that collectives use in turn
  bool has_failed_ = false;
  bool has_sent_ = true;  // whether the present step has put its message into the ring; there is none before step 1
  bool has_received_ = false;
  std::uint64_t step_ = 0;
  std::uint64_t point_ = 0;  // of a step, that the rank has reached
};

RankMemory::RankState& RankMemory::state(int rank) const {
  return memory_.as<RankState>()[rank];
}

float* RankMemory::part(int rank, int which) const {
  const std::int64_t offset =
      static_cast<std::int64_t>(kFileAlignment) + (2 * rank + which) * aligned_bytes(shape_.floats);
  return reinterpret_cast<float*>(memory_.as<std::byte>() + offset);
}

float* RankMemory::rows(int rank, std::uint32_t slot) const {
  const std::int64_t index = std::int64_t{kNumSlots} * rank + slot;
  return reinterpret_cast<float*>(memory_.as<std::byte>() + rings_offset(shape_) +
                                  index * aligned_bytes(shape_.row_floats));
}

std::int64_t RankMemory::bytes(const RankMemoryShape& shape) {
  const std::int64_t num_rings = std::int64_t{shape.num_stages - 1} * shape.num_ranks;
  return rings_offset(shape) + num_rings * kNumSlots * aligned_bytes(shape.row_floats);
}

Result<std::shared_ptr<RankMemory>> RankMemory::map(int file, const RankMemoryShape& shape) {
  PAGODA_ASSERT(shape.num_ranks > 0 && shape.num_stages > 0, "a group has ranks and stages");
  PAGODA_ASSERT(static_cast<std::size_t>(shape.num_ranks_of_all_stages()) * sizeof(RankState) <= kFileAlignment,
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
  for (int rank = 0; rank < shape.num_ranks_of_all_stages(); ++rank) (*mapped)->reset(rank);
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
  // Both ends of a ring are reset, since all ranks are.
  for (Signal* signal : {&own.sent, &own.taken}) {
    signal->value.store(0);
    signal->num_waiting.store(0);
  }
}

std::unique_ptr<Communicator> RankMemory::communicator(int rank) {
  return std::make_unique<Connection>(shared_from_this(), rank);
}

}  // namespace pagoda::kernels
