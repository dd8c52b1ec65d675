#include "gpu/ranks/thread_devices.h"

#include <algorithm>
#include <string>

#include "sim/base/contract.h"

namespace gradledger::gpu {
namespace {

Group group_of(std::span<const Participant> members) {
  Group group;
  for (const Participant& member : members) group.push_back(member.rank);
  return group;
}

}  // namespace

template <class Call>
void ThreadDevices::named(std::uint32_t rank, Call&& call) {
  try {
    call();
  } catch (const DeviceFailure&) {
    throw;
  } catch (const std::runtime_error& error) {
    failed_ = true;
    throw DeviceFailure(rank, error.what());
  }
}

template <class Call>
void ThreadDevices::on_threads_of(const Group& group, const char* what, Call&& call) {
  const auto deadline = std::chrono::steady_clock::now() + deadline_;
  for (std::uint32_t r : group) members_[r]->worker.start([&call, r] { call(r); });
  for (std::uint32_t r : group)
    if (!members_[r]->worker.wait_until(deadline)) {
      failed_ = true;
      throw DeviceFailure(r, std::string(what) + " did not end within " + std::to_string(deadline_.count()) + " ms");
    }
  for (std::uint32_t r : group)
    if (const auto error = members_[r]->worker.error()) {
      failed_ = true;
      throw DeviceFailure(r, *error);
    }
}

ThreadDevices::ThreadDevices(ApiFactory make_api, NcclLibrary library, std::chrono::milliseconds deadline)
    : make_api_(std::move(make_api)), library_(std::move(library)), deadline_(deadline) {}

// Communicators of a group end together. After a failure something may never end: it is left as it is, and not waited for.
ThreadDevices::~ThreadDevices() {
  Group all;
  for (std::uint32_t r = 0; r < members_.size(); ++r) all.push_back(r);
  try {
    if (!failed_) on_threads_of(all, "the end of NCCL", [&](std::uint32_t r) { members_[r]->nccl.reset(); });
  } catch (const DeviceFailure&) {  // the run is over and was judged
  }
  if (failed_) abandon();
}

void ThreadDevices::abandon() {
  static auto* const abandoned = new std::vector<std::unique_ptr<Member>>;  // never freed
  for (auto& member : members_) abandoned->push_back(std::move(member));
}

void ThreadDevices::begin(std::uint32_t world) {
  if (world > thread_ranks_max)
    throw DeviceFailure(std::nullopt, std::to_string(world) + " ranks do not fit one process; expected at most " + std::to_string(thread_ranks_max) + ", or processes");
  while (members_.size() < world) add_member();
  for (std::uint32_t r = 0; r < world; ++r) named(r, [&] { members_[r]->device->begin(); });
}

void ThreadDevices::add_member() {
  const auto rank = static_cast<std::uint32_t>(members_.size());
  auto member = std::make_unique<Member>();
  named(rank, [&] {
    member->api = make_api_(rank);
    member->api->attach_thread();
    member->device = std::make_unique<DeviceRank>(*member->api);
    auto copy = NcclLibrary::load_copy(library_.path());
    if (!copy) throw std::runtime_error(copy.error().text());
    freeze_host_name(*copy, rank);
    member->nccl = std::make_unique<NcclRank>(std::move(copy).value());
  });
  members_.push_back(std::move(member));
}

void ThreadDevices::enqueue(std::uint32_t rank, const Command& command, std::span<const double> values) {
  named(rank, [&] {
    members_[rank]->api->attach_thread();
    members_[rank]->device->enqueue(command, values);
  });
}

void ThreadDevices::fetch(std::uint32_t rank, Stream stream, std::span<const Operand> operands, std::vector<std::byte>& out) {
  named(rank, [&] {
    members_[rank]->api->attach_thread();
    members_[rank]->device->fetch(stream, operands, out);
  });
}

void ThreadDevices::collective(std::span<const Participant> participants) {
  const Group group = group_of(participants);
  if (!members_[group.front()]->nccl->knows(group)) introduce(group);
  // What the kernels wait for is over before the first of them starts: then none of them holds a queue that another one's work needs.
  places_.clear();
  for (const Participant& p : participants)
    named(p.rank, [&] {
      Member& member = *members_[p.rank];
      member.api->attach_thread();
      places_.push_back({member.device->stream(p.command.stream), member.device->address(p.command.source), member.device->address(p.command.target)});
      member.api->synchronize(places_.back().stream);
    });
  on_threads_of(group, "a collective", [&](std::uint32_t r) {
    const auto index = static_cast<std::size_t>(std::lower_bound(group.begin(), group.end(), r) - group.begin());
    Member& member = *members_[r];
    const Command& command = participants[index].command;
    member.api->attach_thread();
    const Place& place = places_[index];
    member.nccl->enqueue(group, command, place.input, place.output, place.stream);
    if (command.stream == Stream::host) member.api->synchronize(place.stream);
  });
}

void ThreadDevices::introduce(const Group& group) {
  NcclUniqueId id{};
  on_threads_of({group.front()}, "ncclGetUniqueId", [&](std::uint32_t r) { id = members_[r]->nccl->make_id(); });
  on_threads_of(group, "ncclCommInitRank", [&](std::uint32_t r) {
    members_[r]->api->attach_thread();
    members_[r]->nccl->join(group, id, r);
  });
}

}  // namespace gradledger::gpu
