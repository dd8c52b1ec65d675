// Devices of ranks by threads and by processes: memory, the host's own work, failures that name the rank, deadlines.
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/gpu/collectives/commands.h"
#include "tests/gpu/ranks/standin.h"

namespace gradledger::testing {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Devices> (*make)();
};

class devices_of_ranks : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { devices_ = GetParam().make(); }

  void provide(std::uint32_t rank, BufferId buffer, std::uint32_t numel, Dtype dtype, MemorySpace space = MemorySpace::device) {
    Command c = command(OpKind::allocate, buffer, numel, dtype);
    c.space = space;
    devices_->enqueue(rank, c, {});
  }

  std::vector<std::byte> fetch(std::uint32_t rank, BufferId buffer, std::uint32_t numel, Dtype dtype, Stream stream = Stream::compute) {
    std::vector<std::byte> out;
    const Operand operand{buffer, 0, numel, dtype};
    devices_->fetch(rank, stream, {&operand, 1}, out);
    out.resize(bytes_of(operand));
    return out;
  }

  std::unique_ptr<Devices> devices_;
};

INSTANTIATE_TEST_SUITE_P(by, devices_of_ranks,
                         ::testing::Values(Kind{"threads", [] { return thread_devices(); }}, Kind{"processes", []() -> std::unique_ptr<Devices> { return process_devices(); }}),
                         [](const auto& info) { return info.param.name; });

TEST_P(devices_of_ranks, poison_memory_that_is_allocated_released_or_left_by_a_run) {
  const std::vector<std::byte> poisoned(40, std::byte{0xFF});
  for (MemorySpace space : {MemorySpace::device, MemorySpace::host}) {
    devices_->begin(2);
    provide(1, 3, 10, Dtype::float32, space);
    EXPECT_EQ(fetch(1, 3, 10, Dtype::float32), poisoned);
    Command fill = command(OpKind::fill, 3, 10, Dtype::float32);
    fill.scalar = 1;
    devices_->enqueue(1, fill, {});
    EXPECT_NE(fetch(1, 3, 10, Dtype::float32), poisoned);
    devices_->enqueue(1, command(OpKind::release, 3, 10, Dtype::float32), {});
    EXPECT_EQ(fetch(1, 3, 10, Dtype::float32), poisoned);
    devices_->enqueue(1, fill, {});
    devices_->begin(2);
    EXPECT_EQ(fetch(1, 3, 10, Dtype::float32), poisoned);
    EXPECT_EQ(fetch(1, 9, 10, Dtype::float32), poisoned) << "never allocated";
  }
}

TEST_P(devices_of_ranks, let_the_host_compute_on_its_own_memory_after_it_waited) {
  devices_->begin(1);
  provide(0, 0, 1000, Dtype::float32);
  provide(0, 1, 1000, Dtype::float32, MemorySpace::host);
  Command fill = command(OpKind::fill, 0, 1000, Dtype::float32, Stream::compute);
  fill.scalar = 3;
  devices_->enqueue(0, fill, {});
  Command copy = command(OpKind::copy, 1, 1000, Dtype::float32, Stream::compute);
  copy.source = {0, 0, 1000, Dtype::float32};
  devices_->enqueue(0, copy, {});
  Command mark = command(OpKind::record, no_index, 0, Dtype::float32, Stream::compute);
  mark.index = 0;
  devices_->enqueue(0, mark, {});
  mark.kind = OpKind::wait;
  mark.stream = Stream::host;
  devices_->enqueue(0, mark, {});
  Command twice = command(OpKind::multiply, 1, 1000, Dtype::float32, Stream::host);
  twice.scalar = 2;
  devices_->enqueue(0, twice, {});
  const std::vector<std::byte> bytes = fetch(0, 1, 1000, Dtype::float32, Stream::host);
  for (std::size_t i = 0; i < 1000; ++i) {
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    ASSERT_EQ(value, 6.0f) << i;
  }
}

TEST(ranks_by_threads, keep_apart_what_two_streams_take_in_at_the_same_time) {
  const auto devices = thread_devices(100);
  devices->begin(1);
  constexpr std::uint32_t n = 100, rounds = 20;
  const Stream streams[] = {Stream::compute, Stream::side};
  for (std::uint32_t round = 0; round < rounds; ++round)
    for (BufferId which : {0u, 1u}) {
      const BufferId buffer = 2 * round + which;
      devices->enqueue(0, command(OpKind::allocate, buffer, n, Dtype::float32, streams[which]), {});
      devices->enqueue(0, command(OpKind::deposit, buffer, n, Dtype::float32, streams[which]), std::vector<double>(n, buffer));
    }
  for (BufferId buffer = 0; buffer < 2 * rounds; ++buffer) {
    std::vector<std::byte> out;
    const Operand operand{buffer, 0, n, Dtype::float32};
    devices->fetch(0, streams[buffer % 2], {&operand, 1}, out);
    for (std::uint32_t i = 0; i < n; ++i) {
      float value;
      std::memcpy(&value, out.data() + 4 * i, 4);
      ASSERT_EQ(value, static_cast<float>(buffer)) << i;
    }
  }
}

// ---- what goes wrong ----------------------------------------------------------------------------------------------------------------------

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

// What a run says when it breaks off, the first two of whose ranks meet in one collective.
std::string failure_of(Devices& devices, std::uint32_t ranks = 2) {
  try {
    devices.begin(ranks);
    std::vector<Participant> members;
    for (std::uint32_t r : {0u, 1u}) {
      Command c;
      c.kind = OpKind::allocate;
      c.stream = Stream::compute;
      c.target = {0, 0, 8, Dtype::float32};
      devices.enqueue(r, c, {});
      c.kind = OpKind::collective;
      c.source = c.target;
      members.push_back({r, c});
    }
    devices.collective(members);
    std::vector<std::byte> out;
    devices.fetch(0, Stream::compute, {&members[0].command.target, 1}, out);
  } catch (const DeviceFailure& failure) {
    return failure.what();
  }
  return "";
}

bool has_children() { return waitpid(-1, nullptr, WNOHANG) != -1; }

TEST(rank_processes, that_end_at_once_are_named_with_their_code) {
  const Variable fault("STANDIN_RANK_FAULT", "absent-1");
  const auto devices = process_devices();
  EXPECT_EQ(failure_of(*devices), "rank 1: its process ended with code 7");
  EXPECT_FALSE(has_children());
}

TEST(rank_processes, say_why_their_device_fails) {
  const Variable fault("STANDIN_RANK_FAULT", "device-0");
  const auto devices = process_devices();
  EXPECT_EQ(failure_of(*devices), "rank 0: this device has fallen off the bus");
  EXPECT_FALSE(has_children());
}

// Starts ranks as they are, and waits for the end of the last.
class AfterTheLast final : public gpu::RankLauncher {
 public:
  explicit AfterTheLast(std::uint32_t ranks) : last_(ranks - 1) {}

  void start(const gpu::RankAddress& address) override {
    inner_->start(address);
    while (address.rank == last_ && !inner_->ended(last_)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::optional<std::string> ended(std::uint32_t rank) override { return inner_->ended(rank); }
  void end_all() override { inner_->end_all(); }

 private:
  std::uint32_t last_;
  std::unique_ptr<gpu::RankLauncher> inner_ = gpu::spawning_launcher({STANDIN_RANK});
};

// Its words lie behind those of 23 others, and its process is over before any is heard.
TEST(rank_processes, say_why_their_device_fails_behind_what_many_others_say) {
  const Variable nccl("GRADLEDGER_NCCL", STANDIN_NCCL), fault("STANDIN_RANK_FAULT", "device-23");
  gpu::ProcessDevices devices(std::make_unique<AfterTheLast>(24), gpu::Listening{}, std::chrono::seconds(60));
  EXPECT_EQ(failure_of(devices, 24), "rank 23: this device has fallen off the bus");
}

TEST(rank_processes, say_why_nccl_fails) {
  const Variable fault("NCCL_STANDIN_FAULT", "collective");
  const auto devices = process_devices();
  const std::string text = failure_of(*devices);
  EXPECT_TRUE(has(text, "ncclAllReduce failed: unhandled system error (the stand-in was told to fail)")) << text;
  EXPECT_FALSE(has_children());
}

TEST(rank_processes, that_are_killed_in_the_middle_end_the_run_within_the_deadline_of_an_answer) {
  const auto devices = process_devices();
  ASSERT_EQ(failure_of(*devices), "");
  kill(static_cast<pid_t>(devices->ranks()[1].process), SIGKILL);
  const std::string text = failure_of(*devices);
  EXPECT_TRUE(text == "rank 1: its process was ended by signal 9" || text == "rank 1: its connection is closed") << text;
  EXPECT_FALSE(has_children());
}

TEST(rank_processes, that_hang_in_a_collective_are_ended_at_the_deadline) {
  const Variable fault("NCCL_STANDIN_FAULT", "hang");
  const auto devices = process_devices(std::chrono::milliseconds(1500));
  const std::string text = failure_of(*devices);
  EXPECT_TRUE(has(text, "did not answer within 1500 ms")) << text;
  EXPECT_FALSE(has_children());
}

TEST(rank_processes, that_cannot_be_started_are_an_error) {
  setenv("GRADLEDGER_NCCL", STANDIN_NCCL, 1);
  gpu::ProcessDevices devices(gpu::spawning_launcher({"/nowhere/gradledger"}), {}, std::chrono::seconds(5));
  EXPECT_TRUE(has(failure_of(devices), "/nowhere/gradledger cannot be started: No such file or directory"));
}

TEST(rank_processes, describe_themselves) {
  const auto devices = process_devices();
  ASSERT_EQ(failure_of(*devices), "");
  ASSERT_EQ(devices->ranks().size(), 2u);
  EXPECT_NE(devices->ranks()[0].process, devices->ranks()[1].process);
  for (const gpu::Hello& hello : devices->ranks()) {
    EXPECT_EQ(hello.device, "a stand-in for tests");
    EXPECT_EQ(hello.nccl_version, gpu::nccl_version_modelled);
  }
}

TEST(ranks_by_threads, say_why_nccl_fails) {
  const auto devices = thread_devices();
  ASSERT_EQ(failure_of(*devices), "");
  const Variable fault("NCCL_STANDIN_FAULT", "collective");
  EXPECT_EQ(failure_of(*devices), "rank 0: ncclAllReduce failed: unhandled system error (the stand-in was told to fail)");
}

TEST(ranks_by_threads, are_limited_to_what_runs_at_once) {
  try {
    thread_devices()->begin(gpu::thread_ranks_max + 1);
    FAIL() << "not refused";
  } catch (const DeviceFailure& failure) {
    EXPECT_TRUE(has(failure.what(), "17 ranks do not fit one process")) << failure.what();
  }
}

}  // namespace
}  // namespace gradledger::testing
