#include "engine/scheduling/mask_threads.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/grammar/grammar_text.hpp"
#include "tests/engine/scheduling/mask_jobs.hpp"

namespace pagoda::scheduling {
namespace {

constexpr const char* kHostile = "(.{0,40}[aeiou]){2,10}[x-z]{0,30}";

MaskJob job_of(RequestId request, const char* user, const char* regex) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = request;
  spec->user = user;
  spec->prompt = std::make_shared<const TokenIds>(TokenIds{1});
  spec->grammar = test::word_compiler()->compile(test::regex(regex)).value();
  SchedulerConfig config;
  config.vocab_size = test::kWordVocab;
  config.eos_token_ids = {test::kWordEnd};
  MaskJob job;
  job.request = request;
  job.sequence = request;
  job.masks = std::make_shared<RequestMasks>(std::move(spec), config);
  job.begins_anew = true;
  job.tokens = {'b', 'c', 'a', 'd'};
  return job;
}

MadeMask made_at_once(const char* regex) {
  std::vector<MaskJob> jobs;
  jobs.push_back(job_of(1, "", regex));
  return std::move(test::run_all(std::move(jobs)).front());
}

TEST(MaskQueues, ServeUsersAndThenRequestsByTheirWork) {
  MaskQueue queue;
  const MaskQueue::Time now(std::chrono::hours(1));
  const auto pop = [&] {
    const auto job = queue.pop({});
    return job ? job->request : 0;
  };
  for (RequestId id = 1; id <= 3; ++id) queue.push(job_of(id, "hostile", "a"));
  const auto first = queue.pop({});
  ASSERT_EQ(first->request, 1U);
  queue.charge(*first, 1000, now);
  queue.push(job_of(1, "hostile", "a"));
  queue.push(job_of(9, "honest", "a"));
  EXPECT_EQ(pop(), 9U);
  EXPECT_EQ(pop(), 2U);
  EXPECT_EQ(pop(), 3U);
  EXPECT_EQ(pop(), 1U) << "its request has taken more than the others of the user";
  EXPECT_EQ(pop(), 0U);
}

TEST(MaskQueues, ForgetWhatUsersTookLongAgo) {
  MaskQueue queue;
  MaskQueue::Time now(std::chrono::hours(1));
  const MaskJob a = job_of(1, "a", "a");
  const MaskJob b = job_of(2, "b", "a");
  queue.charge(a, 1'000'000, now);
  for (int second = 0; second < 40; ++second) queue.charge(b, 1'000, now += std::chrono::seconds(1));
  queue.push(job_of(2, "b", "a"));
  queue.push(job_of(1, "a", "a"));
  EXPECT_EQ(queue.pop({})->request, 1U);
}

TEST(MaskQueues, PassOverGrammarsThatAreInUse) {
  MaskQueue queue;
  MaskJob job = job_of(1, "a", "a");
  const void* const key = job.key();
  queue.push(std::move(job));
  queue.push(job_of(2, "b", "b"));
  EXPECT_EQ(queue.pop({key})->request, 2U);
  EXPECT_FALSE(queue.pop({key}));
  EXPECT_EQ(queue.pop({})->request, 1U);
}

TEST(MaskJobs, MakeTheSameMaskWhateverTheirTurnsAre) {
  const MadeMask whole = made_at_once(kHostile);
  for (const std::uint64_t turn : {50U, 300U}) {
    MaskJob job = job_of(1, "", kHostile);
    int num_turns = 1;
    for (std::uint64_t work = turn; !job.run(work); work = turn) ASSERT_LT(++num_turns, 100'000);
    EXPECT_GT(num_turns, 2) << "the mask must take long";
    EXPECT_EQ(job.made.words, whole.words);
    EXPECT_EQ(job.made.num_tokens, 4U);
  }
}

/// Collects the answers of threads.
class Answers {
 public:
  explicit Answers(MaskThreadsConfig config)
      : threads_(config, [this] {
          const std::lock_guard lock(mutex_);
          is_notified_ = true;
          wakes_.notify_all();
        }) {}

  void submit(std::vector<MaskJob> jobs, std::chrono::microseconds wait = std::chrono::milliseconds(100)) {
    threads_.submit(std::move(jobs), wait);
  }
  /// Waits for `count` more answers.
  std::vector<MaskAnswer> next(std::size_t count) {
    std::vector<MaskAnswer> all;
    while (all.size() < count) {
      {
        std::unique_lock lock(mutex_);
        wakes_.wait(lock, [&] { return is_notified_; });
        is_notified_ = false;
      }
      for (MaskAnswer& answer : threads_.take_answers()) all.push_back(std::move(answer));
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool is_notified_ = false;
  MaskThreads threads_;
};

TEST(MaskThreads, SayWhichJobsTakeLongAndMakeThemAllTheSame) {
  Answers answers({.num_threads = 1, .max_work_per_turn = 200});
  std::vector<MaskJob> jobs;
  jobs.push_back(job_of(1, "a", kHostile));
  jobs.push_back(job_of(2, "a", "[a-d]{4}ef"));
  answers.submit(std::move(jobs));
  const auto all = answers.next(3);
  ASSERT_EQ(all.size(), 3U);
  std::vector<RequestId> made;
  std::vector<RequestId> late;
  for (const MaskAnswer& answer : all) {
    EXPECT_FALSE(answer.error);
    (answer.made ? made : late).push_back(answer.request);
    if (answer.made && answer.request == 1) {
      EXPECT_EQ(answer.made->words, made_at_once(kHostile).words);
    }
  }
  EXPECT_EQ(late, std::vector<RequestId>{1});
  EXPECT_EQ(made.size(), 2U);
}

TEST(MaskThreads, AnotherUsersMaskComesBehindOneHostileGrammarAtMost) {
  Answers answers({.num_threads = 1, .max_work_per_turn = 200});
  std::vector<MaskJob> jobs;
  for (RequestId id = 1; id <= 60; ++id) jobs.push_back(job_of(id, "hostile", kHostile));
  jobs.push_back(job_of(100, "other", "[a-d]{4}ef"));
  answers.submit(std::move(jobs));
  const auto all = answers.next(121);
  std::size_t num_before = 0;  // number of hostile jobs answered first
  for (const MaskAnswer& answer : all) {
    if (answer.request == 100) break;
    num_before += answer.made ? 0 : 1;
  }
  EXPECT_LE(num_before, 1U);
}

TEST(MaskThreads, HurryNoLongerThanTheStepWaits) {
  const auto late_of = [](std::chrono::microseconds wait) {
    Answers answers({.num_threads = 1, .max_work_per_turn = 100'000});
    std::vector<MaskJob> jobs;
    for (RequestId id = 1; id <= 20; ++id) jobs.push_back(job_of(id, "a", kHostile));
    answers.submit(std::move(jobs), wait);
    std::size_t num_made = 0;
    std::size_t num_late = 0;
    while (num_made < 20) {
      for (const MaskAnswer& answer : answers.next(1)) ++(answer.made ? num_made : num_late);
    }
    return num_late;
  };
  EXPECT_EQ(late_of(std::chrono::seconds(1)), 0U);
  EXPECT_EQ(late_of(std::chrono::microseconds(0)), 20U);
  const std::size_t some = late_of(std::chrono::microseconds(50));
  EXPECT_GT(some, 0U);
  EXPECT_LT(some, 20U);
}

TEST(MaskThreads, LeaveOutJobsOfRequestsThatHaveEnded) {
  Answers answers({.num_threads = 1});
  std::vector<MaskJob> jobs;
  jobs.push_back(job_of(1, "a", "a"));
  jobs.front().masks->forget();
  jobs.push_back(job_of(2, "a", "[a-d]{4}"));
  answers.submit(std::move(jobs));
  const auto all = answers.next(1);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all.front().request, 2U);
}

TEST(MaskThreads, PassOnAnExceptionOfAnyType) {
  std::promise<void> failed;
  std::atomic<bool> is_first = true;
  MaskThreads threads({.num_threads = 1}, [&] {
    if (is_first.exchange(false)) throw 7;
    failed.set_value();
  });
  std::vector<MaskJob> jobs;
  jobs.push_back(job_of(1, "a", "[a-d]{4}"));
  threads.submit(std::move(jobs), std::chrono::milliseconds(100));
  failed.get_future().wait();
  EXPECT_THROW(threads.take_answers(), int);
}

}  // namespace
}  // namespace pagoda::scheduling
