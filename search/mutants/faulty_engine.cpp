#include "search/mutants/faulty_engine.h"

#include <utility>

#include "sim/frameworks/framework.h"

namespace gradledger::search {

FaultyEngine::FaultyEngine(const Fault& fault, const EngineContext& context) : fault_(&fault), context_(context), purposes_(purposes_of_buffers(*context.scenario)) {
  EngineContext told = context;
  if (fault.believe) {
    auto scenario = std::make_shared<Scenario>(*context.scenario);
    fault.believe(*scenario, told);
    believed_ = scenario;
    told.scenario = believed_.get();
  }
  inner_ = make_engine(told);
}

FaultyEngine::FaultyEngine(const FaultyEngine& other)
    : fault_(other.fault_),
      context_(other.context_),
      purposes_(other.purposes_),
      believed_(other.believed_),
      inner_(other.inner_->clone()),
      written_(other.written_),
      buffers_(other.buffers_),
      views_(other.views_),
      recorded_(other.recorded_),
      told_(other.told_),
      queue_(other.queue_),
      event_(other.event_),
      started_(other.started_) {}

Moment FaultyEngine::moment() const { return {*context_.scenario, *context_.timeline, started_ ? &event_ : nullptr, context_.rank}; }

void FaultyEngine::initialise(ProgramWriter& w) {
  through(w, true, [&](ProgramWriter& inner) { inner_->initialise(inner); });
}

void FaultyEngine::handle(const Event& event, ProgramWriter& w) {
  event_ = event;
  started_ = true;
  told_.now = {event};
  if (fault_->tell) fault_->tell(told_, event, moment());
  queue_.insert(queue_.end(), told_.now.begin(), told_.now.end());
  go_on(w);
}

void FaultyEngine::go_on(ProgramWriter& w) {
  while (!queue_.empty() && !inner_->suspended()) {
    const Event next = queue_.front();
    queue_.pop_front();
    through(w, true, [&](ProgramWriter& inner) { inner_->handle(next, inner); });
  }
}

void FaultyEngine::resume(double value, ProgramWriter& w) {
  if (fault_->value) value = fault_->value(value, moment());
  through(w, true, [&](ProgramWriter& inner) { inner_->resume(value, inner); });
  go_on(w);
}

// Snapshots are not the framework's.
void FaultyEngine::observe(ProgramWriter& w) {
  through(w, false, [&](ProgramWriter& inner) { inner_->observe(inner); });
}

// What was written before the framework raised was enqueued.
template <class Call>
void FaultyEngine::through(ProgramWriter& w, bool edits, Call&& call) {
  const std::size_t first = written_.ops.size();
  ProgramWriter inner(written_);
  const auto pass_on = [&] {
    Tape tape(written_, purposes_, first, w.event());
    if (edits && fault_->edit) fault_->edit(tape, moment());
    declare_new(w);
    for (const Op& op : tape.ops()) write(op, tape, w);
  };
  try {
    call(inner);
  } catch (const FrameworkError&) {
    pass_on();
    throw;
  }
  pass_on();
}

// Nobody else declares anything in the real program, so the numbers are the same.
void FaultyEngine::declare_new(ProgramWriter& w) {
  for (; buffers_ < written_.buffers.size(); ++buffers_) {
    const BufferDeclaration& d = written_.buffers[buffers_];
    const BufferId there = w.declare(d.name, d.dtype, d.numel, d.space, d.declared_bytes / size_of(d.dtype));
    ensures(there == buffers_, "the real program has the buffers of the engine's own");
  }
  for (; views_ < written_.views.size(); ++views_)
    ensures(w.view(written_.views[views_].name, written_.views[views_].pieces) == views_, "the real program has the views of the engine's own");
}

void FaultyEngine::write(const Op& op, const Tape& tape, ProgramWriter& w) {
  w.set_stream(op.stream);
  switch (op.kind) {
    case OpKind::allocate: return w.allocate(op.target.buffer);
    case OpKind::release: return w.release(op.target.buffer);
    case OpKind::deposit: return w.deposit(op.target, op.index, op.source.buffer, op.source.offset, op.scalar, op.flag != 0);
    case OpKind::fill: return w.fill(op.target, op.scalar);
    case OpKind::copy: return w.copy(op.target, op.source);
    case OpKind::interleave:
    case OpKind::part_rows: break;  // a tape has their copies
    case OpKind::accumulate: return w.accumulate(op.target, op.source);
    case OpKind::multiply: return w.multiply(op.target, op.scalar);
    case OpKind::divide: return w.divide(op.target, op.scalar);
    case OpKind::squared_norm: return w.squared_norm(op.target, op.source);
    case OpKind::square_root: return w.square_root(op.target);
    case OpKind::check_finite: return w.check_finite(op.target, op.source);
    case OpKind::sgd: return w.sgd(written_.updates[op.index]);
    case OpKind::adam: return w.adam(written_.updates[op.index]);
    case OpKind::collective: return w.collective(tape.call(op));
    case OpKind::send: return w.send(static_cast<std::int32_t>(op.index), op.flag);
    case OpKind::receive: return w.receive(static_cast<std::int32_t>(op.index), op.flag);
    case OpKind::record:
      recorded_.resize(written_.stream_events, no_index);
      recorded_[op.index] = w.record();
      return;
    case OpKind::wait:  // for what was never recorded: for nothing
      if (op.index < recorded_.size() && recorded_[op.index] != no_index) w.wait(recorded_[op.index]);
      return;
    case OpKind::synchronize: return w.synchronize(op.flag != 0);
    case OpKind::read: return w.read(op.source, op.index);
    case OpKind::observe: return w.observe(op.index, op.role, op.scalar, op.flag != 0);
    case OpKind::report: {
      const auto fact = static_cast<StepFact>(op.index);
      return op.source.buffer == no_index ? w.report(fact, op.scalar) : w.report(fact, op.source, op.scalar);
    }
    case OpKind::end_event: return w.end_event();
  }
}

EngineFactory with_fault(const Fault& fault) {
  return [&fault](const EngineContext& context) -> std::unique_ptr<Engine> { return std::make_unique<FaultyEngine>(fault, context); };
}

}  // namespace gradledger::search
