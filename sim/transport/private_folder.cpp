#include "sim/transport/private_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "sim/transport/address.h"

namespace gradledger::transport {
namespace {

constexpr std::string_view name = "/gradledger-XXXXXX";
constexpr std::size_t file_bytes_max = 32;  // of a socket in the folder, with the slash

std::string parent() {
  const char* given = std::getenv("TMPDIR");
  const std::string_view folder = given ? given : "";
  const bool fits = folder.starts_with('/') && folder.size() + name.size() + file_bytes_max <= Address::path_bytes_max;
  return fits ? std::string(folder) : "/tmp";
}

}  // namespace

PrivateFolder::PrivateFolder() {
  std::string path = parent().append(name);
  if (!mkdtemp(path.data())) throw std::runtime_error("no folder " + path + " can be made: " + std::strerror(errno));  // made with mode 0700
  path_ = path;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace gradledger::transport
