// The numbers that random data is made of, many at a time: functions of their keys alone, the same bits on every machine and instruction set.
#pragma once

#include <cstdint>
#include <span>

namespace gradledger::ref {

// out[i] = factor x a number about normal, of `bits` significant bits, for element first + i of what the keys name: the sum of twelve uniform
// ones (Irwin and Hall).
void draw_normal(std::uint64_t keys, std::uint64_t first, int bits, double factor, std::span<double> out);

// out[i] for i = 0, stride, 2 stride, ...: unit times a whole number from 1 to most, which keys and element first + i decide. The others stay.
void draw_whole_numbers(std::uint64_t keys, std::uint64_t first, std::uint32_t stride, std::uint32_t most, double unit, std::span<double> out);

// values[i] / divisor, rounded to `bits` significant bits, of two nearest the even one. Preconditions: finite; zero or no subnormal of fp64.
void divide_and_round(double divisor, int bits, std::span<double> values);

}  // namespace gradledger::ref
