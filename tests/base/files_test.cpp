// Files that are read and written by name: none is waited for, and nothing that was not written passes for it.
#include "sim/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace gradledger {
namespace {

using testing::TemporaryFolder;

std::string pipe_in(const TemporaryFolder& folder) {
  const std::string path = folder.path() / "pipe";
  EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
  return path;
}

TEST(input_files, are_no_pipes_devices_or_links_in_circles) {
  const TemporaryFolder folder;
  const std::string circle = folder.path() / "circle";
  std::filesystem::create_symlink("circle", circle);
  for (const auto& [path, part] : {std::pair<std::string, const char*>{pipe_in(folder), "is a device, a pipe or a socket; expected a regular file"},
                                   {"/dev/zero", "is a device, a pipe or a socket; expected a regular file"},
                                   {circle, "cannot be read: Too many levels of symbolic links"},
                                   {folder.path(), "is a directory; expected a file"},
                                   {folder.path() / "none", "cannot be read: No such file"}}) {
    const auto file = InputFile::open(path, 100);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().where, path);
    EXPECT_NE(file.error().message.find(part), std::string::npos) << file.error().text();
  }
}

TEST(input_files, that_are_larger_than_a_limit_are_refused_unread) {
  const TemporaryFolder folder;
  const std::string path = folder.write("file", "12345");
  EXPECT_TRUE(InputFile::open(path, 5));
  const auto file = InputFile::open(path, 4);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().text(), path + ": is larger than is read; expected at most 4 bytes");
}

TEST(output_files, hold_what_was_written_and_nothing_of_before) {
  const TemporaryFolder folder;
  const std::string path = folder.write("file", "much more than this");
  auto created = OutputFile::create(path);
  ASSERT_TRUE(created);
  OutputFile file = std::move(created).value();
  std::string expected;
  for (int i = 0; i < 100'000; ++i) {
    file.write("line\n");
    expected += "line\n";
  }
  EXPECT_EQ(file.close(), std::nullopt);
  const auto text = read_file(path);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, expected);
}

TEST(output_files, that_take_nothing_say_so_at_the_end) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{1} << 20}) {
    const auto error = write_file("/dev/full", std::string(size, 'x'));
    ASSERT_TRUE(error) << size;
    EXPECT_EQ(error->text(), "/dev/full: cannot be written to its end: No space left on device");
  }
}

TEST(output_files, that_cannot_be_made_are_errors_at_once) {
  const TemporaryFolder folder;
  for (const std::string& path : {(folder.path() / "no" / "such").string(), folder.path().string()}) {
    const auto file = OutputFile::create(path);
    ASSERT_FALSE(file) << path;
    EXPECT_TRUE(file.error().text().starts_with(path + ": cannot be written: ")) << file.error().text();
  }
}

TEST(output_files, are_pipes_only_where_somebody_reads_them) {
  const TemporaryFolder folder;
  const std::string path = pipe_in(folder);
  const auto unread = OutputFile::create(path);
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().text(), path + ": cannot be written: nobody reads this pipe");
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_EQ(write_file(path, "words"), std::nullopt);
  char read[8];
  EXPECT_EQ(::read(reader, read, sizeof read), 5);
  ::close(reader);
}

}  // namespace
}  // namespace gradledger
