#include "kernels/cpu/thread_placement.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/machine_topology.hpp"

namespace pagoda::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Returns a machine with `cores_of_node[n]` cores in node n, each with one hardware thread.
CpuTopology machine_of(const std::vector<int>& cores_of_node) {
  CpuTopology topology{{}, static_cast<int>(cores_of_node.size())};
  for (std::size_t node = 0; node < cores_of_node.size(); ++node) {
    for (int i = 0; i < cores_of_node[node]; ++i) {
      topology.cores.push_back({static_cast<int>(node), {static_cast<int>(topology.cores.size())}});
    }
  }
  return topology;
}

TEST(ThreadPlacementTest, FillsTheCoresNodeByNode) {
  EXPECT_THAT(place_threads(machine_of({4, 4}), CpuAffinity::cores, 6), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(ThreadPlacementTest, SpreadsThreadsOverTheNodes) {
  EXPECT_THAT(place_threads(machine_of({4, 4}), CpuAffinity::numa, 5), ElementsAre(0, 4, 1, 5, 2));
  EXPECT_THAT(place_threads(machine_of({1, 3}), CpuAffinity::numa, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(place_threads(machine_of({3, 1, 2}), CpuAffinity::numa, 6), ElementsAre(0, 3, 4, 1, 5, 2));
}

TEST(ThreadPlacementTest, StartsAgainWhenThereAreMoreThreadsThanCores) {
  EXPECT_THAT(place_threads(machine_of({2}), CpuAffinity::cores, 5), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(place_threads(machine_of({1, 1}), CpuAffinity::numa, 3), ElementsAre(0, 1, 0));
}

TEST(ThreadPlacementTest, PartsHaveCoresOfTheirOwnWhateverTheirThreads) {
  const CpuTopology machine = machine_of({4, 4});
  EXPECT_THAT(place_threads_of_part(machine, 0, 2, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(place_threads_of_part(machine, 1, 2, 4), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(place_threads_of_part(machine, 1, 2, 2), ElementsAre(4, 5)) << "fewer threads than cores: the other node";
  EXPECT_THAT(place_threads_of_part(machine, 0, 2, 6), ElementsAre(0, 1, 2, 3, 0, 1)) << "more threads than cores";
  EXPECT_THAT(place_threads_of_part(machine, 1, 2, 6), ElementsAre(4, 5, 6, 7, 4, 5));
  EXPECT_THAT(place_threads_of_part(machine, 1, 3, 3), ElementsAre(2, 3, 4));
  EXPECT_THAT(place_threads_of_part(machine_of({2}), 1, 3, 1), ElementsAre(0));
  EXPECT_THAT(place_threads_of_part(machine_of({1}), 1, 2, 2), ElementsAre(0, 0));
}

TEST(ThreadPlacementTest, BindsByItselfOnlyOnSeveralNodes) {
  EXPECT_EQ(resolve_affinity(CpuAffinity::automatic, machine_of({4})), CpuAffinity::none);
  EXPECT_EQ(resolve_affinity(CpuAffinity::automatic, machine_of({4, 4})), CpuAffinity::numa);
  EXPECT_EQ(resolve_affinity(CpuAffinity::none, machine_of({4, 4})), CpuAffinity::none);
  EXPECT_EQ(resolve_affinity(CpuAffinity::cores, machine_of({4})), CpuAffinity::cores);
}

TEST(ThreadPlacementTest, KnowsItsNames) {
  EXPECT_EQ(parse_affinity("auto").value(), CpuAffinity::automatic);
  EXPECT_EQ(parse_affinity("none").value(), CpuAffinity::none);
  EXPECT_EQ(parse_affinity("cores").value(), CpuAffinity::cores);
  EXPECT_EQ(parse_affinity("numa").value(), CpuAffinity::numa);
  const auto unknown = parse_affinity("sockets");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::bad_config);
  EXPECT_EQ(unknown.error().param, "cpu_affinity");
  EXPECT_THAT(unknown.error().message, HasSubstr("\"sockets\""));
}

TEST(MachineTopologyTest, ReadsCoresAndNodesOfImaginaryMachines) {
  if (!MachineTopology::in_build()) GTEST_SKIP() << "built without hwloc";
  const auto machine = MachineTopology::load("numa:2 core:4 pu:2");
  ASSERT_TRUE(machine.has_value()) << machine.error().message;
  const CpuTopology& cpus = (*machine)->cpus();
  EXPECT_EQ(cpus.num_nodes, 2);
  ASSERT_EQ(cpus.cores.size(), 8U);
  for (std::size_t core = 0; core < cpus.cores.size(); ++core) {
    EXPECT_EQ(cpus.cores[core].node, core < 4 ? 0 : 1);
    EXPECT_THAT(cpus.cores[core].cpus, ElementsAre(2 * core, 2 * core + 1));
  }
  EXPECT_THAT(place_threads(cpus, CpuAffinity::numa, 4), ElementsAre(0, 4, 1, 5));

  const auto flat = MachineTopology::load("pu:3");
  ASSERT_TRUE(flat.has_value()) << flat.error().message;
  EXPECT_EQ((*flat)->cpus().num_nodes, 1);
  EXPECT_EQ((*flat)->cpus().cores.size(), 3U) << "hardware threads stand for cores";
}

TEST(MachineTopologyTest, RefusesADescriptionThatMeansNothing) {
  if (!MachineTopology::in_build()) GTEST_SKIP() << "built without hwloc";
  const auto machine = MachineTopology::load("three sheep");
  ASSERT_FALSE(machine.has_value());
  EXPECT_THAT(machine.error().message, HasSubstr("\"three sheep\""));
}

TEST(MachineTopologyTest, SaysWhatToInstallWhenTheBuildHasNoHwloc) {
  if (MachineTopology::in_build()) GTEST_SKIP() << "built with hwloc";
  const auto machine = MachineTopology::load();
  ASSERT_FALSE(machine.has_value());
  EXPECT_EQ(machine.error().code, ErrorCode::unsupported);
  EXPECT_EQ(machine.error().param, "cpu_affinity");
  EXPECT_THAT(machine.error().message, HasSubstr("libhwloc-dev"));
}

}  // namespace
}  // namespace pagoda::kernels
