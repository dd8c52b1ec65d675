#include "tools/gradledger/devices.h"

#include <stdlib.h>

#include <chrono>
#include <filesystem>

#include "gpu/ranks/launch_environment.h"
#include "gpu/ranks/process_devices.h"
#include "gpu/ranks/thread_devices.h"
#include "tools/gradledger/exit_codes.h"
#include "tools/gradledger/verbs.h"

#ifdef GRADLEDGER_HAS_CUDA
#include "gpu/cuda_api.h"
#include "gpu/device.h"
#include "gpu/mlp_cublas.h"
#endif

namespace gradledger::tool {
namespace {

std::chrono::milliseconds deadline_of(const Options& options) { return std::chrono::seconds(options.deadline_s); }

#ifdef GRADLEDGER_HAS_CUDA
// The driver reads its variables when it is first called, so they are pinned before.
std::optional<InputError> missing_device() {
  if (const auto error = gpu::pin_nccl_environment()) return error;
  const auto count = gpu::count_devices();
  if (count) return std::nullopt;
  return InputError{"--producer", "\"gpu\" cannot run here: " + count.error().message, true};
}

gpu::ApiFactory api_factory(const Options& options) {
  return [deadline = deadline_of(options)](std::uint32_t rank) { return gpu::make_cuda_api(rank, deadline); };
}
// What fails on the device breaks off the run.
class BackwardByCublas final : public Autograd {
 public:
  BackwardByCublas(const Scenario& scenario, const GradientSource& source) {
    guarded([&] {
      auto made = gpu::cublas_autograd(scenario, source);
      if (!made) throw DeviceFailure(std::nullopt, made.error().text());
      inner_ = std::move(made).value();
    });
  }
  void run(std::uint32_t backward, std::uint32_t rank, std::vector<std::vector<float>>& gradients) override {
    guarded([&] { inner_->run(backward, rank, gradients); });
  }

 private:
  template <class Call>
  static void guarded(Call&& call) {
    try {
      call();
    } catch (const gpu::DeviceError& error) {
      throw DeviceFailure(std::nullopt, error.what());
    }
  }
  std::unique_ptr<Autograd> inner_;
};

std::unique_ptr<Autograd> backward_by_cublas(const Scenario& scenario, const GradientSource& source) { return std::make_unique<BackwardByCublas>(scenario, source); }

const AutogradFactory autograd_factory = backward_by_cublas;
#else
const AutogradFactory autograd_factory;

std::optional<InputError> missing_device() {
  return InputError{"--producer", "\"gpu\" is not in this build, which was made without a CUDA toolkit; expected host, or a build where nvcc is found", true};
}

gpu::ApiFactory api_factory(const Options&) { return nullptr; }
#endif

// This program, as it can be started again.
std::vector<std::string> own_rank(const Options& options) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return {self.string(), "rank", "--deadline", std::to_string(options.deadline_s)};
}

std::optional<int> serve(const gpu::RankAddress& address, const Options& options) {
  const auto failed = gpu::serve_rank(address, api_factory(options), deadline_of(options));
  if (!failed) return clean;
  say("rank " + std::to_string(address.rank) + ": " + *failed);
  return broken_run;
}

DevicesMade with_autograd(std::unique_ptr<Devices> devices) {
  devices->set_autograd(autograd_factory);
  return {std::move(devices), std::nullopt};
}

Result<DevicesMade> devices_of_a_launcher(const Options& options) {
  const auto environment = gpu::launch_environment();
  if (!environment) return environment.error();
  if (environment->rank > 0) return DevicesMade{nullptr, serve(environment->address(), options)};
  return with_autograd(gpu::devices_of_launcher(*environment, own_rank(options), deadline_of(options)));
}

}  // namespace

Result<DevicesMade> make_devices(const Options& options) {
  if (!options.uses_devices()) return DevicesMade{};
  if (const auto error = missing_device()) return *error;
  if (options.ranks == "launcher") return devices_of_a_launcher(options);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);  // all ranks are here
  auto library = gpu::NcclLibrary::load();
  if (!library) return library.error();
  if (library->version() != gpu::nccl_version_modelled)
    say("NCCL " + std::to_string(library->version()) + " is not the version whose order of sums is modelled, " + std::to_string(gpu::nccl_version_modelled) +
        "; bits may differ for that reason");
  if (options.ranks == "processes") return with_autograd(std::make_unique<gpu::ProcessDevices>(gpu::spawning_launcher(own_rank(options)), gpu::Listening{}, deadline_of(options)));
  return with_autograd(std::make_unique<gpu::ThreadDevices>(api_factory(options), std::move(library).value(), deadline_of(options)));
}

int rank(const Options& options, std::uint32_t number, const std::string& address) {
  const auto error = missing_device();
  const auto place = error ? Result<gpu::RankAddress>(*error) : gpu::spawned_address(number, address);
  if (place) return *serve(*place, options);
  complain(place.error());
  return place.error().unavailable ? unavailable : bad_input;
}

}  // namespace gradledger::tool
