// Sanitizers make each case many times as slow, and find what they find in few of them: tests of many cases take fewer there.
#pragma once

namespace gradledger::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace gradledger::testing
