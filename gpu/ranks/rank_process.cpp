#include "gpu/ranks/rank_process.h"

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <thread>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "gpu/ranks/rank_server.h"

namespace gradledger::gpu {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

void connect(tcp::socket& socket, const RankAddress& address, std::chrono::milliseconds deadline) {
  tcp::resolver resolver(socket.get_executor());
  const auto until = Clock::now() + deadline;
  boost::system::error_code error;
  do {
    const auto places = resolver.resolve(address.host, std::to_string(address.port), error);
    if (!error) asio::connect(socket, places, error);
    if (!error) {
      socket.set_option(tcp::no_delay(true));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < until);
  throw std::runtime_error("the coordinator at " + address.host + ":" + std::to_string(address.port) + " cannot be reached: " + error.message());
}

void send(tcp::socket& socket, const Frame& frame) {
  const FrameHeader header{.kind = frame.kind, .bytes = frame.body.size()};
  asio::write(socket, std::array{asio::buffer(&header, sizeof(header)), asio::buffer(frame.body)});
}

// False where the coordinator is gone.
bool receive(tcp::socket& socket, Frame& frame) {
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

void serve(tcp::socket& socket, const RankAddress& address, const ApiFactory& make_api) {
  setenv("NCCL_HOSTID", ("vr" + std::to_string(address.rank)).c_str(), 1);
  auto library = NcclLibrary::load();
  if (!library) throw std::runtime_error(library.error().text());
  const std::unique_ptr<DeviceApi> api = make_api(address.rank);
  api->attach_thread();
  const Hello hello{
      .token = address.token, .rank = address.rank, .process = getpid(), .host = asio::ip::host_name(), .device = api->description(), .nccl_version = library->version()};
  send(socket, {FrameKind::hello, hello.packed()});
  RankServer server(*api, std::move(library).value(), address.rank);
  Frame frame;
  while (!server.finished()) {
    if (!receive(socket, frame)) throw std::runtime_error("the coordinator is gone");
    if (const auto reply = server.handle(frame)) send(socket, *reply);
  }
}

}  // namespace

std::optional<std::string> serve_rank(const RankAddress& address, const ApiFactory& make_api, std::chrono::milliseconds deadline) {
  asio::io_context context;
  tcp::socket socket(context);
  try {
    connect(socket, address, deadline);
    serve(socket, address, make_api);
    return std::nullopt;
  } catch (const std::exception& error) {
    try {
      if (socket.is_open()) send(socket, {FrameKind::failure, Packer().add(address.rank).add_text(error.what()).take()});
    } catch (const std::exception&) {  // nobody is left to be told
    }
    return error.what();
  }
}

}  // namespace gradledger::gpu
