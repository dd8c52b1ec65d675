// What a driver in C++ makes of messages that say what cannot be.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gradledger/driver.hpp"

namespace library_test {
namespace {

using nlohmann::json;
using namespace gradledger::detail;

json bytes(std::size_t count) { return json::binary(std::vector<std::uint8_t>(count)); }

json configure(const json& second) {
  return {{"parameters", {{{"name", "w0"}, {"numel", 6}, {"trainable", true}, {"weights", bytes(24)}}, second}},
          {"engine", json::object()},
          {"model_dtype", "fp32"},
          {"linear", true},
          {"seed", 0}};
}

json parameter(const char* key, const json& value) { return {{"name", "w1"}, {"numel", 4}, {"trainable", true}, {key, value}}; }

template <class Call>
std::string refusal_of(Call&& call) {
  try {
    call();
  } catch (const BadMessage& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string refusal_of_parameter(const char* key, const json& value) {
  return refusal_of([&] { configuration_of(configure(parameter(key, value)), 0, 2); });
}

TEST(a_configuration, of_the_wrong_size_is_refused_with_the_place) {
  EXPECT_EQ(refusal_of_parameter("weights", bytes(15)), "/parameters/1/weights: has 15 bytes; expected those of 4 fp32");
  EXPECT_EQ(refusal_of_parameter("weights", bytes(20)), "/parameters/1/weights: has 20 bytes; expected those of 4 fp32");
  EXPECT_EQ(refusal_of_parameter("weights", "text"), "/parameters/1/weights: is no string of bytes");
  EXPECT_EQ(refusal_of_parameter("weights", bytes(16)), "nothing was thrown");
}

TEST(a_tied_parameter, names_another_that_is_there) {
  for (const json& wrong : {json(2), json(-1), json("w0"), json(1)})
    EXPECT_EQ(refusal_of_parameter("tied_to", wrong), "/parameters/1/tied_to: is " + wrong.dump() + "; expected the number of a parameter that is not tied itself, of 2");
  EXPECT_EQ(refusal_of_parameter("tied_to", 0u), "nothing was thrown");
}

TEST(a_gradient, of_the_wrong_size_or_of_no_parameter_is_refused_and_no_error_of_the_wrapper) {
  const auto configuration = configuration_of(configure(parameter("weights", bytes(16))), 0, 2);
  const auto refusal = [&](const json& uses, std::size_t size) {
    const json event{{"arguments", {{"micro_batch", 0}, {"uses", uses}}}, {"gradients", {{"1", bytes(size)}}}};
    return refusal_of([&] { raised_by([&] { backward_of(event, 0, configuration); }); });
  };
  EXPECT_EQ(refusal({1u}, 18), "/gradients/1: has 18 bytes; expected those of 4 fp32");
  EXPECT_EQ(refusal({7u}, 16), "/arguments/uses: has 7; expected the number of one of 2 parameters");
  EXPECT_EQ(refusal({1u}, 16), "nothing was thrown");
}

// Of this process.
std::ptrdiff_t open_descriptors() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()); }

TEST(a_connection, is_made_to_the_address_of_a_name_at_which_somebody_listens) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);  // and not at ::1, which is localhost too
  socklen_t size = sizeof(at);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&at), size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size), 0);
  const std::string address = "tcp:localhost:" + std::to_string(ntohs(at.sin_port));
  const int connected = connected_socket(address);
  EXPECT_GE(connected, 0);
  close(connected);
  close(listener);

  const std::ptrdiff_t before = open_descriptors();
  for (const std::string& nobody : {address, std::string("unix:/nowhere/socket")}) EXPECT_THROW(connected_socket(nobody), std::runtime_error) << nobody;
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace library_test
