#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/machine_topology.hpp"
#include "kernels/cpu/memory_limits.hpp"
#include "kernels/cpu_parts.hpp"
#include "kernels/device.hpp"

namespace pagoda::kernels {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

std::shared_ptr<Device> make_device(int num_threads = 2) {
  auto device = create_cpu_device({num_threads, ""});
  EXPECT_TRUE(device.has_value());
  return *device;
}

TEST(CpuDeviceTest, DescribesItselfByInstructionSetAndThreads) {
  const auto device = create_cpu_device({2, "scalar"});
  ASSERT_TRUE(device.has_value());
  EXPECT_EQ((*device)->description(), "cpu scalar, 2 threads");
  EXPECT_EQ((*device)->kind(), DeviceKind::cpu);
}

TEST(CpuDeviceTest, TakesTheBestInstructionSetUnlessOneIsNamed) {
  CpuIsa fastest = available_isas().back();
#if defined(__x86_64__)
  if (fastest == CpuIsa::avx512_bf16 && __builtin_cpu_is("amd") == 0) fastest = CpuIsa::avx512_vnni;
#endif
  EXPECT_EQ(choose_isa("").value(), fastest);
  for (const CpuIsa isa : available_isas()) EXPECT_EQ(choose_isa(to_string(isa)).value(), isa);
}

TEST(CpuDeviceTest, RefusesAnUnknownInstructionSetAndListsTheAvailableOnes) {
  const auto device = create_cpu_device({1, "sse9"});
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code, ErrorCode::bad_config);
  EXPECT_EQ(device.error().param, "isa");
  EXPECT_THAT(device.error().message, HasSubstr("\"sse9\""));
  EXPECT_THAT(device.error().message, HasSubstr("scalar"));
}

TEST(CpuDeviceTest, RefusesANegativeNumberOfThreads) {
  const auto device = create_cpu_device({-1, ""});
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code, ErrorCode::bad_config);
  EXPECT_THAT(device.error().message, HasSubstr("-1"));
}

TEST(CpuDeviceTest, RefusesAnUnknownAffinity) {
  const auto device = create_cpu_device({1, "", "cpus"});
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().param, "cpu_affinity");
}

TEST(CpuDeviceTest, DividesItsThreadsAmongParts) {
  const auto threads_of = [](int part, int num_parts) {
    return create_cpu_device({5, "scalar", "none"}, CpuPart{part, num_parts}).value()->description();
  };
  EXPECT_EQ(threads_of(0, 2), "cpu scalar, 3 threads");
  EXPECT_EQ(threads_of(1, 2), "cpu scalar, 2 threads");
  EXPECT_EQ(threads_of(4, 5), "cpu scalar, 1 thread");
  const auto device = create_cpu_device({2, "scalar", "none"}, CpuPart{0, 3});
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code, ErrorCode::bad_config);
  EXPECT_EQ(device.error().param, "threads");
}

#if defined(__linux__)
/// Returns the number of hardware threads that the thread of a stream may run on.
int cpus_of_stream(Device& device) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const auto stream = device.create_stream("test").value();
  stream->submit([&] { sched_getaffinity(0, sizeof(cpus), &cpus); });
  stream->synchronize();
  return CPU_COUNT(&cpus);
}

TEST(CpuDeviceTest, BindsThreadsToCoresWhenTold) {
  if (!MachineTopology::in_build()) {
    const auto device = create_cpu_device({2, "", "cores"});
    ASSERT_FALSE(device.has_value());
    EXPECT_EQ(device.error().code, ErrorCode::unsupported);
    GTEST_SKIP() << "built without hwloc";
  }
  const auto machine = MachineTopology::load().value();
  for (const char* affinity : {"cores", "numa"}) {
    const auto device = create_cpu_device({2, "scalar", affinity});
    ASSERT_TRUE(device.has_value()) << device.error().message;
    EXPECT_THAT((*device)->description(), HasSubstr("2 threads bound to cores"));
    EXPECT_EQ(cpus_of_stream(**device), static_cast<int>(machine->cpus().cores.front().cpus.size()));
  }
  const auto one_per_core = create_cpu_device({0, "scalar", "cores"}).value();
  const auto cores = std::to_string(machine->cpus().cores.size());
  EXPECT_THAT(one_per_core->description(), HasSubstr(" " + cores + " thread"));
}

/// Returns the first hardware thread that the thread of a stream may run on.
int first_cpu_of_stream(Device& device) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const auto stream = device.create_stream("test").value();
  stream->submit([&] { sched_getaffinity(0, sizeof(cpus), &cpus); });
  stream->synchronize();
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) return cpu;
  }
  return -1;
}

TEST(CpuDeviceTest, BindsPartsToDifferentCores) {
  if (!MachineTopology::in_build()) GTEST_SKIP() << "built without hwloc";
  const auto cores = MachineTopology::load().value()->cpus().cores;
  if (cores.size() < 2) GTEST_SKIP() << "a single core";
  for (const char* affinity : {"cores", "numa"}) {
    for (const int part : {0, 1}) {
      const auto device = create_cpu_device({2, "scalar", affinity}, CpuPart{part, 2});
      ASSERT_TRUE(device.has_value()) << device.error().message;
      EXPECT_EQ((*device)->description(), "cpu scalar, 1 thread bound to cores");
      EXPECT_EQ(first_cpu_of_stream(**device), cores[static_cast<std::size_t>(part)].cpus.front());
    }
  }
}

TEST(CpuDeviceTest, LeavesThreadsFreeWhenTold) {
  cpu_set_t all;
  CPU_ZERO(&all);
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  EXPECT_EQ(cpus_of_stream(*create_cpu_device({2, "", "none"}).value()), CPU_COUNT(&all));
}

/// Returns the bytes of the mapping at `data` that are on huge pages.
std::size_t huge_bytes_at(const void* data) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::size_t kib = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) {
      inside = reinterpret_cast<std::uintptr_t>(data) >= begin && reinterpret_cast<std::uintptr_t>(data) < end;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %zu kB", &kib) == 1) {
      return kib * 1024;
    }
  }
  return 0;
}

/// Returns whether memory that asks for huge pages gets any: the setting allows it, and an emulator does not hide it.
bool system_grants_huge_pages() {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return false;
  madvise(data, kBytes, MADV_HUGEPAGE);
  std::fill_n(static_cast<std::byte*>(data), kBytes, std::byte{1});
  const std::size_t huge_bytes = huge_bytes_at(data);
  munmap(data, kBytes);
  return huge_bytes > 0;
}

TEST(CpuDeviceTest, PutsLargeBuffersOnHugePagesWhereTheSystemAllowsIt) {
  if (!system_grants_huge_pages()) GTEST_SKIP() << "the system grants no transparent huge pages";
  constexpr std::size_t kBytes = (std::size_t{64} << 20) + 4096;
  const auto buffer = make_device()->allocate(kBytes, MemoryKind::device).value();
  std::fill_n(buffer.as<std::byte>(), kBytes, std::byte{1});
  EXPECT_GT(huge_bytes_at(buffer.data()), 0U);  // all of the memory, unless the machine's memory is fragmented
  RecordProperty("huge_bytes", std::to_string(huge_bytes_at(buffer.data())));
}

std::int64_t resident_pages(const void* data, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(mincore(const_cast<void*>(data), bytes, pages.data()), 0);
  return std::ranges::count_if(pages, [](unsigned char state) { return (state & 1U) != 0; });
}

TEST(CpuDeviceTest, TakesTheMemoryOfABufferWhenToldAndKeepsWhatItHolds) {
  constexpr std::size_t kBytes = (std::size_t{150} << 20) + 12345;  // more than a round of one thread; a partial page
  for (const int num_threads : {1, 3}) {
    const auto device = make_device(num_threads);
    const auto buffer = device->allocate(kBytes, MemoryKind::device).value();
    const auto all_pages = static_cast<std::int64_t>((kBytes + 4095) / 4096);
    auto* data = buffer.as<std::uint8_t>();
    data[1000] = 7;
    data[kBytes - 1] = 8;
    EXPECT_LT(resident_pages(data, kBytes), all_pages / 2);
    std::vector<double> told;
    ASSERT_TRUE(device->touch(buffer, [&](double done) { told.push_back(done); }));
    EXPECT_EQ(resident_pages(data, kBytes), all_pages);
    EXPECT_EQ(data[1000], 7);
    EXPECT_EQ(data[kBytes - 1], 8);
    EXPECT_EQ(std::accumulate(data, data + kBytes, 0), 15);
    EXPECT_TRUE(std::ranges::is_sorted(told));
    EXPECT_EQ(told.back(), 1.0);
  }
}

TEST(CpuDeviceTest, TakesTheMemoryOfSmallAndOfNoBuffers) {
  const auto device = make_device();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{5000}}) {
    const auto buffer = device->allocate(bytes, MemoryKind::host).value();
    EXPECT_TRUE(device->touch(buffer, {}));
  }
}

TEST(CpuDeviceTest, DoesNotTakeMemoryThatIsNotThere) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer ends the process when its own memory meets the limit";
#endif
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const auto device = make_device();
  const auto buffer = device->allocate(kBytes, MemoryKind::device).value();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::size_t pages = 0;
  ASSERT_TRUE(std::ifstream("/proc/self/statm") >> pages);
  rlimit tight = before;
  tight.rlim_cur =
      pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + kAddressSpaceOfThreads + (std::size_t{8} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  const auto touched = device->touch(buffer, {});
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_FALSE(touched);
  EXPECT_EQ(touched.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(touched.error().message, ContainsRegex("cannot take 64 MiB of memory: [78] MiB are available"));
  EXPECT_THAT(touched.error().message, HasSubstr("RLIMIT_AS"));
  EXPECT_EQ(resident_pages(buffer.data(), kBytes), 0);
}
#endif

TEST(CpuDeviceTest, AllocatesZeroedAlignedMemoryOfAnySize) {
  const auto device = make_device();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{5} << 20}) {
    const auto buffer = device->allocate(bytes, MemoryKind::device);
    ASSERT_TRUE(buffer.has_value());
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U);
    const auto* data = buffer->as<std::uint8_t>();
    EXPECT_TRUE(std::all_of(data, data + bytes, [](std::uint8_t byte) { return byte == 0; }));
  }
  EXPECT_EQ(device->allocate(0, MemoryKind::host)->bytes(), 0U);
}

TEST(CpuDeviceTest, RefusesAnAllocationThatDoesNotFitAndSaysHowMuchWasAsked) {
  const auto buffer = make_device()->allocate(std::size_t{1} << 50, MemoryKind::device);
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(buffer.error().message, HasSubstr("1073741824 MiB"));
  EXPECT_THAT(buffer.error().message, ContainsRegex("[0-9]+ MiB are available \\(.+\\)"));
}

TEST(CpuDeviceTest, KnowsHowMuchMemoryIsAvailable) {
  EXPECT_GT(make_device()->available_bytes(MemoryKind::device), std::size_t{1} << 20);
}

TEST(CpuStreamTest, RunsWorkInOrder) {
  const auto stream = make_device()->create_stream("test").value();
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    if (i % 2 == 0) {
      stream->submit([&order, i] { order.push_back(i); });
    } else {
      stream->on_complete([&order, i] { order.push_back(i); });
    }
  }
  stream->synchronize();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(CpuStreamTest, DoesNotRunWorkOnTheCallersThread) {
  const auto stream = make_device()->create_stream("test").value();
  std::thread::id worker;
  stream->submit([&] { worker = std::this_thread::get_id(); });
  stream->synchronize();
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(CpuStreamTest, FinishesAnEventOnlyAfterAllWorkBeforeIt) {
  const auto stream = make_device()->create_stream("test").value();
  std::promise<void> gate;
  std::atomic<bool> worked = false;
  stream->submit([&] {
    gate.get_future().wait();
    worked = true;
  });
  const auto event = stream->record();
  EXPECT_FALSE(event->finished());
  gate.set_value();
  event->synchronize();
  EXPECT_TRUE(event->finished());
  EXPECT_TRUE(worked);
}

TEST(CpuStreamTest, MakesAStreamWaitForAnEventOfAnother) {
  const auto device = make_device();
  const auto first = device->create_stream("first").value();
  const auto second = device->create_stream("second").value();
  std::promise<void> gate;
  int value = 0;
  int seen = -1;
  first->submit([&] {
    gate.get_future().wait();
    value = 7;
  });
  second->wait(first->record());
  second->submit([&] { seen = value; });
  const auto done = second->record();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(done->finished());
  gate.set_value();
  done->synchronize();
  EXPECT_EQ(seen, 7);
}

TEST(CpuStreamTest, HandsWorkBetweenStreamsManyTimes) {
  const auto device = make_device();
  const auto ping = device->create_stream("ping").value();
  const auto pong = device->create_stream("pong").value();
  int value = 0;
  for (int i = 0; i < 500; ++i) {
    ping->submit([&value] { value += 1; });
    pong->wait(ping->record());
    pong->submit([&value] { value *= 1; });
    ping->wait(pong->record());
  }
  ping->synchronize();
  EXPECT_EQ(value, 500);
}

TEST(CpuStreamTest, RunsWhatIsLeftWhenItIsDestroyed) {
  std::atomic<int> runs = 0;
  {
    const auto stream = make_device()->create_stream("test").value();
    for (int i = 0; i < 50; ++i) stream->submit([&runs] { runs.fetch_add(1); });
  }
  EXPECT_EQ(runs, 50);
}

TEST(CpuStreamTest, LetsWorkEnqueueMoreWork) {
  const auto stream = make_device()->create_stream("test").value();
  std::promise<int> result;
  stream->submit([&] { stream->on_complete([&] { result.set_value(3); }); });
  EXPECT_EQ(result.get_future().get(), 3);
}

TEST(CpuStreamTest, HasFailedWhenWorkThrows) {
  const auto stream = make_device(1)->create_stream("test").value();
  std::string told = "nothing";
  bool ran = false;
  EXPECT_TRUE(stream->status());
  stream->submit([] { throw std::runtime_error("step 3 broke"); });
  stream->submit([&] { ran = true; });
  stream->on_complete([&] { told = stream->status() ? "well" : stream->status().error().message; });
  stream->record()->synchronize();
  EXPECT_FALSE(ran);
  EXPECT_EQ(told, "the CPU stream has failed: step 3 broke");
  EXPECT_FALSE(stream->status());
}

TEST(CpuStreamDeathTest, EndsTheProcessWhenACallbackThrows) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        const auto stream = make_device(1)->create_stream("test").value();
        stream->on_complete([] { throw std::runtime_error("step 3 broke"); });
        stream->synchronize();
      },
      "step 3 broke");
}

}  // namespace
}  // namespace pagoda::kernels
