#include "engine/model_pool/model_pool_core.hpp"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace pagoda::model_pool {
namespace {

using Models = std::vector<ModelIndex>;

ModelPoolConfig config_of(std::size_t num_models, std::int32_t max_loaded, TimeUs keep_alive_us = kForever) {
  ModelPoolConfig config;
  config.models.assign(num_models, {.bytes = 10, .device = 0, .keep_alive_us = keep_alive_us});
  config.device_bytes = {1000};
  config.max_loaded = max_loaded;
  config.patience_us = 100;
  return config;
}

void load(ModelPoolCore& pool, ModelIndex model, TimeUs now) {
  EXPECT_EQ(pool.wanted(model, now).loads, Models{model});
  pool.load_ended(model, true, now);
  pool.idle(model, now);
}

Models released(const ModelPoolCore::Effects& effects) {
  Models models;
  for (const auto& release : effects.releases) models.push_back(release.model);
  return models;
}

TEST(ModelPoolCore, LoadsWhatIsWantedOnceAsLongAsThereIsRoom) {
  ModelPoolCore pool(config_of(3, 2));
  EXPECT_EQ(pool.wanted(0, 1).loads, Models{0});
  EXPECT_TRUE(pool.wanted(0, 2).loads.empty());
  EXPECT_EQ(pool.wanted(1, 3).loads, Models{1});
  const auto third = pool.wanted(2, 4);
  EXPECT_TRUE(third.loads.empty());
  EXPECT_TRUE(third.releases.empty()) << "what loads is not given up";
  EXPECT_TRUE(pool.load_ended(0, true, 5).releases.empty()) << "it has those that waited for it";
  EXPECT_EQ(released(pool.idle(0, 6)), Models{0});
}

TEST(ModelPoolCore, TheLeastRecentlyUsedIdleModelMakesRoom) {
  ModelPoolCore pool(config_of(3, 2));
  load(pool, 0, 1);
  load(pool, 1, 2);
  pool.busy(0, 3);
  pool.idle(0, 4);
  const auto constraint = pool.wanted(2, 5);
  EXPECT_EQ(released(constraint), Models{1});
  EXPECT_FALSE(constraint.releases.front().drain);
  EXPECT_TRUE(pool.released(1, true, 6).loads.empty()) << "its memory is not free yet";
  EXPECT_EQ(pool.gone(1, 7).loads, Models{2});
}

TEST(ModelPoolCore, AModelThatGotWorkMeanwhileStaysAndAnotherGoes) {
  ModelPoolCore pool(config_of(3, 2));
  load(pool, 0, 1);
  load(pool, 1, 2);
  EXPECT_EQ(released(pool.wanted(2, 3)), Models{0});
  EXPECT_EQ(released(pool.released(0, false, 4)), Models{1});
}

TEST(ModelPoolCore, ABusyModelIsHeldOnlyWhenThePatienceIsOver) {
  ModelPoolCore pool(config_of(2, 1));
  load(pool, 0, 0);
  pool.busy(0, 1);
  EXPECT_TRUE(pool.wanted(1, 10).releases.empty());
  EXPECT_EQ(pool.next_timer(), 110);
  EXPECT_TRUE(pool.on_timer(109).releases.empty());
  const auto effects = pool.on_timer(110);
  ASSERT_EQ(released(effects), Models{0});
  EXPECT_TRUE(effects.releases.front().drain);
  EXPECT_FALSE(pool.next_timer().has_value());
  pool.released(0, true, 120);
  EXPECT_EQ(pool.gone(0, 130).loads, Models{1});
}

TEST(ModelPoolCore, AModelThatBecomesIdleMakesRoomForThoseThatWait) {
  ModelPoolCore pool(config_of(2, 1));
  load(pool, 0, 0);
  pool.busy(0, 1);
  pool.wanted(1, 2);
  const auto effects = pool.idle(0, 3);
  ASSERT_EQ(released(effects), Models{0});
  EXPECT_FALSE(effects.releases.front().drain);
}

TEST(ModelPoolCore, WhatNobodyWaitsForAnyMoreIsNotLoaded) {
  ModelPoolCore pool(config_of(2, 1));
  load(pool, 0, 0);
  pool.busy(0, 1);
  pool.wanted(1, 2);
  pool.unwanted(1, 3);
  EXPECT_TRUE(pool.idle(0, 4).releases.empty());
  EXPECT_FALSE(pool.is_wanted(1));
}

TEST(ModelPoolCore, AnIdleModelGoesWhenItsTimeIsOverAndAnotherRequestBeginsItAnew) {
  ModelPoolCore pool(config_of(1, 1, 50));
  load(pool, 0, 0);
  EXPECT_EQ(pool.next_timer(), 50);
  pool.busy(0, 10);
  EXPECT_FALSE(pool.next_timer().has_value());
  pool.idle(0, 20);
  EXPECT_EQ(pool.expiry(0), 70);
  EXPECT_TRUE(pool.on_timer(69).releases.empty());
  EXPECT_EQ(released(pool.on_timer(70)), Models{0});
  pool.released(0, true, 71);
  EXPECT_TRUE(pool.wanted(0, 72).loads.empty()) << "first it has to go";
  EXPECT_EQ(pool.gone(0, 73).loads, Models{0});
}

TEST(ModelPoolCore, AKeepAliveOfZeroEndsAModelWithItsWork) {
  ModelPoolCore pool(config_of(1, 1));
  load(pool, 0, 0);
  pool.busy(0, 1);
  EXPECT_TRUE(pool.keep_alive(0, 0, 2).releases.empty());
  EXPECT_EQ(released(pool.idle(0, 3)), Models{0});
  pool.released(0, true, 4);
  pool.gone(0, 5);
  load(pool, 0, 6);
  EXPECT_FALSE(pool.expiry(0).has_value()) << "the next load is as it was configured";
}

TEST(ModelPoolCore, AKeepAliveOfAModelThatIsNotThereIsForgotten) {
  ModelPoolCore pool(config_of(2, 1));
  pool.keep_alive(0, 0, 0);
  load(pool, 0, 1);
  EXPECT_FALSE(pool.expiry(0).has_value());
  pool.wanted(1, 2);
  pool.keep_alive(1, 0, 3);
  pool.released(0, true, 4);
  pool.keep_alive(0, 50, 5);
  EXPECT_EQ(pool.gone(0, 6).loads, Models{1});
  pool.load_ended(1, true, 7);
  EXPECT_TRUE(pool.idle(1, 8).releases.empty());
  EXPECT_EQ(released(pool.wanted(0, 9)), Models{1});
  pool.released(1, true, 10);
  EXPECT_EQ(pool.gone(1, 11).loads, Models{0});
  pool.load_ended(0, true, 12);
  pool.idle(0, 13);
  EXPECT_FALSE(pool.expiry(0).has_value());
}

TEST(ModelPoolCore, AKeepAliveOfALoadThatFailsIsNotThatOfTheNext) {
  ModelPoolCore pool(config_of(1, 1));
  pool.wanted(0, 0);
  pool.keep_alive(0, 0, 1);
  pool.load_ended(0, false, 2);
  load(pool, 0, 3);
  EXPECT_FALSE(pool.expiry(0).has_value());
}

TEST(ModelPoolCore, ALoadThatFailsLeavesRoomAndMayBeTriedAgain) {
  ModelPoolCore pool(config_of(2, 1));
  EXPECT_EQ(pool.wanted(0, 0).loads, Models{0});
  pool.wanted(1, 1);
  EXPECT_EQ(pool.load_ended(0, false, 2).loads, Models{1});
  pool.load_ended(1, true, 3);
  pool.idle(1, 3);
  EXPECT_EQ(released(pool.wanted(0, 4)), Models{1});
}

TEST(ModelPoolCore, AnEngineThatFailedLeavesRoomForItsNextOne) {
  ModelPoolCore pool(config_of(1, 1));
  load(pool, 0, 0);
  pool.busy(0, 1);
  pool.gone(0, 2);
  EXPECT_EQ(pool.wanted(0, 3).loads, Models{0});
}

TEST(ModelPoolCore, MemoryIsThatOfEachDevice) {
  ModelPoolConfig config;
  config.models = {{.bytes = 60, .device = 0}, {.bytes = 60, .device = 1}, {.bytes = 60, .device = 0}};
  config.device_bytes = {100, 100};
  config.max_loaded = 3;
  ModelPoolCore pool(config);
  load(pool, 0, 1);
  load(pool, 1, 2);
  EXPECT_EQ(released(pool.wanted(2, 3)), Models{0}) << "the other device has room enough, but no use for it";
}

TEST(ModelPoolCore, PatienceEndsOnlyForWhomAnotherWouldGo) {
  ModelPoolConfig config;
  config.models = {{.bytes = 60, .device = 0}, {.bytes = 60, .device = 1}, {.bytes = 60, .device = 0}};
  config.device_bytes = {100, 100};
  config.max_loaded = 3;
  config.patience_us = 100;
  ModelPoolCore pool(config);
  load(pool, 1, 1);
  pool.busy(1, 2);
  EXPECT_EQ(pool.wanted(0, 3).loads, Models{0});
  pool.wanted(2, 4);
  EXPECT_FALSE(pool.next_timer().has_value()) << "the one that has work is on the other device";
  EXPECT_TRUE(pool.on_timer(200).releases.empty());
  EXPECT_FALSE(pool.next_timer().has_value());
  EXPECT_EQ(released(pool.load_ended(0, true, 210)), Models{0});
}

TEST(ModelPoolCore, AModelThatIsLargerThanAllThereIsIsLoadedAlone) {
  auto config = config_of(2, 2);
  config.models[0].bytes = 5000;
  ModelPoolCore pool(config);
  load(pool, 0, 1);
  EXPECT_EQ(released(pool.wanted(1, 2)), Models{0});
}

/// A pool whose models load and unload after random times.
TEST(ModelPoolCore, AtAnyTimeTheLimitsHoldAndWhoWaitsIsServed) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const std::size_t num_models = 2 + random() % 5;
    auto config = config_of(num_models, static_cast<std::int32_t>(1 + random() % 3), seed % 2 == 0 ? kForever : 200);
    for (auto& model : config.models) model.bytes = 10 + static_cast<std::int64_t>(random() % 40);
    config.device_bytes = {70};
    ModelPoolCore pool(config);
    enum class Is { absent, loading, idle, busy, draining, leaving };
    std::vector<Is> is(num_models, Is::absent);
    std::vector<TimeUs> waits(num_models, -1);
    std::vector<ModelPoolCore::Release> asked;
    TimeUs now = 0;
    const auto take = [&](const ModelPoolCore::Effects& effects) {
      for (const auto model : effects.loads) {
        ASSERT_EQ(is[model], Is::absent);
        is[model] = Is::loading;
      }
      for (const auto& release : effects.releases) asked.push_back(release);
      std::int32_t count = 0;
      std::int64_t bytes = 0;
      for (ModelIndex i = 0; i < num_models; ++i) {
        if (is[i] == Is::absent) continue;
        ++count;
        bytes += config.models[i].bytes;
      }
      ASSERT_LE(count, config.max_loaded) << "seed " << seed;
      ASSERT_TRUE(bytes <= 70 || count == 1) << "seed " << seed;
    };
    for (int event = 0; event < 2000; ++event) {
      now += 1 + static_cast<TimeUs>(random() % 20);
      for (const auto& release : std::exchange(asked, {})) {
        if (is[release.model] == Is::idle) {
          is[release.model] = Is::leaving;
          take(pool.released(release.model, true, now));
        } else if (release.drain) {
          is[release.model] = Is::draining;
        } else {
          take(pool.released(release.model, false, now));
        }
      }
      const ModelIndex model = random() % num_models;
      switch (is[model]) {
        case Is::absent:
          if (waits[model] < 0) waits[model] = now;
          take(pool.wanted(model, now));
          break;
        case Is::loading:
          is[model] = random() % 8 == 0 ? Is::absent : Is::busy;
          if (is[model] == Is::busy) waits[model] = -1;
          take(pool.load_ended(model, is[model] == Is::busy, now));
          break;
        case Is::idle:
          is[model] = Is::busy;
          take(pool.busy(model, now));
          break;
        case Is::busy:
          is[model] = Is::idle;
          take(pool.idle(model, now));
          break;
        case Is::draining:
          is[model] = Is::leaving;
          take(pool.released(model, true, now));
          break;
        case Is::leaving:
          is[model] = Is::absent;
          take(pool.gone(model, now));
          break;
      }
      take(pool.on_timer(now));
      for (ModelIndex i = 0; i < num_models; ++i) {
        ASSERT_LT(waits[i] < 0 ? 0 : now - waits[i], 20'000) << "model " << i << " starves; seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace pagoda::model_pool
