#include "io/serving/key_ring.hpp"

#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "io/serving/keys_file.hpp"
#include "io/serving/tenancy.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::serving {
namespace {

KeySet::Entry named(const std::string& name, const std::string& key) {
  return {digest_of(key), {.name = name}};
}

KeySet set_of(const std::vector<KeySet::Entry>& entries) {
  KeySet keys;
  for (const auto& entry : entries) EXPECT_TRUE(keys.add(entry.digest, entry.tenant));
  return keys;
}

TEST(KeyRing, ADigestIsThatOfSha256) {
  EXPECT_EQ(to_hex(digest_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(KeyRing, FindsWholeKeysAlone) {
  const auto ring = *make_key_ring({"first", "second"}, {"admin"});
  ASSERT_TRUE(ring->find("first"));
  EXPECT_FALSE(ring->find("first")->is_admin());
  EXPECT_TRUE(ring->find("admin")->is_admin());
  EXPECT_NE(ring->find("first")->id, ring->find("second")->id);
  for (const auto* wrong : {"", "firs", "firstt", "FIRST", " first", "first\n"})
    EXPECT_FALSE(ring->find(wrong)) << wrong;
  // Whoever has the file, or a dump of the memory, has no key.
  EXPECT_FALSE(ring->find(to_hex(digest_of("first"))));
  EXPECT_EQ(ring->find("first")->id.find("first"), std::string::npos);
  EXPECT_EQ(ring->find("first")->id.find(to_hex(digest_of("first"))), std::string::npos);
}

TEST(KeyRing, AdminKeysDoNotCloseTheOtherRoutes) {
  EXPECT_FALSE(KeyRing().requires_keys());
  EXPECT_FALSE((*make_key_ring({}, {"admin"}))->requires_keys());
  EXPECT_TRUE((*make_key_ring({}, {"admin"}))->has_admins());
  EXPECT_TRUE((*make_key_ring({"key"}))->requires_keys());
  EXPECT_FALSE((*make_key_ring({"key"}))->has_admins());
}

TEST(KeyRing, AKeyHasOneRoleAndIsNotEmpty) {
  EXPECT_EQ(make_key_ring({""}).error().param, "api_keys");
  EXPECT_EQ(make_key_ring({"a"}, {""}).error().param, "admin_keys");
  EXPECT_EQ(make_key_ring({"both"}, {"both"}).error().param, "admin_keys");
  EXPECT_TRUE(make_key_ring({"twice", "twice"}));
}

TEST(KeyRing, KeysOfOneNameAreOneTenant) {
  const KeyRing ring(set_of({named("alice", "old"), named("alice", "new"), named("bob", "his")}));
  EXPECT_EQ(ring.find("old"), ring.find("new"));
  EXPECT_NE(ring.find("old"), ring.find("his"));
  EXPECT_TRUE(ring.has_names());
}

TEST(KeyRing, KeysOfOneNameMustSayTheSame) {
  auto keys = set_of({named("alice", "old")});
  auto other = named("alice", "new");
  other.tenant.limits.requests_per_minute = 5;
  EXPECT_FALSE(keys.add(other.digest, other.tenant));
  EXPECT_FALSE(keys.add(digest_of("old"), Tenant{.name = "bob"})) << "the same key again";
}

TEST(KeyRing, WhatATenantHasUsedOutlivesAReload) {
  auto alice = named("alice", "key");
  alice.tenant.limits.requests_per_minute = 2;
  KeyRing ring(set_of({alice, named("bob", "his")}));
  const auto before = ring.find("key");
  EXPECT_FALSE(before->usage->admit(2, 1, LimitClock::now()));
  alice.digest = digest_of("another");
  ring.replace(set_of({alice}));
  EXPECT_TRUE(before->is_outdated);
  EXPECT_FALSE(ring.find("key"));
  EXPECT_FALSE(ring.find("his"));
  const auto after = ring.find("another");
  EXPECT_EQ(after->usage, before->usage);
  EXPECT_EQ(after->id, before->id);
  EXPECT_TRUE(after->usage->admit(1, 1, LimitClock::now()));
  EXPECT_FALSE(after->is_outdated);
}

class KeysFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const auto path = (folder_.path() / "keys").string();
    std::ofstream(path) << text;
    return path;
  }
  std::string problem(const std::string& text) {
    KeySet keys;
    const auto path = write(text);
    const auto read = read_keys_file(path, keys);
    if (read) return "";
    EXPECT_EQ(read.error().code, ErrorCode::bad_config);
    EXPECT_TRUE(read.error().message.starts_with(path + ":")) << read.error().message;
    return read.error().message.substr(path.size());
  }
  static std::string line(const std::string& name, const std::string& more = "", const std::string& key = "key") {
    return R"({"name": ")" + name + R"(", "sha256": ")" + to_hex(digest_of(key)) + "\"" + more + "}\n";
  }

  test::TemporaryFolder folder_;
};

TEST_F(KeysFile, IsReadAsItIsWritten) {
  const KeySet::Entry entry{digest_of("key"),
                            {.name = "alice.b-c_9",
                             .role = KeyRole::admin,
                             .limits = {.requests_per_minute = 1, .tokens_per_minute = 2, .max_concurrent_requests = 3},
                             .priority = -4,
                             .share_prefix_cache = true}};
  const auto path = write("# comment\n\n" + keys_file_line(entry) + "\r\n" + keys_file_line(named("bob", "his")));
  KeySet keys;
  EXPECT_EQ(read_keys_file(path, keys), 2U);
  EXPECT_EQ(keys.entries[0].tenant, entry.tenant);
  EXPECT_EQ(keys.entries[0].digest, entry.digest);
  EXPECT_EQ(keys.entries[1].tenant, Tenant{.name = "bob"});
}

TEST_F(KeysFile, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_EQ(problem(line("alice")), "");
  EXPECT_EQ(problem(line("alice") + "\n# x\n" + line("bob", "", "b").substr(1)).substr(0, 3), ":4:");
  EXPECT_NE(problem("sk-some-key\n").find(":1: "), std::string::npos);
  EXPECT_EQ(problem("[1]\n"), ":1: a line must be one JSON object");
  EXPECT_NE(problem(line("a b")).find("letters, digits"), std::string::npos);
  EXPECT_NE(problem(line("")).find("letters, digits"), std::string::npos);
  EXPECT_NE(problem(line(std::string(65, 'a'))).find("1 to 64"), std::string::npos);
  EXPECT_NE(problem(R"({"name": "alice"})").find("sha256"), std::string::npos);
  EXPECT_NE(problem(R"({"name": "alice", "sha256": "12"})").find("64 hexadecimal digits"), std::string::npos);
  EXPECT_NE(problem(line("alice", R"(, "role": "root")")).find("role must be user or admin"), std::string::npos);
  EXPECT_NE(problem(line("alice", R"(, "requests_per_minute": -1)")).find("requests_per_minute"), std::string::npos);
  EXPECT_NE(problem(line("alice", R"(, "tokens_per_minute": 1.5)")).find("tokens_per_minute"), std::string::npos);
  EXPECT_NE(problem(line("alice", R"(, "priority": 1000001)")).find("priority"), std::string::npos);
  EXPECT_NE(problem(line("alice", R"(, "limit": 5)")).find("unknown field \"limit\""), std::string::npos);
  EXPECT_NE(problem(line("alice") + line("bob")).find(":2: this key appears twice"), std::string::npos);
  EXPECT_NE(problem(line("alice") + line("alice", R"(, "role": "admin")", "other")).find("a different role"),
            std::string::npos);
}

/// A key that was put there as it is must not come to a log by the message about it.
TEST_F(KeysFile, NoMessageRepeatsTheLine) {
  for (const auto& text :
       {std::string("sk-secret\n"), std::string(R"({"name": "sk-secret key", "sha256": "sk-secret"})"),
        std::string(R"({"name": "a", "sha256": "sk-secret"})"),
        std::string(R"({"name": "a", "sha256": 5, "role": "sk-secret"})")}) {
    const auto message = problem(text);
    EXPECT_NE(message, "") << text;
    EXPECT_EQ(message.find("sk-secret"), std::string::npos) << message;
  }
}

TEST_F(KeysFile, OneThatCannotBeReadIsAnError) {
  KeySet keys;
  EXPECT_EQ(read_keys_file((folder_.path() / "none").string(), keys).error().code, ErrorCode::io_failed);
  EXPECT_EQ(read_keys_file(write("# nobody\n"), keys), 0U);
}

TEST_F(KeysFile, BlankLinesAreNoKeys) {
  KeySet keys;
  EXPECT_EQ(read_keys_file(write(line("alice") + " \t\r\n"), keys), 1U);
  KeySet plain;
  EXPECT_TRUE(read_plain_keys(write("  \n\t\r\n# comment\nkey\n"), KeyRole::user, "api_key_file", plain));
  EXPECT_EQ(plain.entries.size(), 1U);
  EXPECT_EQ(read_plain_keys(write("   \n"), KeyRole::user, "api_key_file", plain).error().code, ErrorCode::bad_config);
}

TEST(NewKeys, AreLongAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const auto key = *new_key();
    EXPECT_EQ(key.size(), 10U + 64U);
    EXPECT_TRUE(seen.insert(key).second);
  }
}

class Tenancy : public testing::Test {
 protected:
  static std::vector<KeySet::Entry> entries() {
    auto sharing = named("carol", "carol's");
    sharing.tenant.share_prefix_cache = true;
    auto first = named("first", "first's");
    first.tenant.priority = -10;
    return {named("alice", "alice's"), named("bob", "bob's"), sharing, first};
  }
  GenerateRequest applied(const std::string& key, GenerateRequest request = {}) {
    apply_tenant(ring_, ring_.find(key), request);
    return request;
  }
  std::string salt(const std::string& key, const std::string& wished = "") {
    GenerateRequest request;
    request.cache_salt = wished;
    return applied(key, request).cache_salt;
  }

  KeyRing ring_{set_of(entries())};
};

TEST_F(Tenancy, TheKeysNameIsTheTenantWhateverTheRequestSays) {
  GenerateRequest request;
  request.user = "bob";
  EXPECT_EQ(applied("alice's", request).user, "alice");
  EXPECT_EQ(applied("none", request).user, "");
}

TEST_F(Tenancy, ATenantsSaltIsItsOwnAndCannotBeWritten) {
  const std::set<std::string> salts{salt("alice's"),
                                    salt("bob's"),
                                    salt("carol's"),
                                    salt("alice's", "x"),
                                    salt("bob's", "x"),
                                    salt("carol's", "x"),
                                    salt("carol's", salt("alice's"))};
  EXPECT_EQ(salts.size(), 7U);
  EXPECT_EQ(salt("alice's", "x"), salt("alice's", "x"));
  EXPECT_EQ(salt("carol's"), "") << "it shares";
  EXPECT_EQ(salt("carol's"), salt("none"));
  EXPECT_EQ(salt("carol's", "x"), salt("none", "x"));
  EXPECT_LE(salt("alice's", std::string(256, 'x')).size(), kMaxCacheSaltBytes);
}

TEST_F(Tenancy, ARequestPutsItselfBackNotForward) {
  const auto priority = [&](const std::string& key, std::int64_t wished) {
    GenerateRequest request;
    request.priority = wished;
    return applied(key, request).priority;
  };
  EXPECT_EQ(priority("alice's", 0), 0);
  EXPECT_EQ(priority("alice's", -5), 0);
  EXPECT_EQ(priority("alice's", 5), 5);
  EXPECT_EQ(priority("first's", 0), -10);
  EXPECT_EQ(priority("first's", -5), -10);
  EXPECT_EQ(priority("first's", 3), -7);
  EXPECT_EQ(priority("alice's", INT64_MAX), INT64_MAX);
}

TEST_F(Tenancy, WhereNoKeyHasANameRequestsStayAsTheyAre) {
  const auto ring = *make_key_ring({"key"});
  GenerateRequest request;
  request.user = "somebody";
  request.cache_salt = "salt";
  request.priority = -3;
  apply_tenant(*ring, ring->find("key"), request);
  EXPECT_EQ(request.user, "somebody");
  EXPECT_EQ(request.cache_salt, "salt");
  EXPECT_EQ(request.priority, -3);
}

}  // namespace
}  // namespace pagoda::serving
