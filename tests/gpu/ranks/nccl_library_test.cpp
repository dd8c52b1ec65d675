// What NCCL needs around it: variables that pin the order of its sums, and a library that is one.
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "gpu/python_packages.h"
#include "tests/gpu/ranks/standin.h"
#include "tests/support/temporary_folder.h"

namespace gradledger::testing {
namespace {

// Starts without any variable of NCCL or CUDA, and leaves those that were there.
class nccl_environment : public ::testing::Test {
 protected:
  using Variables = std::map<std::string, std::string>;

  void SetUp() override { replace_by({}); }
  void TearDown() override { replace_by(before_); }

  static Variables variables() {
    Variables found;
    for (char** entry = environ; *entry; ++entry) {
      const std::string_view text = *entry;
      if (!text.starts_with("NCCL_") && !text.starts_with("CUDA_")) continue;
      const std::size_t sign = text.find('=');
      found.emplace(text.substr(0, sign), text.substr(sign + 1));
    }
    return found;
  }

 private:
  static void replace_by(const Variables& wanted) {
    for (const auto& [name, value] : variables()) unsetenv(name.c_str());
    for (const auto& [name, value] : wanted) setenv(name.c_str(), value.c_str(), 1);
  }

  const Variables before_ = variables();
};

TEST_F(nccl_environment, is_pinned_to_what_the_order_of_sums_depends_on) {
  EXPECT_FALSE(gpu::pin_nccl_environment());
  const Variables pinned = variables();
  const Variables documented{{"NCCL_ALGO", "Ring"},        {"NCCL_PROTO", "Simple"},  {"NCCL_MIN_NCHANNELS", "1"}, {"NCCL_MAX_NCHANNELS", "1"},
                             {"NCCL_BUFFSIZE", "4194304"}, {"NCCL_NET", "Socket"},    {"NCCL_IB_DISABLE", "1"},    {"NCCL_TUNER_PLUGIN", "none"},
                             {"NCCL_NET_PLUGIN", "none"},  {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_CUMEM_ENABLE", "0"},  {"NCCL_CUMEM_HOST_ENABLE", "0"}};
  for (const auto& [name, value] : documented) {
    ASSERT_TRUE(pinned.contains(name)) << name;
    EXPECT_EQ(pinned.at(name), value) << name;
  }
  EXPECT_FALSE(gpu::pin_nccl_environment()) << "the values are its own";
  EXPECT_EQ(variables(), pinned);
}

TEST_F(nccl_environment, with_another_value_of_any_pin_is_refused_and_the_variable_named) {
  ASSERT_FALSE(gpu::pin_nccl_environment());
  for (const auto& [name, value] : variables()) {
    const Variable other(name.c_str(), "other");
    const auto error = gpu::pin_nccl_environment();
    ASSERT_TRUE(error) << name;
    EXPECT_EQ(error->where, name);
    EXPECT_TRUE(error->message.starts_with("is \"other\" in the environment")) << error->message;
    EXPECT_NE(error->message.find("expected \"" + value + "\", or nothing"), std::string::npos) << error->message;
    EXPECT_EQ(variables().at(name), "other") << "it is the user's";
  }
}

TEST_F(nccl_environment, that_says_nothing_of_a_pin_is_left_alone_otherwise) {
  const Variable own("NCCL_DEBUG", "WARN");
  EXPECT_FALSE(gpu::pin_nccl_environment());
  EXPECT_EQ(variables().at("NCCL_DEBUG"), "WARN");
}

// ---- the library ------------------------------------------------------------------------------------------------------------

void expect_not_available(const Result<gpu::NcclLibrary>& library, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(library);
  EXPECT_TRUE(library.error().unavailable);
  for (const char* part : parts) EXPECT_NE(library.error().text().find(part), std::string::npos) << library.error().text() << " lacks " << part;
}

TEST(nccl_library, that_is_not_there_is_not_available_and_what_was_tried_is_named) {
  const Variable file("GRADLEDGER_NCCL", "/nowhere/libnccl.so.2");
  expect_not_available(gpu::NcclLibrary::load(), {"no NCCL library can be loaded", "/nowhere/libnccl.so.2: cannot open shared object file", "name the file in GRADLEDGER_NCCL"});
}

TEST(nccl_library, without_its_functions_is_refused_and_the_first_that_lacks_is_named) {
  Dl_info other{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&gnu_get_libc_version), &other), 0);
  const Variable file("GRADLEDGER_NCCL", other.dli_fname);
  expect_not_available(gpu::NcclLibrary::load(), {"libc.so.6 has no ncclGetUniqueId"});
}

// A library of any name could lie where one stands, or where LD_LIBRARY_PATH leads.
TEST(nccl_library, by_a_relative_path_is_refused_however_good_it_is) {
  const std::filesystem::path good = STANDIN_NCCL, before = std::filesystem::current_path();
  std::filesystem::current_path(good.parent_path());
  for (const std::string& relative : {"./" + good.filename().string(), good.filename().string(), "../" + good.parent_path().filename().string() + "/" + good.filename().string()}) {
    const Variable file("GRADLEDGER_NCCL", relative.c_str());
    const auto library = gpu::NcclLibrary::load();
    ASSERT_FALSE(library) << relative;
    EXPECT_EQ(library.error().text(), "GRADLEDGER_NCCL: is \"" + relative + "\"; expected the absolute path of a library, or nothing");
  }
  std::filesystem::current_path(before);
}

TEST(packages_of_python, are_looked_for_below_absolute_paths_alone) {
  const TemporaryFolder prefix;
  const std::filesystem::path packages = prefix.path() / "lib/python3.11/site-packages";
  std::filesystem::create_directories(packages);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(prefix.path());
  const auto found = [] {
    const auto folders = gpu::package_folders();
    EXPECT_TRUE(std::all_of(folders.begin(), folders.end(), [](const std::filesystem::path& folder) { return folder.is_absolute(); }));
    return folders;
  };
  const auto holds = [](const std::vector<std::filesystem::path>& folders, const std::filesystem::path& one) {
    return std::find(folders.begin(), folders.end(), one) != folders.end();
  };
  {
    const Variable paths("PYTHONPATH", "lib:/given/by/path::."), environment("VIRTUAL_ENV", "."), conda("CONDA_PREFIX", "");
    EXPECT_TRUE(holds(found(), "/given/by/path"));
    EXPECT_FALSE(holds(found(), packages));
  }
  const Variable environment("VIRTUAL_ENV", prefix.path().c_str());
  EXPECT_TRUE(holds(found(), packages));
  std::filesystem::current_path(before);
}

TEST(nccl_library, that_cannot_be_copied_is_not_available) {
  expect_not_available(gpu::NcclLibrary::load_copy("/nowhere/libnccl.so.2"), {"/nowhere/libnccl.so.2 cannot be copied to ", "No such file or directory"});
}

TEST(nccl_library, has_copies_that_are_files_of_their_own) {
  const gpu::NcclLibrary library = standin_library();
  const auto copy = gpu::NcclLibrary::load_copy(library.path());
  ASSERT_TRUE(copy) << copy.error().text();
  EXPECT_NE(copy->path(), library.path());
  EXPECT_NE(copy->all_reduce, library.all_reduce) << "two copies share no state";
  EXPECT_EQ(copy->version(), library.version());
}

}  // namespace
}  // namespace gradledger::testing
