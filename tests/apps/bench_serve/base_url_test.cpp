#include "apps/bench_serve/base_url.hpp"

#include <gtest/gtest.h>

namespace pagoda::bench_serve {
namespace {

void expect_url(const char* text, const char* host, const char* port, const char* path, bool is_https) {
  const auto url = BaseUrl::parse(text);
  ASSERT_TRUE(url) << text << ": " << url.error().message;
  EXPECT_EQ(url->host, host) << text;
  EXPECT_EQ(url->port, port) << text;
  EXPECT_EQ(url->path, path) << text;
  EXPECT_EQ(url->is_https, is_https) << text;
}

TEST(BaseUrl, IsTakenApart) {
  expect_url("http://127.0.0.1:8000", "127.0.0.1", "8000", "", false);
  expect_url("http://localhost", "localhost", "80", "", false);
  expect_url("https://example.org/", "example.org", "443", "", true);
  expect_url("https://example.org:8443/a/b", "example.org", "8443", "/a/b", true);
  expect_url("http://[::1]:8000", "::1", "8000", "", false);
  expect_url("http://[::1]", "::1", "80", "", false);
}

TEST(BaseUrl, TheVersionOfRoutesIsNoPartOfIt) {
  expect_url("http://h:1/v1", "h", "1", "", false);
  expect_url("http://h:1/v1/", "h", "1", "", false);
  expect_url("http://h:1/openai/v1//", "h", "1", "/openai", false);
  expect_url("http://h:1/xv1", "h", "1", "/xv1", false);
}

TEST(BaseUrl, WhatIsNoneIsRefused) {
  for (const char* text : {"", "127.0.0.1:8000", "ftp://h", "http://", "http://:80", "http://h:0", "http://h:65536",
                           "http://h:x", "http://a b", "http://h/\r\nX: y", "http://u@h", "http://h?x", "http://h#x",
                           "http://::1:80", "http:/h", "https://"}) {
    const auto url = BaseUrl::parse(text);
    ASSERT_FALSE(url) << text;
    EXPECT_EQ(url.error().code, ErrorCode::bad_config);
    EXPECT_EQ(url.error().param, "base_url");
    EXPECT_NE(url.error().message.find(text), std::string::npos) << url.error().message;
  }
}

TEST(BaseUrl, AuthorityNamesHostAndPort) {
  EXPECT_EQ(BaseUrl::parse("http://h")->authority(), "h:80");
  EXPECT_EQ(BaseUrl::parse("https://[::1]:9")->authority(), "[::1]:9");
}

}  // namespace
}  // namespace pagoda::bench_serve
