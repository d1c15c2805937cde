#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "actors/engine_actors.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/support/memory_journal.hpp"

namespace pagoda::actors {
namespace {

/// The messages that an actor has received in the roles of router and sink, in order.
struct ReceivedMessages {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> messages;

  void add(std::string message) {
    const std::lock_guard lock(mutex);
    messages.push_back(std::move(message));
    changed.notify_all();
  }
  std::vector<std::string> first(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(60), [&] { return messages.size() >= count; });
    return messages;
  }
};

caf::behavior router_and_sink(caf::event_based_actor*, const std::shared_ptr<ReceivedMessages>& received) {
  return {
      [received](const OutputBatch& batch) {
        happens_before::received();
        for (const RequestOutput& output : batch.outputs) {
          received->add(std::string(output.error  ? "error "
                                    : output.done ? "done "
                                                  : "delta ") +
                        std::to_string(output.tag));
        }
      },
      [received](const RequestClosed& closed) {
        happens_before::received();
        received->add("closed " + std::to_string(closed.request));
      },
  };
}

class OutputProcessor : public ::testing::Test {
 protected:
  OutputProcessor() {
#ifdef CAF_VERSION_MAJOR
    caf::init_global_meta_objects<caf::id_block::pagoda>();
    caf::core::init_global_meta_objects();
#endif
    configure_pool(config_, 2);
    system_ = std::make_unique<caf::actor_system>(config_);
    peer_ = system_->spawn(router_and_sink, received_);
    const auto tokenizer =
        io::load_tokenizer(std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories").value();
    outputs_ = spawn_output_processor(*system_, tokenizer, {.trace = nullptr, .journal = journal_});
    send_anonymously(outputs_, ConnectOutputs{caf::actor_cast<RequestRouterActor>(peer_)});
  }
  ~OutputProcessor() override {
    end_now(outputs_);
    end_now(peer_);
  }

  void open(RequestId id) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = spec->tag = id;
    spec->prompt = std::make_shared<const TokenIds>(TokenIds{1});
    send_anonymously(outputs_, OpenOutput{std::move(spec), caf::actor_cast<SinkActor>(peer_), {}});
  }

  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  std::shared_ptr<ReceivedMessages> received_ = std::make_shared<ReceivedMessages>();
  std::shared_ptr<test::MemoryJournal> journal_ = std::make_shared<test::MemoryJournal>(1'000'000);
  caf::actor peer_;
  OutputProcessorActor outputs_;
};

TEST_F(OutputProcessor, ARequestsPlaceIsGivenBackBeforeItsEndIsTold) {
  open(1);
  open(2);
  StepOutputs step;
  step.ends = {{1, std::nullopt}, {2, Error{ErrorCode::internal, "broken"}}};
  send_anonymously(outputs_, std::move(step));
  const auto messages = received_->first(4);
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_TRUE(messages[0].starts_with("closed ")) << messages[0];
  EXPECT_TRUE(messages[1].starts_with("closed ")) << messages[1];
}

TEST_F(OutputProcessor, EveryLiveRequestEndsOnceWithTheReasonWhenTheEngineFails) {
  open(1);
  open(2);
  send_anonymously(outputs_, EngineFailed{{ErrorCode::device_failed, "no device"}});
  caf::scoped_actor self{*system_};
  self->wait_for(outputs_);
  auto messages = received_->first(4);
  std::sort(messages.begin(), messages.end());
  EXPECT_EQ(messages, (std::vector<std::string>{"closed 1", "closed 2", "error 1", "error 2"}));
}

TEST_F(OutputProcessor, RequestsThatItWasSentBeforeItStopsToRecordStayInTheJournalAsTheyAre) {
  open(1);
  open(2);
  send_anonymously(outputs_, StopRecording{});
  StepOutputs step;
  step.ends = {{1, std::nullopt}, {2, std::nullopt}};
  send_anonymously(outputs_, std::move(step));
  EXPECT_EQ(received_->first(4).size(), 4U) << "clients are told of their ends";
  const auto records = journal_->segments().front();
  ASSERT_EQ(records.size(), 3U) << "a state and two requests";
  for (std::size_t i = 1; i < records.size(); ++i) {
    EXPECT_EQ(records[i][1], static_cast<std::byte>(journal::kFirstInput));
  }
}

}  // namespace
}  // namespace pagoda::actors
