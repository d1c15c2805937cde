#include "io/memory_reserve.hpp"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <latch>
#include <memory>
#include <new>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/preload/fail_allocation.hpp"

namespace pagoda::io {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
/// Beyond what any malloc keeps when it is freed.
constexpr std::size_t kLarge = 48 * kMiB;

/// An allocation that no compiler leaves out. Where there is no memory: std::bad_alloc.
void allocate(std::size_t bytes) {
  ::operator delete(::operator new(bytes));
}

/// Bytes of address space that the process may take beyond what it has, as long as this lives.
class AddressSpace {
 public:
  explicit AddressSpace(std::size_t beyond) {
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = in_use() + beyond;
    is_limited_ = setrlimit(RLIMIT_AS, &limit) == 0;
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  bool is_limited() const { return is_limited_; }

 private:
  static std::size_t in_use() {
    std::size_t pages = 0;
    if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(file, "%zu", &pages) != 1) pages = 0;
      std::fclose(file);
    }
    return pages * 4096;
  }

  rlimit before_{};
  bool is_limited_ = false;
};

TEST(MemoryReserveTest, IsGivenBackWhereThereIsNoMemoryAndPutAsideAgainWhenThereIs) {
  MemoryReserve reserve(96 * kMiB);
  const std::shared_ptr<MemoryReserve> shared(&reserve, [](auto*) {});
  const AddressSpace limit(4 * kMiB);
  ASSERT_TRUE(limit.is_limited());
  void* const large = ::operator new(kLarge);  // fits what was put aside alone
  const bool is_short = reserve.is_short();
  const auto refused = refusal(shared);
  ::operator delete(large);
  EXPECT_TRUE(is_short);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::queue_full);
  EXPECT_FALSE(reserve.is_short());
  EXPECT_FALSE(refusal(shared));
}

TEST(MemoryReserveTest, StaysWholeWhereWhatIsWantedDoesNotFitIt) {
  MemoryReserve reserve(96 * kMiB);
  const AddressSpace limit(4 * kMiB);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(allocate(512 * kMiB), std::bad_alloc);
    EXPECT_FALSE(reserve.is_short());
    EXPECT_NO_THROW(allocate(kLarge));
    EXPECT_FALSE(reserve.is_short());
  }
}

TEST(MemoryReserveTest, IsNotForWhatFailsAlone) {
  test::AllocationControl control{};
  test::allocation_control = &control;
  MemoryReserve reserve(8 * kMiB);
  control.countdown = 1;
  {
    const WithoutReserve large;
    EXPECT_THROW(allocate(1), std::bad_alloc);
  }
  control.countdown = 1;
  EXPECT_NO_THROW(allocate(1));
  test::allocation_control = nullptr;
}

TEST(MemoryReserveTest, ServesAllThreadsThatFindNoMemoryAtOnce) {
  test::AllocationControl control{};
  MemoryReserve reserve(8 * kMiB);
  std::atomic<int> num_failures = 0;
  std::latch start(3);
  const auto fail_often = [&] {
    start.arrive_and_wait();
    for (int i = 0; i < 2000; ++i) {
      control.countdown = 1;
      try {
        allocate(1);
      } catch (const std::bad_alloc&) {
        ++num_failures;
      }
      if (reserve.is_short()) ++num_failures;
    }
  };
  {
    std::jthread one(fail_often);
    std::jthread other(fail_often);
    test::allocation_control = &control;
    start.arrive_and_wait();
  }
  test::allocation_control = nullptr;
  EXPECT_EQ(num_failures, 0);
  EXPECT_GT(control.failures, 0);
}

TEST(MemoryReserveTest, IsNotThereWithoutOne) {
  EXPECT_FALSE(refusal(nullptr));
  { MemoryReserve reserve; }
  EXPECT_EQ(std::get_new_handler(), nullptr);
}

}  // namespace
}  // namespace pagoda::io
