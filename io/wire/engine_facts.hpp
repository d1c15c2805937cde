#pragma once

#include "engine/stats.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::wire {

/// Writes the public facts about the model, as members of an open object.
void write_model(JsonWriter& json, const ModelInfo& model);
/// Writes the fields of one replica into an open object.
void write_replica(JsonWriter& json, const ReplicaStats& replica);
/// Writes the engine's current counters and gauges, as members of an open object.
void write_stats(JsonWriter& json, const EngineStats& stats);

}  // namespace pagoda::wire
