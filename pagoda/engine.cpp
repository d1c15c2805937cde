#include "pagoda/engine.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <spdlog/spdlog.h>

#include "pagoda/spawn_engine.hpp"

namespace pagoda {
namespace {

/// Callbacks of live requests, by tag. Shared by callers and the sink actor.
class CallbackTable {
 public:
  std::uint64_t add(Engine::Callback callback) {
    const std::lock_guard lock(mutex_);
    live_.emplace(next_tag_, Live{std::make_shared<const Engine::Callback>(std::move(callback)), 0});
    return next_tag_++;
  }

  /// Sets the ticket of a request that the engine has taken. The request may have ended already.
  void set_ticket(std::uint64_t tag, RequestId ticket) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(tag);
    if (found == live_.end()) return;
    found->second.ticket = ticket;
    tag_of_.emplace(ticket, tag);
  }

  void remove(std::uint64_t tag) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(tag);
    if (found == live_.end()) return;
    tag_of_.erase(found->second.ticket);
    live_.erase(found);
  }

  std::uint64_t tag_of(RequestId ticket) {
    const std::lock_guard lock(mutex_);
    const auto found = tag_of_.find(ticket);
    return found == tag_of_.end() ? 0 : found->second;
  }

  void deliver(const RequestOutput& output) {
    std::shared_ptr<const Engine::Callback> callback;
    {
      const std::lock_guard lock(mutex_);
      const auto found = live_.find(output.tag);
      if (found == live_.end()) return;
      callback = found->second.callback;
    }
    const bool is_end = output.done || output.error;
    if (is_end) remove(output.tag);
    try {
      (*callback)(output);
    } catch (const std::exception& error) {  // the outputs of other requests come through this thread too
      spdlog::error("the callback of a request threw an exception: {}", error.what());
    }
    if (!is_end) return;
    const std::lock_guard lock(mutex_);
    ++num_ended_;
    one_ended_.notify_all();
  }

  std::uint64_t num_ended() {
    const std::lock_guard lock(mutex_);
    return num_ended_;
  }

  /// Waits until more than `known` requests have ended, at most for `patience`.
  void wait_for_end(std::uint64_t known, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    one_ended_.wait_for(lock, patience, [&] { return num_ended_ > known; });
  }

 private:
  struct Live {
    std::shared_ptr<const Engine::Callback> callback;
    RequestId ticket = 0;
  };
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Live> live_;
  std::unordered_map<RequestId, std::uint64_t> tag_of_;
  std::uint64_t next_tag_ = 1;
  std::uint64_t num_ended_ = 0;
  std::condition_variable one_ended_;
};

actors::SinkActor::behavior_type callback_sink(actors::SinkActor::pointer,
                                               const std::shared_ptr<CallbackTable>& table) {
  return {[table](const OutputBatch& batch) {
    actors::happens_before::received();
    for (const RequestOutput& output : batch.outputs) table->deliver(output);
  }};
}

constexpr std::size_t kPoolThreads = 2;

}  // namespace

struct Engine::State {
  State() : system(configured()) {}

  caf::actor_system_config& configured() {
    init_actor_types();
    actors::configure_pool(config, kPoolThreads);
    return config;
  }

  /// Asks an actor and waits for its answer.
  template <class Answer, class Message>
  Result<Answer> ask(Message message) {
    caf::scoped_actor self{system};
    Result<Answer> result = fail(ErrorCode::internal, "the engine has stopped");
    actors::ask(self, handle.router, std::move(message), [&](Answer& answer) { result = std::move(answer); });
    return result;
  }

  Result<RequestId> submit(std::shared_ptr<const GenerateRequest> request, Callback callback) {
    const std::uint64_t tag = callbacks->add(std::move(callback));
    auto reply = ask<actors::SubmitReply>(actors::SubmitRequest{std::move(request), sink, tag});
    if (!reply || !reply->ticket) {
      callbacks->remove(tag);
      return fail(reply ? reply->ticket.error() : reply.error());
    }
    callbacks->set_ticket(tag, *reply->ticket);
    return *reply->ticket;
  }

  Result<RequestId> submit_when_free(const std::shared_ptr<const GenerateRequest>& request, const Callback& callback) {
    for (;;) {
      const std::uint64_t known = callbacks->num_ended();
      auto ticket = submit(request, callback);
      if (ticket || ticket.error().code != ErrorCode::queue_full) return ticket;
      // The place of a request is free before its end is reported. But a text that leaves the tokenizer's queue is not
      // reported, so the wait has a limit.
      callbacks->wait_for_end(known, std::chrono::milliseconds(ticket.error().retry_after_ms));
    }
  }

  caf::actor_system_config config;
  caf::actor_system system;
  EngineHandle handle;
  std::shared_ptr<CallbackTable> callbacks = std::make_shared<CallbackTable>();
  actors::SinkActor sink;
};

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config, const EngineSetup& setup) {
  auto state = std::make_unique<State>();
  auto handle = spawn_engine(state->system, config, setup);
  if (!handle) return fail(handle.error());
  state->handle = std::move(*handle);
  state->sink = state->system.spawn(callback_sink, state->callbacks);
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Engine::~Engine() {
  // The shutdown ladder: live requests are aborted and get their last output, then the actors end.
  state_->ask<actors::Drained>(actors::Drain{0});
  caf::scoped_actor self{state_->system};
  end_engine(state_->handle);
  self->wait_for(state_->handle.supervisor);
  caf::anon_send_exit(state_->sink, caf::exit_reason::user_shutdown);
}

Result<RequestId> Engine::submit(GenerateRequest request, Callback callback) {
  return state_->submit(std::make_shared<const GenerateRequest>(std::move(request)), std::move(callback));
}

Result<RequestId> Engine::submit_when_free(GenerateRequest request, Callback callback) {
  return state_->submit_when_free(std::make_shared<const GenerateRequest>(std::move(request)), callback);
}

bool Engine::cancel(RequestId ticket) {
  const std::uint64_t tag = state_->callbacks->tag_of(ticket);
  if (tag == 0) return false;
  const auto reply = state_->ask<actors::CancelReply>(actors::CancelRequest{state_->sink, tag});
  return reply && reply->found;
}

std::vector<Result<RequestResult>> Engine::generate(std::vector<GenerateRequest> requests) {
  struct Waiting {
    std::mutex mutex;
    std::condition_variable one_ended;
    std::size_t num_live = 0;
    std::vector<Result<RequestResult>> results;
  };
  const auto waiting = std::make_shared<Waiting>();
  waiting->results.resize(requests.size());
  const auto end = [waiting](std::size_t i, Result<RequestResult> result) {
    const std::lock_guard lock(waiting->mutex);
    waiting->results[i] = std::move(result);
    --waiting->num_live;
    waiting->one_ended.notify_all();
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].stream = false;
    const auto request = std::make_shared<const GenerateRequest>(std::move(requests[i]));
    const auto deliver = [end, i](const RequestOutput& output) {
      actors::retry_on_bad_alloc([&] {
        if (output.done) end(i, *output.done);
        if (output.error) end(i, fail(*output.error));
      });
    };
    {
      const std::lock_guard lock(waiting->mutex);
      ++waiting->num_live;
    }
    const auto ticket = state_->submit_when_free(request, deliver);
    if (!ticket) end(i, fail(ticket.error()));
  }
  std::unique_lock lock(waiting->mutex);
  waiting->one_ended.wait(lock, [&] { return waiting->num_live == 0; });
  return std::move(waiting->results);
}

Result<RequestResult> Engine::generate(GenerateRequest request) {
  std::vector<GenerateRequest> one;
  one.push_back(std::move(request));
  return std::move(generate(std::move(one)).front());
}

Status Engine::add_adapter(std::string name, std::string path) {
  auto reply = state_->ask<actors::AdapterReply>(actors::AddAdapter{std::move(name), std::move(path)});
  return reply ? std::move(reply->status) : Status(fail(reply.error()));
}

Status Engine::remove_adapter(std::string name) {
  auto reply = state_->ask<actors::AdapterReply>(actors::RemoveAdapter{std::move(name)});
  return reply ? std::move(reply->status) : Status(fail(reply.error()));
}

std::vector<Engine::Adapter> Engine::adapters() {
  std::vector<Adapter> adapters;
  auto reply = state_->ask<actors::AdapterList>(actors::ListAdapters{});
  if (!reply) return adapters;
  for (auto& adapter : reply->adapters) {
    adapters.push_back({std::move(adapter.name), std::move(adapter.path), adapter.is_loaded, adapter.num_requests});
  }
  return adapters;
}

EngineStats Engine::stats() {
  EngineStats unknown;
  unknown.health = "the engine has stopped";
  return state_->ask<EngineStats>(actors::GetStats{}).value_or(unknown);
}

ModelInfo Engine::model_info() {
  return state_->ask<ModelInfo>(actors::GetModelInfo{}).value_or(ModelInfo{});
}

Result<TokenIds> Engine::tokenize(std::string text, bool add_special_tokens) {
  auto reply = state_->ask<actors::TokenizeReply>(actors::TokenizeRequest{std::move(text), add_special_tokens});
  return reply ? std::move(reply->token_ids) : Result<TokenIds>(fail(reply.error()));
}

Result<std::string> Engine::detokenize(std::vector<std::int64_t> token_ids, bool skip_special_tokens) {
  auto reply =
      state_->ask<actors::DetokenizeReply>(actors::DetokenizeRequest{std::move(token_ids), skip_special_tokens});
  return reply ? std::move(reply->text) : Result<std::string>(fail(reply.error()));
}

}  // namespace pagoda
