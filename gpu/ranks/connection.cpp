#include "gpu/ranks/connection.h"

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>

namespace gradledger::gpu {

namespace asio = boost::asio;
using boost::system::error_code;

void Connection::receive() {
  asio::async_read(socket, asio::buffer(&header_, sizeof(header_)), [self = shared_from_this()](error_code error, std::size_t) {
    if (error) return self->lose("");
    if (const char* why = self->objection(self->header_)) return self->lose(why);
    self->receive_body();
  });
}

void Connection::receive_body() {
  body_.resize(header_.bytes);
  asio::async_read(socket, asio::buffer(body_), [self = shared_from_this()](error_code error, std::size_t) {
    if (error) return self->lose("");
    self->inbox.push_back({self->header_.kind, std::exchange(self->body_, {})});
    if (!self->failed()) self->receive();  // a failure is the last word
  });
}

const char* Connection::objection(const FrameHeader& announced) {
  if (!announced.valid()) return "does not speak this program's language";
  switch (announced.kind) {
    case FrameKind::hello:
      if (std::exchange(said_hello_, true)) return "says twice who it is";
      return announced.bytes <= FrameHeader::words_bytes_max ? nullptr : "says more of itself than there is to say";
    case FrameKind::failure: return announced.bytes <= FrameHeader::words_bytes_max ? nullptr : "says more of its failure than there is to say";
    case FrameKind::reply: {
      if (awaited_.empty()) return "answers what it was not asked";
      const std::uint64_t bytes_max = awaited_.front();
      awaited_.pop_front();
      return announced.bytes <= bytes_max ? nullptr : "answers with more than it was asked for";
    }
    default: return "says what only the coordinator says";
  }
}

void Connection::lose(const char* why) {
  lost_ = true;
  reason_ = why;
}

}  // namespace gradledger::gpu
