#pragma once

/// An actor of the service's own beside Pagoda's, in the same actor system: it cuts a text into parts, has the model sum
/// up each, all at once, and then what came of them.

#include <memory>
#include <string>

#include "io/chat/chat_prompts.hpp"
#include "pagoda/spawn_engine.hpp"

namespace summarizer {

/// A text in, its summary out; or a caf::error, whose context has the words.
using SummarizerActor = pagoda::actors::Interface<caf::result<std::string>(std::string),
                                                  // (private) from the engine: it is the sink of its requests.
                                                  caf::result<void>(pagoda::OutputBatch)>;

struct Limits {
  std::size_t part_bytes = 4000;         ///< that one request sums up
  std::size_t max_parts = 64;            ///< longer texts are refused
  std::int64_t max_summary_tokens = 80;  ///< of a part, and of all
};

/// `chat`: the model's template; null: it is given a text to go on with.
SummarizerActor spawn_summarizer(caf::actor_system& system, pagoda::EngineHandle engine,
                                 std::shared_ptr<const pagoda::chat::ChatPrompts> chat, Limits limits);

}  // namespace summarizer
