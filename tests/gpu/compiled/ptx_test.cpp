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
bool may_fuse(const PtxKernel& kernel) { return has(kernel.name, "CpuAdamFormula") || has(kernel.name, "8FusedSumIf"); }

std::size_t fused_in(const PtxKernel& kernel) {
  std::size_t count = 0;
  for (const std::string& opcode : kernel.instructions) count += is_fused(opcode);
  return count;
}

TEST(ptx, of_every_operation_is_in_the_library) {
  const std::pair<const char*, std::size_t> expected[] = {
      {"9ConvertedI", 12}, {"3SumI", 10},           {"8FusedSumI", 3}, {"6LargerE", 1}, {"10MultipliedI", 3},      {"7DividedI", 3},
      {"4FillI", 4},       {"13FlagNotFiniteI", 4}, {"8ChunkSumI", 4}, {"3SgdE", 1},    {"16FusedAdamFormulaE", 1}, {"14CpuAdamFormulaE", 1}};
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
  EXPECT_EQ(checked + 2, all_kernels().size());
}

TEST(ptx, has_fused_multiply_adds_where_the_formula_has_them) {
  std::size_t checked = 0;
  for (const PtxKernel& kernel : all_kernels()) {
    if (!may_fuse(kernel)) continue;
    EXPECT_GT(fused_in(kernel), 0u) << kernel.name;
    ++checked;
  }
  EXPECT_EQ(checked, 2u);
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

TEST(ptx, has_no_atomics_no_calls_and_no_local_memory) {
  for (const PtxKernel& kernel : all_kernels())
    for (const std::string& opcode : kernel.instructions)
      for (std::string_view refused : {"atom.", "red.", "call", "ld.local", "st.local"})
        EXPECT_FALSE(opcode.starts_with(refused)) << opcode << " in " << kernel.name;
}

// 16 bytes are two or four words; a warp's loads of the norm are consecutive instead.
TEST(ptx, accesses_memory_in_vectors_in_every_element_wise_kernel) {
  for (const PtxKernel& kernel : all_kernels()) {
    if (!has(kernel.name, "elementwise_kernel")) continue;
    std::size_t vectors = 0;
    for (const std::string& opcode : kernel.instructions) vectors += has(opcode, ".global.v4.u32") || has(opcode, ".global.v4.f32") || has(opcode, ".global.v2.f64") || has(opcode, ".global.v2.u64");
    EXPECT_GT(vectors, 0u) << kernel.name;
  }
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
