#include "actors/engine_actors.hpp"

namespace pagoda::actors {
namespace {

/// Compiles grammars on a thread of its own: a grammar that takes long delays only other grammars.
struct GrammarCompilerState {
  GrammarCompilerState() {}

  std::shared_ptr<const text::Tokenizer> tokenizer;
  grammar::Compiler::Config config;
  std::shared_ptr<grammar::GrammarCache> cache;
  std::unique_ptr<grammar::Compiler> compiler;  ///< made for the first grammar, because many models never get one
};

using Self = GrammarCompilerActor::stateful_pointer<GrammarCompilerState>;

Result<grammar::SharedGrammar> compile(GrammarCompilerState& state, const StructuredOutput& constraint) {
  if (auto known = state.cache->find(constraint)) return known;
  if (!state.compiler) {
    auto compiler = grammar::Compiler::create(*state.tokenizer, state.config);
    if (!compiler) return fail(std::move(compiler.error()));
    state.compiler = std::move(*compiler);
  }
  auto compiled = state.compiler->compile(constraint);
  if (compiled) state.cache->keep(constraint, *compiled);
  return compiled;
}

GrammarCompilerActor::behavior_type behavior(Self self, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                                             const grammar::Compiler::Config& config,
                                             const std::shared_ptr<grammar::GrammarCache>& cache) {
  auto& initial = state_of(self);
  initial.tokenizer = tokenizer;
  initial.config = config;
  initial.cache = cache;
  return {
      [self](const CompileGrammar& message) {
        return reply(CompileReply{compile(state_of(self), *message.generate->sampling.structured_outputs)});
      },
  };
}

}  // namespace

Grammars spawn_grammar_compiler(caf::actor_system& system, std::shared_ptr<const text::Tokenizer> tokenizer,
                                grammar::Compiler::Config config) {
  auto cache = std::make_shared<grammar::GrammarCache>();
  return {system.spawn<caf::detached>(behavior, std::move(tokenizer), std::move(config), cache), cache};
}

}  // namespace pagoda::actors
