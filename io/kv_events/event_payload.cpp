#include "io/kv_events/event_payload.hpp"

#include <nlohmann/json.hpp>

namespace pagoda::kv_events {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMedium = "GPU";
constexpr int kGroup = 0;

class Writer {
 public:
  Writer(const memory::KvEventBatch& batch, const AdapterName& name_of) : batch_(batch), name_of_(name_of) {}

  Json operator()(const memory::BlocksStored& stored) const {
    Json event{{"type", "BlockStored"}, {"block_hashes", stored.hashes}};
    event["parent_block_hash"] = stored.parent ? Json(*stored.parent) : Json();
    event["token_ids"] = stored.tokens;
    event["block_size"] = batch_.block_size;
    const bool is_of_base = stored.adapter == 0;
    event["lora_id"] = is_of_base ? Json() : Json(stored.adapter);
    event["medium"] = kMedium;
    event["lora_name"] = is_of_base ? Json() : Json(name_of_(stored.adapter));
    // Besides the adapter, which lora_name names, blocks depend on their tokens alone: salted ones are not reported.
    event["extra_keys"] = std::vector<Json>(stored.hashes.size());
    event["group_idx"] = kGroup;
    event["kv_cache_spec_kind"] = batch_.window == 0 ? "full_attention" : "sliding_window";
    if (batch_.window > 0) event["kv_cache_spec_sliding_window"] = batch_.window;
    return event;
  }
  Json operator()(const memory::BlocksRemoved& removed) const {
    return {{"type", "BlockRemoved"}, {"block_hashes", removed.hashes}, {"medium", kMedium}, {"group_idx", kGroup}};
  }
  Json operator()(const memory::BlocksCleared&) const { return {{"type", "AllBlocksCleared"}}; }

 private:
  const memory::KvEventBatch& batch_;
  const AdapterName& name_of_;
};

}  // namespace

std::vector<std::uint8_t> encode(const memory::KvEventBatch& batch, double seconds, ReplicaId replica,
                                 const AdapterName& name_of) {
  Json events = Json::array();
  for (const memory::KvEvent& event : batch.events) events.push_back(std::visit(Writer(batch, name_of), event));
  return Json::to_msgpack(Json::array({seconds, std::move(events), replica}));
}

}  // namespace pagoda::kv_events
