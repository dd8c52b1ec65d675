// What nvcc made of the kernels, read from the library that is linked: contraction only where the formula fuses, every rounding
// spelt out, no approximations, no float atomics, vector accesses, nothing left in memory that belongs into registers.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/gpu/compiled/ptx.h"

namespace gradledger::testing {
namespace {

std::string library_bytes() {
  std::ifstream file(GRADLEDGER_GPU_LIBRARY, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::vector<PtxKernel>& all_kernels() {
  static const std::vector<PtxKernel> all = [] {
    std::vector<PtxKernel> found;
    for (const std::string& module : ptx_modules(library_bytes()))
      for (PtxKernel& kernel : kernels_of(module)) found.push_back(std::move(kernel));
    return found;
  }();
  return all;
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

bool on_floats(std::string_view opcode) { return has(opcode, ".f32") || has(opcode, ".f64") || has(opcode, ".f16") || has(opcode, ".bf16"); }
bool is_fused(std::string_view opcode) { return (opcode.starts_with("fma.") || opcode.starts_with("mad.")) && on_floats(opcode); }
// An add or mul without .rn is one that the assembler may contract.
bool leaves_rounding_open(std::string_view opcode) {
  for (std::string_view operation : {"add.", "sub.", "mul.", "fma.", "div.", "sqrt.", "rcp.", "rsqrt."})
    if (opcode.starts_with(operation) && on_floats(opcode) && !has(opcode, ".rn.")) return true;
  return has(opcode, ".approx") || has(opcode, ".full") || has(opcode, ".ftz");
}

// The operations whose definition is a fused multiply-add of fp32. The 16-bit ones are exact in fp64 instead.
constexpr std::size_t fusing_kernels = 9;  // the ring's sum, SGD, Adam of the CPU, and that one mixed with 3 gradients and 2 outputs
bool may_fuse(const PtxKernel& kernel) { return has(kernel.name, "CpuAdamFormula") || has(kernel.name, "8FusedSumIf") || has(kernel.name, "3SgdE"); }

std::size_t fused_in(const PtxKernel& kernel) {
  std::size_t count = 0;
  for (const std::string& opcode : kernel.instructions) count += is_fused(opcode);
  return count;
}

TEST(ptx, of_every_operation_is_in_the_library) {
  const std::pair<const char*, std::size_t> expected[] = {{"9ConvertedI", 18},
                                                          {"4SameI", 3},
                                                          {"3SumI", 10},
                                                          {"8FusedSumI", 3},
                                                          {"6LargerE", 1},
                                                          {"10MultipliedI", 3},
                                                          {"7DividedI", 3},
                                                          {"4FillI", 4},
                                                          {"13FlagNotFiniteI", 4},
                                                          {"7UnscaleI", 3},
                                                          {"18MultipliedByStoredI", 3},
                                                          {"3SgdE", 1},
                                                          {"10SquareRootE", 1},
                                                          {"7SquaresI", 3},
                                                          {"11PartialSumsE", 2},
                                                          {"13SquaresOfSumsI", 9},
                                                          {"4AdamI", 2},
                                                          {"9MixedAdamI", 12},
                                                          {"14CombinedFactorE", 1},
                                                          {"15ClipCoefficientE", 1},
                                                          {"7CompareI", 6},
                                                          {"15StartDifferenceE", 1}};
  std::size_t total = 0;
  for (const auto& [fragment, count] : expected) {
    std::size_t found = 0;
    for (const PtxKernel& kernel : all_kernels()) found += has(kernel.name, fragment);
    EXPECT_EQ(found, count) << fragment;
    total += count;
  }
  EXPECT_EQ(all_kernels().size(), total);
}

TEST(ptx, is_for_compute_90_with_one_cubin_beside_each_module) {
  const std::string library = library_bytes();
  const std::vector<std::string> modules = ptx_modules(library);
  EXPECT_FALSE(modules.empty());
  EXPECT_EQ(cubin_count(library), modules.size());
  for (const std::string& module : modules) EXPECT_TRUE(has(module, "\n.target sm_90\n"));
}

TEST(ptx, has_no_fused_multiply_add_in_kernels_that_must_not_contract) {
  std::size_t checked = 0;
  for (const PtxKernel& kernel : all_kernels()) {
    if (may_fuse(kernel)) continue;
    EXPECT_EQ(fused_in(kernel), 0u) << kernel.name;
    ++checked;
  }
  EXPECT_EQ(checked + fusing_kernels, all_kernels().size());
}

TEST(ptx, has_fused_multiply_adds_where_the_formula_has_them) {
  std::size_t checked = 0;
  for (const PtxKernel& kernel : all_kernels()) {
    if (!may_fuse(kernel)) continue;
    EXPECT_GT(fused_in(kernel), 0u) << kernel.name;
    ++checked;
  }
  EXPECT_EQ(checked, fusing_kernels);
}

TEST(ptx, spells_out_every_rounding_and_approximates_nothing) {
  std::size_t on_floats_count = 0;
  for (const PtxKernel& kernel : all_kernels())
    for (const std::string& opcode : kernel.instructions) {
      EXPECT_FALSE(leaves_rounding_open(opcode)) << opcode << " in " << kernel.name;
      on_floats_count += on_floats(opcode);
    }
  EXPECT_GT(on_floats_count, 0u);
}

TEST(ptx, has_no_calls_and_no_local_memory) {
  for (const PtxKernel& kernel : all_kernels())
    for (const std::string& opcode : kernel.instructions)
      for (std::string_view refused : {"call", "ld.local", "st.local"}) EXPECT_FALSE(opcode.starts_with(refused)) << opcode << " in " << kernel.name;
}

bool is_atomic(std::string_view opcode) { return opcode.starts_with("atom.") || opcode.starts_with("red."); }
// Sums, minima and maxima of integers come out the same in any order.
bool is_order_free(std::string_view opcode) { return opcode.ends_with(".u64") && (has(opcode, ".add.") || has(opcode, ".min.") || has(opcode, ".max.")); }

TEST(ptx, has_atomics_only_in_comparisons_and_only_order_free_ones_of_integers) {
  std::size_t comparisons = 0;
  for (const PtxKernel& kernel : all_kernels()) {
    std::size_t atomics = 0;
    for (const std::string& opcode : kernel.instructions) {
      if (!is_atomic(opcode)) continue;
      EXPECT_TRUE(is_order_free(opcode)) << opcode << " in " << kernel.name;
      ++atomics;
    }
    const bool compares = has(kernel.name, "7CompareI");
    EXPECT_EQ(atomics > 0, compares) << kernel.name;
    comparisons += compares;
  }
  EXPECT_EQ(comparisons, 6u);
  EXPECT_FALSE(is_order_free("red.global.add.f32"));
  EXPECT_FALSE(is_order_free("atom.global.exch.b64"));
}

// 16 bytes are two or four words. Sums over the tree are left out, where a warp's loads are consecutive instead, and what one
// thread does.
TEST(ptx, accesses_memory_in_vectors_in_every_other_kernel) {
  std::size_t checked = 0;
  for (const PtxKernel& kernel : all_kernels()) {
    if (has(kernel.name, "8ChunkSumI") || has(kernel.name, "8OfScalarI") || has(kernel.name, "15StartDifferenceE")) continue;
    std::size_t vectors = 0;
    for (const std::string& opcode : kernel.instructions)
      for (std::string_view wide : {".global.v4.u32", ".global.v4.f32", ".global.v4.b32", ".global.v2.f64", ".global.v2.u64", ".global.v2.b64"}) vectors += has(opcode, wide);
    EXPECT_GT(vectors, 0u) << kernel.name;
    ++checked;
  }
  EXPECT_EQ(checked + 14 + 2 + 1, all_kernels().size());
}

// Stores would keep later loads from being moved before them: a lane of the fused norm loads its 16 terms before it stores a sum.
TEST(ptx, has_the_loads_of_sixteen_terms_before_the_first_store_of_a_sum) {
  std::size_t checked = 0;
  for (const PtxKernel& kernel : all_kernels()) {
    if (!has(kernel.name, "13SquaresOfSumsI")) continue;
    std::size_t run = 0;
    std::size_t longest = 0;
    for (const std::string& opcode : kernel.instructions) {
      if (opcode.starts_with("ld.global")) longest = std::max(longest, ++run);
      if (opcode.starts_with("st.global") || opcode.starts_with("bra")) run = 0;
    }
    EXPECT_GE(longest, 2 * 16u) << kernel.name;
    ++checked;
  }
  EXPECT_EQ(checked, 9u);
}

TEST(ptx_reader, finds_what_it_is_there_to_find) {
  const std::string text =
      "\n.version 9.0\n.visible .entry _Z3bad(\n\t.param .u64 x\n)\n{\n\t.reg .f32 %f<4>;\n\tfma.rn.f32 \t%f1, %f2, %f3, %f1;\n"
      "\t@%p1 bra \t$L1;\n\t@%p2 mul.f32 \t%f1, %f1, %f2;\n$L1:\n\tdiv.full.f32 %f1, %f2, %f3;\n\tadd.s32 %r1, %r2, 1;\n\tret;\n}\n";
  const std::vector<std::string> modules = ptx_modules(std::string("binary\n") + text + '\0' + "more");
  ASSERT_EQ(modules.size(), 1u);
  const std::vector<PtxKernel> kernels = kernels_of(modules[0]);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].name, "_Z3bad");
  EXPECT_EQ(kernels[0].instructions, (std::vector<std::string>{"fma.rn.f32", "bra", "mul.f32", "div.full.f32", "add.s32", "ret"}));
  EXPECT_EQ(fused_in(kernels[0]), 1u);
  EXPECT_TRUE(leaves_rounding_open("mul.f32"));
  EXPECT_TRUE(leaves_rounding_open("div.full.f32"));
  EXPECT_TRUE(leaves_rounding_open("add.rn.ftz.f32"));
  EXPECT_FALSE(leaves_rounding_open("add.rn.f64"));
  EXPECT_FALSE(leaves_rounding_open("add.s32"));
}

}  // namespace
}  // namespace gradledger::testing
