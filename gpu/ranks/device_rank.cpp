#include "gpu/ranks/device_rank.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sim/base/contract.h"
#include "sim/execution/memory.h"
#include "sim/numeric/scalar.h"

namespace gradledger::gpu {
namespace {

std::size_t number_of(Stream stream) { return static_cast<std::size_t>(stream); }

float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }

}  // namespace

// Whatever still runs uses the memory, so streams are waited for first. A destructor cannot report; the failure was.
DeviceRank::~DeviceRank() {
  try {
    synchronize_all();
  } catch (const std::exception&) {}
  for (StreamHandle stream : streams_)
    if (stream) api_.destroy_stream(stream);
  for (EventHandle event : events_)
    if (event) api_.destroy_event(event);
  for (const Buffer& buffer : buffers_)
    if (buffer.memory) api_.free(buffer.memory, buffer.space);
  for (const Buffer& buffer : scratch_)
    if (buffer.memory) api_.free(buffer.memory, buffer.space);
}

void DeviceRank::begin() {
  synchronize_all();
  for (BufferId b = 0; b < buffers_.size(); ++b) poison_buffer(stream(Stream::host), b);
  api_.synchronize(stream(Stream::host));
}

void DeviceRank::enqueue(const Command& command, std::span<const double> values) {
  const bool by_host = command.stream == Stream::host;
  switch (command.kind) {
    case OpKind::allocate: provide(command.target.buffer, bytes_of(command.target), command.space); [[fallthrough]];
    case OpKind::release: poison_buffer(stream(command.stream), command.target.buffer); break;
    case OpKind::record: return api_.record(event(command.index), stream(command.stream));
    case OpKind::wait: return by_host ? api_.host_wait(event(command.index)) : api_.wait(stream(command.stream), event(command.index));
    case OpKind::synchronize: return synchronize_all();
    default:
      if (command.target.numel == 0 || (by_host && compute_on_host(command))) return;
      compute(command, values, stream(command.stream));
  }
  if (by_host) api_.synchronize(stream(Stream::host));
}

void DeviceRank::fetch(Stream from, std::span<const Operand> operands, std::vector<std::byte>& out) {
  std::size_t bytes = 0;
  for (const Operand& operand : operands) bytes += fetched_bytes(operand);
  out.assign(bytes, std::byte{0});
  if (from != Stream::host) api_.synchronize(stream(from));
  std::byte* to = out.data();
  for (const Operand& operand : operands) {
    const std::byte* source = at(operand);
    if (operand.numel == 0) continue;
    if (on_host(operand)) std::memcpy(to, source, bytes_of(operand));
    else api_.download(stream(from), to, source, bytes_of(operand));
    to += fetched_bytes(operand);
  }
}

// Streams are made when they are first used: most programs need two of them.
StreamHandle DeviceRank::stream(Stream stream) {
  StreamHandle& handle = streams_[number_of(stream)];
  if (!handle) handle = api_.make_stream();
  return handle;
}

EventHandle DeviceRank::event(std::uint32_t index) {
  if (events_.size() <= index) events_.resize(index + 1, nullptr);
  if (!events_[index]) events_[index] = api_.make_event();
  return events_[index];
}

void DeviceRank::synchronize_all() {
  for (StreamHandle stream : streams_)
    if (stream) api_.synchronize(stream);
}

// ---- memory ---------------------------------------------------------------------------------------------------------------------------

// Memory stays with its buffer over releases and runs; it grows where another program declares more.
void DeviceRank::provide(BufferId buffer, std::size_t bytes, MemorySpace space) {
  if (buffers_.size() <= buffer) buffers_.resize(buffer + 1);
  Buffer& b = buffers_[buffer];
  if (b.memory && (b.bytes < bytes || b.space != space)) {
    synchronize_all();
    api_.free(b.memory, b.space);
    b.memory = nullptr;
  }
  if (b.memory) return;
  b = {api_.allocate(std::max<std::size_t>(bytes, 1), space), bytes, space};
  poison_buffer(stream(Stream::host), buffer);
  api_.synchronize(stream(Stream::host));
}

// Where streams race, an operation may come before the allocation of its buffer.
std::byte* DeviceRank::at(const Operand& operand) {
  if (operand.numel == 0) return nullptr;
  const std::size_t offset = std::size_t{operand.offset} * size_of(operand.dtype);
  const std::size_t end = offset + bytes_of(operand);
  const bool known = operand.buffer < buffers_.size() && buffers_[operand.buffer].memory;
  if (!known || buffers_[operand.buffer].bytes < end) provide(operand.buffer, end, known ? buffers_[operand.buffer].space : MemorySpace::device);
  return buffers_[operand.buffer].memory + offset;
}

bool DeviceRank::on_host(const Operand& operand) const {
  return operand.numel == 0 || (operand.buffer < buffers_.size() && buffers_[operand.buffer].memory && buffers_[operand.buffer].space == MemorySpace::host);
}

void DeviceRank::poison_buffer(StreamHandle stream, BufferId buffer) {
  if (buffer >= buffers_.size() || buffers_[buffer].bytes == 0) return;
  api_.fill_bytes(stream, buffers_[buffer].memory, poison, buffers_[buffer].bytes);
}

std::byte* DeviceRank::scratch(std::size_t bytes, StreamHandle stream) {
  const auto which = static_cast<std::size_t>(std::find(streams_.begin(), streams_.end(), stream) - streams_.begin());
  Buffer& b = scratch_[which];
  if (b.memory && b.bytes < bytes) {
    api_.synchronize(stream);
    api_.free(b.memory, b.space);
    b.memory = nullptr;
  }
  if (!b.memory) b = {api_.allocate(bytes, MemorySpace::device), bytes, MemorySpace::device};
  return b.memory;
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------------------------

void DeviceRank::compute(const Command& c, std::span<const double> values, StreamHandle stream) {
  const std::size_t n = c.target.numel;
  const auto scalar = static_cast<float>(c.scalar);
  switch (c.kind) {
    case OpKind::deposit: return deposit(c, values, stream);
    case OpKind::fill: return api_.fill(stream, c.target.dtype, at(c.target), c.scalar, n);
    case OpKind::copy:
      if (c.target.dtype == c.source.dtype) return api_.copy(stream, at(c.target), at(c.source), bytes_of(c.target));
      return api_.convert(stream, c.target.dtype, at(c.target), c.source.dtype, at(c.source), n);
    case OpKind::accumulate: return api_.accumulate(stream, c.target.dtype, at(c.target), c.source.dtype, at(c.source), n);
    case OpKind::multiply: return api_.multiply(stream, c.target.dtype, at(c.target), scalar, n);
    case OpKind::divide: return api_.divide(stream, c.target.dtype, at(c.target), scalar, n);
    case OpKind::squared_norm: return add_squared_norm(c, stream);
    case OpKind::square_root: return api_.square_root(stream, floats(at(c.target)), n);
    case OpKind::check_finite: return api_.flag_not_finite(stream, c.source.dtype, at(c.source), c.source.numel, reinterpret_cast<std::uint8_t*>(at(c.target)));
    case OpKind::sgd:
    case OpKind::adam: return update(c, stream);
    default: expects(false, "a device is given an operation that it does not carry out");
  }
}

// The values come as doubles; the device rounds them, and adds what it rounded.
void DeviceRank::deposit(const Command& c, std::span<const double> values, StreamHandle stream) {
  const std::size_t n = c.target.numel;
  expects(values.size() == n, "a deposit comes with one value an element");
  if (n == 0) return;
  std::byte* target = at(c.target);
  std::byte* doubles = scratch(n * (sizeof(double) + size_of(c.target.dtype)), stream);
  api_.upload(stream, doubles, values.data(), values.size_bytes());
  if (!c.flag) return api_.convert(stream, c.target.dtype, target, Dtype::float64, doubles, n);
  std::byte* rounded = doubles + n * sizeof(double);
  api_.convert(stream, c.target.dtype, rounded, Dtype::float64, doubles, n);
  api_.accumulate(stream, c.target.dtype, target, c.target.dtype, rounded, n);
}

void DeviceRank::add_squared_norm(const Command& c, StreamHandle stream) {
  const std::size_t n = c.source.numel;
  if (n == 0) return;
  std::byte* result = scratch(sizeof(double) + api_.squared_norm_workspace_bytes(n), stream);
  api_.squared_norm(stream, c.source.dtype, at(c.source), n, reinterpret_cast<double*>(result), result + sizeof(double));
  api_.accumulate(stream, Dtype::float64, at(c.target), Dtype::float64, result, 1);
}

void DeviceRank::update(const Command& c, StreamHandle stream) {
  const std::size_t n = c.target.numel;
  float* parameter = floats(at(c.target));
  const float* gradient = floats(at(c.source));
  if (c.kind == OpKind::sgd) return api_.sgd(stream, parameter, gradient, c.scalars.learning_rate, c.scalars.weight_decay, n);
  float* first = floats(at(c.first_moment));
  float* second = floats(at(c.second_moment));
  if (c.flag) api_.adam_cpu(stream, parameter, gradient, first, second, c.scalars, n);
  else api_.adam_fused(stream, parameter, gradient, first, second, c.scalars, n);
}

// Work of the host on its own memory alone is the processor's, as in the framework: the CPU optimizer of offload, most of all.
bool DeviceRank::compute_on_host(const Command& c) {
  if (c.kind == OpKind::deposit || !on_host(c.target) || !on_host(c.source)) return false;
  const std::size_t n = c.target.numel;
  const auto scalar = static_cast<float>(c.scalar);
  std::byte* target = at(c.target);
  switch (c.kind) {
    case OpKind::fill: numeric::fill(c.target.dtype, target, c.scalar, n); return true;
    case OpKind::copy: numeric::convert(c.target.dtype, target, c.source.dtype, at(c.source), n); return true;
    case OpKind::accumulate: numeric::accumulate(c.target.dtype, target, c.source.dtype, at(c.source), n); return true;
    case OpKind::multiply: numeric::multiply(c.target.dtype, target, scalar, n); return true;
    case OpKind::divide: numeric::divide(c.target.dtype, target, scalar, n); return true;
    case OpKind::squared_norm: *reinterpret_cast<double*>(target) += numeric::squared_norm(c.source.dtype, at(c.source), c.source.numel); return true;
    case OpKind::square_root: *floats(target) = numeric::canonical(std::sqrt(*floats(target))); return true;
    case OpKind::check_finite:
      if (!numeric::all_finite(c.source.dtype, at(c.source), c.source.numel)) *target = std::byte{1};
      return true;
    case OpKind::sgd: numeric::sgd(floats(target), floats(at(c.source)), c.scalars.learning_rate, c.scalars.weight_decay, n); return true;
    case OpKind::adam: {
      if (!on_host(c.first_moment) || !on_host(c.second_moment)) return false;
      const auto step = c.flag ? numeric::adam_cpu : numeric::adam_fused;
      step(floats(target), floats(at(c.source)), floats(at(c.first_moment)), floats(at(c.second_moment)), c.scalars, n);
      return true;
    }
    default: return false;
  }
}

}  // namespace gradledger::gpu
