#include "io/wire/json_writer.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace pagoda::wire {
namespace {

TEST(JsonWriter, PutsCommasBetweenMembersAndElementsOnly) {
  std::string out = "data: ";
  JsonWriter writer(out);
  writer.open_object()
      .field("text", "a:[{")
      .field("number", 1)
      .field("half", 0.5)
      .key("empty")
      .open_array()
      .close_array();
  writer.key("list").array(std::vector<int>{1, 2, 3}, [](JsonWriter& list, int item) { list.value(item); });
  writer.key("nested").open_object().field("yes", true).close_object().key("nothing").null().close_object();
  EXPECT_EQ(
      out,
      R"(data: {"text":"a:[{","number":1,"half":0.5,"empty":[],"list":[1,2,3],"nested":{"yes":true},"nothing":null})");
}

TEST(JsonWriter, SeparatesObjectsInAnArray) {
  std::string out;
  JsonWriter writer(out);
  writer.array(std::vector<int>{1, 2},
               [](JsonWriter& list, int item) { list.open_object().field("v", item).close_object(); });
  EXPECT_EQ(out, R"([{"v":1},{"v":2}])");
}

}  // namespace
}  // namespace pagoda::wire
