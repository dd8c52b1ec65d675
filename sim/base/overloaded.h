// A visitor of a variant, a lambda for each alternative: one that is missing does not compile.
#pragma once

#include <concepts>

namespace gradledger {

template <class... Visits>
struct overloaded : Visits... {
  using Visits::operator()...;
};
template <class... Visits>
overloaded(Visits...) -> overloaded<Visits...>;

// Several alternatives in one lambda: const one_of<A, B> auto&.
template <class T, class... Ts>
concept one_of = (std::same_as<T, Ts> || ...);

}  // namespace gradledger
