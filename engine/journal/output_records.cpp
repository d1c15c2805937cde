#include "engine/journal/output_records.hpp"

#include <algorithm>
#include <memory>

#include "engine/journal/recorded_output.hpp"

namespace pagoda::journal {
namespace {

bool is_valid(const StepOutputs& outputs) {
  const auto is_start = [](const RequestStarted& started) {
    return is_valid_time(started.first_scheduled_us) && is_valid_count(started.cached_tokens);
  };
  const auto are_drafts = [](const RowDrafts& row) {
    return row.num_accepted >= 0 && row.num_accepted <= row.num_drafts;
  };
  return is_valid_time(outputs.finished_us) && std::ranges::all_of(outputs.started, is_start) &&
         std::ranges::all_of(outputs.drafts, are_drafts);
}

}  // namespace

std::optional<OutputRecord> read_output_record(std::uint8_t input, Decoder& in) {
  if (input > static_cast<std::uint8_t>(last_value(OutputInput{}))) return std::nullopt;
  switch (static_cast<OutputInput>(input)) {
    case OutputInput::open: {
      SharedSpec spec;
      std::shared_ptr<const ResumeNote> note;
      if (!in.get(spec) || !in.get(note) || in.num_left() > 0) return std::nullopt;
      if (!pagoda::is_valid(spec) || !pagoda::is_valid(note)) return std::nullopt;
      return OutputRecord(note ? with_note(*spec, std::move(note)) : std::move(spec));
    }
    case OutputInput::process: {
      std::pair<StepOutputs, TimeUs> step;
      if (!in.get(step) || in.num_left() > 0 || !is_valid(step.first) || !is_valid_time(step.second)) {
        return std::nullopt;
      }
      return OutputRecord(std::move(step));
    }
  }
  return std::nullopt;
}

}  // namespace pagoda::journal
