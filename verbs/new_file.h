// Files that are there whole or not at all, whatever ends the process or fills the disk.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/result.h"

namespace gradledger::verbs {

// A file that did not exist. False: the name is taken, be it by a link that leads nowhere; what is there stays as it is. Errors: it cannot be
// written, and then there is none.
Result<bool> write_new_file(const std::filesystem::path& path, std::string_view text);

// A file that may exist, with its permissions; a link stays one, and what it leads to is replaced. Errors: it cannot be written, and is as it was.
Result<bool> replace_file(const std::filesystem::path& path, std::string_view text);

// A file that is written piece by piece, and takes the place of another once it is whole. Until then it is gone with the process, whatever ends that.
class PendingFile {
 public:
  // Errors: it cannot be written there; what is there is no regular file.
  static Result<PendingFile> at(const std::filesystem::path& path);
  PendingFile(PendingFile&&) noexcept;
  PendingFile& operator=(PendingFile&&) noexcept;
  ~PendingFile();

  // To be opened for writing, while this lives.
  std::filesystem::path writable() const;
  // As replace_file() does.
  std::optional<InputError> take_place() const;

 private:
  struct State;
  explicit PendingFile(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// What a report's or a trace's file is where it is there already: a device, a pipe or a link to nowhere is written through.
bool is_written_through(const std::filesystem::path& path);

// Likewise, where the user names a report's file: devices, pipes and links to nowhere are written through.
std::optional<InputError> replace_or_write(const std::filesystem::path& path, std::string_view text);

// Gives a file a name that nobody has: itself with the ending, and a number where that is taken too. Errors: it cannot be renamed.
Result<std::filesystem::path> set_aside(const std::filesystem::path& path, std::string_view ending);

// One process at a time: waits until no other holds the folder. A file system without locks gives none.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace gradledger::verbs
