// Files that are there whole or not at all.
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "verbs/new_file.h"
#include "verbs/scenario_files.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

std::size_t entries_of(const fs::path& folder) { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator())); }

TEST(a_new_file, is_written_where_there_was_none_and_nowhere_else) {
  const TemporaryFolder folder;
  const auto written = verbs::write_new_file(folder.path() / "a", "text");
  ASSERT_TRUE(written) << written.error().text();
  EXPECT_TRUE(*written);
  EXPECT_EQ(text_of(folder.path() / "a"), "text");
  EXPECT_EQ(entries_of(folder.path()), 1u);
  const mode_t mask = umask(0);
  umask(mask);
  struct stat status {};
  stat((folder.path() / "a").c_str(), &status);
  EXPECT_EQ(status.st_mode & 0777, 0666 & ~mask);
}

TEST(a_new_file, takes_no_name_that_something_has) {
  const TemporaryFolder folder;
  folder.write("file", "old");
  fs::create_directory(folder.path() / "folder");
  fs::create_symlink(folder.path() / "elsewhere", folder.path() / "dangling");
  for (const char* name : {"file", "folder", "dangling"}) {
    const auto written = verbs::write_new_file(folder.path() / name, "new");
    ASSERT_TRUE(written) << name;
    EXPECT_FALSE(*written) << name;
  }
  EXPECT_EQ(text_of(folder.path() / "file"), "old");
  EXPECT_FALSE(fs::exists(folder.path() / "elsewhere"));
}

TEST(a_new_file, that_cannot_be_written_names_the_cause) {
  const TemporaryFolder folder;
  const auto written = verbs::write_new_file(folder.path() / "missing/a", "new");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().text(), (folder.path() / "missing/a").string() + ": cannot be written: No such file or directory");
}

TEST(a_file_that_is_replaced, keeps_its_permissions_and_the_link_to_it) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("a", "old"), link = folder.path() / "link";
  fs::permissions(file, fs::perms(0640));
  fs::create_symlink("a", link);
  ASSERT_TRUE(verbs::replace_file(link, "new"));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(text_of(file), "new");
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0640));
  EXPECT_EQ(entries_of(folder.path()), 2u);
  ASSERT_TRUE(verbs::replace_file(folder.path() / "b", "first"));
  EXPECT_EQ(text_of(folder.path() / "b"), "first");
  EXPECT_FALSE(verbs::replace_file("/dev/full", "new"));
}

TEST(a_report, is_written_through_what_is_no_plain_file) {
  const TemporaryFolder folder;
  const fs::path target = folder.path() / "target", link = folder.path() / "link", plain = folder.path() / "plain";
  fs::create_symlink(target, link);
  EXPECT_FALSE(verbs::replace_or_write(link, "one"));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(text_of(target), "one");
  EXPECT_FALSE(verbs::replace_or_write(plain, "two"));
  EXPECT_EQ(text_of(plain), "two");
  EXPECT_FALSE(verbs::replace_or_write("/dev/null", "three"));
  EXPECT_TRUE(verbs::replace_or_write(folder.path() / "none/x", "four"));
}

TEST(what_is_set_aside, overwrites_nothing) {
  const TemporaryFolder folder;
  folder.write("a.damaged", "first");
  const auto moved = verbs::set_aside(folder.write("a", "second"), ".damaged");
  ASSERT_TRUE(moved);
  EXPECT_EQ(*moved, folder.path() / "a.damaged2");
  EXPECT_EQ(text_of(*moved), "second");
  EXPECT_EQ(text_of(folder.path() / "a.damaged"), "first");
  EXPECT_FALSE(fs::exists(folder.path() / "a"));
  EXPECT_FALSE(verbs::set_aside(folder.path() / "a", ".damaged"));
}

TEST(a_folder, is_locked_for_one_at_a_time) {
  const TemporaryFolder folder;
  int inside = 0, most = 0;
  const auto work = [&] {
    for (int i = 0; i < 50; ++i) {
      const verbs::FolderLock lock(folder.path());
      most = std::max(most, ++inside);
      std::this_thread::yield();
      --inside;
    }
  };
  std::thread one(work), other(work);
  one.join();
  other.join();
  EXPECT_EQ(most, 1);
}

TEST(a_search_for_scenarios, says_what_it_left_out) {
  const TemporaryFolder folder;
  folder.write("a.json", "{}");
  folder.write("a.schema.json", "{}");
  folder.write("b.Json", "{}");
  folder.write("notes.txt", "");
  fs::create_symlink("nowhere.json", folder.path() / "c.json");
  const auto found = verbs::search_for_scenarios({folder.path()});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->files, std::vector<fs::path>{folder.path() / "a.json"});
  ASSERT_EQ(found->left_out.size(), 2u);
  EXPECT_EQ(found->left_out[0].path, folder.path() / "b.Json");
  EXPECT_EQ(found->left_out[1].why, "is a link that leads nowhere");
  EXPECT_TRUE(verbs::scenario_files({folder.path()}));
  const TemporaryFolder empty;
  EXPECT_TRUE(verbs::search_for_scenarios({empty.path()}));
  EXPECT_FALSE(verbs::scenario_files({empty.path()}));
}

}  // namespace
}  // namespace gradledger::testing
