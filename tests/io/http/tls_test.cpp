// TLS with a certificate that the test makes: what works in the clear works there, and what is not TLS is closed.

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "tests/io/http/server_fixture.hpp"

namespace pagoda::http {
namespace {

/// A key and a certificate signed with it, as PEM files.
void make_certificate(const std::string& cert_file, const std::string& key_file) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = ::X509_new();
  ::ASN1_INTEGER_set(::X509_get_serialNumber(cert), 1);
  ::X509_gmtime_adj(X509_getm_notBefore(cert), 0);
  ::X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  ::X509_set_pubkey(cert, key);
  const unsigned char name[] = "localhost";
  ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(cert), "CN", MBSTRING_ASC, name, -1, -1, 0);
  ::X509_set_issuer_name(cert, ::X509_get_subject_name(cert));
  ::X509_sign(cert, key, ::EVP_sha256());
  std::FILE* file = std::fopen(cert_file.c_str(), "w");
  ::PEM_write_X509(file, cert);
  std::fclose(file);
  file = std::fopen(key_file.c_str(), "w");
  ::PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  ::X509_free(cert);
  ::EVP_PKEY_free(key);
}

class TlsServerTest : public HttpServerTest {
 protected:
  TlsServerTest() : folder_(testing::TempDir() + "pagoda_tls_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
    make_certificate(file("cert.pem"), file("key.pem"));
    make_certificate(file("other_cert.pem"), file("other_key.pem"));
    context_ = ::SSL_CTX_new(::TLS_client_method());
  }
  ~TlsServerTest() override {
    server_.reset();
    ::SSL_CTX_free(context_);
    std::filesystem::remove_all(folder_);
  }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  ServerConfig config() const {
    ServerConfig config;
    config.tls_cert = file("cert.pem");
    config.tls_key = file("key.pem");
    return config;
  }
  TestClient tls_client() {
    auto c = client();
    EXPECT_TRUE(c.start_tls(context_));
    return c;
  }

  std::string folder_;
  SSL_CTX* context_;
};

TEST_F(TlsServerTest, EverythingWorksAsInTheClear) {
  start(config());
  EXPECT_TRUE(server_->is_tls());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    SSL_CTX_set_max_proto_version(context_, version);
    auto c = tls_client();
    for (int i = 0; i < 3; ++i) {
      c.get("/health");
      EXPECT_EQ(c.receive().body, "ok");
      const std::string body(3 << 20, ' ');
      c.post("/echo", body);
      EXPECT_EQ(c.receive().body.size(), body.size());
      c.get("/stream");
      EXPECT_EQ(c.receive().num_chunks, 3U);
      c.get("/big");
      EXPECT_EQ(c.receive().body.size(), std::size_t{8} << 20);
    }
    c.get("/health", "Connection: close\r\n");
    EXPECT_EQ(c.receive().body, "ok");
    EXPECT_TRUE(c.at_end());
  }
}

TEST_F(TlsServerTest, AClientThatGoesIsSeenAtOnce) {
  start(config());
  for (const auto* path : {"/hold", "/endless"}) {
    auto c = tls_client();
    c.get(path);
    ASSERT_TRUE(eventually([&] { return live_ == 1; }));
    c.close();
    ASSERT_TRUE(eventually([&] { return live_ == 0 && server_->num_connections() == 0; }));
  }
  auto polite = tls_client();
  polite.get("/hold");
  ASSERT_TRUE(eventually([&] { return live_ == 1; }));
  ::SSL_shutdown(polite.ssl());
  ASSERT_TRUE(eventually([&] { return live_ == 0; }));
}

TEST_F(TlsServerTest, WhatIsNotTlsOrStallsIsClosed) {
  auto limited = config();
  limited.http_header_timeout_ms = 150;
  start(limited);
  auto plain = client();
  plain.get("/health");
  EXPECT_NE(plain.receive().status, 200);
  EXPECT_TRUE(plain.at_end());
  auto silent = client();
  silent.send("\x16\x03\x01");
  EXPECT_TRUE(silent.at_end());
  auto c = tls_client();
  c.get("/health");
  EXPECT_EQ(c.receive().status, 200);
}

TEST_F(TlsServerTest, OldVersionsOfTlsAreNotSpoken) {
  start(config());
  SSL_CTX_set_min_proto_version(context_, TLS1_VERSION);
  SSL_CTX_set_max_proto_version(context_, TLS1_1_VERSION);
  ::SSL_CTX_set_security_level(context_, 0);
  auto c = client();
  EXPECT_FALSE(c.start_tls(context_));
}

TEST_F(TlsServerTest, AThousandIdleConnectionsKeepNoRecords) {
  auto many = config();
  many.http_max_connections = 2000;
  start(many);
  const auto resident_bytes = [] {
    std::ifstream statm("/proc/self/statm");
    std::size_t size = 0;
    std::size_t resident = 0;
    statm >> size >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  };
  SSL_CTX_set_mode(context_, SSL_MODE_RELEASE_BUFFERS);  // the clients are in this process too
  { auto c = tls_client(); }
  const auto before = resident_bytes();
  std::vector<TestClient> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(tls_client());
    idle.back().get("/health");
    EXPECT_EQ(idle.back().receive().status, 200);
  }
  std::printf("1000 idle TLS connections, their clients included: %zu KiB\n", (resident_bytes() - before) >> 10);
}

TEST_F(TlsServerTest, FilesThatAreNoGoodAreNamed) {
  std::ofstream(file("empty.pem")).flush();
  struct {
    std::string cert, key, named;
    ErrorCode code;
  } const cases[]{
      {file("none.pem"), file("key.pem"), "none.pem", ErrorCode::io_failed},
      {file("cert.pem"), file("none.pem"), "none.pem", ErrorCode::io_failed},
      {file("empty.pem"), file("key.pem"), "empty.pem", ErrorCode::bad_config},
      {file("key.pem"), file("key.pem"), "key.pem", ErrorCode::bad_config},
      {file("cert.pem"), file("empty.pem"), "empty.pem", ErrorCode::bad_config},
      {file("cert.pem"), file("other_key.pem"), "other_key.pem", ErrorCode::bad_config},
      {folder_, file("key.pem"), folder_, ErrorCode::bad_config},
  };
  for (const auto& each : cases) {
    auto bad = config();
    bad.http = "127.0.0.1:0";
    bad.tls_cert = each.cert;
    bad.tls_key = each.key;
    const auto server = Server::start(bad, routes());
    ASSERT_FALSE(server.has_value()) << each.named;
    EXPECT_EQ(server.error().code, each.code) << server.error().message;
    EXPECT_NE(server.error().message.find(each.named), std::string::npos) << server.error().message;
  }
}

}  // namespace
}  // namespace pagoda::http
