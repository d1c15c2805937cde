#pragma once

namespace pagoda::apps {

/// From here on a SIGBUS, which ends the process as ever, first says on standard error which mapped file has no such
/// page any more: it was cut short in place.
void install_sigbus_reporter();

}  // namespace pagoda::apps
