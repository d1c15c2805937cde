#pragma once

/// An actor of the service, in the same actor system as Pagoda's. It cuts a text into parts, lets the model summarise
/// all parts at once, and then summarises the summaries.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "io/chat/chat_prompts.hpp"
#include "io/serving/session.hpp"
#include "pagoda/spawn_engine.hpp"

namespace summarizer {

struct Summarize {
  std::string text;
};
struct Summary {
  pagoda::Result<std::string> text;  ///< the summary, or an error
};

using SummarizerActor = pagoda::actors::Interface<caf::result<Summary>(Summarize),
                                                  // (private) from the engine: this actor is the sink of its requests.
                                                  caf::result<void>(pagoda::OutputBatch)>;

struct Limits {
  /// Maximum number of bytes that one request summarises; less if the model's context is short.
  std::size_t part_bytes = 4000;
  std::size_t max_parts = 64;            ///< maximum number of parts; longer texts are refused
  std::int64_t max_summary_tokens = 80;  ///< maximum number of tokens of each summary, of a part or of the whole
};

/// Spawns the actor. `chat`: the model's template. Null: the model gets a text to continue.
SummarizerActor spawn_summarizer(caf::actor_system& system, pagoda::EngineHandle engine,
                                 std::shared_ptr<const pagoda::chat::ChatPrompts> chat, Limits limits);

/// Call once before the first caf::actor_system, after pagoda::init_actor_types.
inline void init_message_types();

}  // namespace summarizer

// The ids of the service's messages come after Pagoda's.
CAF_BEGIN_TYPE_ID_BLOCK(summarizer, caf::id_block::pagoda_serving::end)
CAF_ADD_TYPE_ID(summarizer, (summarizer::Summarize))
CAF_ADD_TYPE_ID(summarizer, (summarizer::Summary))
CAF_END_TYPE_ID_BLOCK(summarizer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(summarizer::Summarize)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(summarizer::Summary)

namespace summarizer {

inline void init_message_types() {
#ifdef CAF_VERSION_MAJOR
  caf::init_global_meta_objects<caf::id_block::summarizer>();
#endif
}

}  // namespace summarizer
