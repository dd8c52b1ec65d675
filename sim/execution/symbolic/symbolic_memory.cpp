#include "sim/execution/symbolic/symbolic_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "sim/base/hash.h"

namespace gradledger {

std::optional<Rational> SymbolicMemory::quotient_of(double factor) {
  constexpr std::int64_t terms_max = std::int64_t{1} << 53;
  return simplest_within(factor, 0, terms_max);
}

SymbolicMemory::SymbolicMemory(const Workload& workload, const Timeline& timeline, const RankClasses* classes)
    : workload_(workload), timeline_(timeline), by_themselves_(classes ? 0 : workload.world_size), classes_(classes ? *classes : by_themselves_), buffers_(workload.world_size) {
  std::int64_t at = 0;
  for (const Parameter& parameter : workload.parameters) {
    parameter_begin_.push_back(at);
    at += parameter.numel;
  }
}

PiecewiseBuffer& SymbolicMemory::buffer(std::uint32_t rank, BufferId id) {
  expects(id < buffers_[rank].size(), "an operation names a buffer that was not declared");
  return buffers_[rank][id];
}

void SymbolicMemory::prepare(std::uint32_t rank, const Program& program) {
  std::vector<PiecewiseBuffer>& own = buffers_[rank];
  while (own.size() < program.buffers.size()) own.emplace_back(program.buffers[own.size()].numel);
}

bool SymbolicMemory::execute(const Op& op, std::uint32_t rank, const Program& program) {
  parts_ = false;
  if (!shares_.empty() && op.target.buffer != no_index && op.target.numel == program.buffers[op.target.buffer].numel) forget_share(rank, op.target.buffer);
  switch (op.kind) {
    case OpKind::allocate:
    case OpKind::release: buffer(rank, op.target.buffer).clear(op.target.numel); break;
    case OpKind::deposit: deposit(op, rank); break;
    case OpKind::fill: write_one(rank, op.target, forms_.number(op.scalar), no_origin); break;
    case OpKind::copy:
      read(rank, op.source, read_);
      write(rank, op.target, read_);
      break;
    case OpKind::interleave: interleave(program.interleavings[op.index], op.target, rank); break;
    case OpKind::part_rows: part_rows(program.interleavings[op.index], op.source, rank); break;
    case OpKind::accumulate:
      read(rank, op.source, other_);
      accumulate(rank, op.target, other_);
      break;
    case OpKind::multiply: scale(rank, op.target, op.scalar, false); break;
    case OpKind::divide: scale(rank, op.target, op.scalar, true); break;
    case OpKind::check_finite:
      if (!finite(rank, op.source)) write_one(rank, op.target, forms_.number(1), no_origin);
      break;
    case OpKind::squared_norm:  // how long gradients are nobody asks, but for what is no number
      if (!finite(rank, op.source)) write_one(rank, op.target, forms_.number(std::numeric_limits<double>::infinity()), no_origin);
      break;
    case OpKind::square_root:
    case OpKind::sgd:
    case OpKind::adam: break;  // no gradient follows from them
    default: expects(false, "an operation reached the forms that is not arithmetic");
  }
  return !parts_;
}

// ---- classes -------------------------------------------------------------------------------------------------------------------------

// As it lies so many places further on.
Stretch SymbolicMemory::as_of(std::int64_t places, Stretch s) const {
  if (s.pace != 0) s.origin += places * paces_[s.pace];
  s.pace = 0;
  return s;
}

void SymbolicMemory::read_any(std::uint32_t rank, Slice slice, Stretches& out) {
  const std::uint32_t leader = classes_.leader(rank);
  read(leader, slice, out);
  if (std::all_of(out.begin(), out.end(), [](const Stretch& s) { return s.pace == 0; })) return;
  Stretches here;
  for (const Stretch& s : out) append(here, as_of(classes_.places(rank), s));  // neighbours may be one on this rank
  out = std::move(here);
}

void SymbolicMemory::stand_apart(std::uint32_t rank, std::uint32_t leader) {
  const std::int64_t places = classes_.places_between(leader, rank);
  buffers_[rank] = buffers_[leader];
  for (PiecewiseBuffer& buffer : buffers_[rank])
    buffer.change([&](Stretch s) {
      if (s.pace != 0) s.origin += places * paces_[s.pace];  // others may follow it in turn
      return s;
    });
  take_shares(rank, leader);
}

void SymbolicMemory::copy_within(std::uint32_t rank, const Slice& from, const Slice& to) {
  read(rank, from, other_);
  buffer(rank, to.buffer).write(to.offset, other_);
}

void SymbolicMemory::keep_share(std::uint32_t leader, Slice slice, std::int64_t pace) {
  shares_.push_back({leader, slice, pace, {}});
  read(leader, slice, shares_.back().under);
}

void SymbolicMemory::forget_share(std::uint32_t rank, BufferId buffer) {
  std::erase_if(shares_, [&](const Share& s) { return s.rank == rank && s.slice.buffer == buffer; });
}

// A copy of the leader's buffers has its shares where they lie on the leader.
void SymbolicMemory::take_shares(std::uint32_t rank, std::uint32_t leader) {
  const std::int64_t places = classes_.places_between(leader, rank);
  for (std::size_t i = 0, count = shares_.size(); i < count; ++i) {
    if (shares_[i].rank != leader) continue;
    Share own = shares_[i];
    own.rank = rank;
    Stretches held;
    read(rank, own.slice, held);
    for (Stretch& s : own.under)
      if (s.pace != 0) s.origin += places * paces_[s.pace];
    write(rank, own.slice, own.under);
    own.slice.offset += static_cast<std::uint64_t>(places * own.pace);
    read(rank, own.slice, own.under);
    write(rank, own.slice, held);
    shares_.push_back(std::move(own));
  }
}

bool SymbolicMemory::has_paces(std::uint32_t leader) const {
  for (const PiecewiseBuffer& buffer : buffers_[leader])
    if (std::any_of(buffer.kept().begin(), buffer.kept().end(), [](const Stretch& s) { return s.pace != 0; })) return true;
  return false;
}

void SymbolicMemory::forget_paces(std::uint32_t rank) {
  std::erase_if(shares_, [&](const Share& s) { return s.rank == rank; });
  for (PiecewiseBuffer& buffer : buffers_[rank]) buffer.change([&](const Stretch& s) { return as_of(0, s); });
}

// ---- operations ----------------------------------------------------------------------------------------------------------------------

// A stretch as it is kept: without an origin where there are no terms.
Stretch SymbolicMemory::told(Stretch s) const {
  if (!forms_.has_terms(s.form)) {
    s.origin = no_origin;
    s.pace = 0;
  }
  return s;
}

void SymbolicMemory::write_one(std::uint32_t rank, Slice target, FormId form, std::int64_t origin) {
  one_.assign(1, told({0, target.numel, form, 0, origin}));
  write(rank, target, one_);
}

// Every rank deposits as much of the same backward.
FormId SymbolicMemory::deposited(std::uint32_t backward, double scalar) {
  if (last_deposit_.form != LinearForms::poison && last_deposit_.backward == backward && last_deposit_.scalar == scalar) return last_deposit_.form;
  const auto factor = quotient_of(scalar);
  last_deposit_ = {backward, scalar, factor ? forms_.scaled(forms_.contribution(backward), *factor) : LinearForms::untold};
  return last_deposit_.form;
}

// Weights at the start are no contributions.
void SymbolicMemory::deposit(const Op& op, std::uint32_t rank) {
  FormId form = LinearForms::zero;
  if (op.index != no_index) {
    form = deposited(op.index, op.scalar);
    // A gradient that ranks compute alike is one contribution, whoever has it.
    if (const std::uint32_t of = timeline_.contract.contributor(rank, op.source.buffer); of != rank) form = forms_.on_rank(form, of);
  }
  const std::int64_t origin = parameter_begin_[op.source.buffer] + static_cast<std::int64_t>(op.source.offset);
  if (op.flag == 0) return write_one(rank, op.target, form, origin);
  one_.assign(1, told({0, op.target.numel, form, 0, origin}));
  accumulate(rank, op.target, one_);
}

// All at once where the buffer is alike, so that what stays of it is.
void SymbolicMemory::interleave(const Interleaving& of, Slice target, std::uint32_t rank) {
  PiecewiseBuffer& into = buffer(rank, target.buffer);
  const std::optional<FormId> kept = into.alike();
  if (!kept || target.numel != into.numel())
    return of.each(target, [&](Slice to, Slice from) {
      read(rank, from, read_);
      write(rank, to, read_);
    });
  auto rows = std::make_shared<Rows>();
  rows->rows = of.rows;
  for (const Interleaving::Part& part : of.parts) rows->chunks.push_back(part.chunk);
  result_.clear();
  std::uint64_t at = 0;
  for (const Interleaving::Part& part : of.parts) {
    read(rank, part.slice, read_);
    for (const Stretch& s : read_) append(result_, moved({at + s.begin, at + s.end}, s, -static_cast<std::int64_t>(at)));
    append(result_, {at + part.slice.numel, at + of.rows * part.chunk, *kept});
    at += of.rows * part.chunk;
  }
  into.clear_to(std::move(rows));
  if (at > 0) into.write_all(result_);
}

// At once where all rows are alike: parameters are, which hold no contributions.
void SymbolicMemory::part_rows(const Interleaving& of, Slice source, std::uint32_t rank) {
  read(rank, source, other_);
  if (other_.size() == 1 && other_.front().origin == no_origin) {
    for (const Interleaving::Part& part : of.parts) write(rank, part.slice, {{0, part.slice.numel, other_.front().form}});
    return;
  }
  of.each(source, [&](Slice in_rows, Slice in_slice) {
    read(rank, in_rows, read_);
    write(rank, in_slice, read_);
  });
}

Stretch SymbolicMemory::sum_of(const Stretch& a, const Stretch& b) {
  Stretch out{a.begin, a.end, LinearForms::zero};
  if (a.origin == no_origin || b.origin == no_origin) {
    out.form = forms_.sum(a.form, b.form);
    out.origin = std::max(a.origin, b.origin);  // of the one that has terms
    out.pace = a.origin == no_origin ? b.pace : a.pace;
  } else {
    parts_ |= a.pace != b.pace;
    out.form = forms_.sum(a.form, forms_.shifted(b.form, b.origin - a.origin));
    out.origin = a.origin;
    out.pace = a.pace;
  }
  out = told(out);
  if (out.origin == no_origin) return out;
  if (const std::int64_t first = forms_.first_shift(out.form); first != 0) {
    out.form = forms_.shifted(out.form, -first);
    out.origin += first;
  }
  return out;
}

void SymbolicMemory::accumulate(std::uint32_t rank, Slice target, const Stretches& more) {
  read(rank, target, read_);
  result_.clear();
  std::size_t i = 0, j = 0;
  for (std::uint64_t at = 0; at < target.numel;) {
    Stretch a = read_[i], b = more[j];
    a.begin = b.begin = at;
    a.end = b.end = std::min(a.end, b.end);
    append(result_, sum_of(a, b));
    at = a.end;
    if (read_[i].end == at) ++i;
    if (more[j].end == at) ++j;
  }
  if (!parts_) write(rank, target, result_);
}

void SymbolicMemory::scale(std::uint32_t rank, Slice target, double factor, bool divides) {
  auto quotient = quotient_of(factor);
  if (divides) quotient = quotient && *quotient != 0 ? std::optional(Rational(1) / *quotient) : std::nullopt;
  PiecewiseBuffer& all = buffer(rank, target.buffer);
  const bool as_kept = all.rows() && target.numel == all.numel();
  if (as_kept) all.read_all(read_);
  else read(rank, target, read_);
  result_.clear();
  for (const Stretch& s : read_) {
    // Nothing times anything, even what no fraction holds, is nothing; unless it is not finite.
    const bool stays = s.form == LinearForms::zero && std::isfinite(factor) && (!divides || factor != 0);
    const FormId form = stays || s.form == LinearForms::poison ? s.form : quotient ? forms_.scaled(s.form, *quotient) : LinearForms::untold;
    append(result_, told({s.begin, s.end, form, s.pace, s.origin}));
  }
  if (as_kept) all.write_all(result_);
  else write(rank, target, result_);
}

// Whether none of the elements takes in a contribution in which the script plants an overflow, in its parameter's first element, and none is the norm of one that does.
bool SymbolicMemory::finite(std::uint32_t rank, Slice slice) {
  if (timeline_.planted.empty()) return true;
  read(rank, slice, read_);
  for (const Stretch& s : read_) {
    if (s.form > LinearForms::untold && !std::isfinite(forms_.constant(s.form))) return false;
    if (s.origin == no_origin) continue;
    for (const Plant& plant : timeline_.planted) {
      const std::int64_t at = parameter_begin_[plant.parameter] - s.origin;
      const bool inside = forms_.holds(s.form, rank, plant.backward, timeline_.contract.contributor(plant.rank, plant.parameter),
                                       [&](std::int64_t shift) { return at - shift >= static_cast<std::int64_t>(s.begin) && at - shift < static_cast<std::int64_t>(s.end); });
      if (inside) return false;
    }
  }
  return true;
}

double SymbolicMemory::scalar(std::uint32_t rank, Slice slice) {
  if (!finite(rank, slice)) return std::numeric_limits<double>::quiet_NaN();
  read_any(rank, slice.part(0, 1), read_);
  return read_.front().form <= LinearForms::untold ? 0 : forms_.constant(read_.front().form);
}

// Neighbours that are the same but for later contributions are one, wherever the first of their terms lies.
std::uint64_t SymbolicMemory::held_before(std::uint32_t rank, std::span<const BufferId> buffers, std::uint32_t backward) {
  if (backward != before_backward_) before_.clear();
  before_backward_ = backward;
  TraceHash hash;
  for (const BufferId id : buffers) {
    const PiecewiseBuffer& buffer = buffers_[rank][id];
    if (const auto& rows = buffer.rows()) {
      hash.add(rows->rows);
      for (const std::uint64_t chunk : rows->chunks) hash.add(chunk);
    }
    result_.clear();
    for (const Stretch& piece : buffer.kept()) {
      if (before_.size() <= piece.form) before_.resize(piece.form + 1, LinearForms::poison);
      FormId& form = before_[piece.form];
      if (form == LinearForms::poison) form = forms_.before(piece.form, backward);
      Stretch held = told({piece.begin, piece.end, form, piece.pace, piece.origin});
      if (held.origin != no_origin) held.origin += forms_.first_shift(form);
      append(result_, held);
    }
    hash.add(result_.size());
    for (const Stretch& held : result_) {
      const std::int64_t first = forms_.has_terms(held.form) ? forms_.first_shift(held.form) : 0;
      for (const std::uint64_t word : {held.end, std::uint64_t{forms_.shifted(held.form, -first)}, static_cast<std::uint64_t>(held.origin), std::uint64_t{held.pace}})
        hash.add(word);
    }
  }
  return hash.value();
}

bool SymbolicMemory::settled(std::uint32_t rank, SteadyForms& forms) const {
  for (const PiecewiseBuffer& buffer : buffers_[rank])
    for (const Stretch& piece : buffer.kept())
      if (piece.origin != no_origin && !forms.settled(piece.form)) return false;
  return true;
}

void SymbolicMemory::pass(std::uint32_t rank, SteadyForms& forms, std::uint64_t rounds) {
  for (PiecewiseBuffer& buffer : buffers_[rank]) buffer.change_forms([&](FormId form) { return forms.held_after(form, rounds); });
}

std::span<const WeightPiece> SymbolicMemory::show(std::uint32_t rank, const View& view) {
  shown_.clear();
  const bool leads = classes_.leads(rank);
  shown_at_one_pace_ = leads;
  for (std::uint32_t number = 0; number < view.pieces.size(); ++number) {
    if (view.pieces[number].parameter < 0) continue;
    if (leads) read(rank, view.pieces[number].slice, read_);
    else read_any(rank, view.pieces[number].slice, read_);
    const bool alike = std::all_of(read_.begin(), read_.end(), [&](const Stretch& s) { return s.pace == read_.front().pace; });
    if (!alike) {  // neighbours may be one on this rank
      shown_at_one_pace_ = false;
      read_any(rank, view.pieces[number].slice, read_);
    }
    for (const Stretch& s : read_) shown_.push_back({number, s});
  }
  return say(rank, view);
}

std::span<const WeightPiece> SymbolicMemory::show_member(std::uint32_t rank, const View& view) { return shown_at_one_pace_ ? say(rank, view) : show(rank, view); }

// What is kept of a view, as the rank has it.
std::span<const WeightPiece> SymbolicMemory::say(std::uint32_t rank, const View& view) {
  pieces_.clear();
  for (const ShownStretch& shown : shown_) {
    const ViewPiece& piece = view.pieces[shown.piece];
    const Stretch s = as_of(classes_.places(rank), shown.held);
    WeightPiece& out = pieces_.emplace_back();
    out.piece = shown.piece;
    out.parameter = static_cast<std::uint32_t>(piece.parameter);
    out.parameter_offset = piece.parameter_offset + s.begin;
    out.numel = s.end - s.begin;
    out.held = s.form == LinearForms::poison ? WeightPiece::Held::unwritten : s.form == LinearForms::untold ? WeightPiece::Held::untold : WeightPiece::Held::weights;
    if (out.held != WeightPiece::Held::weights) continue;
    const Said& said = said_by(rank, s.form);
    out.form = said.form;
    out.shift = s.origin == no_origin ? 0 : s.origin - parameter_begin_[out.parameter] - static_cast<std::int64_t>(piece.parameter_offset);
    out.terms = said.terms;
    out.constant = said.constant;
  }
  return pieces_;
}

// A rank's buffers hold few forms, many times over.
const SymbolicMemory::Said& SymbolicMemory::said_by(std::uint32_t rank, FormId form) {
  if (said_.size() <= form) said_.resize(form + 1);
  Said& said = said_[form];
  if (said.rank == rank) return said;
  if (said.rank != no_index && said.form == form) return said;  // it is nobody's own: every rank says the same
  const FormId on_rank = forms_.on_rank(form, rank);
  return said = {rank, on_rank, forms_.constant(on_rank), forms_.terms(on_rank)};
}

}  // namespace gradledger
