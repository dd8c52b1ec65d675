// Which storage a new tensor gets: what torch's caching allocator may hand out by then.
#include <gtest/gtest.h>

#include "sim/engine/tensors.h"
#include "sim/execution/happens_before.h"

namespace gradledger::testing {
namespace {

struct Table {
  Program program;
  ProgramWriter w{program};
  TensorTable tensors;

  Tensor allocate(Stream stream) {
    OnStream there(w, stream);
    const Tensor tensor = tensors.allocate(w, "x", Dtype::float32, 8);
    w.fill(tensor.slice, 1.0);
    return tensor;
  }
  void drop(Stream stream, const Tensor& tensor) {
    OnStream there(w, stream);
    tensors.drop(w, tensor);
  }
  // What `stream` reads of it comes after what compute wrote.
  void read_on(Stream stream, const Tensor& tensor) {
    const std::uint32_t written = w.record();
    OnStream there(w, stream);
    w.wait(written);
    w.report(StepFact::gradient_norm, tensor.slice, 1.0);
  }
};

TEST(tensor_table, gives_a_stream_what_it_let_go_of_itself) {
  Table t;
  const Tensor first = t.allocate(Stream::compute);
  t.drop(Stream::compute, first);
  EXPECT_EQ(t.allocate(Stream::compute).slice, first.slice);
}

TEST(tensor_table, gives_the_like_of_a_tensor_by_the_same_rule_as_by_name) {
  Table t;
  const Tensor first = t.allocate(Stream::compute);
  const Tensor second = t.tensors.allocate_like(t.w, first.slice.buffer);
  EXPECT_NE(second.slice.buffer, first.slice.buffer) << "the first is still held";
  EXPECT_EQ(t.program.buffers[second.slice.buffer].name, "x");
  EXPECT_EQ(t.program.buffers[second.slice.buffer].declared_bytes, t.program.buffers[first.slice.buffer].declared_bytes);
  t.drop(Stream::compute, first);
  EXPECT_EQ(t.tensors.allocate_like(t.w, second.slice.buffer).slice, first.slice);
}

TEST(tensor_table, asks_for_a_name_again_where_dtype_or_size_are_others) {
  Table t;
  BufferId before = no_index;
  std::size_t asked = 0;
  const auto allocate = [&](Dtype dtype, std::uint64_t numel) {
    return t.tensors.allocate_again(t.w, before, dtype, numel, [&] {
      ++asked;
      return std::string("x");
    });
  };
  const Tensor first = allocate(Dtype::float32, 8);
  t.tensors.drop(t.w, first);
  EXPECT_EQ(allocate(Dtype::float32, 8).slice, first.slice);
  EXPECT_EQ(asked, 1u);
  EXPECT_EQ(allocate(Dtype::float32, 6).numel(), 6u);
  const Tensor other = allocate(Dtype::bfloat16, 6);
  EXPECT_EQ(t.program.buffers[other.slice.buffer].dtype, Dtype::bfloat16);
  EXPECT_EQ(asked, 3u);
}

TEST(tensor_table, keeps_back_what_another_stream_let_go_of_until_the_host_has_seen_it_get_there) {
  for (const bool everything : {false, true}) {
    Table t;
    const Tensor first = t.allocate(Stream::compute);
    t.read_on(Stream::communication, first);
    t.drop(Stream::communication, first);
    t.w.synchronize(true);  // of a snapshot: not the framework's
    const Tensor second = t.allocate(Stream::compute);
    EXPECT_NE(second.slice.buffer, first.slice.buffer);
    if (everything) {
      t.w.synchronize();
    } else {
      OnStream communication(t.w, Stream::communication);
      t.w.host_waits();
    }
    EXPECT_EQ(t.allocate(Stream::compute).slice, first.slice);
    EXPECT_TRUE(stream_races(t.program, 0).empty());
  }
}

TEST(tensor_table, is_not_told_of_what_came_after_the_host_waited) {
  Table t;
  const Tensor first = t.allocate(Stream::compute);
  t.read_on(Stream::communication, first);
  t.w.synchronize();
  t.drop(Stream::communication, first);
  EXPECT_NE(t.allocate(Stream::compute).slice.buffer, first.slice.buffer);
}

TEST(tensor_table, gives_a_stream_nothing_that_another_one_asked_for_first) {
  Table t;
  const Tensor first = t.allocate(Stream::side);
  t.drop(Stream::side, first);
  t.w.synchronize();
  EXPECT_NE(t.allocate(Stream::compute).slice.buffer, first.slice.buffer);
  EXPECT_EQ(t.allocate(Stream::side).slice, first.slice);
}

// Nobody told the allocator that another stream reads it: it is handed out at once, and that is the race.
TEST(tensor_table, hands_out_at_once_what_its_own_stream_let_go_of_while_another_one_reads) {
  Table t;
  const Tensor first = t.allocate(Stream::compute);
  t.read_on(Stream::communication, first);
  t.drop(Stream::compute, first);
  EXPECT_EQ(t.allocate(Stream::compute).slice, first.slice);
  EXPECT_FALSE(stream_races(t.program, 0).empty());
}

}  // namespace
}  // namespace gradledger::testing
