// What comes over the wire is not trusted to be what this program sends: short frames, frames out of place.
#include "gpu/ranks/rank_server.h"
#include "tests/gpu/collectives/commands.h"
#include "tests/gpu/ranks/standin.h"

namespace gradledger::testing {
namespace {

using gpu::Frame;
using gpu::FrameKind;
using gpu::Packer;
using gpu::Unpacker;

TEST(a_frame, gives_back_what_was_packed_in_order) {
  const std::vector<double> values{1.5, -2.5};
  const std::vector<std::byte> bytes = Packer().add(std::uint32_t{7}).add_text("rank").add_all(std::span<const double>(values)).take();
  Unpacker in(bytes);
  EXPECT_EQ(in.get<std::uint32_t>(), 7u);
  EXPECT_EQ(in.get_text(), "rank");
  EXPECT_EQ(in.get_all<double>(), values);
  EXPECT_THROW(in.get<char>(), gpu::WireError);
}

TEST(a_frame, that_is_short_at_any_byte_or_announces_too_much_is_refused) {
  const std::vector<double> values{1, 2, 3};
  const std::vector<std::byte> whole = Packer().add(command(OpKind::deposit, 0, 3, Dtype::float32)).add_all(std::span<const double>(values)).take();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    const auto read = [&] {
      Unpacker in(part);
      in.get<Command>();
      in.get_all<double>();
    };
    EXPECT_THROW(read(), gpu::WireError) << n << " bytes";
  }
  const std::vector<std::byte> boast = Packer().add(std::uint64_t{1} << 62).take();
  Unpacker in(boast);
  EXPECT_THROW(in.get_all<double>(), gpu::WireError);
}

TEST(a_hello, of_another_version_is_refused) {
  gpu::Hello hello;
  hello.version += 1;
  const std::vector<std::byte> bytes = hello.packed();
  EXPECT_THROW(gpu::Hello::unpacked(bytes), gpu::WireError);
}

TEST(a_rank_server, refuses_what_only_ranks_say_and_frames_that_are_short) {
  StandinDevice device;
  gpu::RankServer server(device, standin_library(), 0);
  for (const FrameKind kind : {FrameKind::hello, FrameKind::reply, FrameKind::failure}) EXPECT_THROW(server.handle({kind, {}}), gpu::WireError);
  for (const FrameKind kind : {FrameKind::enqueue, FrameKind::fetch, FrameKind::join, FrameKind::collective}) EXPECT_THROW(server.handle({kind, {}}), gpu::WireError);
  EXPECT_FALSE(server.finished());
  EXPECT_TRUE(server.handle({FrameKind::finish, {}}));
  EXPECT_TRUE(server.finished());
}

}  // namespace
}  // namespace gradledger::testing
