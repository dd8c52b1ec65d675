#include "gpu/ranks/rank_process.h"

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <string_view>

#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "gpu/ranks/rank_server.h"
#include "sim/transport/door.h"

namespace gradledger::gpu {
namespace {

namespace asio = boost::asio;
using transport::Socket;

constexpr const char* gone = "the coordinator is gone";
// A door that is shown another secret closes without a word, so a rank can but guess.
constexpr const char* not_let_in = "the coordinator did not let this rank in: it is of another run, which has another secret, or it is gone";

// What the coordinator takes of it.
constexpr std::size_t failure_text_max = FrameHeader::words_bytes_max / 2;

// Where the coordinator is gone, that is seen when something is expected of it.
void send(Socket& socket, const Frame& frame) {
  const FrameHeader header{.kind = frame.kind, .bytes = frame.body.size()};
  boost::system::error_code ignored;
  asio::write(socket, std::array{asio::buffer(&header, sizeof(header)), asio::buffer(frame.body)}, ignored);
}

// False where the coordinator is gone.
bool receive(Socket& socket, Frame& frame) {
  FrameHeader header;
  boost::system::error_code error;
  asio::read(socket, asio::buffer(&header, sizeof(header)), error);
  if (error) return false;
  if (!header.valid()) throw WireError("the coordinator does not speak this program's language");
  frame.kind = header.kind;
  frame.body.resize(header.bytes);
  asio::read(socket, asio::buffer(frame.body), error);
  return !error;
}

void serve(Socket& socket, const RankAddress& address, const ApiFactory& make_api) {
  setenv("NCCL_HOSTID", ("vr" + std::to_string(address.rank)).c_str(), 1);
  auto library = NcclLibrary::load();
  if (!library) throw std::runtime_error(library.error().text());
  const std::unique_ptr<DeviceApi> api = make_api(address.rank);
  api->attach_thread();
  const Hello hello{.rank = address.rank, .process = getpid(), .host = asio::ip::host_name(), .device = api->description(), .nccl_version = library->version()};
  send(socket, {FrameKind::hello, hello.packed()});
  RankServer server(*api, std::move(library).value(), address.rank);
  Frame frame;
  bool heard = false;
  for (; !server.finished(); heard = true) {
    if (!receive(socket, frame)) throw std::runtime_error(heard ? gone : not_let_in);
    if (const auto reply = server.handle(frame)) send(socket, *reply);
  }
}

}  // namespace

std::optional<std::string> serve_rank(const RankAddress& address, const ApiFactory& make_api, std::chrono::milliseconds deadline) {
  asio::io_context context;
  std::optional<Socket> socket;
  try {
    socket = transport::knock(context, address.coordinator, address.secret, deadline);
    serve(*socket, address, make_api);
    return std::nullopt;
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    if (socket) send(*socket, {FrameKind::failure, Packer().add(address.rank).add_text(text.substr(0, failure_text_max)).take()});
    return error.what();
  }
}

}  // namespace gradledger::gpu
