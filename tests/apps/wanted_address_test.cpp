#include "apps/wanted_address.hpp"

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/serving/listener.hpp"

namespace pagoda::apps {
namespace {

using testing::HasSubstr;

Status tried(const WantedAddress& wanted) {
  return try_addresses({&wanted, 1}).front();
}

std::string problem(const WantedAddress& wanted) {
  const auto status = tried(wanted);
  return status ? "" : status.error().message;
}

TEST(WantedAddresses, are_tried) {
  EXPECT_EQ(problem({.key = "http", .address = "127.0.0.1:0"}), "");
  EXPECT_THAT(problem({.key = "http", .address = "203.0.113.1:1"}), HasSubstr("203.0.113.1:1"));
  EXPECT_THAT(problem({.key = "http", .address = "127.0.0.1:0", .tls_cert = "/no/cert.pem", .tls_key = "/no/key.pem"}),
              HasSubstr("/no/cert.pem"));
}

TEST(WantedAddresses, beyond_this_machine_want_the_key_of_a_user) {
  const auto exposed = tried({.key = "http", .address = "0.0.0.0:0"});
  ASSERT_FALSE(exposed);
  EXPECT_EQ(exposed.error().code, ErrorCode::bad_config);
  EXPECT_THAT(exposed.error().message, HasSubstr("give --keys-file or --api-key-file with a user's key"));
  EXPECT_EQ(problem({.key = "http", .address = "0.0.0.0:0", .has_keys = true}), "");
  EXPECT_EQ(problem({.key = "http", .address = "0.0.0.0:0", .allow_unauthenticated = true}), "");
}

TEST(WantedAddresses, that_are_in_use_or_the_same_are_refused) {
  boost::asio::io_context io(1);
  serving::Listener listener(io);
  ASSERT_TRUE(listener.open("127.0.0.1:0", "listen"));
  const auto taken = tried({.key = "http", .address = listener.address()});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::io_failed);
  const auto address = listener.address();
  listener.close();
  const WantedAddress both[] = {{.key = "listen", .address = address}, {.key = "http", .address = address}};
  const auto statuses = try_addresses(both);
  EXPECT_TRUE(statuses[0]);
  EXPECT_FALSE(statuses[1]);
  EXPECT_EQ(problem(both[1]), "") << "both are free again";
}

}  // namespace
}  // namespace pagoda::apps
