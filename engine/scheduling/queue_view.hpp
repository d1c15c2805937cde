#pragma once

#include "engine/scheduling/group_table.hpp"
#include "engine/view/engine_view.hpp"

namespace pagoda::scheduling {

/// Returns the live requests of a table, without the facts of the output core.
std::vector<view::LiveRequest> list_requests(const GroupTable& table);

}  // namespace pagoda::scheduling
