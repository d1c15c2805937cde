#include "io/kv_events/event_payload.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pagoda::kv_events {
namespace {

using Json = nlohmann::ordered_json;

Json decoded(const memory::KvEventBatch& batch, ReplicaId replica = 0) {
  return Json::from_msgpack(
      encode(batch, 1.5, replica, [](AdapterId adapter) { return "name" + std::to_string(adapter); }));
}

TEST(KvEventPayload, HasTheFieldsOfVllm) {
  memory::KvEventBatch batch{.block_size = 2, .window = 0, .events = {}};
  batch.events.emplace_back(memory::BlocksStored{{5, ~std::uint64_t{0}}, std::nullopt, {1, 2, 300, 70'000}, 0});
  batch.events.emplace_back(memory::BlocksRemoved{{7, 8}});
  batch.events.emplace_back(memory::BlocksCleared{});
  EXPECT_EQ(decoded(batch, 3), Json::parse(R"([1.5, [
      {"type": "BlockStored", "block_hashes": [5, 18446744073709551615], "parent_block_hash": null,
       "token_ids": [1, 2, 300, 70000], "block_size": 2, "lora_id": null, "medium": "GPU", "lora_name": null,
       "extra_keys": [null, null], "group_idx": 0, "kv_cache_spec_kind": "full_attention"},
      {"type": "BlockRemoved", "block_hashes": [7, 8], "medium": "GPU", "group_idx": 0},
      {"type": "AllBlocksCleared"}], 3])"));
}

TEST(KvEventPayload, NamesAdapterParentAndWindow) {
  memory::KvEventBatch batch{.block_size = 1, .window = 128, .events = {}};
  batch.events.emplace_back(memory::BlocksStored{{5}, 4, {1}, 9});
  const Json event = decoded(batch)[1][0];
  EXPECT_EQ(event["lora_id"], 9);
  EXPECT_EQ(event["lora_name"], "name9");
  EXPECT_EQ(event["parent_block_hash"], 4);
  EXPECT_EQ(event["kv_cache_spec_kind"], "sliding_window");
  EXPECT_EQ(event["kv_cache_spec_sliding_window"], 128);
}

}  // namespace
}  // namespace pagoda::kv_events
