#pragma once

/// Questions about the whole engine. The router asks each replica that is not down, and combines the answers.

#include "actors/request_router_state.hpp"

namespace pagoda::actors {

caf::typed_response_promise<EngineStats> answer_stats(RequestRouterSelf self, const GetStats& message);
caf::typed_response_promise<RequestList> answer_list(RequestRouterSelf self);
caf::typed_response_promise<PrefixCacheReset> reset_prefix_cache(RequestRouterSelf self);
caf::typed_response_promise<metrics::EngineMetrics> answer_metrics(RequestRouterSelf self, const GetMetrics& message);
/// Blocks are those of GetView::replica; empty if there is no such replica, or if it is down.
caf::typed_response_promise<view::EngineView> answer_view(RequestRouterSelf self, const GetView& message);

/// Pass a message on to the adapter store.
caf::typed_response_promise<AdapterReply> change_adapters(RequestRouterSelf self, const AddAdapter& message);
caf::typed_response_promise<AdapterReply> change_adapters(RequestRouterSelf self, const RemoveAdapter& message);
/// The list is empty if requests cannot name adapters.
caf::typed_response_promise<AdapterList> answer_adapters(RequestRouterSelf self, const ListAdapters& message);

}  // namespace pagoda::actors
