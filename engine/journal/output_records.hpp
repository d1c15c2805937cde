#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "engine/request/request_spec.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/outputs.hpp"
#include "engine/types.hpp"

namespace pagoda::journal {

/// A recorded input of an OutputCore: a request to open, or a step with its time.
using OutputRecord = std::variant<SharedSpec, std::pair<StepOutputs, TimeUs>>;

/// Returns nothing if the bytes are no such record.
std::optional<OutputRecord> read_output_record(std::uint8_t input, Decoder& in);

}  // namespace pagoda::journal
