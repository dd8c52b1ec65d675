// Tensors as the frameworks' host code has them: handles on counted storage. A gradient attribute, a list entry and a bucket view can
// share one storage; the memory is released, as an operation, when the last handle lets go. Values: an engine copies with its tensors.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/hash.h"
#include "sim/base/hash_index.h"
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
  Tensor allocate(ProgramWriter& w, std::string_view name, Dtype dtype, std::uint64_t numel, MemorySpace space = MemorySpace::device, std::uint64_t declared_numel = 0) {
    const auto declare = [&] { return w.declare(std::string(name), dtype, numel, space, declared_numel); };
    const std::uint64_t hash = PairHash::of(name);
    std::uint32_t shape = shapes_by_name_.find(hash, [&](std::uint32_t known) {
      const Shape& s = shapes_[known];
      return s.numel == numel && s.dtype == dtype && s.space == space && w.declaration(s.first).name == name;
    });
    if (shape == HashIndex::none) {
      shape = shapes_by_name_.add(hash);
      shapes_.push_back({numel, no_index, dtype, space, {}});
    }
    return allocate(w, shape, declare);
  }

  // Likewise, of the name, dtype and size that this storage has. Precondition: allocate() gave it.
  Tensor allocate_like(ProgramWriter& w, BufferId storage) {
    return allocate(w, shape_of_[storage], [&] {
      const BufferDeclaration d = w.declaration(storage);  // a copy: the declarations move
      return w.declare(d.name, d.dtype, d.numel, d.space, d.declared_bytes / size_of(d.dtype));
    });
  }

  // Likewise, at a place of an engine whose tensors have one name, which name() makes. before: the storage that the place was given last, or none.
  template <class Name>
  Tensor allocate_again(ProgramWriter& w, BufferId& before, Dtype dtype, std::uint64_t numel, Name&& name) {
    const bool alike = before != no_index && w.declaration(before).dtype == dtype && w.declaration(before).numel == numel;
    const Tensor out = alike ? allocate_like(w, before) : allocate(w, name(), dtype, numel);
    before = out.slice.buffer;
    return out;
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
    std::uint64_t numel;
    BufferId first;  // that was declared of it
    Dtype dtype;
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
      if (shapes_[shape].first == no_index) shapes_[shape].first = b;
    } else {
      b = free->buffer;
      all.erase(std::next(free).base());
    }
    counts_[b] = 1;
    w.allocate(b);
    return {w.whole(b)};
  }

  std::vector<Shape> shapes_;
  HashIndex shapes_by_name_;
  std::vector<std::uint32_t> counts_;    // by buffer
  std::vector<Stream> home_;             // by buffer
  std::vector<std::uint32_t> shape_of_;  // by buffer
};

}  // namespace gradledger
