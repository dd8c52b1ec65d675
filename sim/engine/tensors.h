// Tensors as the frameworks' host code has them: handles on counted storage. A gradient attribute, a list entry and a bucket view can
// share one storage; the memory is released, as an operation, when the last handle lets go. Values: an engine copies with its tensors.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/hash.h"
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
    if (2 * (shapes_.size() + 1) > places_.size()) make_places();
    std::uint32_t& place = place_of(hash, [&](const Shape& s) { return s.numel == numel && s.dtype == dtype && s.space == space && w.declaration(s.first).name == name; });
    if (place == no_index) {
      place = static_cast<std::uint32_t>(shapes_.size());
      shapes_.push_back({hash, numel, no_index, dtype, space, {}});
    }
    return allocate(w, place, declare);
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
    std::uint64_t name;  // its hash
    std::uint64_t numel;
    BufferId first;  // that was declared of it
    Dtype dtype;
    MemorySpace space;
    std::vector<Free> free;
  };

  // Of a shape of that name that fits; else the first place that is free.
  template <class Fits>
  std::uint32_t& place_of(std::uint64_t hash, Fits&& fits) {
    std::size_t at = hash & (places_.size() - 1);
    while (places_[at] != no_index && !(shapes_[places_[at]].name == hash && fits(shapes_[places_[at]]))) at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }

  void make_places() {
    places_.assign(std::max<std::size_t>(16, 2 * places_.size()), no_index);
    for (std::uint32_t s = 0; s < shapes_.size(); ++s) place_of(shapes_[s].name, [](const Shape&) { return false; }) = s;
  }

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
  std::vector<std::uint32_t> places_;    // of shapes, by hash and then one after the other: a power of two, half of them free at least
  std::vector<std::uint32_t> counts_;    // by buffer
  std::vector<Stream> home_;             // by buffer
  std::vector<std::uint32_t> shape_of_;  // by buffer
};

}  // namespace gradledger
