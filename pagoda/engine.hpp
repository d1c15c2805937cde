#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.hpp"
#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "engine/stats.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"

namespace pagoda {

/// A running engine for programs that do not use actors themselves. Owns an actor system. Thread-safe.
///
/// When the engine fails (its device cannot be used any more, for example), every live request ends with an error that
/// says why, whose code is device_failed where the device is the cause. From then on submit refuses with the same error
/// and stats().health tells it. The process goes on.
class Engine {
 public:
  /// Loads the model and starts the actors. Errors: bad_config (flags, config.json, tokenizer), bad_file, io_failed,
  /// out_of_memory.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, const EngineSetup& setup = {});

  /// Aborts what is live, stops the actors, joins every thread.
  ~Engine();

  /// Called with each output of one request, in order, on an engine thread; must not block for long or throw. The
  /// call with `done` or `error` set is the last.
  using Callback = std::function<void(const RequestOutput&)>;

  /// Starts a request. The ticket cancels it. Errors as the request router gives them; then the callback is never
  /// called.
  Result<RequestId> submit(GenerateRequest request, Callback callback);

  /// As submit, but instead of the error queue_full it waits for a place in the queue. Not for callbacks.
  Result<RequestId> submit_when_free(GenerateRequest request, Callback callback);

  /// Aborts a live request; false when there is none. Its callback still gets the terminal output.
  bool cancel(RequestId ticket);

  /// Runs all requests together and waits; results come in the order of the requests. There may be more of them than
  /// the engine queues: they are submitted as places come free.
  std::vector<Result<RequestResult>> generate(std::vector<GenerateRequest> requests);
  Result<RequestResult> generate(GenerateRequest request);

  EngineStats stats();
  ModelInfo model_info();
  Result<TokenIds> tokenize(std::string text, bool add_special_tokens = true);
  Result<std::string> detokenize(std::vector<std::int64_t> token_ids, bool skip_special_tokens = true);

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda
