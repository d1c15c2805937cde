#include "io/http/openai/response_store.hpp"

#include <gtest/gtest.h>

namespace pagoda::http::openai {
namespace {

const ResponseStore::Owner kOwner = "one";
const ResponseStore::Owner kOther = "another";

TEST(ResponseStore, belongs_to_the_key_that_stored) {
  ResponseStore store;
  store.put(kOwner, "a", {"body", "[]"});
  EXPECT_EQ(store.find(kOther, "a"), nullptr);
  EXPECT_EQ(store.find({}, "a"), nullptr);
  EXPECT_FALSE(store.erase(kOther, "a"));
  EXPECT_EQ(store.find(kOwner, "a")->body, "body");
  EXPECT_TRUE(store.erase(kOwner, "a"));
  EXPECT_FALSE(store.erase(kOwner, "a"));
}

TEST(ResponseStore, the_oldest_goes_first) {
  ResponseStore store({.max_responses = 2, .max_bytes = 100});
  store.put(kOwner, "a", {"1", ""});
  store.put(kOwner, "b", {"2", ""});
  store.put(kOwner, "a", {"3", ""});  // again, so now the newest
  store.put(kOther, "c", {"4", ""});
  EXPECT_EQ(store.find(kOwner, "b"), nullptr);
  EXPECT_EQ(store.find(kOwner, "a")->body, "3");
  EXPECT_EQ(store.find(kOther, "c")->body, "4");
}

TEST(ResponseStore, holds_no_more_bytes_than_it_may) {
  ResponseStore store({.max_responses = 10, .max_bytes = 100});
  store.put(kOwner, "a", {std::string(40, 'x'), ""});
  store.put(kOwner, "b", {std::string(30, 'x'), std::string(10, 'x')});
  store.put(kOwner, "c", {std::string(40, 'x'), ""});
  EXPECT_EQ(store.find(kOwner, "a"), nullptr);
  EXPECT_NE(store.find(kOwner, "b"), nullptr);
  EXPECT_NE(store.find(kOwner, "c"), nullptr);
  store.put(kOwner, "d", {std::string(100, 'x'), ""});  // too much alone: the others stay
  EXPECT_EQ(store.find(kOwner, "d"), nullptr);
  EXPECT_NE(store.find(kOwner, "c"), nullptr);
}

}  // namespace
}  // namespace pagoda::http::openai
