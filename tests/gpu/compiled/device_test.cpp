// What of gpu/device.h can be tested on every machine: how failures are told. And what benchmarks write.
#include <gtest/gtest.h>

#include <vector>

#include "gpu/device.h"
#include "gpu/kernels.h"
#include "sim/base/contract.h"
#include "tests/gpu/device/measure.h"

namespace gradledger::testing {
namespace {

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

TEST(device, a_failed_call_says_what_failed_and_where) {
  try {
    gpu::check(cudaErrorInvalidValue, "copy to the device");
    FAIL() << "not raised";
  } catch (const gpu::DeviceError& error) {
    EXPECT_EQ(error.code(), cudaErrorInvalidValue);
    EXPECT_TRUE(has(error.what(), "copy to the device failed: invalid argument (cudaErrorInvalidValue, ")) << error.what();
    EXPECT_TRUE(has(error.what(), "device_test.cpp:")) << error.what();
  }
  EXPECT_NO_THROW(gpu::check(cudaSuccess, "nothing"));
}

TEST(device, is_described_or_its_absence_is_explained) {
  const Result<gpu::DeviceDescription> device = gpu::find_device();
  if (device) {
    EXPECT_TRUE(has(device->text(), "compute capability")) << device->text();
  } else {
    EXPECT_EQ(device.error().where, "gpu");
    EXPECT_TRUE(has(device.error().message, "no GPU is visible") || has(device.error().message, "older than")) << device.error().message;
  }
}

// Out of memory with a GPU, no driver without one: raised in either case.
TEST(device, memory_that_cannot_be_had_is_an_error_and_none_is_not) {
  EXPECT_THROW(gpu::DeviceMemory(std::size_t{1} << 60), gpu::DeviceError);
  EXPECT_EQ(gpu::DeviceMemory(0).data(), nullptr);
  EXPECT_EQ(gpu::DeviceMemory().bytes(), 0u);
}

TEST(device_kernels, of_no_elements_launch_nothing) {
  EXPECT_NO_THROW(gpu::convert(nullptr, Dtype::float32, nullptr, Dtype::bfloat16, nullptr, 0));
  EXPECT_NO_THROW(gpu::convert(nullptr, Dtype::float32, nullptr, Dtype::float32, nullptr, 0));
  EXPECT_NO_THROW(gpu::accumulate(nullptr, Dtype::float32, nullptr, Dtype::float32, nullptr, 0));
  EXPECT_NO_THROW(gpu::sgd(nullptr, nullptr, nullptr, 1.0f, 0.0f, 0));
  EXPECT_NO_THROW(gpu::unscale(nullptr, Dtype::bfloat16, nullptr, 1.0f, 0, nullptr));
  EXPECT_NO_THROW(gpu::adam_mixed(nullptr, {}, 1.0f, nullptr, {}, 0));
  const std::vector<gpu::BucketTensor> empty_tensors(3);
  EXPECT_NO_THROW(gpu::flatten(nullptr, Dtype::float32, nullptr, Dtype::bfloat16, empty_tensors));
  EXPECT_NO_THROW(gpu::unflatten(nullptr, Dtype::float32, {}, Dtype::bfloat16, nullptr));
}

TEST(device_kernels, dtypes_without_arithmetic_are_refused) {
  EXPECT_THROW(gpu::accumulate(nullptr, Dtype::uint8, nullptr, Dtype::uint8, nullptr, 4), ContractViolation);
  EXPECT_THROW(gpu::accumulate(nullptr, Dtype::float64, nullptr, Dtype::float32, nullptr, 1), ContractViolation);
  EXPECT_THROW(gpu::accumulate(nullptr, Dtype::float32, nullptr, Dtype::float64, nullptr, 1), ContractViolation);
  EXPECT_THROW(gpu::convert(nullptr, Dtype::float32, nullptr, Dtype::uint8, nullptr, 4), ContractViolation);
  EXPECT_THROW(gpu::convert(nullptr, Dtype::uint8, nullptr, Dtype::float32, nullptr, 4), ContractViolation);
  EXPECT_THROW(gpu::multiply(nullptr, Dtype::float64, nullptr, 1.0f, 1), ContractViolation);
  EXPECT_THROW(gpu::flag_not_finite(nullptr, Dtype::uint8, nullptr, 4, nullptr), ContractViolation);
  EXPECT_THROW(gpu::squared_norm(nullptr, Dtype::float64, nullptr, 1, nullptr, nullptr), ContractViolation);
  EXPECT_THROW(gpu::accumulate_with_norm(nullptr, Dtype::float64, nullptr, Dtype::float64, nullptr, 1.0f, 1, nullptr, nullptr, nullptr), ContractViolation);
  EXPECT_THROW(gpu::flatten(nullptr, Dtype::float64, nullptr, Dtype::float64, {}), ContractViolation);
  numeric::MixedAdamCall call;
  call.output_dtype = Dtype::float32;
  EXPECT_THROW(gpu::adam_mixed(nullptr, call, 1.0f, nullptr, {}, 1), ContractViolation);
}

TEST(measurements, are_json_whatever_the_device_and_the_kernels_are_called) {
  const std::vector<Measurement> all{{"copy of \"w\"", 1000, 8, 0.5}, {"fill\n", 10, 4, 2}};
  const auto read = nlohmann::json::parse(json_of("a \\ device", 32, all).dump(2));
  EXPECT_EQ(read.at("device"), "a \\ device");
  EXPECT_EQ(read.at("copy_gigabytes_per_second"), 32);
  ASSERT_EQ(read.at("kernels").size(), 2u);
  EXPECT_EQ(read.at("kernels")[0].at("kernel"), "copy of \"w\"");
  EXPECT_EQ(read.at("kernels")[0].at("of_copy"), all[0].gigabytes_per_second() / 32);
  EXPECT_FALSE(write_json("/nowhere/benchmarks.json", read));
}

}  // namespace
}  // namespace gradledger::testing
