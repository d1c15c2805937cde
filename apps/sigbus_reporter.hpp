#pragma once

namespace pagoda::apps {

/// Makes a SIGBUS, which still ends the process, first report on standard error which mapped file lacks the page: the
/// file was cut short in place.
void install_sigbus_reporter();

}  // namespace pagoda::apps
