#include "sim/execution/symbolic/forms.h"

#include <algorithm>
#include <bit>

#include "sim/base/contract.h"
#include "sim/base/hash.h"

namespace gradledger {
namespace {

std::uint64_t hash_of(const Rational& x) { return hash_keys({static_cast<std::uint64_t>(x.numerator()), static_cast<std::uint64_t>(x.denominator())}); }

// The number of a value in a short list, which takes it in if it is new.
template <class T>
std::uint32_t number_in(std::vector<T>& list, const T& value) {
  const auto at = std::find(list.begin(), list.end(), value);
  if (at != list.end()) return static_cast<std::uint32_t>(at - list.begin());
  list.push_back(value);
  return static_cast<std::uint32_t>(list.size() - 1);
}

}  // namespace

std::uint64_t LinearForms::hash_of(const Profile& profile) {
  std::uint64_t hash = gradledger::hash_of(profile.own);
  for (const Run<Rational>& run : profile.ranks) hash = hash_keys({hash, run.begin, run.end, gradledger::hash_of(run.value)});
  return hash;
}

std::uint64_t LinearForms::hash_of(const Form& form) {
  std::uint64_t hash = std::bit_cast<std::uint64_t>(form.constant);
  for (const Term& term : form.terms) hash = hash_keys({hash, static_cast<std::uint64_t>(term.shift), term.begin, term.end, term.profile});
  return hash;
}

template <class T>
std::uint32_t LinearForms::Pool<T>::id_of(T item) {
  const std::uint64_t hash = hash_of(item);
  const std::uint32_t known = by_hash_.find(hash, [&](std::uint32_t id) { return items_[id] == item; });
  if (known != HashIndex::none) return known;
  items_.push_back(std::move(item));
  return by_hash_.add(hash);
}

LinearForms::LinearForms() {
  profiles_.id_of({});  // 0: nothing of anybody
  // The first two are told apart by backwards that no run has.
  constexpr std::uint32_t no_backward = 0xFFFFFFFFu;
  forms_.id_of({0, {{0, no_backward, no_backward, 0}}});
  forms_.id_of({0, {{1, no_backward, no_backward, 0}}});
  forms_.id_of({});
}

FormId LinearForms::contribution(std::uint32_t backward) { return forms_.id_of({0, {{0, backward, backward + 1, profiles_.id_of({1, {}})}}}); }

FormId LinearForms::number(double value) { return value == 0 ? zero : forms_.id_of({value, {}}); }

// Adds up two sorted lists of runs that are each apart; false where a sum does not fit. add: nothing where it does not, a default value for zero.
template <class Value, class Add>
bool LinearForms::add_runs(std::span<const Run<Value>> a, std::span<const Run<Value>> b, std::vector<Run<Value>>& out, Add&& add) {
  const auto emit = [&](std::uint32_t begin, std::uint32_t end, const Value& value) {
    if (value == Value{}) return;
    if (!out.empty() && out.back().end == begin && out.back().value == value) out.back().end = end;
    else out.push_back({begin, end, value});
  };
  std::size_t i = 0, j = 0;
  std::uint32_t at = 0;
  while (i < a.size() || j < b.size()) {
    const bool in_a = i < a.size() && a[i].begin <= at, in_b = j < b.size() && b[j].begin <= at;
    std::uint32_t end = 0xFFFFFFFFu;
    if (i < a.size()) end = std::min(end, in_a ? a[i].end : a[i].begin);
    if (j < b.size()) end = std::min(end, in_b ? b[j].end : b[j].begin);
    if (in_a && in_b) {
      const auto both = add(a[i].value, b[j].value);
      if (!both) return false;
      emit(at, end, *both);
    } else if (in_a || in_b) {
      emit(at, end, in_a ? a[i].value : b[j].value);
    }
    at = end;
    if (i < a.size() && a[i].end == at) ++i;
    if (j < b.size() && b[j].end == at) ++j;
  }
  return true;
}

std::optional<LinearForms::ProfileId> LinearForms::sum_of_profiles(ProfileId a, ProfileId b) {
  if (a == 0 || b == 0) return a + b;
  const Key key{std::min(a, b), std::max(a, b)};
  if (const auto known = profile_sums_.find(key); known != profile_sums_.end()) return known->second;
  const Profile &x = profiles_[a], &y = profiles_[b];
  Profile out;
  const auto own = checked_sum(x.own, y.own);
  if (!own) return std::nullopt;
  out.own = *own;
  if (!add_runs<Rational>(x.ranks, y.ranks, out.ranks, [](const Rational& p, const Rational& q) { return checked_sum(p, q); })) return std::nullopt;
  const ProfileId id = profiles_.id_of(std::move(out));
  profile_sums_.emplace(key, id);
  return id;
}

std::optional<LinearForms::ProfileId> LinearForms::scaled_profile(ProfileId profile, const Rational& factor) {
  Profile out = profiles_[profile];
  const auto scale = [&](Rational& weight) {
    const auto product = checked_product(weight, factor);
    if (product) weight = *product;
    return product.has_value();
  };
  if (!scale(out.own)) return std::nullopt;
  for (Run<Rational>& run : out.ranks)
    if (!scale(run.value)) return std::nullopt;
  if (factor == 0) out.ranks.clear();
  return profiles_.id_of(std::move(out));
}

std::optional<LinearForms::ProfileId> LinearForms::profile_on(ProfileId profile, std::uint32_t rank) {
  Profile others = profiles_[profile];
  if (others.own == 0) return profile;
  Profile own;
  own.ranks.push_back({rank, rank + 1, others.own});
  others.own = 0;
  return sum_of_profiles(profiles_.id_of(std::move(own)), profiles_.id_of(std::move(others)));
}

std::optional<LinearForms::ProfileId> LinearForms::profile_over(ProfileId profile, const std::vector<std::uint32_t>& ranks) {
  const Rational own = profiles_[profile].own;
  Profile each;
  for (std::size_t i = 0; own != 0 && i < ranks.size(); ++i) {
    if (!each.ranks.empty() && each.ranks.back().end == ranks[i]) ++each.ranks.back().end;
    else each.ranks.push_back({ranks[i], ranks[i] + 1, own});
  }
  Profile others = profiles_[profile];
  others.own = 0;
  const auto as_often = scaled_profile(profiles_.id_of(std::move(others)), Rational(static_cast<std::int64_t>(ranks.size())));
  return as_often ? sum_of_profiles(profiles_.id_of(std::move(each)), *as_often) : std::nullopt;
}

// The form with another profile for each of its own. Neighbours that become equal are one.
template <class Change>
FormId LinearForms::with_profiles(FormId form, double constant, Change&& change) {
  Form out;
  out.constant = constant;
  const Form& given = forms_[form];
  for (const Term& term : given.terms) {
    const auto profile = change(term.profile);
    if (!profile) return untold;
    if (*profile == 0) continue;
    const bool joins = !out.terms.empty() && out.terms.back().shift == term.shift && out.terms.back().end == term.begin && out.terms.back().profile == *profile;
    if (joins) out.terms.back().end = term.end;
    else out.terms.push_back({term.shift, term.begin, term.end, *profile});
  }
  return forms_.id_of(std::move(out));
}

FormId LinearForms::scaled(FormId form, const Rational& factor) {
  if (special(form) || factor == 1) return form;
  const Key key{form, number_in(factors_, factor)};
  if (const auto known = scales_.find(key); known != scales_.end()) return known->second;
  const FormId out = with_profiles(form, forms_[form].constant * value_of(factor), [&](ProfileId p) { return scaled_profile(p, factor); });
  scales_.emplace(key, out);
  return out;
}

FormId LinearForms::shifted(FormId form, std::int64_t by) {
  if (special(form) || by == 0 || !has_terms(form)) return form;
  const Key key{form, static_cast<std::uint64_t>(by)};
  if (const auto known = shifts_.find(key); known != shifts_.end()) return known->second;
  Form out = forms_[form];
  for (Term& term : out.terms) term.shift += by;
  const FormId id = forms_.id_of(std::move(out));
  shifts_.emplace(key, id);
  return id;
}

FormId LinearForms::within(FormId form, std::uint32_t begin, std::uint32_t end, double constant) {
  Form out;
  out.constant = constant;
  for (Term term : forms_[form].terms) {
    term.begin = std::max(term.begin, begin);
    term.end = std::min(term.end, end);
    if (term.begin < term.end) out.terms.push_back(term);
  }
  return forms_.id_of(std::move(out));
}

FormId LinearForms::of_backwards(FormId form, std::uint32_t begin, std::uint32_t end) { return special(form) ? form : within(form, begin, end, 0); }

FormId LinearForms::before(FormId form, std::uint32_t backward) { return special(form) ? form : within(form, 0, backward, forms_[form].constant); }

FormId LinearForms::later(FormId form, std::int64_t by) {
  if (special(form) || by == 0 || !has_terms(form)) return form;
  Form out = forms_[form];
  for (Term& term : out.terms) {
    term.begin = static_cast<std::uint32_t>(term.begin + by);
    term.end = static_cast<std::uint32_t>(term.end + by);
  }
  return forms_.id_of(std::move(out));
}

// What is put in lies apart from what is there, so that nothing is added up and one form is made, however many rounds.
FormId LinearForms::with_rounds(FormId form, const RoundsPutIn& rounds, std::uint64_t more) {
  if (special(form) || more == 0) return form;
  const std::vector<Term>& terms = forms_[form].terms;
  Form out;
  out.constant = forms_[form].constant;
  const auto put = [&](Term term, std::uint32_t begin, std::uint32_t end, std::uint64_t by) {
    term.begin = std::max(term.begin, begin);
    term.end = std::min(term.end, end);
    if (term.begin >= term.end) return;
    term.begin = static_cast<std::uint32_t>(term.begin + by);
    term.end = static_cast<std::uint32_t>(term.end + by);
    const bool joins = !out.terms.empty() && out.terms.back().shift == term.shift && out.terms.back().end == term.begin && out.terms.back().profile == term.profile;
    if (joins) out.terms.back().end = term.end;
    else out.terms.push_back(term);
  };
  for (std::size_t from = 0, to = 0; from < terms.size(); from = to) {
    while (to < terms.size() && terms[to].shift == terms[from].shift) ++to;
    for (std::size_t i = from; i < to; ++i) put(terms[i], 0, rounds.at, 0);
    const std::uint32_t like_end = rounds.like + rounds.size;
    while (from < to && terms[from].end <= rounds.like) ++from;
    // Rounds of one weight are one term; as many of several weights are as many terms.
    const bool whole = from < to && terms[from].begin <= rounds.like && terms[from].end >= like_end;
    const bool some = from < to && terms[from].begin < like_end;
    if (whole) put({terms[from].shift, rounds.at, static_cast<std::uint32_t>(rounds.at + more * rounds.size), terms[from].profile}, 0, 0xFFFFFFFFu, 0);
    for (std::uint64_t round = 0; some && !whole && round < more; ++round)
      for (std::size_t i = from; i < to && terms[i].begin < like_end; ++i) put(terms[i], rounds.like, like_end, rounds.at - rounds.like + round * rounds.size);
    for (std::size_t i = from; i < to; ++i) put(terms[i], rounds.at, rounds.end, more * rounds.size);
  }
  return forms_.id_of(std::move(out));
}

std::optional<LinearForms::Form> LinearForms::sum_of(const Form& a, const Form& b) {
  Form out;
  out.constant = a.constant + b.constant;
  std::size_t i = 0, j = 0;
  std::vector<Run<ProfileId>> left, right, both;
  const auto take = [](const std::vector<Term>& terms, std::size_t& at, std::int64_t shift, std::vector<Run<ProfileId>>& into) {
    into.clear();
    for (; at < terms.size() && terms[at].shift == shift; ++at) into.push_back({terms[at].begin, terms[at].end, terms[at].profile});
  };
  while (i < a.terms.size() || j < b.terms.size()) {
    const std::int64_t shift = j >= b.terms.size() || (i < a.terms.size() && a.terms[i].shift <= b.terms[j].shift) ? a.terms[i].shift : b.terms[j].shift;
    take(a.terms, i, shift, left);
    take(b.terms, j, shift, right);
    both.clear();
    if (!add_runs<ProfileId>(left, right, both, [&](ProfileId p, ProfileId q) { return sum_of_profiles(p, q); })) return std::nullopt;
    for (const Run<ProfileId>& run : both) out.terms.push_back({shift, run.begin, run.end, run.value});
  }
  return out;
}

FormId LinearForms::sum(FormId a, FormId b) {
  if (special(a) || special(b)) return std::min(a, b);
  if (a == zero || b == zero) return std::max(a, b);
  const Key key{std::min(a, b), std::max(a, b)};
  if (const auto known = sums_.find(key); known != sums_.end()) return known->second;
  auto out = sum_of(forms_[a], forms_[b]);
  const FormId id = out ? forms_.id_of(std::move(*out)) : untold;
  sums_.emplace(key, id);
  return id;
}

FormId LinearForms::on_rank(FormId form, std::uint32_t rank) {
  if (special(form) || !has_terms(form)) return form;
  const Key key{form, rank};
  if (const auto known = ranks_.find(key); known != ranks_.end()) return known->second;
  const FormId out = with_profiles(form, forms_[form].constant, [&](ProfileId p) { return profile_on(p, rank); });
  ranks_.emplace(key, out);
  return out;
}

FormId LinearForms::over_ranks(FormId form, const std::vector<std::uint32_t>& ranks) {
  if (special(form) || form == zero) return form;
  if (ranks.size() == 1) return on_rank(form, ranks.front());
  const Key key{form, number_in(rank_lists_, ranks)};
  if (const auto known = groups_.find(key); known != groups_.end()) return known->second;
  const FormId out = with_profiles(form, forms_[form].constant * static_cast<double>(ranks.size()), [&](ProfileId p) { return profile_over(p, ranks); });
  groups_.emplace(key, out);
  return out;
}

bool LinearForms::says_own(FormId form) const {
  const auto own = [this](const Term& term) { return profiles_[term.profile].own != 0; };
  return !special(form) && std::any_of(forms_[form].terms.begin(), forms_[form].terms.end(), own);
}

std::span<const WeightTerm> LinearForms::terms(FormId form) {
  if (special(form) || !has_terms(form)) return {};
  const auto [at, fresh] = listed_.try_emplace(form);
  if (!fresh) return at->second;
  for (const Term& term : forms_[form].terms) {
    const Profile& profile = profiles_[term.profile];
    expects(profile.own == 0, "a form is listed that still says 'own'");
    for (const Run<Rational>& run : profile.ranks) at->second.push_back({term.begin, term.end, run.begin, run.end, term.shift, run.value});
  }
  return at->second;
}

bool LinearForms::holds(FormId form, std::uint32_t holder, std::uint32_t backward, std::uint32_t rank, const std::function<bool(std::int64_t shift)>& where) const {
  if (special(form)) return false;
  for (const Term& term : forms_[form].terms) {
    if (backward < term.begin || backward >= term.end || !where(term.shift)) continue;
    const Profile& profile = profiles_[term.profile];
    if (holder == rank && profile.own != 0) return true;
    for (const Run<Rational>& run : profile.ranks)
      if (rank >= run.begin && rank < run.end) return true;
  }
  return false;
}

}  // namespace gradledger
