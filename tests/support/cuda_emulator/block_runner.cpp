#include "tests/support/cuda_emulator/block_runner.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <vector>

#include "cuda_emulator/threads.hpp"
#include "cuda_emulator/warp.hpp"
#include "tests/support/cuda_emulator/fiber.hpp"
#include "tests/support/cuda_emulator/guarded_memory.hpp"

namespace cuda_emulator {

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local uint3 blockDim{};
constinit thread_local uint3 gridDim{};

namespace {

struct Trap {};

enum class Wait : std::uint8_t { none, block, warp };

struct AsyncCopy {
  void* to;
  const void* from;
  int bytes;
  int valid_bytes;
};

struct Thread {
  Fiber fiber;
  uint3 index{};
  int lane = 0;
  int warp = 0;
  bool alive = false;
  Wait wait = Wait::none;

  // The fields below describe the collective in which the thread waits.
  unsigned int mask = 0;
  void (*compute)(WarpLanes&) = nullptr;
  void* slot = nullptr;

  std::vector<AsyncCopy> open_group;
  std::deque<std::vector<AsyncCopy>> groups;
};

unsigned int linear(dim3 shape) {
  return shape.x * shape.y * shape.z;
}

uint3 unravel(unsigned int index, dim3 shape) {
  return {index % shape.x, index / shape.x % shape.y, index / (shape.x * shape.y)};
}

void perform(const std::vector<AsyncCopy>& group) {
  for (const AsyncCopy& copy : group) {
    auto* to = static_cast<std::byte*>(copy.to);
    if (copy.valid_bytes > 0) std::memcpy(to, copy.from, static_cast<std::size_t>(copy.valid_bytes));
    std::memset(to + copy.valid_bytes, 0, static_cast<std::size_t>(copy.bytes - copy.valid_bytes));
  }
}

}  // namespace

class BlockState {
 public:
  static thread_local BlockState* current;

  std::string run(const GridShape& shape, std::uint64_t seed, const std::function<void()>& thread) {
    problem_.clear();
    num_threads_ = static_cast<int>(linear(shape.block));
    while (static_cast<int>(threads_.size()) < num_threads_) threads_.push_back(std::make_unique<Thread>());
    current = this;
    const std::function<void()> body = [&] {
      try {
        thread();
      } catch (const Trap&) {
        report("a thread executed a trap");
      }
      end_thread();
    };
    std::mt19937_64 random(seed);
    std::vector<unsigned int> blocks(linear(shape.grid));
    std::iota(blocks.begin(), blocks.end(), 0U);
    if (seed != 0) std::shuffle(blocks.begin(), blocks.end(), random);
    gridDim = {shape.grid.x, shape.grid.y, shape.grid.z};
    blockDim = {shape.block.x, shape.block.y, shape.block.z};
    GuardedBlock shared(shape.shared_bytes);
    shared_ = shared.data();
    for (const unsigned int block : blocks) {
      blockIdx = unravel(block, shape.grid);
      shared.refill();
      run_block(shape.block, seed == 0 ? nullptr : &random, body);
      if (!shared.guards_are_whole()) report("dynamic shared memory was written outside its bounds");
      if (!problem_.empty()) break;
    }
    return problem_;
  }

  void* shared() const { return shared_; }
  Thread& self() { return *running_; }

  unsigned int live_lanes() const { return warps_[running_->warp].alive; }

  /// Returns the number of threads of the block with a true predicate, once all threads have arrived.
  int meet_block(bool predicate) {
    predicates_ += predicate ? 1 : 0;
    ++waiting_;
    running_->wait = Wait::block;
    if (!release_block()) running_->fiber.pause();
    return released_predicates_;
  }

  void meet_warp(unsigned int mask, void (*compute)(WarpLanes&), void* slot) {
    Thread& thread = self();
    if ((mask >> thread.lane & 1U) == 0) report("a lane takes part in a collective whose mask leaves it out");
    thread.mask = mask;
    thread.compute = compute;
    thread.slot = slot;
    thread.wait = Wait::warp;
    warps_[thread.warp].waiting |= 1U << thread.lane;
    release_warp(thread);
    if (thread.wait == Wait::warp) thread.fiber.pause();
  }

 private:
  void report(const char* problem) {
    if (!problem_.empty()) return;
    const uint3 t = running_->index;
    problem_ = std::string(problem) + " (block " + std::to_string(blockIdx.x) + "," + std::to_string(blockIdx.y) + "," +
               std::to_string(blockIdx.z) + ", thread " + std::to_string(t.x) + "," + std::to_string(t.y) + "," +
               std::to_string(t.z) + ")";
  }

  void run_block(dim3 shape, std::mt19937_64* random, const std::function<void()>& body) {
    alive_ = num_threads_;
    waiting_ = 0;
    predicates_ = 0;
    warps_.assign(static_cast<std::size_t>((num_threads_ + 31) / 32), {});
    ready_.clear();
    for (int i = 0; i < num_threads_; ++i) {
      Thread& thread = *threads_[i];
      thread.index = unravel(static_cast<unsigned int>(i), shape);
      thread.lane = i % 32;
      thread.warp = i / 32;
      thread.alive = true;
      warps_[thread.warp].alive |= 1U << thread.lane;
      thread.wait = Wait::none;
      thread.open_group.clear();
      thread.groups.clear();
      thread.fiber.begin(body);
      ready_.push_back(&thread);
    }
    while (alive_ > 0) {
      if (ready_.empty()) report_deadlock();
      if (!problem_.empty()) return abandon_all();
      resumed_.swap(ready_);
      ready_.clear();
      if (random != nullptr) std::shuffle(resumed_.begin(), resumed_.end(), *random);
      for (Thread* thread : resumed_) {
        running_ = thread;
        threadIdx = thread->index;
        thread->fiber.resume();
      }
    }
  }

  /// Lets a thread that waited run in the next round, unless it is the one that runs now.
  void release(Thread& thread) {
    thread.wait = Wait::none;
    if (&thread != running_) ready_.push_back(&thread);
  }

  void report_deadlock() {
    for (int i = 0; i < num_threads_; ++i) {
      if (!threads_[i]->alive) continue;
      running_ = threads_[i].get();
      return report(running_->wait == Wait::block ? "threads wait at a barrier that others do not reach"
                                                  : "lanes wait in a collective that others do not reach");
    }
  }

  void abandon_all() {
    for (int i = 0; i < num_threads_; ++i) {
      running_ = threads_[i].get();
      if (!running_->fiber.ended()) running_->fiber.abandon();
      running_->alive = false;
    }
  }

  void end_thread() {
    Thread& ended = self();
    ended.alive = false;
    warps_[ended.warp].alive &= ~(1U << ended.lane);
    --alive_;
    if (alive_ > 0) release_block();
    for (int lane = 0; lane < 32 && warps_[ended.warp].waiting != 0; ++lane) {
      if (warps_[ended.warp].waiting >> lane & 1U) release_warp(*threads_[ended.warp * 32 + lane]);
    }
  }

  bool release_block() {
    if (waiting_ < alive_) return false;
    for (int i = 0; i < num_threads_; ++i) {
      if (threads_[i]->wait == Wait::block) release(*threads_[i]);
    }
    released_predicates_ = predicates_;
    waiting_ = 0;
    predicates_ = 0;
    return true;
  }

  /// Performs the collective in which `thread` waits, if all lanes of its mask have arrived.
  void release_warp(Thread& thread) {
    Warp& warp = warps_[thread.warp];
    const unsigned int needed = thread.mask & warp.alive;
    if ((needed & ~warp.waiting) != 0) return;
    WarpLanes lanes;
    lanes.mask = needed;
    for (int lane = 0; lane < 32; ++lane) {
      if ((needed >> lane & 1U) == 0) continue;
      Thread& other = *threads_[thread.warp * 32 + lane];
      if (other.mask != thread.mask || other.compute != thread.compute) {
        return report("lanes of one mask meet in different collectives");
      }
      lanes.slot[lane] = other.slot;
      release(other);
    }
    warp.waiting &= ~needed;
    if (thread.compute != nullptr) thread.compute(lanes);
  }

  /// Bit masks of lanes.
  struct Warp {
    unsigned int alive = 0;
    unsigned int waiting = 0;  ///< lanes that wait in a collective
  };

  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Thread*> ready_;    ///< threads that run in the next round
  std::vector<Thread*> resumed_;  ///< threads of the present round
  Thread* running_ = nullptr;
  void* shared_ = nullptr;
  int num_threads_ = 0;
  int alive_ = 0;
  int waiting_ = 0;
  int predicates_ = 0;
  int released_predicates_ = 0;
  std::string problem_;
};

thread_local BlockState* BlockState::current = nullptr;

BlockRunner::BlockRunner() : state_(std::make_unique<BlockState>()) {}
BlockRunner::~BlockRunner() = default;

std::string BlockRunner::run(const GridShape& shape, std::uint64_t seed, const std::function<void()>& thread) {
  return state_->run(shape, seed, thread);
}

void* dynamic_shared_memory() {
  return BlockState::current->shared();
}

void __syncthreads() {
  BlockState::current->meet_block(false);
}
int __syncthreads_count(int predicate) {
  return BlockState::current->meet_block(predicate != 0);
}
int __syncthreads_or(int predicate) {
  return BlockState::current->meet_block(predicate != 0) > 0;
}
int __syncthreads_and(int predicate) {
  return BlockState::current->meet_block(predicate == 0) == 0;
}

void __trap() {
  throw Trap{};
}

void async_copy(void* shared, const void* global, int bytes, int valid_bytes) {
  BlockState::current->self().open_group.push_back({shared, global, bytes, valid_bytes});
}

void async_copy_commit() {
  Thread& thread = BlockState::current->self();
  thread.groups.push_back(std::move(thread.open_group));
  thread.open_group.clear();
}

void async_copy_wait(int groups_left) {
  auto& groups = BlockState::current->self().groups;
  while (static_cast<int>(groups.size()) > groups_left) {
    perform(groups.front());
    groups.pop_front();
  }
}

int lane_index() {
  return BlockState::current->self().lane;
}

unsigned int __activemask() {
  return BlockState::current->live_lanes();
}

void warp_collective(unsigned int mask, void (*compute)(WarpLanes& lanes), void* slot) {
  BlockState::current->meet_warp(mask, compute, slot);
}

void __syncwarp(unsigned int mask) {
  warp_collective(mask, nullptr, nullptr);
}

unsigned int __ballot_sync(unsigned int mask, int predicate) {
  struct Slot {
    bool predicate;
    unsigned int ballot;
  } own{predicate != 0, 0};
  warp_collective(
      mask,
      [](WarpLanes& lanes) {
        unsigned int ballot = 0;
        for (int lane = 0; lane < 32; ++lane) {
          if ((lanes.mask >> lane & 1U) && static_cast<Slot*>(lanes.slot[lane])->predicate) ballot |= 1U << lane;
        }
        for (int lane = 0; lane < 32; ++lane) {
          if (lanes.mask >> lane & 1U) static_cast<Slot*>(lanes.slot[lane])->ballot = ballot;
        }
      },
      &own);
  return own.ballot;
}

int __all_sync(unsigned int mask, int predicate) {
  return __ballot_sync(mask, predicate == 0) == 0;
}

unsigned int __match_any_sync(unsigned int mask, unsigned long long value) {
  struct Slot {
    unsigned long long value;
    unsigned int same;
  } own{value, 0};
  warp_collective(
      mask,
      [](WarpLanes& lanes) {
        for (int a = 0; a < 32; ++a) {
          if ((lanes.mask >> a & 1U) == 0) continue;
          auto* slot = static_cast<Slot*>(lanes.slot[a]);
          for (int b = 0; b < 32; ++b) {
            if ((lanes.mask >> b & 1U) && static_cast<Slot*>(lanes.slot[b])->value == slot->value)
              slot->same |= 1U << b;
          }
        }
      },
      &own);
  return own.same;
}

}  // namespace cuda_emulator
