#include "engine/adapters/adapter_store_core.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::adapters {
namespace {

const Error kBroken{ErrorCode::bad_file, "the file is broken"};

/// A store whose owner keeps the work that it has to do.
class AdapterStoreTest : public testing::Test {
 protected:
  explicit AdapterStoreTest(std::size_t max_loaded = 2) : store_(max_loaded) {}

  /// Adds adapters and loads them.
  void add(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      run(store_.add(next_ticket_++, name, "/adapters/" + name));
      end_all();
    }
  }
  TicketId acquire(const std::string& name) {
    const TicketId ticket = next_ticket_++;
    run(store_.acquire(ticket, name));
    return ticket;
  }
  TicketId remove(const std::string& name) {
    const TicketId ticket = next_ticket_++;
    run(store_.remove(ticket, name));
    return ticket;
  }
  void run(AdapterStoreCore::Effects effects) {
    for (const AdapterId id : effects.unloads) names_.erase(id);
    for (auto& load : effects.loads) loads_.push_back(std::move(load));
    for (auto& answer : effects.answers) {
      EXPECT_TRUE(answers_.emplace(answer.ticket, answer.adapter).second) << "a question is answered twice";
    }
  }
  void end_load(const Result<AdapterFacts>& loaded = {}) {
    const auto load = loads_.front();
    loads_.erase(loads_.begin());
    if (loaded) names_[load.id] = load.name;
    run(store_.load_ended(load.id, loaded));
  }
  void end_all() {
    while (!loads_.empty()) end_load();
  }
  bool is_answered(TicketId ticket) const { return answers_.contains(ticket); }
  AdapterId id_of(TicketId ticket) const { return answers_.at(ticket)->id; }

  AdapterStoreCore store_;
  TicketId next_ticket_ = 1;
  std::vector<AdapterRef> loads_;
  std::map<TicketId, Result<AdapterRef>> answers_;
  std::map<AdapterId, std::string> names_;  // of loaded adapters
};

TEST_F(AdapterStoreTest, ALoadedAdapterIsAnsweredAtOnce) {
  add({"sql"});
  const TicketId first = acquire("sql");
  const TicketId second = acquire("sql");
  ASSERT_TRUE(is_answered(first) && is_answered(second));
  EXPECT_EQ(id_of(first), id_of(second));
  EXPECT_EQ(answers_.at(first)->name, "sql");
  EXPECT_EQ(answers_.at(first)->path, "/adapters/sql");
  EXPECT_EQ(store_.holders(), (std::map<std::string, std::int64_t>{{"sql", 2}}));
}

TEST_F(AdapterStoreTest, FactsAreThoseOfTheFirstLoadAndGoWithEachOne) {
  run(store_.add(next_ticket_++, "tone", "/adapters/tone"));
  const TicketId waiting = next_ticket_++;
  EXPECT_EQ(loads_.front().facts, AdapterFacts());
  const AdapterFacts facts{.fingerprint = 77, .num_virtual_tokens = 12};
  end_load(facts);
  run(store_.acquire(waiting, "tone"));
  EXPECT_EQ(answers_.at(waiting)->facts, facts);
  EXPECT_EQ(answers_.at(acquire("tone"))->facts, facts);
  run(store_.release(id_of(waiting)));
  run(store_.release(id_of(waiting)));
  add({"a", "b"});
  EXPECT_FALSE(store_.is_loaded("tone"));
  acquire("tone");
  ASSERT_EQ(loads_.size(), 1U);
  EXPECT_EQ(loads_.front().facts, facts) << "devices check that the files are the same";
}

TEST_F(AdapterStoreTest, OneThatStaysIsLoadedAgainForEachRequestThatNamesIt) {
  const TicketId added = next_ticket_++;
  run(store_.add(added, "tone", "/adapters/tone", /*stays_if_broken=*/true));
  end_load(tl::unexpected(kBroken));
  EXPECT_FALSE(answers_.at(added));
  for (int time = 0; time < 2; ++time) {
    ASSERT_TRUE(store_.knows("tone"));
    const TicketId refused = acquire("tone");
    end_load(tl::unexpected(kBroken));
    EXPECT_EQ(answers_.at(refused).error().message, kBroken.message);
  }
  const TicketId waits = acquire("tone");
  end_load(AdapterFacts{.fingerprint = 3});
  EXPECT_EQ(answers_.at(waits)->facts.fingerprint, 3U);
}

TEST_F(AdapterStoreTest, ABrokenLoadStaysWithItsRequestsAndLaterOnesLoadAgain) {
  add({"sql"});
  const TicketId first = acquire("sql");
  const TicketId second = acquire("sql");
  const AdapterId id = id_of(first);
  run(store_.broken(id));
  run(store_.broken(id));  // the other request has met it too
  EXPECT_FALSE(store_.is_loaded("sql"));
  const TicketId third = acquire("sql");
  end_all();
  ASSERT_TRUE(is_answered(third));
  EXPECT_NE(id_of(third), id);
  EXPECT_EQ(store_.num_loaded(), 2U) << "the broken load keeps its room";
  EXPECT_EQ(store_.holders(), (std::map<std::string, std::int64_t>{{"sql", 3}}));
  run(store_.release(id));
  EXPECT_TRUE(names_.contains(id));
  const TicketId removal = remove("sql");
  run(store_.release(id_of(third)));
  EXPECT_FALSE(is_answered(removal)) << "a request has the broken load";
  run(store_.release(id_of(second)));
  EXPECT_TRUE(is_answered(removal));
  EXPECT_TRUE(names_.empty());
  EXPECT_EQ(store_.num_loaded(), 0U);
}

TEST_F(AdapterStoreTest, AnUnknownNameIsRefusedWithTheKnownNames) {
  add({"sql", "chat"});
  const auto& answer = answers_.at(acquire("sq1"));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::unknown_adapter);
  EXPECT_EQ(answer.error().message, "there is no adapter \"sq1\"; the adapters are: chat, sql");
}

TEST_F(AdapterStoreTest, TheLeastRecentlyUsedAdapterWithoutRequestsMakesRoom) {
  add({"a", "b"});
  const AdapterId a = id_of(acquire("a"));
  const AdapterId b = id_of(acquire("b"));
  run(store_.release(a));
  run(store_.release(b));
  add({"c"});
  EXPECT_EQ(store_.counts().evictions, 1);
  EXPECT_FALSE(names_.contains(a));
  EXPECT_TRUE(names_.contains(b));
  const TicketId again = acquire("a");
  EXPECT_FALSE(is_answered(again));
  end_all();
  EXPECT_NE(id_of(again), a) << "an id is never used again";
}

TEST_F(AdapterStoreTest, AnAdapterInUseIsNeverUnloaded) {
  add({"a", "b", "c"});
  const AdapterId b = id_of(acquire("b"));
  const AdapterId c = id_of(acquire("c"));
  const TicketId waits = acquire("a");
  end_all();
  EXPECT_FALSE(is_answered(waits));
  EXPECT_TRUE(names_.contains(b) && names_.contains(c));
  run(store_.release(c));
  end_all();
  EXPECT_TRUE(is_answered(waits));
  EXPECT_TRUE(names_.contains(b));
}

TEST_F(AdapterStoreTest, OverlappingRequestsForLoadedAdaptersDoNotKeepOthersOut) {
  add({"a", "b", "c"});
  std::vector<TicketId> of_a{acquire("a")};
  std::vector<TicketId> of_b{acquire("b")};
  end_all();
  const TicketId waits = acquire("c");
  EXPECT_FALSE(is_answered(waits));
  for (int i = 0; i < 10 && !is_answered(waits); ++i) {  // the next request comes before the last one ends
    for (auto* of : {&of_a, &of_b}) {
      of->push_back(acquire(of == &of_a ? "a" : "b"));
      const TicketId last = of->at(of->size() - 2);
      if (is_answered(last)) run(store_.release(id_of(last)));
      end_all();
    }
  }
  ASSERT_TRUE(is_answered(waits));
  run(store_.release(id_of(waits)));
  end_all();
  EXPECT_TRUE(is_answered(of_a.back()) || is_answered(of_b.back()));
  for (const TicketId ticket : of_a) {
    if (!is_answered(ticket)) run(store_.withdraw(ticket));
  }
  for (const TicketId ticket : of_b) {
    if (!is_answered(ticket)) run(store_.withdraw(ticket));
  }
  end_all();
}

TEST_F(AdapterStoreTest, AnAdapterThatWasToLeaveStaysIfAnotherLeaves) {
  add({"a", "b"});
  const TicketId a = acquire("a");
  const TicketId b = acquire("b");
  add({"c"});  // waits for room: "a" is to leave
  const TicketId behind = acquire("a");
  EXPECT_FALSE(is_answered(behind));
  run(store_.release(id_of(b)));
  end_all();
  ASSERT_TRUE(is_answered(behind));
  EXPECT_EQ(id_of(behind), id_of(a));
}

TEST_F(AdapterStoreTest, RequestsGetRoomInTheirOrder) {
  add({"a", "b", "c", "d"});
  const AdapterId first = id_of(acquire("c"));
  const AdapterId second = id_of(acquire("d"));
  const TicketId a = acquire("a");
  const TicketId b = acquire("b");
  run(store_.release(second));
  end_all();
  EXPECT_TRUE(is_answered(a));
  EXPECT_FALSE(is_answered(b));
  run(store_.release(first));
  end_all();
  EXPECT_TRUE(is_answered(b));
}

TEST_F(AdapterStoreTest, AWithdrawnQuestionIsNotAnsweredAndHoldsNothing) {
  add({"a", "b", "c"});
  acquire("b");
  const AdapterId c = id_of(acquire("c"));
  const TicketId a = acquire("a");
  run(store_.withdraw(a));
  run(store_.release(c));
  end_all();
  EXPECT_FALSE(is_answered(a));
  EXPECT_TRUE(names_.contains(c)) << "no request waits for its room";
}

TEST_F(AdapterStoreTest, AFailedLoadIsTheAnswerOfAllThatWait) {
  add({"a", "b", "c"});
  const TicketId first = acquire("a");
  const TicketId second = acquire("a");
  end_load(tl::unexpected(kBroken));
  EXPECT_EQ(answers_.at(first).error().message, kBroken.message);
  EXPECT_EQ(answers_.at(second).error().message, kBroken.message);
  EXPECT_TRUE(store_.knows("a")) << "the file may be there again later";
  const TicketId third = acquire("a");
  end_all();
  EXPECT_TRUE(answers_.at(third));
}

TEST_F(AdapterStoreTest, AnAdapterWhoseFirstLoadFailsIsNotAdded) {
  const TicketId ticket = next_ticket_++;
  run(store_.add(ticket, "a", "/a"));
  EXPECT_FALSE(store_.knows("a")) << "requests cannot name it before it is loaded";
  end_load(tl::unexpected(kBroken));
  EXPECT_FALSE(answers_.at(ticket));
  EXPECT_FALSE(store_.knows("a"));
  add({"a"});
  EXPECT_TRUE(store_.knows("a"));
}

TEST_F(AdapterStoreTest, ANameIsAddedOnce) {
  add({"a"});
  const TicketId ticket = next_ticket_++;
  run(store_.add(ticket, "a", "/other"));
  EXPECT_EQ(answers_.at(ticket).error().message, "the adapter \"a\" is loaded already");
}

TEST_F(AdapterStoreTest, RemovalWaitsForTheRequestsOfTheAdapter) {
  add({"a"});
  const AdapterId id = id_of(acquire("a"));
  const TicketId removal = remove("a");
  EXPECT_FALSE(is_answered(removal));
  EXPECT_FALSE(answers_.at(acquire("a"))) << "no further request may name it";
  EXPECT_TRUE(names_.contains(id));
  EXPECT_TRUE(store_.known().empty());
  run(store_.release(id));
  EXPECT_TRUE(answers_.at(removal));
  EXPECT_FALSE(names_.contains(id)) << "it is unloaded";
  EXPECT_EQ(store_.num_loaded(), 0U);
}

TEST_F(AdapterStoreTest, RemovalLetsRequestsRunThatWaitForTheAdapter) {
  add({"a", "b", "c"});
  const TicketId waits = acquire("a");
  const TicketId removal = remove("a");
  end_all();
  ASSERT_TRUE(answers_.at(waits));
  EXPECT_FALSE(is_answered(removal));
  run(store_.release(id_of(waits)));
  end_all();
  EXPECT_TRUE(is_answered(removal));
}

/// Random questions, answers and failures. The store must keep to its limit, never unload an adapter that a request
/// holds, and answer every question exactly once; a request must hold the adapter that it named.
TEST(AdapterStoreCore, EveryOrderOfEventsKeepsItsPromises) {
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
    const std::size_t max_loaded = 1 + below(4);
    AdapterStoreCore store(max_loaded);
    struct Question {
      char kind = ' ';
      std::string name;
    };
    std::map<TicketId, Question> open;
    std::vector<AdapterRef> loads;
    std::map<AdapterId, std::string> present;  // loaded, or being loaded
    std::vector<AdapterId> held;
    std::set<AdapterId> broken;
    TicketId next_ticket = 1;
    AdapterId last_id = 0;
    const auto run = [&](AdapterStoreCore::Effects effects) {
      for (const AdapterId id : effects.unloads) {
        EXPECT_EQ(std::ranges::count(held, id), 0) << "an adapter in use is unloaded";
        EXPECT_TRUE(std::ranges::none_of(loads, [&](const auto& load) { return load.id == id; }));
        EXPECT_EQ(present.erase(id), 1U) << "an adapter is unloaded that is not loaded";
      }
      for (auto& load : effects.loads) {
        EXPECT_GT(load.id, last_id) << "an id is used again";
        last_id = load.id;
        present.emplace(load.id, load.name);
        loads.push_back(std::move(load));
      }
      for (const auto& [ticket, adapter] : effects.answers) {
        const auto question = open.extract(ticket);
        ASSERT_TRUE(question) << "seed " << seed << ": an answer without a question";
        if (question.mapped().kind != 'a' || !adapter) continue;
        ASSERT_TRUE(present.contains(adapter->id)) << "a request gets an adapter that is not loaded";
        EXPECT_EQ(present.at(adapter->id), question.mapped().name) << "a request has another adapter";
        EXPECT_TRUE(std::ranges::none_of(loads, [&](const auto& load) { return load.id == adapter->id; }));
        EXPECT_FALSE(broken.contains(adapter->id));
        held.push_back(adapter->id);
      }
      EXPECT_LE(present.size(), max_loaded);
    };
    const auto end_one = [&] {
      if (loads.empty()) return;
      const AdapterId id = loads.front().id;
      loads.erase(loads.begin());
      const bool fails = below(4) == 0;
      if (fails) present.erase(id);
      run(store.load_ended(id, fails ? Result<AdapterFacts>(tl::unexpected(kBroken)) : AdapterFacts()));
    };
    for (int event = 0; event < 120; ++event) {
      const std::string name(1, static_cast<char>('a' + below(6)));
      switch (below(9)) {
        case 0:
          open[next_ticket] = {'+', name};
          run(store.add(next_ticket++, name, name));
          break;
        case 1:
          open[next_ticket] = {'-', name};
          run(store.remove(next_ticket++, name));
          break;
        case 2:
        case 3:
          open[next_ticket] = {'a', name};
          run(store.acquire(next_ticket++, name));
          break;
        case 4:
          if (!open.empty() && open.begin()->second.kind == 'a' && below(3) == 0) {
            const TicketId ticket = open.begin()->first;
            open.erase(open.begin());
            run(store.withdraw(ticket));
          }
          break;
        case 5:
          if (!held.empty()) {
            const auto at = held.begin() + static_cast<std::ptrdiff_t>(below(held.size()));
            const AdapterId id = *at;
            held.erase(at);
            run(store.release(id));
          }
          break;
        case 6:
          if (!held.empty() && below(4) == 0) {
            const AdapterId id = held[below(held.size())];
            run(store.broken(id));
            broken.insert(id);
          }
          break;
        default:
          end_one();
      }
    }
    while (!held.empty() || !loads.empty()) {
      end_one();
      if (held.empty()) continue;
      const AdapterId id = held.back();
      held.pop_back();
      run(store.release(id));
    }
    EXPECT_TRUE(open.empty()) << "seed " << seed << ": " << open.size() << " questions are never answered";
    EXPECT_EQ(store.num_loaded(), present.size());
    EXPECT_TRUE(store.holders().empty());
  }
}

}  // namespace
}  // namespace pagoda::adapters
