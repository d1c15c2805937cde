#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "engine/config.hpp"
#include "engine/grammar/compiled_grammar.hpp"
#include "engine/memory/block_space_manager.hpp"
#include "engine/request/sampling_defaults.hpp"
#include "engine/request/thinking_budget.hpp"
#include "engine/routing/admission.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "engine/stats.hpp"
#include "engine/text/tokenizer.hpp"
#include "io/chat/answer_dialect.hpp"
#include "pagoda/engine_plan.hpp"

namespace pagoda {

/// These functions make the configurations of an engine's parts. The blocks of `plan` must be counted.

scheduling::SchedulerConfig scheduler_config(const EngineConfig& config, const EnginePlan& plan,
                                             const ThinkingMarks& thinking);

memory::BlockSpaceConfig block_space_config(const EngineConfig& config, const EnginePlan& plan,
                                            const std::array<std::uint64_t, 2>& prefix_hash_key);

/// Returns the milliseconds that a request without a timeout of its own may take. 0: no limit.
std::int64_t default_timeout_ms(const EngineConfig& config);

routing::AdmissionLimits admission_limits(const EngineConfig& config, const EnginePlan& plan,
                                          const text::Tokenizer& tokenizer, const SamplingDefaults& defaults,
                                          const ThinkingMarks& thinking);

/// Returns the dialect in which the model writes its answers. Empty if the model has no chat template that can be read.
/// Errors: those of the chat template or dialect that the configuration names.
Result<chat::AnswerDialect> answer_dialect(const EngineConfig& config, const EnginePlan& plan);

/// Returns the configuration of the grammar compiler: grammars allow the special tokens with which the model marks
/// thinking and calls.
grammar::Compiler::Config grammar_config(const EnginePlan& plan, const text::Tokenizer& tokenizer,
                                         const chat::AnswerDialect& dialect);

/// Returns the tokens with which the model marks thinking. Empty if the model has none, or if their tokens may join
/// with neighbouring text.
ThinkingMarks thinking_marks(const text::Tokenizer& tokenizer, const chat::AnswerDialect& dialect);

/// Describes the served model, with the blocks of `plan`. `device`: description of the devices.
ModelInfo model_info(const EngineConfig& config, const EnginePlan& plan, const text::Tokenizer& tokenizer,
                     const SamplingDefaults& defaults, std::string device);

}  // namespace pagoda
