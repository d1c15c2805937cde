#pragma once

/// Lists of scales, in which llama-server's clients select adapters by their numbers.

#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "io/http/error_answer.hpp"
#include "io/serving/served_models.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http {

/// Returns what GET /lora-adapters shows of an adapter. The scale is that of requests that select no adapter.
wire::Json scale_entry(const serving::ServedAdapters::Adapter& adapter);

struct AdapterScale {
  std::string name;
  bool is_applied = false;  ///< whether the scale is 1, and not 0
};

/// Reads a list of objects with `id` and perhaps `scale`, which is 0 if it is absent, as in llama-server. Other keys
/// must have the value that scale_entry shows. Refuses a number that no adapter of `model` has, an adapter that is
/// there twice, and scales other than 0 and 1. The param of errors is `lora`.
tl::expected<std::vector<AdapterScale>, ErrorAnswer> read_scales(const wire::Json& list,
                                                                 const serving::ServedModel& model);

/// Returns the adapter that a request with this list uses: the one with scale 1, or else the one that its model names.
/// Empty: none. Refuses lists of two adapters, and lists that contradict `model`. Other errors: see read_scales.
tl::expected<std::string, ErrorAnswer> selected_adapter(const wire::Json& list, const serving::ServedModel& model);

}  // namespace pagoda::http
