#include "gpu/ranks/rank_server.h"

namespace gradledger::gpu {

Hello Hello::unpacked(std::span<const std::byte> bytes) {
  Unpacker in(bytes);
  Hello hello;
  hello.version = in.get<std::uint32_t>();
  if (hello.version != wire_version) throw WireError("a rank is run by another version of gradledger; expected the same program everywhere");
  hello.rank = in.get<std::uint32_t>();
  hello.process = in.get<std::int64_t>();
  hello.host = in.get_text();
  hello.device = in.get_text();
  hello.nccl_version = in.get<std::int32_t>();
  return hello;
}

std::optional<Frame> RankServer::handle(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::begin: device_->begin(); return std::nullopt;
    case FrameKind::enqueue: enqueue(Unpacker(frame.body)); return std::nullopt;
    case FrameKind::fetch: return fetch(Unpacker(frame.body));
    case FrameKind::make_id: return Frame{FrameKind::reply, Packer().add(nccl_.make_id()).take()};
    case FrameKind::join: join(Unpacker(frame.body)); return Frame{};
    case FrameKind::collective: collective(Unpacker(frame.body)); return std::nullopt;
    case FrameKind::finish:
      device_.reset();
      finished_ = true;
      return Frame{};
    default: throw WireError("a rank was told what only ranks say");
  }
}

void RankServer::enqueue(Unpacker in) {
  const auto command = in.get<Command>();
  device_->enqueue(command, in.get_all<double>());
}

Frame RankServer::fetch(Unpacker in) {
  const auto stream = in.get<Stream>();
  Frame reply;
  device_->fetch(stream, in.get_all<Operand>(), reply.body);
  return reply;
}

void RankServer::join(Unpacker in) {
  const Group group = in.get_all<std::uint32_t>();
  nccl_.join(group, in.get<NcclUniqueId>(), rank_);
}

void RankServer::collective(Unpacker in) {
  const Group group = in.get_all<std::uint32_t>();
  const auto command = in.get<Command>();
  const StreamHandle stream = device_->stream(command.stream);
  nccl_.enqueue(group, command, device_->address(command.source), device_->address(command.target), stream);
  if (command.stream == Stream::host) api_.synchronize(stream);
}

}  // namespace gradledger::gpu
