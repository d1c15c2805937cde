#include "io/memory_reserve.hpp"

#include <cstddef>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/preload/fail_allocation.hpp"

namespace pagoda::io {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

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
  MemoryReserve reserve(32 * kMiB);
  std::unique_ptr<std::byte[]> large;
  {
    const AddressSpace limit(4 * kMiB);
    ASSERT_TRUE(limit.is_limited());
    large = std::make_unique<std::byte[]>(16 * kMiB);  // fits what was put aside alone
    EXPECT_TRUE(reserve.is_short());
    EXPECT_TRUE(refusal(std::shared_ptr<MemoryReserve>(&reserve, [](auto*) {})));
    large.reset();
    EXPECT_FALSE(reserve.is_short());
  }
}

TEST(MemoryReserveTest, StaysWholeWhereWhatIsWantedDoesNotFitIt) {
  MemoryReserve reserve(32 * kMiB);
  const AddressSpace limit(4 * kMiB);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(static_cast<void>(std::vector<char>(256 * kMiB)), std::bad_alloc);
    EXPECT_FALSE(reserve.is_short());
    EXPECT_NE(std::make_unique<std::byte[]>(16 * kMiB), nullptr);  // freed at once
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
    EXPECT_THROW(static_cast<void>(std::make_unique<int>(1)), std::bad_alloc);
  }
  control.countdown = 1;
  EXPECT_NE(std::make_unique<int>(1), nullptr);
  test::allocation_control = nullptr;
}

TEST(MemoryReserveTest, ServesAllThreadsThatFindNoMemoryAtOnce) {
  test::AllocationControl control{};
  test::allocation_control = &control;
  MemoryReserve reserve(8 * kMiB);
  for (int i = 0; i < 200; ++i) {
    control.countdown = 1;
    std::thread other([] { EXPECT_NE(std::make_unique<int>(1), nullptr); });
    control.countdown = 1;
    EXPECT_NE(std::make_unique<int>(1), nullptr);
    other.join();
    EXPECT_FALSE(reserve.is_short());
  }
  test::allocation_control = nullptr;
}

TEST(MemoryReserveTest, IsNotThereWithoutOne) {
  EXPECT_FALSE(refusal(nullptr));
  { MemoryReserve reserve; }
  EXPECT_EQ(std::get_new_handler(), nullptr);
}

}  // namespace
}  // namespace pagoda::io
