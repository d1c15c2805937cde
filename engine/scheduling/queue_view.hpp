#pragma once

#include "engine/scheduling/group_table.hpp"
#include "engine/view/engine_view.hpp"

namespace pagoda::scheduling {

/// The live requests of a table, without what the output core knows of them.
std::vector<view::LiveRequest> list_requests(const GroupTable& table);

}  // namespace pagoda::scheduling
