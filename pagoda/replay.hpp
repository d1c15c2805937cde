#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/journal/replay.hpp"
#include "io/journal/journal_file.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"
#include "pagoda/step_execution.hpp"

namespace pagoda {

/// Selects the model and the device on which the steps of a journal are run.
struct ExecuteOptions {
  std::string model;          ///< model folder on this machine; the journal does not have it
  std::string device;         ///< as in EngineConfig; empty: as recorded
  std::int32_t threads = -1;  ///< as in EngineConfig; -1: as recorded
};

/// Runs the cores of a journal again (journal::Replay). `tokenizer`: the model's, for the output core. Null: the output
/// core is not run.
journal::ReplayReport replay_journal(const io::JournalContents& journal,
                                     std::shared_ptr<const text::Tokenizer> tokenizer,
                                     const StartProgress& progress = nullptr);

/// Runs the steps too, on the model: those of the last segments without a gap between them. Errors: bad_file (the
/// journal has no step to run), and those of StepExecution::create.
Result<ExecutionReport> execute_journal(const io::JournalContents& journal, const ExecuteOptions& options,
                                        const StartProgress& progress = nullptr);

}  // namespace pagoda
