#pragma once

/// All typed actor interfaces, one line of contract per message. (private) marks messages between the engine's own
/// actors; users send only the others, and only to the request router.

#include "actors/messages.hpp"

namespace pagoda::actors {

using RequestRouterActor = Interface<
    // Message 1: validates once, before anything is allocated; answers with a ticket or a typed error.
    caf::result<SubmitReply>(SubmitRequest),
    // Aborts one live request; found = false when there is none with that tag.
    caf::result<CancelReply>(CancelRequest),
    // A snapshot of the engine's counters.
    caf::result<EngineStats>(GetStats),
    // What is served; constant.
    caf::result<ModelInfo>(GetModelInfo),
    // Text to ids with the model's tokenizer.
    caf::result<TokenizeReply>(TokenizeRequest),
    // Ids to text.
    caf::result<DetokenizeReply>(DetokenizeRequest),
    // The shutdown ladder's first step; answered when no request is live.
    caf::result<Drained>(Drain),
    // (private) tokenizer -> router.
    caf::result<void>(PromptEncoded),
    // (private) output processor -> router: a request has had its terminal output.
    caf::result<void>(RequestClosed)>;

}  // namespace pagoda::actors
