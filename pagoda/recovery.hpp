#pragma once

#include <string>
#include <vector>

#include "engine/config.hpp"
#include "io/journal/journal_lock.hpp"
#include "io/serving/recovered_request.hpp"
#include "kernels/result.hpp"

namespace pagoda {

/// The resumable requests that were live, or had just ended, when the engine of a journal died; none where there is no
/// such file, and where nothing was. What is damaged of it is passed over, and logged. So is a journal of a version
/// whose records this one cannot read, and one with a damaged header: it is kept (io::keep_unread).
///
/// `lock`: the caller's own lock of the journal, which is mapped then; null: the caller has none.
///
/// Errors: bad_config (the journal has no prompts and outputs, or is of another model than `config`'s; param
/// "recover"), bad_file (it is no journal), io_failed, and those of loading the tokenizer.
Result<std::vector<serving::RecoveredRequest>> recover_requests(const std::string& journal, const EngineConfig& config,
                                                                const io::JournalLock* lock = nullptr);

}  // namespace pagoda
