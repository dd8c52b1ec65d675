// Tensors as the frameworks' host code has them: handles on counted storage. A gradient attribute, a list entry and a bucket view can
// share one storage; the memory is released, as an operation, when the last handle lets go. Values: an engine copies with its tensors.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "sim/program/program.h"

namespace gradledger {

// A view of counted storage. Plain data: counts are kept by TensorTable alone.
struct Tensor {
  Slice slice;

  bool defined() const { return slice.buffer != no_index; }
  std::uint64_t numel() const { return slice.numel; }
  Tensor part(std::uint64_t from, std::uint64_t count) const { return {slice.part(from, count)}; }
};

class TensorTable {
 public:
  // A new tensor with one count, held by whoever stores it. Storage of the same name, dtype and size is used again where torch's allocator
  // would: on the stream that first asked for it, and where another stream let go of it, after the host has seen that stream get there.
  Tensor allocate(ProgramWriter& w, const std::string& name, Dtype dtype, std::uint64_t numel, MemorySpace space = MemorySpace::device, std::uint64_t declared_numel = 0) {
    std::vector<Shape>& shapes = by_name_[name];
    const auto known = std::find_if(shapes.begin(), shapes.end(), [&](const Shape& s) { return s.numel == numel && s.dtype == dtype && s.space == space; });
    Shape& shape = known != shapes.end() ? *known : shapes.emplace_back(Shape{dtype, numel, space, {}});
    const auto free = std::find_if(shape.free.rbegin(), shape.free.rend(),
                                   [&](const Free& f) { return home_[f.buffer] == w.stream() && (f.released_on == w.stream() || w.host_has_seen(f.released_on, f.released_at)); });
    BufferId b;
    if (free == shape.free.rend()) {
      b = w.declare(name, dtype, numel, space, declared_numel);
      counts_.resize(b + 1, 0);
      home_.resize(b + 1, Stream::host);
      home_[b] = w.stream();
    } else {
      b = free->buffer;
      shape.free.erase(std::next(free).base());
    }
    counts_[b] = 1;
    w.allocate(b);
    return {w.whole(b)};
  }

  // slot = tensor, which gives up its count.
  void give(ProgramWriter& w, Tensor& slot, Tensor tensor) {
    const Tensor before = slot;
    slot = tensor;
    drop(w, before);
  }

  // slot = tensor, one more handle on the same storage.
  void share(ProgramWriter& w, Tensor& slot, Tensor tensor) {
    if (tensor.defined()) ++counts_[tensor.slice.buffer];
    give(w, slot, tensor);
  }

  // slot = None.
  void clear(ProgramWriter& w, Tensor& slot) { give(w, slot, Tensor{}); }

  void drop(ProgramWriter& w, Tensor tensor) {
    if (!tensor.defined()) return;
    const BufferId b = tensor.slice.buffer;
    expects(b < counts_.size() && counts_[b] > 0, "a tensor is dropped more often than it is held");
    if (--counts_[b] > 0) return;
    const Free released{b, w.stream(), w.position()};
    w.release(b);
    const BufferDeclaration& d = w.declaration(b);
    for (Shape& shape : by_name_.find(d.name)->second)
      if (shape.numel == d.numel && shape.dtype == d.dtype && shape.space == d.space) return shape.free.push_back(released);
  }

 private:
  struct Free {
    BufferId buffer;
    Stream released_on;
    std::uint32_t released_at;  // the operation
  };
  struct Shape {
    Dtype dtype;
    std::uint64_t numel;
    MemorySpace space;
    std::vector<Free> free;
  };

  std::map<std::string, std::vector<Shape>, std::less<>> by_name_;
  std::vector<std::uint32_t> counts_;  // by buffer
  std::vector<Stream> home_;           // by buffer
};

}  // namespace gradledger
