// The other side of a door: it waits for one that is not there yet, not for ever, and says where it knocked.
#include <thread>

#include "tests/transport/entrance.h"

namespace gradledger::testing {
namespace {

// What is said where nobody opens, and whether that took about as long as it may.
std::string not_reached(const Address& address) {
  boost::asio::io_context context;
  const auto started = std::chrono::steady_clock::now();
  std::string said;
  try {
    transport::knock(context, address, transport::make_secret(), 200ms);
  } catch (const std::runtime_error& error) {
    said = error.what();
  }
  const auto took = std::chrono::steady_clock::now() - started;
  EXPECT_GE(took, 150ms) << "a door may open until then";
  EXPECT_LT(took, 5s);
  return said;
}

TEST(who_knocks, waits_for_a_door_that_opens_later) {
  const transport::PrivateFolder folder;
  const std::string secret = transport::make_secret();
  const Address address = Address::unix_socket(folder.path() / "door");
  boost::asio::io_context outside, context;
  std::optional<Socket> mine;  // goes before the context that it belongs to
  std::thread knocking([&] { mine = transport::knock(outside, address, secret, 20s); });
  std::this_thread::sleep_for(100ms);
  bool came = false;
  Door door(context, address, secret, [&](Socket) {
    came = true;
    context.stop();
  });
  context.run_for(20s);
  knocking.join();
  EXPECT_TRUE(came);
  EXPECT_TRUE(mine);
}

TEST(who_knocks, gives_up_at_the_deadline_and_says_where) {
  const transport::PrivateFolder folder;
  const Address nowhere = Address::unix_socket(folder.path() / "door");
  EXPECT_EQ(not_reached(nowhere), "nobody is reached at " + nowhere.text() + ": No such file or directory");
  boost::asio::io_context context;
  boost::asio::ip::tcp::acceptor taken(context, {boost::asio::ip::address_v4::loopback(), 0});
  const Address refused = Address::tcp("127.0.0.1", taken.local_endpoint().port());
  taken.close();
  EXPECT_EQ(not_reached(refused), "nobody is reached at " + refused.text() + ": Connection refused");
}

// A connection to whom nobody accepts is neither made nor refused.
TEST(who_knocks, gives_up_at_the_deadline_where_nobody_takes_connections) {
  const transport::PrivateFolder folder;
  const std::string path = folder.path() / "full";
  boost::asio::io_context context;
  boost::asio::local::stream_protocol::acceptor full_unix(context);
  full_unix.open();
  full_unix.bind(path);
  full_unix.listen(0);
  boost::asio::ip::tcp::acceptor full_tcp(context);
  full_tcp.open(boost::asio::ip::tcp::v4());
  full_tcp.bind({boost::asio::ip::address_v4::loopback(), 0});
  full_tcp.listen(0);
  std::vector<Socket> queue;
  for (int i = 0; i < 4; ++i)
    for (const bool tcp : {false, true}) {
      Socket& one = queue.emplace_back(context);
      one.open(tcp ? Socket::protocol_type(boost::asio::ip::tcp::v4()) : Socket::protocol_type(boost::asio::local::stream_protocol()));
      one.native_non_blocking(true);
      const Socket::endpoint_type place = tcp ? Socket::endpoint_type(full_tcp.local_endpoint()) : Socket::endpoint_type(full_unix.local_endpoint());
      ::connect(one.native_handle(), place.data(), static_cast<socklen_t>(place.size()));
    }
  EXPECT_TRUE(not_reached(Address::unix_socket(path)).starts_with("nobody is reached at unix:" + path + ": "));
  const Address tcp = Address::tcp("127.0.0.1", full_tcp.local_endpoint().port());
  EXPECT_EQ(not_reached(tcp), "nobody is reached at " + tcp.text() + ": Connection timed out");
}

}  // namespace
}  // namespace gradledger::testing
