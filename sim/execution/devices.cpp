#include "sim/execution/devices.h"

namespace gradledger {
namespace {

Operand operand_of(Slice slice, const Program& program) {
  if (slice.buffer == no_index) return {};
  return {slice.buffer, slice.offset, slice.numel, program.buffers[slice.buffer].stored};
}

}  // namespace

Command command_of(const Op& op, const Program& program) {
  Command command;
  command.kind = op.kind;
  command.stream = op.stream;
  command.flag = op.flag != 0;
  command.scalar = op.scalar;
  command.target = operand_of(op.target, program);
  switch (op.kind) {
    case OpKind::allocate:
    case OpKind::release: command.space = program.buffers[op.target.buffer].space; break;
    case OpKind::deposit: break;  // its source is a parameter
    case OpKind::record:
    case OpKind::wait: command.index = op.index; break;
    case OpKind::sgd:
    case OpKind::adam: {
      const UpdateCall& call = program.updates[op.index];
      command.target = operand_of(call.parameter, program);
      command.source = operand_of(call.gradient, program);
      if (op.kind == OpKind::adam) {
        command.first_moment = operand_of(call.first_moment, program);
        command.second_moment = operand_of(call.second_moment, program);
      }
      command.scalars = call.scalars;
      command.flag = call.cpu_formula;
      break;
    }
    default: command.source = operand_of(op.source, program);
  }
  return command;
}

}  // namespace gradledger
