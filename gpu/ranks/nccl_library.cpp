#include "gpu/ranks/nccl_library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "gpu/python_packages.h"
#include "sim/transport/private_folder.h"

namespace gradledger::gpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* nccl_variable = "GRADLEDGER_NCCL";

// Ring and Simple on one channel through sockets: docs/arithmetic.md says what each pin is for. NCCL_HOSTID is set for each rank.
constexpr std::array<std::pair<const char*, const char*>, 20> pins{
    {{"NCCL_NET", "Socket"},        {"NCCL_NET_PLUGIN", "none"},    {"NCCL_IB_DISABLE", "1"},          {"NCCL_SOCKET_FAMILY", "AF_INET"},     {"NCCL_ALGO", "Ring"},
     {"NCCL_PROTO", "Simple"},      {"NCCL_MIN_NCHANNELS", "1"},    {"NCCL_MAX_NCHANNELS", "1"},       {"NCCL_BUFFSIZE", "4194304"},          {"NCCL_TUNER_PLUGIN", "none"},
     {"NCCL_NVLS_ENABLE", "0"},     {"NCCL_MNNVL_ENABLE", "0"},     {"NCCL_CUMEM_ENABLE", "0"},        {"NCCL_CUMEM_HOST_ENABLE", "0"},       {"NCCL_RAS_ENABLE", "0"},
     {"NCCL_RUNTIME_CONNECT", "0"}, {"NCCL_CGA_CLUSTER_SIZE", "0"}, {"NCCL_IGNORE_CPU_AFFINITY", "1"}, {"CUDA_DEVICE_MAX_CONNECTIONS", "32"}, {"CUDA_MODULE_LOADING", "EAGER"}}};

}  // namespace

int nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::uint8: return 1;
    case Dtype::int32: return 2;
    case Dtype::float16: return 6;
    case Dtype::float32: return 7;
    case Dtype::float64: return 8;
    case Dtype::bfloat16: return 9;
  }
  return -1;
}

int nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return 0;
    case ReduceOp::max: return 2;
    case ReduceOp::avg: return 4;
    case ReduceOp::premultiplied_sum:
    case ReduceOp::other: break;
  }
  return -1;
}

std::vector<std::string> nccl_candidates() {
  if (const char* given = std::getenv(nccl_variable); given && *given) return {given};
  std::vector<std::string> found;
  for (const fs::path& folder : package_folders()) {
    const fs::path library = folder / "nvidia" / "nccl" / "lib" / "libnccl.so.2";
    std::error_code error;
    if (fs::exists(library, error)) found.push_back(library.string());
  }
  found.emplace_back("libnccl.so.2");
  return found;
}

std::optional<InputError> pin_nccl_environment() {
  for (const auto& [name, value] : pins) {
    if (const char* set = std::getenv(name); set && std::string_view(set) != value)
      return InputError{name,
                        std::string("is \"") + set + "\" in the environment, with which sums are not formed in the order that is modelled; expected \"" + value + "\", or nothing"};
    setenv(name, value, 1);
  }
  return std::nullopt;
}

Result<NcclLibrary> NcclLibrary::load() {
  if (const char* given = std::getenv(nccl_variable); given && *given && *given != '/')
    return InputError{nccl_variable, std::string("is \"") + given + "\"; expected the absolute path of a library, or nothing"};
  std::string tried;
  for (const std::string& candidate : nccl_candidates()) {
    auto library = open(candidate);
    if (library) return library;
    tried += (tried.empty() ? "" : "; ") + library.error().message;
  }
  return InputError{"nccl", "no NCCL library can be loaded (" + tried + "); install the Python wheel nvidia-nccl-cu13, or name the file in GRADLEDGER_NCCL", true};
}

Result<NcclLibrary> NcclLibrary::load_copy(const fs::path& library) {
  try {
    const transport::PrivateFolder folder;  // gone when this returns; what is loaded stays
    const fs::path copy = folder.path() / "libnccl.so.2";
    std::error_code error;
    fs::copy_file(library, copy, error);
    if (error) return InputError{"nccl", library.string() + " cannot be copied to " + copy.string() + ": " + error.message(), true};
    return open(copy.string());
  } catch (const std::runtime_error& error) {
    return InputError{"nccl", error.what(), true};
  }
}

Result<NcclLibrary> NcclLibrary::open(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return InputError{"nccl", dlerror(), true};
  NcclLibrary library;
  std::string missing;
  if (!library.resolve(handle, missing)) return InputError{"nccl", path + " has no " + missing, true};
  Dl_info info{};
  library.path_ = dladdr(reinterpret_cast<void*>(library.all_reduce), &info) != 0 && info.dli_fname ? info.dli_fname : path;
  const auto get_version = reinterpret_cast<int (*)(int*)>(dlsym(handle, "ncclGetVersion"));
  if (!get_version || get_version(&library.version_) != nccl_success) return InputError{"nccl", path + " does not tell its version", true};
  return library;
}

bool NcclLibrary::resolve(void* handle, std::string& missing) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function && missing.empty()) missing = name;
  };
  find(get_unique_id, "ncclGetUniqueId");
  find(comm_init_rank, "ncclCommInitRank");
  find(comm_destroy, "ncclCommDestroy");
  find(get_error_string, "ncclGetErrorString");
  find(get_last_error, "ncclGetLastError");
  find(all_reduce, "ncclAllReduce");
  find(reduce, "ncclReduce");
  find(broadcast, "ncclBroadcast");
  find(all_gather, "ncclAllGather");
  find(reduce_scatter, "ncclReduceScatter");
  find(make_premultiplied_sum, "ncclRedOpCreatePreMulSum");
  find(destroy_op, "ncclRedOpDestroy");
  return missing.empty();
}

void NcclLibrary::check(int code, const char* what, NcclComm comm) const {
  if (code == nccl_success) return;
  const char* detail = get_last_error(comm);
  throw std::runtime_error(std::string(what) + " failed: " + get_error_string(code) + (detail && *detail ? std::string(" (") + detail + ")" : ""));
}

}  // namespace gradledger::gpu
