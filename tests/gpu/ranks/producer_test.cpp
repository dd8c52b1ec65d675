// The gpu producer on stand-ins, as the command uses it: verdicts, comparisons that must fail, the ranks of a launcher.
#include <filesystem>
#include <sstream>

#include "gpu/ranks/launch_environment.h"
#include "ref/classify.h"
#include "sim/execution/host_autograd.h"
#include "sim/transport/door.h"
#include "tests/gpu/ranks/options.h"
#include "tests/gpu/ranks/standin.h"
#include "tests/support/temporary_folder.h"
#include "verbs/compare.h"
#include "verbs/gate.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

const std::string corpus = std::string(GRADLEDGER_SOURCE_DIR) + "/scenarios/";

std::unique_ptr<verbs::Loaded> load(const std::string& file) {
  auto loaded = verbs::load(corpus + file, {});
  EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().text());
  return std::move(loaded).value();
}

// Of each folder that stands for one of the three defects, the defective and the clean scenarios that do least.
std::vector<std::string> some_scenarios() {
  std::vector<std::string> out;
  for (const char* folder : {"open-instruct-1498", "deepspeed-7981", "deepspeed-7985"})
    for (const bool defective : {true, false}) {
      std::vector<std::pair<std::size_t, std::string>> by_size;
      for (const auto& entry : fs::directory_iterator(corpus + folder)) {
        const std::string file = folder + ("/" + entry.path().filename().string());
        const auto loaded = verbs::load(corpus + file, {});
        if (!loaded || (*loaded)->scenario.expect.findings.empty() == defective) continue;
        by_size.emplace_back((*loaded)->timeline.events.size() * (*loaded)->scenario.world_size, file);
      }
      std::sort(by_size.begin(), by_size.end());
      if (!by_size.empty()) out.push_back(by_size.front().second);
    }
  return out;
}

std::vector<std::string> sentences(const ref::Verdict& verdict) {
  std::vector<std::string> out;
  for (const ref::Finding& finding : verdict.findings) out.push_back(finding.sentence);
  return out;
}

TEST(gpu_producer, comes_to_the_verdicts_of_the_host) {
  const auto devices = thread_devices();
  const verbs::Options on_devices = options_for(*devices);
  std::size_t with_findings = 0, clean = 0;
  for (const std::string& file : some_scenarios()) {
    const auto loaded = load(file);
    const ref::Verdict host = verbs::judge(*loaded, {}, nullptr), device = verbs::judge(*loaded, on_devices, nullptr);
    EXPECT_EQ(sentences(device), sentences(host)) << file;
    EXPECT_EQ(device.facts.summary.value_hash, host.facts.summary.value_hash) << file;
    EXPECT_EQ(device.facts.summary.trace_hash, host.facts.summary.trace_hash) << file;
    ++(host.clean() ? clean : with_findings);
  }
  EXPECT_GE(with_findings, 3u);
  EXPECT_GE(clean, 3u);
}

TEST(gpu_producer, in_processes_equals_the_host_too) {
  const auto devices = process_devices();
  const std::vector<std::string> files = some_scenarios();
  for (std::size_t i = 0; i < files.size(); i += 2) {
    const auto loaded = load(files[i]);
    const verbs::Compared compared = verbs::compare_producers(*loaded, options_for(*devices));
    EXPECT_FALSE(compared.difference) << verbs::text_of(compared, *loaded, options_for(*devices));
    EXPECT_GT(compared.records, 0u);
    EXPECT_GE(compared.runs, 2u) << "normal and adversarial gradients";
  }
}

// Streams that lag at random lag where nothing waits for them: a wait that the executor left out would show.
TEST(gpu_producer, equals_the_host_however_late_its_streams_are) {
  const auto devices = thread_devices(100);
  const std::vector<std::string> files = some_scenarios();
  for (const std::string& file : files) {
    const auto loaded = load(file);
    const verbs::Compared compared = verbs::compare_producers(*loaded, options_for(*devices));
    EXPECT_FALSE(compared.difference) << verbs::text_of(compared, *loaded, options_for(*devices));
    EXPECT_GE(compared.runs, 2u) << file;
  }
}

TEST(a_comparison, names_the_event_the_rank_and_the_bits_where_a_kernel_is_wrong) {
  const auto devices = thread_devices();
  const auto loaded = load("deepspeed-7985/no-leak-7985.json");
  ASSERT_FALSE(verbs::compare_producers(*loaded, options_for(*devices)).difference);
  StandinDevice::accumulates_wrongly() = true;
  const verbs::Compared compared = verbs::compare_producers(*loaded, options_for(*devices));
  StandinDevice::accumulates_wrongly() = false;
  ASSERT_TRUE(compared.difference);
  EXPECT_GT(compared.difference->elements, 0u);
  EXPECT_NE(compared.difference->one, compared.difference->other);
  const std::string text = verbs::text_of(compared, *loaded, options_for(*devices));
  for (const char* part : {"differ first at ", "rank ", "snapshot ", " elements, first ", " by host, 0x", " by gpu"}) EXPECT_NE(text.find(part), text.npos) << text;
}

// The backward is the device's own; its gradients are judged by the bound of a network, not compared with the host's.
TEST(gpu_producer, has_the_devices_run_the_backward_of_a_network) {
  const auto devices = thread_devices();
  std::uint32_t made = 0;
  devices->set_autograd([&](const Scenario& scenario, const GradientSource& source) {
    ++made;
    return std::make_unique<HostAutograd>(scenario, source);
  });
  std::uint32_t judged = 0;
  for (const auto& entry : fs::directory_iterator(corpus + "real-backward")) {
    const auto loaded = load("real-backward/" + entry.path().filename().string());
    const ref::Verdict verdict = verbs::judge(*loaded, options_for(*devices), nullptr);
    EXPECT_EQ(sentences(verdict), sentences(verbs::judge(*loaded, {}, nullptr))) << loaded->path;
    ++judged;
  }
  EXPECT_GT(judged, 0u);
  EXPECT_GE(made, judged);
}

TEST(gpu_producer, by_threads_leaves_out_a_scenario_of_too_many_ranks_and_goes_on_with_the_others) {
  const auto devices = thread_devices();
  const TemporaryFolder folder;
  const std::string rest = R"("parameters": [{"name": "w", "numel": 64}], "engine": {"framework": "deepspeed", "config": {}},
    "script": [{"backward": {}}, {"step": {}}], "expect": {"findings": []}})";
  folder.write("a.json", R"({"name": "a", "world_size": 17, )" + rest);
  folder.write("b.json", R"({"name": "b", "world_size": 2, )" + rest);
  const auto gate = verbs::gate({folder.path()}, options_for(*devices), [](const report::GateRow&) {});
  ASSERT_TRUE(gate);
  EXPECT_EQ(gate->passed(), 1u);
  ASSERT_EQ(gate->failed(), 1u);
  const report::GateRow& refused = gate->rows.front();
  EXPECT_TRUE(refused.unavailable);
  EXPECT_NE(refused.unmet.at(0).text.find(": /world_size: is 17, "), std::string::npos) << refused.unmet.at(0).text;
}

TEST(a_comparison, takes_two_known_producers_and_nothing_else) {
  EXPECT_EQ(verbs::check_compare("host,gpu"), "");
  EXPECT_EQ(verbs::check_compare("gpu,gpu"), "");
  for (const char* wrong : {"", "host", "host,", ",gpu", "host,cloud", "host,gpu,gpu"}) EXPECT_NE(verbs::check_compare(wrong), "") << wrong;
}

// ---- under a launcher ---------------------------------------------------------------------------------------------------------------------

class launcher_variables : public ::testing::Test {
 protected:
  void set(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "GRADLEDGER_PORT",
                             "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", gpu::token_variable, gpu::token_file_variable})
      unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  void TearDown() override { set({}); }

  const std::string secret_ = transport::make_secret();
  const char* const secret = secret_.c_str();
};

TEST_F(launcher_variables, of_torchrun_mpirun_and_srun_are_read) {
  set({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}, {gpu::token_variable, secret}});
  auto torchrun = gpu::launch_environment();
  ASSERT_TRUE(torchrun);
  EXPECT_EQ(torchrun->rank, 3u);
  EXPECT_EQ(torchrun->world, 8u);
  EXPECT_EQ(torchrun->host, "node1");
  EXPECT_EQ(torchrun->port, 29501) << "torchrun itself waits at 29500";
  EXPECT_EQ(torchrun->secret, secret_);
  set({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"GRADLEDGER_PORT", "4000"}, {gpu::token_variable, secret}});
  ASSERT_TRUE(gpu::launch_environment());
  EXPECT_EQ(gpu::launch_environment()->port, 4000);
  set({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"MASTER_ADDR", "a"}, {"GRADLEDGER_PORT", "4000"}, {gpu::token_variable, secret}});
  ASSERT_TRUE(gpu::launch_environment());
  EXPECT_EQ(gpu::launch_environment()->address().coordinator.text(), "tcp:a:4000");
}

TEST_F(launcher_variables, that_are_missing_or_wrong_are_named) {
  const auto refused = [&](std::initializer_list<std::pair<const char*, const char*>> variables) {
    set(variables);
    const auto environment = gpu::launch_environment();
    return environment ? "accepted" : environment.error().where;
  };
  EXPECT_EQ(refused({}), "WORLD_SIZE");
  EXPECT_EQ(refused({{"WORLD_SIZE", "2"}}), "RANK");
  EXPECT_EQ(refused({{"WORLD_SIZE", "two"}, {"RANK", "0"}}), "WORLD_SIZE");
  EXPECT_EQ(refused({{"WORLD_SIZE", "2"}, {"RANK", "2"}}), "RANK");
  EXPECT_EQ(refused({{"WORLD_SIZE", "2"}, {"RANK", "1"}}), "MASTER_ADDR");
  EXPECT_EQ(refused({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "a"}}), "MASTER_PORT");
  EXPECT_EQ(refused({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "65535"}}), "MASTER_PORT");
}

TEST_F(launcher_variables, have_to_hold_a_secret_that_cannot_be_guessed) {
  const auto refused = [&](std::initializer_list<std::pair<const char*, const char*>> more) {
    set({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5000"}, {"TORCHELASTIC_RUN_ID", "job7"}, {"SLURM_JOB_ID", "99"}});
    for (const auto& [name, value] : more) setenv(name, value, 1);
    const auto environment = gpu::launch_environment();
    return environment ? "accepted" : environment.error().text();
  };
  EXPECT_EQ(refused({}),
            "--ranks: \"launcher\" needs a secret that all ranks know and nobody else, in the variable GRADLEDGER_TOKEN or in a file that GRADLEDGER_TOKEN_FILE names; "
            "expected 64 hexadecimal digits, as `openssl rand -hex 32` makes them");
  EXPECT_EQ(refused({{gpu::token_variable, "hunter2"}}), "GRADLEDGER_TOKEN: is no secret; expected 64 hexadecimal digits, as `openssl rand -hex 32` makes them");
  EXPECT_EQ(refused({{gpu::token_variable, secret}}), "accepted");
}

TEST_F(launcher_variables, may_name_a_file_with_the_secret_that_nobody_else_can_read) {
  const TemporaryFolder folder;
  const auto said_of = [&](const std::string& path) -> std::string {
    set({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5000"}, {gpu::token_file_variable, path.c_str()}});
    const auto environment = gpu::launch_environment();
    return environment ? environment->secret : environment.error().text();
  };
  const auto file = [&](const std::string& text, fs::perms mode = fs::perms::owner_read) {
    fs::remove(folder.path() / "secret");
    const fs::path path = folder.write("secret", text);
    fs::permissions(path, mode);
    return path.string();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != text.npos; };
  EXPECT_EQ(said_of(file(secret_)), secret_);
  EXPECT_EQ(said_of(file(secret_ + "\n")), secret_);
  for (const std::string& text : {std::string(), secret_.substr(1), secret_ + "0", secret_ + "\n\n", secret_ + std::string(1000, 'a')})
    EXPECT_TRUE(has(said_of(file(text)), "holds something else than a secret")) << text.size();
  for (const fs::perms others : {fs::perms::group_read, fs::perms::others_read, fs::perms::group_write})
    EXPECT_TRUE(has(said_of(file(secret_, fs::perms::owner_read | others)), "may be read by others; expected a file of the user's own with mode 600"));
  EXPECT_TRUE(has(said_of("secret"), "GRADLEDGER_TOKEN_FILE: is \"secret\", a relative path"));
  EXPECT_TRUE(has(said_of("/nowhere/secret"), "/nowhere/secret cannot be read: No such file or directory"));
  EXPECT_TRUE(has(said_of(folder.path()), "is no file"));
}

std::uint16_t free_port() {
  boost::asio::io_context context;
  return transport::Door(context, transport::Address::tcp("127.0.0.1", 0), transport::make_secret(), [](transport::Socket) {}).address().port;
}

// The launcher's own processes are played by a spawning launcher; rank 0 is started by the devices.
TEST_F(launcher_variables, let_ranks_that_others_started_join_the_run) {
  set({});
  setenv("GRADLEDGER_NCCL", STANDIN_NCCL, 1);
  const std::uint16_t port = free_port();
  const gpu::LaunchEnvironment environment{0, 3, "127.0.0.1", port, secret_};
  const auto others = gpu::spawning_launcher({STANDIN_RANK});
  for (const std::uint32_t rank : {1u, 2u}) others->start({environment.address().coordinator, rank, secret_});
  const auto devices = gpu::devices_of_launcher(environment, {STANDIN_RANK}, std::chrono::seconds(30));
  const auto loaded = load(some_scenarios().front());
  ASSERT_LE(loaded->scenario.world_size, 3u);
  const verbs::Compared compared = verbs::compare_producers(*loaded, options_for(*devices));
  EXPECT_FALSE(compared.difference);
  EXPECT_GE(compared.runs, 2u);
  EXPECT_EQ(devices->ranks().size(), 3u);
  EXPECT_THROW(devices->begin(4), DeviceFailure) << "four ranks of three that were launched";
}

}  // namespace
}  // namespace gradledger::testing
