#include "drivers/sessions/connection.h"

#include <algorithm>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

namespace gradledger::driver {

namespace asio = boost::asio;
using nlohmann::json;

namespace {

constexpr std::size_t depth_max = 32;
constexpr std::size_t read_at_once = std::size_t{4} << 20;  // memory is taken as the bytes come, not as they are announced

// Builds the value, and stops where it nests too deep: the parser goes down with it.
class ShallowValue final : public nlohmann::json_sax<json> {
 public:
  explicit ShallowValue(json& into) : dom_(into, false) {}

  bool null() override { return dom_.null(); }
  bool boolean(bool value) override { return dom_.boolean(value); }
  bool number_integer(number_integer_t value) override { return dom_.number_integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return dom_.number_unsigned(value); }
  bool number_float(number_float_t value, const string_t& text) override { return dom_.number_float(value, text); }
  bool string(string_t& value) override { return dom_.string(value); }
  bool binary(binary_t& value) override { return dom_.binary(value); }
  bool start_object(std::size_t elements) override { return ++depth_ <= depth_max && dom_.start_object(elements); }
  bool key(string_t& value) override { return dom_.key(value); }
  bool end_object() override { return --depth_, dom_.end_object(); }
  bool start_array(std::size_t elements) override { return ++depth_ <= depth_max && dom_.start_array(elements); }
  bool end_array() override { return --depth_, dom_.end_array(); }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override { return false; }

 private:
  nlohmann::detail::json_sax_dom_parser<json> dom_;
  std::size_t depth_ = 0;
};

}  // namespace

Result<json> message_from(const std::vector<std::uint8_t>& body) {
  json out;
  ShallowValue sax(out);
  bool read = false;
  try {
    read = json::sax_parse(body, &sax, json::input_format_t::msgpack);
  } catch (const json::exception&) {  // a container that announces more than can be held
  }
  if (!read || !out.is_object()) return InputError{"", fmt::format("a frame of {} bytes holds no MessagePack map of at most {} levels", body.size(), depth_max)};
  return out;
}

void Connection::start(std::function<void(json)> taken, std::function<void(std::string)> lost) {
  taken_ = std::move(taken);
  lost_ = std::move(lost);
  read_length();
}

void Connection::start_over(std::function<void(json)> taken, std::function<void(std::string)> lost) {
  taken_ = std::move(taken);
  lost_ = std::move(lost);
}

void Connection::read_length() {
  asio::async_read(socket_, asio::buffer(length_), [self = shared_from_this()](boost::system::error_code error, std::size_t n) {
    if (self->closed_) return;  // what had come before that is for nobody
    if (error) return self->lose(n == 0 ? "" : "ended in the middle of a frame");
    const std::size_t length = std::size_t{self->length_[0]} << 24 | std::size_t{self->length_[1]} << 16 | std::size_t{self->length_[2]} << 8 | self->length_[3];
    if (length > self->largest_) return self->lose(fmt::format("announced a frame of {} bytes; expected at most {}", length, self->largest_));
    self->body_.clear();
    self->read_body(length);
  });
}

void Connection::read_body(std::size_t length) {
  const std::size_t have = body_.size();
  if (have == length) {
    auto message = message_from(body_);
    if (!message) return lose("sent what cannot be read: " + message.error().text());
    const auto taken = taken_;  // it may be replaced by what it calls
    taken(std::move(message).value());
    if (!closed_) read_length();
    return;
  }
  body_.resize(have + std::min(length - have, read_at_once));
  asio::async_read(socket_, asio::buffer(body_.data() + have, body_.size() - have), [self = shared_from_this(), length](boost::system::error_code error, std::size_t) {
    if (self->closed_) return;
    if (error) return self->lose("ended in the middle of a frame");
    self->read_body(length);
  });
}

void Connection::send(const json& message) {
  if (closed_) return;
  std::vector<std::uint8_t> frame(4);
  json::to_msgpack(message, frame);
  const std::size_t length = frame.size() - 4;
  expects(length <= frame_bytes_max, "a message is larger than a frame");
  for (int i = 0; i < 4; ++i) frame[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(length >> (24 - 8 * i));
  outbox_.push_back(std::move(frame));
  if (!writing_) write();
}

void Connection::write() {
  writing_ = true;
  asio::async_write(socket_, asio::buffer(outbox_.front()), [self = shared_from_this()](boost::system::error_code error, std::size_t) {
    self->writing_ = false;
    if (self->closed_) return;
    if (error) return self->lose("");
    self->outbox_.pop_front();
    if (!self->outbox_.empty()) self->write();
  });
}

void Connection::lose(const std::string& why) {
  if (closed_) return;
  close();
  const auto lost = std::move(lost_);  // it may hold what holds this
  taken_ = nullptr;
  if (lost) lost(why);
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace gradledger::driver
