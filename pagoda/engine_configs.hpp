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

/// What each part of an engine is told of its configuration and of a plan whose blocks are counted.

scheduling::SchedulerConfig scheduler_config(const EngineConfig& config, const EnginePlan& plan,
                                             const ThinkingMarks& thinking);

memory::BlockSpaceConfig block_space_config(const EngineConfig& config, const EnginePlan& plan,
                                            const std::array<std::uint64_t, 2>& prefix_hash_key);

/// Milliseconds that a request without a timeout of its own may take; 0: no limit.
std::int64_t default_timeout_ms(const EngineConfig& config);

routing::AdmissionLimits admission_limits(const EngineConfig& config, const EnginePlan& plan,
                                          const text::Tokenizer& tokenizer, const SamplingDefaults& defaults,
                                          const ThinkingMarks& thinking);

/// How the model writes its answers; nothing said where it has no chat template that can be read. Error: of the chat
/// template or the dialect that the configuration names.
Result<chat::AnswerDialect> answer_dialect(const EngineConfig& config, const EnginePlan& plan);

/// The special tokens with which the model marks thinking and calls may stand in what grammars allow.
grammar::Compiler::Config grammar_config(const EnginePlan& plan, const text::Tokenizer& tokenizer,
                                         const chat::AnswerDialect& dialect);

/// Not known where the model has none, or writes them in tokens that may join with those beside them.
ThinkingMarks thinking_marks(const text::Tokenizer& tokenizer, const chat::AnswerDialect& dialect);

/// `device`: its description.
ModelInfo model_info(const EngineConfig& config, const EnginePlan& plan, const text::Tokenizer& tokenizer,
                     const SamplingDefaults& defaults, std::string device);

}  // namespace pagoda
