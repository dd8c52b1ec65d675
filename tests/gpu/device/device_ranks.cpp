// Ranks on the GPUs of this machine with real NCCL.
#include <filesystem>

#include "gpu/cuda_api.h"
#include "gpu/ranks/process_devices.h"
#include "gpu/ranks/thread_devices.h"
#include "tests/gpu/collectives/under_test.h"

namespace gradledger::testing {
namespace {

constexpr std::chrono::seconds deadline(90);

std::string why_unavailable() {
  if (const auto error = gpu::pin_nccl_environment()) return error->text();  // before the driver reads its variables
  if (const auto count = gpu::count_devices(); !count) return count.error().text();
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  const auto library = gpu::NcclLibrary::load();
  return library ? "" : library.error().text();
}

std::unique_ptr<Devices> by_threads() {
  auto library = gpu::NcclLibrary::load();
  return std::make_unique<gpu::ThreadDevices>([](std::uint32_t rank) { return gpu::make_cuda_api(rank, deadline); }, std::move(library).value(), deadline);
}

// The command beside this program runs a rank.
std::unique_ptr<Devices> by_processes() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return std::make_unique<gpu::ProcessDevices>(gpu::spawning_launcher({(folder / "gradledger").string(), "rank", "--deadline", "90"}), gpu::Listening{}, deadline);
}

}  // namespace

std::vector<RanksUnderTest> ranks_under_test() {
  return {{"threads_on_the_gpu", by_threads, why_unavailable, 8, 20'000'000}, {"processes_on_the_gpu", by_processes, why_unavailable, 4, 2'200'000}};
}

}  // namespace gradledger::testing
