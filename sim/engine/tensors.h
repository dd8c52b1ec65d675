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
    std::vector<std::uint32_t>& named = by_name_[name];
    const auto known =
        std::find_if(named.begin(), named.end(), [&](std::uint32_t n) { return shapes_[n].numel == numel && shapes_[n].dtype == dtype && shapes_[n].space == space; });
    if (known != named.end()) return allocate(w, *known, [&] { return w.declare(name, dtype, numel, space, declared_numel); });
    named.push_back(static_cast<std::uint32_t>(shapes_.size()));
    shapes_.push_back({dtype, numel, space, {}});
    return allocate(w, named.back(), [&] { return w.declare(name, dtype, numel, space, declared_numel); });
  }

  // Likewise, of the name, dtype and size that this storage has. Precondition: allocate() gave it.
  Tensor allocate_like(ProgramWriter& w, BufferId storage) {
    return allocate(w, shape_of_[storage], [&] {
      const BufferDeclaration d = w.declaration(storage);  // a copy: the declarations move
      return w.declare(d.name, d.dtype, d.numel, d.space, d.declared_bytes / size_of(d.dtype));
    });
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
    shapes_[shape_of_[b]].free.push_back(released);
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

  template <class Declare>
  Tensor allocate(ProgramWriter& w, std::uint32_t shape, Declare&& declare) {
    std::vector<Free>& all = shapes_[shape].free;
    const auto free = std::find_if(all.rbegin(), all.rend(),
                                   [&](const Free& f) { return home_[f.buffer] == w.stream() && (f.released_on == w.stream() || w.host_has_seen(f.released_on, f.released_at)); });
    BufferId b;
    if (free == all.rend()) {
      b = declare();
      counts_.resize(b + 1, 0);
      home_.resize(b + 1, Stream::host);
      shape_of_.resize(b + 1, no_index);
      home_[b] = w.stream();
      shape_of_[b] = shape;
    } else {
      b = free->buffer;
      all.erase(std::next(free).base());
    }
    counts_[b] = 1;
    w.allocate(b);
    return {w.whole(b)};
  }

  std::vector<Shape> shapes_;
  std::map<std::string, std::vector<std::uint32_t>, std::less<>> by_name_;  // shapes
  std::vector<std::uint32_t> counts_;                                       // by buffer
  std::vector<Stream> home_;                                                // by buffer
  std::vector<std::uint32_t> shape_of_;                                     // by buffer
};

}  // namespace gradledger
