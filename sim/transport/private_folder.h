// A folder that nobody but the user can enter.
#pragma once

#include <filesystem>

namespace gradledger::transport {

class PrivateFolder {
 public:
  // Below $TMPDIR where that is an absolute path short enough for sockets, else below /tmp. std::runtime_error where none can be made.
  PrivateFolder();
  // With what is in it.
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace gradledger::transport
