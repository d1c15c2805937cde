#include "engine/journal/resumable_requests.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/journal/recorded_output.hpp"
#include "tests/engine/journal/simulated_requests.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::journal {
namespace {

using output::OutputCore;
using test::demo_tokenizer;
using test::MemoryJournal;

/// Requests of all kinds whose tokens a seed decides. A recorded output core delivers them.
class Requests {
 public:
  Requests(std::uint64_t seed, const std::shared_ptr<MemoryJournal>& journal)
      : random_(seed), journal_(journal), output_(demo_tokenizer(), journal) {}

  /// Opens a request.
  void open(RequestId id) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = id;
    spec->prompt = std::make_shared<const TokenIds>(*demo_tokenizer()->encode("Once upon", false));
    SamplingParams& sampling = spec->sampling;
    sampling.max_tokens = 5 + below(40);
    sampling.n = 1 + below(3);
    if (below(3) == 0) sampling.best_of = sampling.n + below(2);
    if (below(3) == 0) sampling.logprobs = 2;
    if (below(4) == 0) sampling.prompt_logprobs = 1;
    if (below(3) == 0) sampling.stop = {"a", "the"};
    if (below(4) == 0) sampling.min_tokens = 4;
    if (below(3) == 0) sampling.stream_interval = 1 + below(6);
    if (below(5) > 0) spec->resume = std::make_shared<ResumeNote>(ResumeNote{"note " + std::to_string(id), 60'000});
    ASSERT_TRUE(output_.open(spec));
    live_.emplace(id, Live{spec, std::vector<std::int64_t>(static_cast<std::size_t>(sampling.num_sequences()), 0)});
  }

  /// Makes a step with one token for each running sequence, or now and then an abort or an error.
  void step() {
    journal_->begin_segment_if_full();
    StepOutputs step;
    for (auto& [id, live] : live_) {
      if (below(150) == 0) step.ends.push_back({id, std::nullopt});
      if (below(150) == 0) step.ends.push_back({id, Error{ErrorCode::internal, "it failed"}});
      if (live.spec->sampling.prompt_logprobs && live.num_tokens.front() == 0) {
        step.prompt_logprobs.push_back({id, {live.spec->prompt->size() - 1, report()}});
      }
      for (std::size_t i = 0; i < live.num_tokens.size(); ++i) {
        if (live.num_tokens[i] < 0) continue;
        SequenceOutput& output = step.outputs.emplace_back();
        output.request = id;
        output.sequence_index = static_cast<std::int32_t>(i);
        output.token = report();
        if (++live.num_tokens[i] == live.spec->sampling.max_tokens) {
          output.finished = FinishReason::length;
        } else if (below(60) == 0) {
          output.finished = FinishReason::stop;
        }
        if (output.finished) live.num_tokens[i] = -1;
      }
    }
    now_ += 1000;
    take(output_.process(step, now_));
  }

  const OutputCore& core() const { return output_.core(); }
  bool is_idle() const { return live_.empty(); }
  /// The outputs of a request that were delivered.
  struct Received {
    std::map<std::int32_t, std::vector<SequenceDelta>> deltas;  ///< by sequence
    std::optional<RequestResult> done;
    std::optional<Error> error;
  };
  const Received& received(RequestId id) { return received_[id]; }
  std::int64_t below(std::uint64_t count) { return static_cast<std::int64_t>(random_() % count); }

 private:
  struct Live {
    SharedSpec spec;
    std::vector<std::int64_t> num_tokens;  ///< number of tokens of each sequence; -1: it has ended
  };

  TokenReport report() {
    const auto token = [&] { return static_cast<TokenId>(below(500)); };
    return {token(), -static_cast<float>(below(8)), 1, {{token(), -1.0F}, {token(), -2.0F}}};
  }

  void take(OutputCore::Effects effects) {
    for (const StopHit& hit : effects.stop_hits) {
      if (const auto live = live_.find(hit.request); live != live_.end()) {
        live->second.num_tokens[static_cast<std::size_t>(hit.sequence_index)] = -1;
      }
    }
    for (RequestOutput& output : effects.outputs) {
      Received& received = received_[output.request_id];
      for (auto& delta : output.deltas) received.deltas[delta.index].push_back(std::move(delta));
      if (output.done || output.error) live_.erase(output.request_id);
      received.done = std::move(output.done);
      received.error = std::move(output.error);
    }
  }

  std::mt19937_64 random_;
  std::shared_ptr<MemoryJournal> journal_;
  RecordedOutput output_;
  std::map<RequestId, Live> live_;
  std::map<RequestId, Received> received_;
  TimeUs now_ = 1000;
};

bool is_aborted(const RequestProgress& progress) {
  return std::ranges::any_of(progress.sequences, [](const auto& sequence) {
    return sequence.ended && sequence.result.finish_reason == FinishReason::abort;
  });
}
bool is_aborted(const RequestResult& result) {
  return std::ranges::any_of(result.outputs,
                             [](const auto& output) { return output.finish_reason == FinishReason::abort; });
}

std::vector<OutputCore::Resumable> read(const std::vector<MemoryJournal::Segment>& segments) {
  ResumableRequests reader(demo_tokenizer());
  for (const auto& segment : segments) {
    for (const auto& record : segment) reader.record(record);
  }
  EXPECT_EQ(reader.num_damaged(), 0);
  return reader.take();
}

std::vector<std::byte> bytes_of(const std::vector<OutputCore::Resumable>& requests) {
  std::vector<std::byte> bytes;
  Encoder out(bytes);
  for (const auto& request : requests) {
    out.put(request.spec);
    out.put(request.spec->resume);
    out.put(request.progress);
  }
  return bytes;
}

TEST(ResumableRequests, AreThoseThatTheCoreHadFromWhateverSegmentOn) {
  std::size_t num_live = 0;
  std::size_t num_ended = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto journal = std::make_shared<MemoryJournal>(10);
    Requests requests(seed, journal);
    for (RequestId id = 1; id < 40; ++id) {
      requests.open(id);
      for (std::int64_t steps = requests.below(4); steps >= 0; --steps) requests.step();
    }
    const auto expected = requests.core().resumable();
    for (const auto& request : expected) ++(request.progress->has_ended() ? num_ended : num_live);
    const auto segments = journal->segments();
    ASSERT_GT(segments.size(), 3U);
    for (std::size_t first = 0; first < segments.size(); ++first) {
      const std::vector<MemoryJournal::Segment> part(segments.begin() + static_cast<std::ptrdiff_t>(first),
                                                     segments.end());
      EXPECT_EQ(bytes_of(read(part)), bytes_of(expected)) << "seed " << seed << ", from segment " << first;
    }
  }
  EXPECT_GT(num_live, 50U);
  EXPECT_GT(num_ended, 100U);
}

TEST(ResumableRequests, WhereRecordsAreMissingGoOnFromBeforeThemAndLaterOnesAreFollowed) {
  constexpr RequestId kFirstLost = 13;
  constexpr RequestId kFirstBehind = 16;
  std::size_t num_before = 0;
  std::size_t num_behind = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto journal = std::make_shared<MemoryJournal>(1'000'000);
    Requests requests(seed, journal);
    const auto open = [&](RequestId first, RequestId end) {
      for (RequestId id = first; id < end; ++id) {
        requests.open(id);
        for (std::int64_t steps = requests.below(4); steps >= 0; --steps) requests.step();
      }
      return journal->segments().front().size();
    };
    const std::size_t gap = open(1, kFirstLost);
    auto expected = requests.core().resumable();
    num_before += expected.size();
    const std::size_t behind = open(kFirstLost, kFirstBehind);
    open(kFirstBehind, 28);
    for (const auto& request : requests.core().resumable()) {
      if (request.spec->id < kFirstBehind) continue;
      expected.push_back(request);
      ++num_behind;
    }
    ResumableRequests reader(demo_tokenizer());
    const auto records = journal->segments().front();
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (i == gap) reader.on_gap();
      if (i < gap || i >= behind) reader.record(records[i]);
    }
    EXPECT_EQ(reader.num_damaged(), 0);
    EXPECT_EQ(bytes_of(reader.take()), bytes_of(expected)) << "seed " << seed;
  }
  EXPECT_GT(num_before, 100U);
  EXPECT_GT(num_behind, 100U);
}

TEST(ResumableRequests, AStateBehindMissingRecordsTellsAllThatIsLive) {
  const auto journal = std::make_shared<MemoryJournal>(10);
  Requests requests(3, journal);
  for (RequestId id = 1; id < 12; ++id) {
    requests.open(id);
    requests.step();
  }
  const auto segments = journal->segments();
  ASSERT_GT(segments.size(), 3U);
  ResumableRequests reader(demo_tokenizer());
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (s + 2 == segments.size()) continue;
    if (s + 1 == segments.size()) reader.on_gap();
    for (const auto& record : segments[s]) reader.record(record);
  }
  EXPECT_EQ(bytes_of(reader.take()), bytes_of(requests.core().resumable()));
}

TEST(ResumableRequests, WhatTheyHadToldIsTheBeginningOfAllThatIsTold) {
  std::int64_t num_compared = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const auto journal = std::make_shared<MemoryJournal>(1000);
    Requests requests(seed, journal);
    for (RequestId id = 1; id < 10; ++id) requests.open(id);
    for (std::int64_t steps = requests.below(30); steps > 0; --steps) requests.step();
    const auto resumable = requests.core().resumable();
    while (!requests.is_idle()) requests.step();
    for (const auto& request : resumable) {
      const auto id = request.spec->id;
      // Tokens of a failed step were not delivered. The text after an aborted step came with it or alone.
      if (request.progress->error || is_aborted(*request.progress)) continue;
      std::map<std::int32_t, std::size_t> next;
      for (const SequenceDelta& delta : sent_deltas(demo_tokenizer(), *request.spec, *request.progress)) {
        const auto& all = requests.received(id).deltas.at(delta.index);
        ASSERT_LT(next[delta.index], all.size());
        EXPECT_EQ(encode(delta), encode(all[next[delta.index]++])) << "request " << id << ", seed " << seed;
        ++num_compared;
      }
      if (request.spec->sampling.chooses_at_end()) continue;
      for (const auto& [result, ended] : request.progress->sequences) {
        const auto interval = static_cast<std::size_t>(request.spec->sampling.stream_interval.value_or(1));
        const std::size_t num_tokens = result.token_ids.size();
        const std::size_t num_behind_first = num_tokens == 0 ? 0 : num_tokens - 1 + (ended ? interval - 1 : 0);
        EXPECT_EQ(next[result.index], num_tokens == 0 ? 0 : 1 + num_behind_first / interval);
      }
    }
  }
  EXPECT_GT(num_compared, 1000);
}

TEST(ResumableRequests, ACoreThatGoesOnTellsTheRestAndTheSameEnd) {
  int num_compared = 0;
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    const auto journal = std::make_shared<MemoryJournal>(1000);
    Requests requests(seed, journal);
    for (RequestId id = 1; id < 10; ++id) requests.open(id);
    for (std::int64_t steps = requests.below(30); steps > 0; --steps) requests.step();
    const auto resumable = requests.core().resumable();
    while (!requests.is_idle()) requests.step();
    for (const auto& request : resumable) {
      const auto& whole = requests.received(request.spec->id);
      if (!whole.done || is_aborted(*whole.done)) continue;
      OutputCore core(demo_tokenizer());
      const auto spec = with_progress(*request.spec, request.progress);
      ASSERT_TRUE(is_valid(spec));
      ASSERT_TRUE(core.open(spec));
      std::map<std::int32_t, std::vector<SequenceDelta>> deltas;
      for (auto& delta : sent_deltas(demo_tokenizer(), *spec, *request.progress)) deltas[delta.index].push_back(delta);
      std::optional<RequestResult> done;
      const auto take = [&](OutputCore::Effects effects) {
        for (auto& output : effects.outputs) {
          for (auto& delta : output.deltas) deltas[delta.index].push_back(delta);
          if (output.done) done = std::move(output.done);
        }
      };
      const SamplingParams& sampling = request.spec->sampling;
      // Deliveries lack the tokens' order, or their log-probabilities, which rank the outputs.
      if (sampling.chooses_at_end() || (sampling.ranks_outputs() && !sampling.logprobs)) continue;
      // The deliveries of the whole run show which tokens are still to come.
      for (std::size_t i = 0; !done && i < 100; ++i) {
        StepOutputs step;
        for (const auto& before : request.progress->sequences) {
          const std::int32_t index = before.result.index;
          const auto& outputs = whole.done->outputs;
          const auto result = std::ranges::find(outputs, index, &SequenceResult::index);
          const std::size_t at = before.result.token_ids.size() + i;
          if (before.ended || at >= result->token_ids.size()) continue;
          SequenceOutput& output = step.outputs.emplace_back();
          output.request = spec->id;
          output.sequence_index = index;
          output.token = TokenReport{result->token_ids[at], 0, 0, {}};
          if (result->logprobs) {
            const LogprobEntry entry = (*result->logprobs)[at];
            *output.token = {entry.token_id, entry.logprob, entry.rank, {}};
            for (const auto& top : entry.top) output.token->top.emplace_back(top.token_id, top.logprob);
          }
          const bool is_text_end = std::holds_alternative<std::string>(result->stop_reason);
          if (at + 1 == result->token_ids.size() && !is_text_end && result->finish_reason != FinishReason::abort) {
            output.finished = result->finish_reason;
          }
        }
        if (step.outputs.empty()) step.ends.push_back({spec->id, std::nullopt});
        take(core.process(step, 0));
      }
      ASSERT_TRUE(done);
      EXPECT_EQ(encode(deltas), encode(whole.deltas)) << "request " << spec->id << ", seed " << seed;
      ASSERT_EQ(done->outputs.size(), whole.done->outputs.size());
      for (std::size_t i = 0; i < done->outputs.size(); ++i) {
        EXPECT_EQ(done->outputs[i].text, whole.done->outputs[i].text);
        EXPECT_EQ(done->outputs[i].token_ids, whole.done->outputs[i].token_ids);
        EXPECT_EQ(done->outputs[i].finish_reason, whole.done->outputs[i].finish_reason);
        EXPECT_EQ(encode(done->outputs[i].logprobs), encode(whole.done->outputs[i].logprobs));
      }
      EXPECT_EQ(done->usage.completion_tokens, whole.done->usage.completion_tokens);
      EXPECT_EQ(done->timing.restarts, 1);
      ++num_compared;
    }
  }
  EXPECT_GT(num_compared, 50);
}

TEST(ResumableRequests, AJournalThatEndsAnywhereHasThoseOfItsLastWholeRecord) {
  const auto journal = std::make_shared<MemoryJournal>(10);
  Requests requests(3, journal);
  for (RequestId id = 1; id < 8; ++id) {
    requests.open(id);
    requests.step();
  }
  ResumableRequests reader(demo_tokenizer());
  std::size_t known = 0;
  for (const auto& segment : journal->segments()) {
    for (const auto& record : segment) {
      for (std::size_t size = 0; size < record.size() && size < 40; size += 7) {
        ResumableRequests torn(reader.take().empty() ? demo_tokenizer() : nullptr);
        torn.record(std::span(record).first(size));
        EXPECT_TRUE(torn.take().empty());
      }
      reader.record(record);
      known = std::max(known, reader.take().size());
    }
  }
  EXPECT_EQ(reader.take().size(), requests.core().resumable().size());
  EXPECT_GT(known, 2U);
}

TEST(ResumableRequests, DamagedRecordsArePassedOverAndWhatIsReadCanGoOn) {
  const auto journal = std::make_shared<MemoryJournal>(10);
  Requests requests(5, journal);
  for (RequestId id = 1; id < 12; ++id) {
    requests.open(id);
    requests.step();
  }
  const auto segments = journal->segments();
  std::mt19937_64 random(1);
  std::int64_t num_damaged = 0;
  std::int64_t num_read = 0;
  for (int i = 0; i < 3000; ++i) {
    ResumableRequests reader(demo_tokenizer());
    const std::size_t first = random() % segments.size();
    for (std::size_t s = first; s < segments.size(); ++s) {
      for (auto record : segments[s]) {
        if (random() % 4 == 0) {
          for (auto flips = 1 + random() % 3; flips > 0; --flips) {
            record[random() % record.size()] ^= std::byte{1} << static_cast<int>(random() % 8);
          }
        }
        if (random() % 40 == 0) record.resize(random() % record.size());
        reader.record(record);
      }
    }
    num_damaged += reader.num_damaged();
    for (const auto& request : reader.take()) {
      ASSERT_NE(request.spec->resume, nullptr);
      if (!is_valid(with_progress(*request.spec, request.progress))) continue;
      OutputCore core(demo_tokenizer());
      if (!core.open(with_progress(*request.spec, request.progress))) continue;
      ++num_read;
      EXPECT_LE(sent_deltas(demo_tokenizer(), *request.spec, *request.progress).size(), 10'000U);
    }
  }
  EXPECT_GT(num_damaged, 1000);
  EXPECT_GT(num_read, 1000);
}

/// Returns a journal of `count` open requests. `change` changes each spec before it is recorded.
std::vector<std::vector<std::byte>> journal_of_open_requests(RequestId count,
                                                             const std::function<void(RequestSpec&)>& change) {
  const auto journal = std::make_shared<MemoryJournal>(1000);
  Recorder recorder(journal, Source::output, [](Encoder& out) { OutputCore(demo_tokenizer()).save(out); });
  for (RequestId id = 1; id <= count; ++id) {
    RequestSpec spec;
    spec.id = id;
    spec.prompt = std::make_shared<const TokenIds>(1, 5);
    spec.resume = std::make_shared<ResumeNote>(ResumeNote{"note", 60'000});
    change(spec);
    recorder.input(OutputInput::open, std::make_shared<const RequestSpec>(spec), spec.resume);
  }
  return journal->segments().front();
}

/// A few bytes can name a request of thousands of sequences.
TEST(ResumableRequests, AsManyAreReadAsMemoryTakes) {
  constexpr std::int64_t kManySequences = 16384;
  ResumableRequests reader(demo_tokenizer());
  constexpr std::int64_t kNumRead = ResumableRequests::kMaxSequences / kManySequences;
  const auto records = journal_of_open_requests(
      kNumRead + 10, [](RequestSpec& spec) { spec.sampling.n = spec.id <= kNumRead + 9 ? kManySequences : 1; });
  for (const auto& record : records) reader.record(record);
  EXPECT_EQ(std::ssize(reader.take()), kNumRead + 1) << "only the last one is small enough";
  EXPECT_EQ(reader.num_damaged(), 9);
}

TEST(ResumableRequests, ATimeThatNothingCanBeComputedWithIsDamaged) {
  for (const std::int64_t keep_ms : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
    ResumableRequests reader(demo_tokenizer());
    const auto records = journal_of_open_requests(1, [&](RequestSpec& spec) {
      spec.resume = std::make_shared<ResumeNote>(ResumeNote{"note", keep_ms});
    });
    for (const auto& record : records) reader.record(record);
    EXPECT_EQ(reader.num_damaged(), 1);
    EXPECT_TRUE(reader.take().empty());
  }
}

TEST(ResumableRequests, ThoseThatHaveEndedAreForgottenInTimeAndAreBounded) {
  OutputCore core(demo_tokenizer(), /*max_ended_bytes=*/100'000);
  const auto note = std::make_shared<ResumeNote>(ResumeNote{"note", 10});
  const auto end = [&](RequestId id, TimeUs now) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = id;
    spec->prompt = std::make_shared<const TokenIds>(1, 5);
    spec->resume = note;
    ASSERT_TRUE(core.open(std::move(spec)));
    StepOutputs step;
    step.ends.push_back({id, std::nullopt});
    core.process(step, now);
  };
  end(1, 0);
  end(2, 5'000);
  EXPECT_EQ(core.resumable().size(), 2U);
  core.process({}, 10'000);
  ASSERT_EQ(core.resumable().size(), 1U);
  EXPECT_EQ(core.resumable().front().spec->id, 2U);
  for (RequestId id = 3; id < 2003; ++id) end(id, 6'000);
  const auto kept = core.resumable();
  EXPECT_EQ(kept.back().spec->id, 2002U);
  EXPECT_LT(kept.size(), 500U);
  std::vector<std::byte> state;
  Encoder out(state);
  core.save(out);
  EXPECT_LT(state.size(), 100'000U);
  EXPECT_GT(state.size(), 10'000U);
}

/// Ends a request at `now`. Its result is kept for `keep_ms`.
void end_request(RecordedOutput& output, RequestId id, TimeUs now, std::int64_t keep_ms) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = id;
  spec->prompt = std::make_shared<const TokenIds>(1000, 5);
  spec->resume = std::make_shared<ResumeNote>(ResumeNote{"note", keep_ms});
  ASSERT_TRUE(output.open(std::move(spec)));
  StepOutputs step;
  step.ends.push_back({id, std::nullopt});
  output.process(step, now);
}

TEST(ResumableRequests, ThoseThatHaveEndedAreFoundWhileTheJournalHasThem) {
  const auto journal = std::make_shared<MemoryJournal>(40);
  RecordedOutput output(demo_tokenizer(), journal);
  const auto time_of = [](RequestId id) { return static_cast<TimeUs>(id) * 1000; };
  for (RequestId id = 1; id <= 2000; ++id) {
    end_request(output, id, time_of(id), 1500);
    journal->begin_segment_if_full();
  }
  const auto kept = output.core().resumable();
  ASSERT_LT(kept.size(), 1200U) << "the core keeps all of them";
  const auto found = read(journal->segments());
  EXPECT_EQ(found.size(), 1500U) << "those whose time is not over";
  EXPECT_EQ(found.front().spec->id, 501U);
  const auto segments = journal->segments();
  const std::vector<MemoryJournal::Segment> last(segments.end() - 2, segments.end());
  EXPECT_GE(read(last).size(), kept.size());
}

}  // namespace
}  // namespace pagoda::journal
