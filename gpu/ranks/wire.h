// What a coordinator and the processes of the ranks say to each other, once a rank has come in by its door (sim/transport/door.h). Both are
// the same program on like machines, so values travel as they lie in memory; the hello says which program it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gpu/ranks/nccl_rank.h"

namespace gradledger::gpu {

enum class FrameKind : std::uint32_t {
  hello,       // rank: version, rank, process, host, device, version of NCCL
  begin,       // a run starts
  enqueue,     // command, values
  fetch,       // stream, operands -> reply with the bytes
  make_id,     // -> reply with a NcclUniqueId
  join,        // group, id -> reply when all have joined
  collective,  // group, command
  finish,      // -> reply; the process ends
  reply,
  failure,  // of the rank: its number, text; the process ends
};

struct Frame {
  FrameKind kind = FrameKind::reply;
  std::vector<std::byte> body;
};

struct FrameHeader {
  static constexpr std::uint32_t expected_magic = 0x4C475247;  // "GRGL"
  std::uint32_t magic = expected_magic;
  FrameKind kind = FrameKind::reply;
  std::uint64_t bytes = 0;

  bool valid() const { return magic == expected_magic && kind <= FrameKind::failure && bytes <= frame_bytes_max; }
  static constexpr std::uint64_t frame_bytes_max = 4ull << 30;
  // Of a hello, and of why something failed.
  static constexpr std::uint64_t words_bytes_max = 64 << 10;
};

// Of what is sent: it changes with the layout of a command, too.
inline constexpr std::uint32_t wire_version = (2u << 16) | sizeof(Command);

// Something was received that nobody of this program sends.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Packer {
 public:
  template <class T>
  Packer& add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return add_bytes(&value, sizeof(value));
  }
  template <class T>
  Packer& add_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    add(static_cast<std::uint64_t>(values.size()));
    return add_bytes(values.data(), values.size_bytes());
  }
  Packer& add_text(std::string_view text) { return add_all(std::span<const char>(text.data(), text.size())); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  Packer& add_bytes(const void* from, std::size_t n) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), begin, begin + n);
    return *this;
  }
  std::vector<std::byte> bytes_;
};

// Reads in the order of writing; WireError where a frame is too short.
class Unpacker {
 public:
  explicit Unpacker(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(static_cast<void*>(&value), next(sizeof(T)), sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> get_all() {
    const auto count = get<std::uint64_t>();
    if (count > bytes_.size() / sizeof(T)) throw WireError("a frame announces more than it holds");
    std::vector<T> values(count);
    if (count > 0) std::memcpy(static_cast<void*>(values.data()), next(count * sizeof(T)), count * sizeof(T));
    return values;
  }
  std::string get_text() {
    const std::vector<char> text = get_all<char>();
    return {text.begin(), text.end()};
  }

 private:
  const std::byte* next(std::size_t n) {
    if (n > bytes_.size()) throw WireError("a frame is shorter than its kind");
    const std::byte* at = bytes_.data();
    bytes_ = bytes_.subspan(n);
    return at;
  }
  std::span<const std::byte> bytes_;
};

// What a rank says of itself first.
struct Hello {
  std::uint32_t version = wire_version;
  std::uint32_t rank = 0;
  std::int64_t process = 0;
  std::string host, device;
  std::int32_t nccl_version = 0;

  std::vector<std::byte> packed() const { return Packer().add(version).add(rank).add(process).add_text(host).add_text(device).add(nccl_version).take(); }
  // The version is read first: what follows may be laid out otherwise.
  static Hello unpacked(std::span<const std::byte> bytes);
};

}  // namespace gradledger::gpu
