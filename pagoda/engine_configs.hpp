#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/config.hpp"
#include "engine/grammar/compiled_grammar.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/request/sampling_defaults.hpp"
#include "engine/routing/admission.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "engine/stats.hpp"
#include "engine/text/tokenizer.hpp"
#include "pagoda/engine_plan.hpp"

namespace pagoda {

/// What each part of an engine is told of its configuration and of a plan whose blocks are counted.

scheduling::SchedulerConfig scheduler_config(const EngineConfig& config, const EnginePlan& plan);

memory::BlockSpaceConfig block_space_config(const EngineConfig& config, const EnginePlan& plan,
                                            const std::array<std::uint64_t, 2>& prefix_hash_key);

routing::AdmissionLimits admission_limits(const EngineConfig& config, const EnginePlan& plan,
                                          const text::Tokenizer& tokenizer, const SamplingDefaults& defaults);

/// The special tokens with which the model marks thinking and calls may stand in what grammars allow. Error: of the
/// chat template or the dialect that the configuration names.
Result<grammar::Compiler::Config> grammar_config(const EngineConfig& config, const EnginePlan& plan,
                                                 const text::Tokenizer& tokenizer);

/// `device`: its description.
ModelInfo model_info(const EngineConfig& config, const EnginePlan& plan, std::string device);

}  // namespace pagoda
