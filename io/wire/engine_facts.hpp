#pragma once

#include "engine/stats.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::wire {

/// Both functions write members of an open object: the public facts about the model, and the engine's current counters
/// and gauges.
void write_model(JsonWriter& json, const ModelInfo& model);
void write_stats(JsonWriter& json, const EngineStats& stats);

}  // namespace pagoda::wire
