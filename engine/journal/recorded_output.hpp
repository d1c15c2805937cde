#pragma once

#include <memory>
#include <utility>

#include "engine/journal/journal.hpp"
#include "engine/output/output_core.hpp"

namespace pagoda::journal {

/// The inputs of an OutputCore.
enum class OutputInput : std::uint8_t { open, process };
constexpr OutputInput last_value(OutputInput) {
  return OutputInput::process;
}

/// An OutputCore that is recorded if there is a journal that may hold prompts and outputs. The tokenizer is not
/// recorded.
class RecordedOutput {
 public:
  RecordedOutput(std::shared_ptr<const text::Tokenizer> tokenizer, SharedJournal journal)
      : core_(std::move(tokenizer), journal ? journal->max_ended_bytes() : output::OutputCore::kMaxEndedBytes),
        recorder_(unless_tokens_are_hidden(std::move(journal)), Source::output,
                  [this](Encoder& out) { core_.save(out); }) {}
  RecordedOutput(const RecordedOutput&) = delete;
  RecordedOutput& operator=(const RecordedOutput&) = delete;

  bool open(SharedSpec spec) {
    recorder_.input(OutputInput::open, spec, spec->resume);
    return core_.open(std::move(spec));
  }
  output::OutputCore::Effects process(const StepOutputs& step, TimeUs now) {
    recorder_.input(OutputInput::process, step, now);
    auto effects = core_.process(step, now);
    if (!effects.empty()) recorder_.effect(effects);
    return effects;
  }
  /// Stops the recording. The journal keeps the requests as they are now.
  void stop_recording() { recorder_.stop(); }
  const output::OutputCore& core() const { return core_; }

 private:
  output::OutputCore core_;
  Recorder recorder_;
};

}  // namespace pagoda::journal
