// A rank's program: operations on streams, as a framework's host code would enqueue them. Data only; executors run it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/contract.h"
#include "sim/base/hash_index.h"
#include "sim/numeric/dtype.h"
#include "sim/numeric/kernels.h"
#include "sim/program/interleavings.h"
#include "sim/program/op_list.h"
#include "sim/program/slice.h"
#include "sim/trace/observation.h"

namespace gradledger {

using ViewId = std::uint32_t;

// The host enqueues; device streams run what was enqueued, each in order. Host work (CPU optimizer, reading a value) is a stream too.
// side: a second stream of autograd, for parameters whose forward did not run on the default stream. all_gather, all_reduce: those of a
// framework that gives each kind of collective its own, so that communication is that of reduce_scatters.
enum class Stream : std::uint8_t { host, compute, communication, copy, side, all_gather, all_reduce };
inline constexpr std::size_t stream_count = 7;
std::string_view name_of(Stream stream);

enum class OpKind : std::uint8_t {
  allocate,      // target.buffer: memory is there, contents poison
  release,       // target.buffer: memory is gone, contents poison
  deposit,       // autograd: target (+)= RN(gradient x factor); contribution in `index`, parameter elements in `source`
  fill,          // target = scalar
  copy,          // target = cast(source)
  interleave,    // target = rows of chunks of several slices, cast: `index` into interleavings
  part_rows,     // the slices of `index` into interleavings = source, rows of their chunks, cast
  accumulate,    // target += cast(source)
  multiply,      // target *= scalar
  divide,        // target /= scalar
  squared_norm,  // fp64 scalar target += sum of squares of source
  square_root,   // scalar target = sqrt(target)
  check_finite,  // uint8 scalar target |= source has an infinity or NaN
  sgd,           // target (fp32) -= lr x source; `index` into updates
  adam,          // likewise with moments
  collective,    // `index` into collectives
  send,          // to the rank `index` places further on: something that a later receive of it waits for
  receive,       // the host waits for as many sends of the rank `index` places further on as receives of them ran before, and one more
  record,        // stream event `index` is recorded on this stream
  wait,          // this stream waits for stream event `index`
  synchronize,   // the host waits until every stream of the rank has run dry
  read,          // the host reads the scalar source; the engine goes on at stage `index`
  observe,       // snapshot: view in `index`
  report,        // scalar source x scalar, or without a source scalar alone, is what the step says of fact `index`
  end_event,     // the script event is over
};

std::string_view name_of(OpKind kind);

// Sends from rank to rank keep their order within a line: what goes forward through a pipeline, and what goes back.
inline constexpr std::size_t send_lines = 2;

struct Op {
  OpKind kind = OpKind::fill;
  Stream stream = Stream::host;
  std::uint8_t flag = 0;          // deposit: 1 accumulate, 0 set; observe: 1 at the end of the event, 0 inside it;
                                  // synchronize: 1 for a snapshot, which the framework does not wait for
                                  // send, receive: which of the lines between the two ranks, below send_lines
  Role role = Role::scratch;      // observe
  std::uint32_t event = 0;        // script event that it belongs to
  std::uint32_t next = no_index;  // next operation of the same stream
  std::uint32_t index = no_index;
  Slice target;
  Slice source;
  double scalar = 0;

  bool operator==(const Op& other) const {
    return kind == other.kind && stream == other.stream && flag == other.flag && role == other.role && event == other.event && next == other.next && index == other.index &&
           target == other.target && source == other.source && std::bit_cast<std::uint64_t>(scalar) == std::bit_cast<std::uint64_t>(other.scalar);
  }
};

// Whom a send or a receive of the rank is for.
inline std::uint32_t other_rank(std::uint32_t rank, const Op& op) { return rank + op.index; }

struct BufferDeclaration {
  std::string name;
  Dtype dtype = Dtype::float32;  // the framework's
  std::uint64_t numel = 0;
  MemorySpace space = MemorySpace::device;
  std::uint64_t declared_bytes = 0;  // what the framework would hold
  Dtype stored = Dtype::float32;     // what an executor holds: fp64 in wide programs

  bool operator==(const BufferDeclaration&) const = default;
};

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::all_reduce;
  ReduceOp op = ReduceOp::sum;
  Purpose purpose = Purpose::gradient;
  std::uint32_t group = 0;         // 0: the world
  std::uint32_t communicator = 0;  // of the group, below communicators_max: ranks meet in each by itself
  std::uint32_t sequence = 0;      // number in its line, in the order of enqueueing; set by the writer
  std::uint32_t root = 0;
  double factor = 1;                   // of a premultiplied_sum
  std::uint64_t compressed_numel = 0;  // what the framework sends in place of the input, where it compresses it and the simulator does not; else 0
  Slice input;                         // reduce_scatter: world x output
  Slice output;                        // all_gather: world x input; the same slice: in place
  // Of a rank that runs for others (sim/execution/rank_classes.h): how much further on in the buffer the output of the next place lies.
  std::int64_t pace = 0;

  bool operator==(const CollectiveCall&) const = default;
  std::size_t line() const { return line_of(group, communicator); }
};

// One call of the base optimizer on a flat fp32 partition.
struct UpdateCall {
  Slice parameter, gradient, first_moment, second_moment;
  numeric::AdamScalars scalars;  // sgd: learning_rate and weight_decay
  bool cpu_formula = false;

  bool operator==(const UpdateCall&) const = default;
};

struct ViewPiece {
  Slice slice;
  std::int32_t parameter = -1;  // -1: padding
  std::uint64_t parameter_offset = 0;

  bool operator==(const ViewPiece&) const = default;
};

struct View {
  std::string name;
  std::vector<ViewPiece> pieces;
};

// One operation for each stream, none yet.
using StreamHeads = std::array<std::uint32_t, stream_count>;
inline constexpr StreamHeads no_heads{no_index, no_index, no_index, no_index, no_index, no_index, no_index};

struct Program {
  OpList<Op> ops;
  std::vector<BufferDeclaration> buffers;
  std::vector<CollectiveCall> collectives;
  Interleavings interleavings;
  std::uint32_t next_interleaving = 0;  // behind the last that was asked for
  std::vector<UpdateCall> updates;
  std::vector<View> views;
  HashIndex views_by_name;
  StreamHeads first = no_heads;
  StreamHeads last = no_heads;
  std::uint32_t stream_events = 0;
  std::array<std::uint32_t, stream_count> host_has_seen{};  // by stream: the host waited until its operations below this number were over
  std::vector<std::uint32_t> line_sequences;                // collectives issued so far, by line
  bool wide = false;                                        // every floating buffer that is declared is fp64

  // Taken by what grows with the script.
  std::uint64_t bytes() const { return ops.capacity() * sizeof(Op) + collectives.capacity() * sizeof(CollectiveCall) + updates.capacity() * sizeof(UpdateCall); }

  // Operations below this number ran on every stream, and nobody asks for them again.
  void forget_before(std::uint32_t op) {
    if (!ops.forget_before(op)) return;
    for (std::size_t s = 0; s < stream_count; ++s)
      if (last[s] != no_index && last[s] < op) first[s] = last[s] = no_index;  // the stream begins anew
  }

  // What was written behind a mark can be compared, and taken back. Views are not: each rank has its own.
  struct Mark {
    std::size_t ops = 0, buffers = 0, collectives = 0, interleavings = 0, updates = 0, views = 0;
    std::uint32_t next_interleaving = 0, stream_events = 0;
    StreamHeads first = no_heads, last = no_heads;
    std::array<std::uint32_t, stream_count> host_has_seen{};
    std::vector<std::uint32_t> line_sequences;
  };
  Mark mark() const;
  void back_to(const Mark& mark);
  // Whether they were written alike since then, operation by operation, but for views, which are asked about one by one. Precondition: both were the same up to
  // the mark.
  template <class SameOp, class SameCollective, class SameView>
  bool same_since(const Mark& mark, const Program& other, SameOp&& same_op, SameCollective&& same_collective, SameView&& same_view) const {
    const auto alike = [](const auto& a, const auto& b, std::size_t from, auto&& same) {
      if (a.size() != b.size()) return false;
      for (std::size_t i = from; i < a.size(); ++i)
        if (!same(a[i], b[i], i)) return false;
      return true;
    };
    const auto equal = [](const auto& a, const auto& b, std::size_t) { return a == b; };
    return next_interleaving == other.next_interleaving && stream_events == other.stream_events && first == other.first && last == other.last &&
           host_has_seen == other.host_has_seen && line_sequences == other.line_sequences && alike(collectives, other.collectives, mark.collectives, same_collective) &&
           alike(ops, other.ops, mark.ops, same_op) && alike(buffers, other.buffers, mark.buffers, equal) && alike(interleavings, other.interleavings, mark.interleavings, equal) &&
           alike(updates, other.updates, mark.updates, equal) && alike(views, other.views, mark.views, same_view);
  }
  void swap_views(Program& other) {
    views.swap(other.views);
    views_by_name.swap(other.views_by_name);
  }
  // Takes in what the other has more, but for its views. Precondition: up to there both are the same.
  void catch_up(const Program& other);

  // Empty again; what it holds keeps its memory.
  void clear() {
    ops.clear();
    buffers.clear();
    collectives.clear();
    interleavings.clear();
    next_interleaving = 0;
    updates.clear();
    views.clear();
    views_by_name.clear();
    first = last = no_heads;
    stream_events = 0;
    host_has_seen.fill(0);
    line_sequences.clear();
  }
};

// Engines write their programs through this. Every method appends one operation to the current stream.
class ProgramWriter {
 public:
  explicit ProgramWriter(Program& program) : program_(&program) {}

  void begin_event(std::uint32_t event) { event_ = event; }
  std::uint32_t event() const { return event_; }

  // ---- declarations: no operation
  // declared_numel: what the framework would allocate, where the simulator needs less.
  BufferId declare(std::string name, Dtype dtype, std::uint64_t numel, MemorySpace space = MemorySpace::device, std::uint64_t declared_numel = 0);
  Slice whole(BufferId buffer) const { return {buffer, 0, program_->buffers[buffer].numel}; }
  const BufferDeclaration& declaration(BufferId buffer) const { return program_->buffers[buffer]; }
  ViewId view(std::string_view name, std::vector<ViewPiece> pieces);  // equal views share an id

  // ---- order
  Stream stream() const { return stream_; }
  void set_stream(Stream stream) { stream_ = stream; }
  std::uint32_t record();
  void wait(std::uint32_t stream_event);
  void synchronize(bool for_snapshot = false);
  void host_waits();  // for this point of the current stream
  // The number that the next operation will have.
  std::uint32_t position() const { return static_cast<std::uint32_t>(program_->ops.size()); }
  // Whether the host waited for an operation of a stream.
  bool host_has_seen(Stream stream, std::uint32_t operation) const { return operation < program_->host_has_seen[static_cast<std::size_t>(stream)]; }

  // ---- storage
  void allocate(BufferId buffer) { emit(OpKind::allocate).target = whole(buffer); }
  void release(BufferId buffer) { emit(OpKind::release).target = whole(buffer); }

  // ---- arithmetic
  void deposit(Slice target, std::uint32_t backward, std::uint32_t parameter, std::uint64_t offset, double factor, bool add);
  void fill(Slice target, double value);
  void copy(Slice target, Slice source);
  // Between device and host. Asynchronous for the device; the host goes on before it is done only where its memory is pinned.
  void copy_over_the_bus(Slice target, Slice source, bool pinned);
  void interleave(Slice target, Interleaving of);  // equal ones share an index
  void part_rows(Slice source, Interleaving of);   // the way back
  void accumulate(Slice target, Slice source);
  void multiply(Slice target, double factor);
  void divide(Slice target, double divisor);
  void squared_norm(Slice scalar, Slice source);
  void square_root(Slice scalar);
  void check_finite(Slice flag, Slice source);
  void sgd(const UpdateCall& call);
  void adam(const UpdateCall& call);
  void collective(const CollectiveCall& call);
  // Where something is sent that the simulator need not hold: that a rank waits for it is all that follows. places: to the other rank; negative before it.
  void send(std::int32_t places, std::uint8_t line);
  void receive(std::int32_t places, std::uint8_t line);

  // ---- host
  // The host waits for this point of the current stream, then reads.
  void read(Slice scalar, std::uint32_t stage);
  void observe(ViewId view, Role role, double scale, bool at_end);
  void report(StepFact fact, Slice scalar, double factor);
  void report(StepFact fact, double value);  // one that the host knows
  void end_event();

 private:
  std::uint32_t index_of(Slice rows_of_chunks, Interleaving of);
  Op& emit(OpKind kind);
  Op& emit_on(Stream stream, OpKind kind);

  Program* program_;
  Stream stream_ = Stream::compute;
  std::uint32_t event_ = 0;
  ViewId next_view_ = 0;  // that is looked at first: views are asked for in the same order after every event
};

// Runs a block with another current stream.
class OnStream {
 public:
  OnStream(ProgramWriter& writer, Stream stream) : writer_(writer), before_(writer.stream()) { writer.set_stream(stream); }
  ~OnStream() { writer_.set_stream(before_); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  ProgramWriter& writer_;
  Stream before_;
};

}  // namespace gradledger
