#include "engine/metrics/replica_reports.hpp"

#include <gtest/gtest.h>

namespace pagoda::metrics {
namespace {

EngineStats stats_of(std::int64_t running, std::int64_t finished, std::int64_t pid) {
  EngineStats stats;
  stats.requests_running = running;
  stats.requests_finished_total = finished;
  stats.device_blocks_total = 10;
  stats.worker_pause_s_total = 0.5;
  stats.worker_pids = {pid};
  return stats;
}

TEST(ReplicaReports, OneReplicaIsReportedAsItIs) {
  ReplicaReports reports(1);
  EngineStats stats = stats_of(2, 5, 70);
  stats.health = "the worker is being replaced";
  reports.reported(0, stats);
  const EngineStats sum = reports.stats();
  EXPECT_EQ(sum.requests_running, 2);
  EXPECT_EQ(sum.health, "the worker is being replaced");
  EXPECT_EQ(sum.worker_pids, (std::vector<std::int64_t>{70}));
  ASSERT_EQ(sum.replicas.size(), 1U);
  EXPECT_EQ(sum.replicas[0].health, sum.health);
  EXPECT_EQ(sum.replicas[0].requests_running, 2);
}

TEST(ReplicaReports, SeveralAreSummedAndListed) {
  ReplicaReports reports(2);
  EngineStats paused = stats_of(1, 3, 71);
  paused.health = "the worker is being replaced";
  reports.reported(0, stats_of(2, 5, 70));
  reports.reported(1, paused);
  reports.drains(1);
  const EngineStats sum = reports.stats();
  EXPECT_EQ(sum.requests_running, 3);
  EXPECT_EQ(sum.requests_finished_total, 8);
  EXPECT_EQ(sum.worker_pause_s_total, 1.0);
  EXPECT_EQ(sum.worker_pids, (std::vector<std::int64_t>{70, 71}));
  EXPECT_EQ(sum.health, "ok") << "one runs steps";
  ASSERT_EQ(sum.replicas.size(), 2U);
  EXPECT_EQ(sum.replicas[0].state, "up");
  EXPECT_EQ(sum.replicas[1].replica, 1);
  EXPECT_EQ(sum.replicas[1].state, "draining");
  EXPECT_EQ(sum.replicas[1].health, "the worker is being replaced");
}

TEST(ReplicaReports, WhatAnEndedReplicaCountedStaysAndItsRequestsDoNot) {
  ReplicaReports reports(2);
  SchedulerMetrics metrics{stats_of(2, 5, 70), {}};
  metrics.steps.tokens.observe(3);
  metrics.steps.count_drafts(4, 3);
  reports.reported(0, metrics);
  metrics.stats = stats_of(1, 3, 71);
  reports.reported(1, metrics);
  reports.ended(0, "its device is gone");
  const EngineStats sum = reports.stats();
  EXPECT_EQ(sum.requests_running, 1);
  EXPECT_EQ(sum.requests_finished_total, 8);
  EXPECT_EQ(sum.device_blocks_total, 10);
  EXPECT_EQ(sum.worker_pids, (std::vector<std::int64_t>{71}));
  EXPECT_EQ(sum.replicas.at(0).state, "down");
  EXPECT_EQ(sum.replicas.at(0).health, "its device is gone");
  EXPECT_EQ(reports.steps().tokens.count(), 2U);
  EXPECT_EQ(reports.steps().tokens.sum(), 6);
  EXPECT_EQ(reports.steps().draft_tokens, 8);
  EXPECT_EQ(reports.steps().accepted_at_positions[2], 2);
  EXPECT_EQ(reports.steps().accepted_at_positions[3], 0);
}

TEST(ReplicaReports, AReplicaThatEndedReportsItsLastCounts) {
  ReplicaReports reports(2);
  reports.reported(0, stats_of(2, 5, 70));
  reports.ended(0, "the replica was drained");
  reports.reported(0, stats_of(0, 7, 70));
  EXPECT_EQ(reports.stats().requests_finished_total, 7);
  EXPECT_TRUE(reports.stats().worker_pids.empty());
}

TEST(ReplicaReports, WhatAReplicaCountedBeforeItsNewStartStays) {
  ReplicaReports reports(2);
  SchedulerMetrics metrics{stats_of(2, 5, 70), {}};
  metrics.steps.tokens.observe(3);
  reports.reported(0, metrics);
  reports.reported(1, stats_of(1, 3, 71));
  reports.ended(0, "the replica was drained");
  reports.starts(0);
  EXPECT_EQ(reports.stats().replicas.at(0).state, "starting");
  reports.ended(0, "it cannot be started again: no memory");
  EXPECT_EQ(reports.stats().replicas.at(0).state, "down");
  EXPECT_EQ(reports.stats().requests_finished_total, 8);
  reports.starts(0);
  reports.started(0);
  EXPECT_EQ(reports.stats().replicas.at(0).state, "up");
  EXPECT_EQ(reports.stats().requests_finished_total, 8);
  EXPECT_EQ(reports.stats().requests_running, 1);
  EXPECT_EQ(reports.steps().tokens.count(), 1U);
  metrics.stats = stats_of(1, 4, 72);
  reports.reported(0, metrics);
  EXPECT_EQ(reports.stats().requests_finished_total, 12);
  EXPECT_EQ(reports.stats().requests_running, 2);
  EXPECT_EQ(reports.stats().worker_pids, (std::vector<std::int64_t>{72, 71}));
  EXPECT_EQ(reports.steps().tokens.count(), 2U);
}

TEST(ReplicaReports, AReplicaWhoseDrainIsTakenBackIsUp) {
  ReplicaReports reports(1);
  reports.drains(0);
  reports.resumes(0);
  EXPECT_EQ(reports.stats().replicas.at(0).state, "up");
}

TEST(ReplicaReports, TheHealthOfAnEngineWithoutAHealthyReplicaIsAReason) {
  ReplicaReports reports(2);
  EngineStats paused = stats_of(0, 0, 1);
  paused.health = "the worker is being replaced";
  reports.reported(1, paused);
  reports.ended(0, "its device is gone");
  EXPECT_EQ(reports.stats().health, "the worker is being replaced");
}

}  // namespace
}  // namespace pagoda::metrics
