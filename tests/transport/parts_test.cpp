// Addresses, secrets and folders.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "sim/transport/address.h"
#include "sim/transport/private_folder.h"
#include "sim/transport/secret.h"

namespace gradledger::testing {
namespace {

using transport::Address;

TEST(an_address, is_read_as_it_is_written) {
  const std::string longest = "/" + std::string(Address::path_bytes_max - 1, 'x');
  for (const Address& address :
       {Address::unix_socket("/tmp/a:b/door"), Address::unix_socket(longest), Address::tcp("127.0.0.1", 0), Address::tcp("node-1.cluster", 65535), Address::tcp("::1", 7000)}) {
    const auto read = Address::parse(address.text());
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(*read, address) << address.text();
  }
  EXPECT_EQ(Address::tcp("::1", 7000).text(), "tcp:[::1]:7000");
}

TEST(an_address, that_is_none_is_quoted_with_what_is_wrong) {
  const std::pair<std::string, const char*> wrong[] = {{"", "is neither"},
                                                       {"/tmp/door", "is neither"},
                                                       {"127.0.0.1:80", "is neither"},
                                                       {"unix:", "has no absolute path"},
                                                       {"unix:door", "has no absolute path"},
                                                       {"unix:/" + std::string(Address::path_bytes_max, 'x'), "has a path of more than 107 bytes"},
                                                       {std::string("unix:/a\0b", 9), "has a zero byte"},
                                                       {"tcp:", "has no port"},
                                                       {"tcp:host", "has no port"},
                                                       {"tcp::80", "has no host"},
                                                       {"tcp:[]:80", "has no host"},
                                                       {"tcp:::1:80", "has no host"},
                                                       {"tcp:host:", "has a port"},
                                                       {"tcp:host:65536", "has a port"},
                                                       {"tcp:host:-1", "has a port"},
                                                       {"tcp:host:80x", "has a port"}};
  for (const auto& [text, why] : wrong) {
    const auto read = Address::parse(text);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().message.find(why), std::string::npos) << text << " -> " << read.error().message;
    EXPECT_NE(read.error().message.find("expected unix:PATH"), std::string::npos);
  }
}

TEST(a_secret, has_64_hexadecimal_digits_and_is_another_one_each_time) {
  std::set<std::string> made;
  std::set<char> digits;
  for (int i = 0; i < 100; ++i) {
    const std::string secret = transport::make_secret();
    EXPECT_TRUE(transport::is_secret(secret)) << secret;
    made.insert(secret);
    digits.insert(secret.begin(), secret.end());
  }
  EXPECT_EQ(made.size(), 100u);
  EXPECT_EQ(digits.size(), 16u);
}

TEST(a_secret, is_told_from_what_is_none) {
  const std::string good(64, 'a');
  EXPECT_TRUE(transport::is_secret(good));
  EXPECT_TRUE(transport::is_secret(std::string(63, '0') + "F"));
  for (const std::string& bad : {std::string(), good + "a", good.substr(1), std::string(63, 'a') + "g", std::string(63, 'a') + "\n", std::string("gradledger")})
    EXPECT_FALSE(transport::is_secret(bad)) << bad;
}

TEST(a_secret, is_the_same_only_where_every_digit_is) {
  const std::string one = transport::make_secret();
  EXPECT_TRUE(transport::same_secret(one, std::string(one)));
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::string other = one;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(transport::same_secret(one, other)) << i;
  }
}

TEST(a_private_folder, can_be_entered_by_the_user_alone_and_goes_with_all_that_is_in_it) {
  std::filesystem::path path;
  {
    const transport::PrivateFolder folder;
    path = folder.path();
    struct stat facts {};
    ASSERT_EQ(stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 07777, 0700u);
    std::filesystem::create_directory(path / "inner");
    std::ofstream(path / "inner" / "file") << "x";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(a_private_folder, lies_in_tmpdir_unless_that_is_relative_or_too_long_for_a_socket) {
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  const transport::PrivateFolder outer;
  const std::filesystem::path lengthy = outer.path() / std::string(80, 'x');
  std::filesystem::create_directory(lengthy);
  const auto parent_with = [](const std::string& tmpdir) {
    setenv("TMPDIR", tmpdir.c_str(), 1);
    return transport::PrivateFolder().path().parent_path();
  };
  EXPECT_EQ(parent_with(outer.path()), outer.path());
  EXPECT_EQ(parent_with("here"), "/tmp");
  EXPECT_EQ(parent_with(lengthy), "/tmp");
  if (before) setenv("TMPDIR", kept.c_str(), 1);
  else unsetenv("TMPDIR");
}

}  // namespace
}  // namespace gradledger::testing
