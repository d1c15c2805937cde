#pragma once

#include <cstdint>
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

/// A running engine for programs that use no actors. Owns an actor system. Thread-safe.
///
/// When the engine fails, for example because its device cannot be used any more, every live request ends with an error
/// that has the reason. The error code is device_failed if the device is the cause. From then on submit refuses with
/// this error, and stats().health is its message. The process goes on.
class Engine {
 public:
  /// Loads the model and starts the actors. Errors: bad_config (flags, config.json, tokenizer), bad_file, io_failed,
  /// out_of_memory.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, const EngineSetup& setup = {});

  /// Aborts live requests, stops the actors, joins every thread.
  ~Engine();

  /// Called with each output of one request, in order, on an engine thread. Must not block for long or throw. The call
  /// with `done` or `error` set is the last.
  using Callback = std::function<void(const RequestOutput&)>;

  /// Starts a request. Returns a ticket, with which cancel() aborts the request. Errors: those of the request router;
  /// then the callback is never called.
  Result<RequestId> submit(GenerateRequest request, Callback callback);

  /// As submit, but waits for a place in the queue instead of failing with queue_full. Do not call it from callbacks.
  Result<RequestId> submit_when_free(GenerateRequest request, Callback callback);

  /// Aborts a live request. Returns whether there was one. Its callback still gets the terminal output.
  bool cancel(RequestId ticket);

  /// Runs all requests together and waits for them. Returns results in the order of the requests. There may be more
  /// requests than the engine queues: they are submitted as places become free.
  std::vector<Result<RequestResult>> generate(std::vector<GenerateRequest> requests);
  Result<RequestResult> generate(GenerateRequest request);

  /// An adapter that requests may name (GenerateRequest::adapter).
  struct Adapter {
    std::string name;
    std::string path;
    bool is_loaded = false;         ///< false: it is loaded for the next request that names it
    std::int64_t num_requests = 0;  ///< number of live requests that use it
  };

  /// Adds an adapter, a folder in PEFT's format or a GGUF file, and waits until it is loaded. Errors: invalid_request
  /// (the name is taken; the engine has no adapters), bad_file, io_failed, out_of_memory.
  Status add_adapter(std::string name, std::string path);

  /// Removes an adapter: later requests cannot name it. Waits until the requests that use it have ended, so do not call
  /// it from callbacks. Errors: unknown_adapter.
  Status remove_adapter(std::string name);

  /// Returns the adapters, sorted by name.
  std::vector<Adapter> adapters();

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
