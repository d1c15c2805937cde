#pragma once

#include <string>
#include <vector>

#include "engine/config.hpp"
#include "io/journal/journal_lock.hpp"
#include "io/serving/recovered_request.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// Returns the resumable requests that were live, or had just ended, when the engine of a journal died. None if there
/// is no such file, or no such request. Damaged parts are skipped and logged. A journal with a damaged header, or of a
/// version whose records this version cannot read, is logged and kept (io::keep_unreadable).
///
/// `lock`: the caller's lock of the journal, through which the journal is mapped. Null: the caller has none.
///
/// Errors: bad_config (the journal has no prompts and outputs, or is of another model than `config`; param "recover"),
/// bad_file (the file is no journal), io_failed, and those of loading the tokenizer.
Result<std::vector<serving::RecoveredRequest>> recover_requests(const std::string& journal, const EngineConfig& config,
                                                                const io::JournalLock* lock = nullptr);

}  // namespace pagoda
