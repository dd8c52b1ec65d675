// cuBLAS as it is found: where it is looked for, what is said where it is not, and on a GPU the gradients themselves.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "gpu/cublas.h"
#include "gpu/device.h"
#include "gpu/mlp_cublas.h"
#include "ref/mlp_source.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

TEST(cublas, is_looked_for_where_the_environment_says_and_nowhere_else) {
  EXPECT_EQ(gpu::cublas_candidates("/opt/libcublas.so.13", {}), (std::vector<std::string>{"/opt/libcublas.so.13"}));
}

TEST(cublas, is_looked_for_by_the_loader_and_then_in_the_wheels_that_are_there) {
  const fs::path packages = fs::path(::testing::TempDir()) / "gradledger-cublas" / "site-packages";
  for (const char* folder : {"nvidia/cu13/lib", "nvidia/cublas/lib"}) fs::create_directories(packages / folder);
  std::ofstream(packages / "nvidia/cublas/lib/libcublas.so.12") << "no library";
  const std::vector<std::string> names{"libcublas.so.13", "libcublas.so.12"};
  EXPECT_EQ(gpu::cublas_candidates("", {"/nowhere"}), names);
  std::vector<std::string> with_wheel = names;
  with_wheel.push_back((packages / "nvidia/cublas/lib/libcublas.so.12").string());
  EXPECT_EQ(gpu::cublas_candidates(nullptr, {packages}), with_wheel);
  fs::remove_all(packages.parent_path());
}

// One backward on each of two ranks of a network of three layers.
Scenario network(Activation activation) {
  Scenario s;
  s.world_size = 2;
  s.gradients.kind = GradientKind::mlp;
  s.gradients.samples_per_micro_batch = 5;
  s.parameters = {{.name = "w0", .numel = 37 * 64}, {.name = "b0", .numel = 64}, {.name = "w1", .numel = 64 * 33}, {.name = "w2", .numel = 33 * 9}, {.name = "b2", .numel = 9}};
  s.gradients.mlp = Mlp{activation, {{0, 1, 37, 64}, {2, {}, 64, 33}, {3, 4, 33, 9}}};
  return s;
}

// Without a GPU or without cuBLAS the library says so, and there is nothing to compare.
TEST(cublas, computes_gradients_within_the_bound_or_says_what_is_missing) {
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
    const Scenario s = network(activation);
    Timeline timeline;
    timeline.world_size = 2;
    timeline.backwards.resize(1);
    timeline.backwards[0].micro_batch = {0, 0};
    const ref::MlpSource source(s, timeline, 11);
    auto autograd = gpu::cublas_autograd(s, source);
    if (!autograd) {
      EXPECT_FALSE(autograd.error().message.empty());
      GTEST_SKIP() << autograd.error().text();
    }
    const auto& run = *autograd;
    std::vector<std::vector<float>> gradients;
    for (const std::uint32_t rank : {0u, 1u}) {
      run->run(0, rank, gradients);
      for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
        std::vector<double> value(s.parameters[p].numel), error(value.size());
        source.gradient(0, rank, p, 0, value);
        source.gradient_error(0, rank, p, 0, error);
        for (std::size_t i = 0; i < value.size(); ++i) ASSERT_LE(std::abs(gradients[p][i] - value[i]), error[i]) << s.parameters[p].name << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace gradledger::testing
