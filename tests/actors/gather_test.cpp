#include "actors/gather.hpp"

#include <future>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "actors/interfaces.hpp"

namespace pagoda::actors {
namespace {

using CountingActor = Interface<caf::result<EngineStats>(GetStats)>;

EngineStats stats_of(std::int64_t steps) {
  EngineStats stats;
  stats.steps_total = steps;
  return stats;
}

struct Counts {
  Counts() {}
  std::int64_t num_asked = 0;
  std::vector<caf::typed_response_promise<EngineStats>> waiting;
};

/// Answers at once, with the number of the question.
CountingActor::behavior_type fast(CountingActor::stateful_pointer<Counts> self) {
  return {[self](const GetStats&) { return reply(stats_of(++state_of(self).num_asked)); }};
}

/// When it is asked a third time, answers the second question before the first, and the third.
CountingActor::behavior_type slow(CountingActor::stateful_pointer<Counts> self) {
  return {[self](const GetStats&) {
    auto& waiting = state_of(self).waiting;
    auto promise = self->make_response_promise<EngineStats>();
    waiting.push_back(promise);
    if (waiting.size() == 3) {
      for (const std::size_t question : {1, 0, 2}) deliver(waiting[question], stats_of(0));
    }
    return promise;
  }};
}

struct Heard {
  std::vector<std::int64_t> each;  ///< steps of the fast actor's answers, as they came
  std::vector<std::int64_t> all;   ///< the same, as the gathered answers came
  std::promise<void> done;
};

TEST(Gather, TakesTheAnswersOfEachActorInTheirOrder) {
#ifdef CAF_VERSION_MAJOR
  caf::init_global_meta_objects<caf::id_block::pagoda>();
  caf::core::init_global_meta_objects();
#endif
  caf::actor_system_config config;
  configure_pool(config, 2);
  caf::actor_system system(config);
  const auto heard = std::make_shared<Heard>();
  const std::vector<OfReplica<CountingActor>> actors{{0, system.spawn(fast)}, {1, system.spawn(slow)}};
  const auto ask_twice = [heard, actors](caf::event_based_actor* self) {
    for (int i = 0; i < 2; ++i) {
      gather<EngineStats>(
          self, actors, GetStats{},
          [heard](std::vector<OfReplica<EngineStats>>& answers) {
            heard->all.push_back(answers.at(0).value.steps_total);
            if (heard->all.size() == 2) heard->done.set_value();
          },
          [](caf::error&) { FAIL(); },
          [heard, actors](ReplicaId replica, const EngineStats& stats) {
            if (replica == 0) heard->each.push_back(stats.steps_total);
            if (replica == 0 && heard->each.size() == 2) send_anonymously(actors.at(1).value, GetStats{});
          });
    }
  };
  system.spawn(ask_twice);
  heard->done.get_future().wait();
  EXPECT_EQ(heard->all, (std::vector<std::int64_t>{2, 1})) << "the slow actor turns the order round";
  EXPECT_EQ(heard->each, (std::vector<std::int64_t>{1, 2}));
  for (const auto& actor : actors) caf::anon_send_exit(actor.value, caf::exit_reason::user_shutdown);
}

}  // namespace
}  // namespace pagoda::actors
