#include "sim/execution/checkpoint.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/base/contract.h"
#include "sim/frameworks/framework.h"

namespace gradledger {
namespace {

std::set<BufferId> live_buffers(const Program& program) {
  std::set<BufferId> out;
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::allocate) out.insert(op.target.buffer);
    if (op.kind == OpKind::release) out.erase(op.target.buffer);
  }
  return out;
}

bool saved(BufferPurpose purpose) { return purpose == BufferPurpose::weights || purpose == BufferPurpose::master_weights || purpose == BufferPurpose::optimizer_state; }

}  // namespace

void load_checkpoint(const Scenario& scenario, const Program& program, const Engine& old, Engine& fresh, ProgramWriter& w) {
  const std::set<BufferId> live = live_buffers(program);
  const auto first = static_cast<BufferId>(program.buffers.size());
  w.synchronize();
  fresh.initialise(w);
  fresh.load(old);
  // Both engines start alike, so buffers of one name come in one order.
  std::map<std::string, std::vector<BufferId>> mine;
  for (BufferId b = static_cast<BufferId>(program.buffers.size()); b-- > first;) mine[program.buffers[b].name].push_back(b);
  const BufferPurposes purposes = purposes_of_buffers(scenario);
  w.synchronize();
  for (const BufferId b : live) {
    const BufferDeclaration& was = program.buffers[b];
    const auto now = mine.find(was.name);
    const BufferPurpose purpose = purposes.of(was.name);
    if (!saved(purpose) || !fresh.restores(purpose) || now == mine.end() || now->second.empty()) continue;
    OnStream where(w, was.space == MemorySpace::host ? Stream::host : Stream::compute);
    w.copy(w.whole(now->second.back()), w.whole(b));
    now->second.pop_back();
  }
  w.synchronize();
  for (const BufferId b : live) w.release(b);
}

}  // namespace gradledger
