// How far a long run is, and where that is never said.
#include <cstdio>

#include "tests/tools/command.h"
#include "tools/gradledger/interruption.h"
#include "tools/gradledger/progress.h"

namespace gradledger {
namespace {

using tool::Progress;

// What a progress writes while `work` runs.
template <class Work>
std::string written(Progress::Manner manner, Work&& work) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress("beginning", manner, file);
    work(progress);
  }
  std::string out(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(out.data(), 1, out.size(), file), out.size());
  std::fclose(file);
  return out;
}

constexpr std::chrono::milliseconds soon{5}, while_drawn{200};

TEST(progress, in_a_log_is_a_line_now_and_then) {
  const std::string text = written({false, soon}, [](Progress& progress) {
    progress.set("3 of 7");
    std::this_thread::sleep_for(while_drawn);
  });
  EXPECT_NE(text.find("gradledger: 0 s: 3 of 7\n"), std::string::npos) << text;
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(progress, on_a_terminal_is_one_line_that_goes_away) {
  const std::string text = written({true, soon}, [](Progress& progress) {
    progress.set("3 of 7\nof " + std::string(300, 'x'));
    std::this_thread::sleep_for(while_drawn);
    progress.aside([] {});
  });
  EXPECT_NE(text.find("\r\x1b[Kgradledger: 0 s: 3 of 7\\x0aof xxx"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find(std::string(80, 'x')), std::string::npos) << "no longer than a line";
  EXPECT_TRUE(text.ends_with("\r\x1b[K")) << text;
}

TEST(progress, of_a_short_run_is_not_told) {
  EXPECT_EQ(written({}, [](Progress& progress) { progress.set("done"); }), "");
  EXPECT_EQ(testing::run({"gate", testing::clean_scenario}).err, "");
}

TEST(an_interruption, is_noted_once_and_gives_the_code_of_a_shell) {
  const tool::Interruption interruption;
  EXPECT_EQ(tool::Interruption::signal(), 0);
  EXPECT_EQ(tool::Interruption::exit_code_or(1), 1);
  EXPECT_STREQ(tool::Interruption::name(), "");
  raise(SIGINT);
  EXPECT_EQ(tool::Interruption::signal(), SIGINT);
  EXPECT_EQ(tool::Interruption::exit_code_or(1), 130);
  EXPECT_STREQ(tool::Interruption::name(), "SIGINT");
}

}  // namespace
}  // namespace gradledger
