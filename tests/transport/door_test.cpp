// Who comes in at a door, who does not, and what neither can do to the others.
#include <fcntl.h>
#include <sys/resource.h>

#include <filesystem>
#include <thread>

#include <boost/asio/read.hpp>

#include "tests/transport/entrance.h"

namespace gradledger::testing {
namespace {

std::string heard(Socket& socket, std::size_t bytes) {
  std::string text(bytes, '\0');
  boost::asio::read(socket, boost::asio::buffer(text));
  return text;
}

class a_door : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(transport, a_door, ::testing::Values(Kind::unix_socket, Kind::tcp), [](const auto& info) { return info.param == Kind::tcp ? "tcp" : "unix"; });

TEST_P(a_door, lets_in_who_shows_the_secret_and_loses_nothing_that_comes_behind_it) {
  Entrance entrance({}, GetParam());
  Socket mine = entrance.guest();
  say(mine, "hello");
  ASSERT_TRUE(entrance.run_until([&] { return entrance.guests.size() == 1; }));
  EXPECT_EQ(entrance.door.strangers(), 0u);
  EXPECT_EQ(heard(entrance.guests[0], 5), "hello");
  say(entrance.guests[0], "reply");
  EXPECT_EQ(heard(mine, 5), "reply");
}

TEST_P(a_door, waits_for_a_secret_that_comes_in_pieces) {
  Entrance entrance({}, GetParam());
  Socket mine = entrance.stranger();
  for (const char digit : entrance.secret) {
    EXPECT_FALSE(entrance.run_until([&] { return !entrance.guests.empty() || sent_away(mine); }, 1ms));
    say(mine, std::string(1, digit));
  }
  EXPECT_TRUE(entrance.run_until([&] { return entrance.guests.size() == 1; }));
}

TEST_P(a_door, sends_away_whoever_shows_another_secret_at_any_digit_and_answers_nothing) {
  Entrance entrance({.deadline = 60s}, GetParam());
  for (const std::size_t at : {std::size_t{0}, std::size_t{31}, transport::secret_bytes - 1}) {
    std::string other = entrance.secret;
    other[at] = other[at] == '0' ? '1' : '0';
    Socket one = entrance.stranger();
    say(one, other + entrance.secret + "and the right one behind it");
    EXPECT_TRUE(entrance.run_until([&] { return sent_away(one); })) << at;
  }
  EXPECT_TRUE(entrance.guests.empty());
}

TEST_P(a_door, sends_away_who_is_silent_slow_or_one_digit_short_when_the_time_is_over) {
  Entrance entrance({.deadline = 150ms}, GetParam());
  const auto started = std::chrono::steady_clock::now();
  Socket silent = entrance.stranger(), brief = entrance.stranger(), slow = entrance.stranger();
  say(brief, entrance.secret.substr(1));
  int digits = 0;  // now and then: they buy no time
  const auto all_gone = [&] { return entrance.door.strangers() == 0; };
  ASSERT_TRUE(entrance.run_until([&] { return entrance.door.strangers() == 3; }));
  while (!entrance.run_until(all_gone, 10ms) && ++digits < 60) say(slow, "0");
  EXPECT_TRUE(entrance.run_until(all_gone));
  EXPECT_GE(std::chrono::steady_clock::now() - started, 150ms);
  for (Socket* one : {&silent, &brief, &slow}) EXPECT_TRUE(entrance.run_until([&] { return sent_away(*one); }));
  EXPECT_TRUE(entrance.guests.empty());
}

TEST_P(a_door, forgets_who_leaves_again) {
  Entrance entrance({.deadline = 60s}, GetParam());
  Socket one = entrance.stranger();
  ASSERT_TRUE(entrance.run_until([&] { return entrance.door.strangers() == 1; }));
  one.close();
  EXPECT_TRUE(entrance.run_until([&] { return entrance.door.strangers() == 0; }));
}

TEST_P(a_door, sends_the_oldest_stranger_away_when_there_are_too_many) {
  Entrance entrance({.deadline = 60s, .strangers_max = 4}, GetParam());
  std::vector<Socket> strangers;
  for (int i = 0; i < 6; ++i) {
    strangers.push_back(entrance.stranger());
    entrance.run_until([&] { return entrance.door.strangers() > static_cast<std::size_t>(std::min(i, 3)); });
  }
  EXPECT_TRUE(entrance.run_until([&] { return sent_away(strangers[0]) && sent_away(strangers[1]); }));
  for (std::size_t i = 2; i < strangers.size(); ++i) EXPECT_FALSE(sent_away(strangers[i])) << i;
  EXPECT_EQ(entrance.door.strangers(), 4u);
  Socket mine = entrance.guest();
  EXPECT_TRUE(entrance.run_until([&] { return entrance.guests.size() == 1; })) << "there is room for who knows the secret";
}

// The process has at most so many files open while this lives.
class FewFiles {
 public:
  explicit FewFiles(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{most, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_P(a_door, goes_on_after_there_were_no_more_files_to_open) {
  Entrance entrance({.deadline = 60s, .pause = 5ms}, GetParam());
  std::vector<Socket> strangers;
  for (int i = 0; i < 30; ++i) strangers.push_back(entrance.stranger());
  Socket mine = entrance.guest();
  const FewFiles few(64);
  EXPECT_TRUE(entrance.run_until([&] { return entrance.guests.size() == 1; })) << "30 strangers, and 64 files in all";
  EXPECT_LT(entrance.door.strangers(), strangers.size()) << "there were enough files for all: this has shown nothing";
}

TEST_P(a_door, that_is_closed_while_it_pauses_pauses_no_longer) {
  Entrance entrance({.deadline = 60s, .pause = 60s}, GetParam());
  Socket stranger = entrance.stranger();
  {
    const FewFiles none(static_cast<rlim_t>(stranger.native_handle()));
    EXPECT_FALSE(entrance.run_until([&] { return entrance.door.strangers() > 0; }, 50ms)) << "there was a file for him: this shows nothing";
  }
  entrance.door.close();
  entrance.context.restart();
  entrance.context.run_for(10s);
  EXPECT_TRUE(entrance.context.stopped());
}

TEST_P(a_door, that_is_closed_has_nothing_more_to_do_and_leaves_who_is_in_alone) {
  Entrance entrance({.deadline = 60s}, GetParam());
  Socket mine = entrance.guest(), stranger = entrance.stranger();
  ASSERT_TRUE(entrance.run_until([&] { return entrance.guests.size() == 1 && entrance.door.strangers() == 1; }));
  entrance.door.close();
  entrance.door.close();
  entrance.context.restart();
  entrance.context.run_for(10s);
  EXPECT_TRUE(entrance.context.stopped()) << "something is still waited for";
  EXPECT_TRUE(sent_away(stranger));
  say(entrance.guests[0], "still");
  EXPECT_EQ(heard(mine, 5), "still");
  EXPECT_FALSE(std::filesystem::exists(entrance.folder.path() / "door"));
  EXPECT_THROW(transport::knock(entrance.outside, entrance.door.address(), entrance.secret, 20ms), std::runtime_error);
}

TEST_P(a_door, may_be_closed_by_whoever_is_told_of_a_guest) {
  Entrance entrance({}, GetParam());
  std::optional<Door> door;
  int guests = 0;
  door.emplace(entrance.context, GetParam() == Kind::tcp ? Address::tcp("127.0.0.1", 0) : Address::unix_socket(entrance.folder.path() / "other"), entrance.secret, [&](Socket) {
    ++guests;
    door.reset();
  });
  Socket one = transport::knock(entrance.outside, door->address(), entrance.secret, 5s), late = transport::knock(entrance.outside, door->address(), entrance.secret, 5s);
  EXPECT_TRUE(entrance.run_until([&] { return guests == 1 && sent_away(one) && sent_away(late); }));
  EXPECT_EQ(guests, 1);
}

TEST_P(a_door, keeps_its_connections_from_processes_that_are_started_later) {
  Entrance entrance({}, GetParam());
  Socket mine = entrance.guest();
  ASSERT_TRUE(entrance.run_until([&] { return entrance.guests.size() == 1; }));
  for (const int descriptor : {mine.native_handle(), entrance.guests[0].native_handle()}) EXPECT_EQ(fcntl(descriptor, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(a_door_in_the_file_system, is_refused_where_something_else_lies_and_leaves_that_alone) {
  const transport::PrivateFolder folder;
  boost::asio::io_context context;
  const Address taken = Address::unix_socket(folder.path() / "door");
  const Door first(context, taken, transport::make_secret(), [](Socket) {});
  try {
    const Door second(context, taken, transport::make_secret(), [](Socket) {});
    FAIL() << "two doors at one place";
  } catch (const std::runtime_error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("nobody can listen at " + taken.text() + ": ")) << error.what();
  }
  EXPECT_TRUE(std::filesystem::exists(taken.path)) << "it is the first one's";
}

}  // namespace
}  // namespace gradledger::testing
