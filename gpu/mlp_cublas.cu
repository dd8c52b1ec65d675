#include "gpu/mlp_cublas.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/cublas.h"
#include "gpu/launch.cuh"
#include "gpu/network_pass.h"

namespace gradledger::gpu {
namespace {

// What a pass runs on: gpu/network_pass.h.
class CublasDevice {
 public:
  CublasDevice(const Stream& stream, const Cublas& cublas) : stream_(stream), cublas_(cublas) {}

  float* allocate(std::size_t elements) {
    memory_.emplace_back(elements * sizeof(float));
    return reinterpret_cast<float*>(memory_.back().data());
  }
  void gemm(const GemmCall& call) const { cublas_.gemm(call); }
  template <class Operation>
  void apply(const Operation& operation, std::size_t n) const {
    Launch{stream_.handle(), "launch of a network's kernel"}(operation, n);
  }

  void upload(float* to, const std::vector<float>& from) const {
    check(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice, stream_.handle()), "copy to the device");
  }
  void download(std::vector<float>& to, const float* from) const {
    check(cudaMemcpyAsync(to.data(), from, to.size() * sizeof(float), cudaMemcpyDeviceToHost, stream_.handle()), "copy from the device");
  }
  void synchronize() const { stream_.synchronize(); }

 private:
  const Stream& stream_;
  const Cublas& cublas_;
  std::vector<DeviceMemory> memory_;
};

class CublasAutograd final : public Autograd {
 public:
  CublasAutograd(const Scenario& scenario, const GradientSource& source, Stream stream, std::unique_ptr<Cublas> cublas)
      : data_(*source.network_data()), mlp_(data_.network()), stream_(std::move(stream)), cublas_(std::move(cublas)), device_(stream_, *cublas_) {
    check(cudaGetDevice(&number_), "asking for the current device");
    std::vector<const float*> weights;
    for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
      std::vector<double> exact(scenario.parameters[p].numel);
      source.initial_parameter(p, 0, exact);
      weights.push_back(placed({exact.begin(), exact.end()}));
      gradients_.push_back(device_.allocate(exact.size()));
      numel_.push_back(exact.size());
    }
    const float* ones = placed(std::vector<float>(data_.batch(), 1.0f));
    input_.resize(std::size_t{data_.batch()} * mlp_.layers.front().in);
    target_.resize(std::size_t{data_.batch()} * mlp_.layers.back().out);
    device_target_ = device_.allocate(target_.size());
    pass_.emplace(device_, mlp_, data_.batch(), std::move(weights), gradients_, ones);
  }

  void run(std::uint32_t backward, std::uint32_t rank, std::vector<std::vector<float>>& gradients) override {
    check(cudaSetDevice(number_), "choice of the device");  // ranks on other devices may have been served since
    const std::size_t in = mlp_.layers.front().in, out = mlp_.layers.back().out;
    for (std::uint32_t n = 0; n < data_.batch(); ++n) data_.sample(backward, rank, n, {input_.data() + n * in, in}, {target_.data() + n * out, out});
    device_.upload(pass_->input(), input_);
    device_.upload(device_target_, target_);
    pass_->run(device_target_);
    gradients.resize(numel_.size());
    for (std::size_t p = 0; p < numel_.size(); ++p) {
      gradients[p].resize(numel_[p]);
      device_.download(gradients[p], gradients_[p]);
    }
    device_.synchronize();
  }

 private:
  const float* placed(const std::vector<float>& values) {
    float* at = device_.allocate(values.size());
    device_.upload(at, values);
    device_.synchronize();  // the values are gone when the call returns
    return at;
  }

  int number_ = 0;
  const NetworkData& data_;
  const Mlp& mlp_;
  Stream stream_;
  std::unique_ptr<Cublas> cublas_;
  CublasDevice device_;
  std::vector<float*> gradients_;
  std::vector<std::size_t> numel_;
  std::vector<float> input_, target_;
  float* device_target_ = nullptr;
  std::optional<NetworkPass<CublasDevice>> pass_;
};

}  // namespace

Result<std::unique_ptr<Autograd>> cublas_autograd(const Scenario& scenario, const GradientSource& source) {
  if (const auto device = find_device(); !device) return device.error();
  Stream stream;
  auto cublas = Cublas::open(stream.handle());
  if (!cublas) return cublas.error();
  return std::unique_ptr<Autograd>(std::make_unique<CublasAutograd>(scenario, source, std::move(stream), std::move(cublas).value()));
}

}  // namespace gradledger::gpu
