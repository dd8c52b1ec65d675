// Timing of kernels by events of the device, and the table and JSON that tell of it.
#pragma once

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "gpu/device.h"

namespace gradledger::testing {

struct Measurement {
  std::string kernel;
  std::size_t elements;
  double bytes_per_element;
  double milliseconds;  // median

  double gigabytes_per_second() const { return static_cast<double>(elements) * bytes_per_element / milliseconds / 1e6; }
};

class Event {
 public:
  Event() { gpu::check(cudaEventCreate(&handle_), "creation of an event"); }
  ~Event() { cudaEventDestroy(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t handle() const { return handle_; }

 private:
  cudaEvent_t handle_ = nullptr;
};

// The median over `repetitions` of what the device takes for body(), after two runs that are not counted.
template <class Body>
double median_milliseconds(const gpu::Stream& stream, std::size_t repetitions, Body&& body) {
  const Event begin;
  const Event end;
  std::vector<double> times;
  for (std::size_t k = 0; k < repetitions + 2; ++k) {
    gpu::check(cudaEventRecord(begin.handle(), stream.handle()), "recording of an event");
    body();
    gpu::check(cudaEventRecord(end.handle(), stream.handle()), "recording of an event");
    stream.synchronize();
    float milliseconds = 0;
    gpu::check(cudaEventElapsedTime(&milliseconds, begin.handle(), end.handle()), "reading the time between events");
    if (k >= 2) times.push_back(static_cast<double>(milliseconds));
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

inline void print_header() { std::printf("%-44s %12s %10s %9s %9s %8s\n", "# kernel", "elements", "bytes/elem", "ms", "GB/s", "of copy"); }

inline void print_row(const Measurement& m, double copy) {
  std::printf("%-44s %12zu %10g %9.4f %9.1f %8.3f\n", m.kernel.c_str(), m.elements, m.bytes_per_element, m.milliseconds, m.gigabytes_per_second(), m.gigabytes_per_second() / copy);
  std::fflush(stdout);
}

inline nlohmann::ordered_json json_of(const std::string& device, double copy, const std::vector<Measurement>& all) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const Measurement& m : all)
    kernels.push_back({{"kernel", m.kernel},
                       {"elements", m.elements},
                       {"bytes_per_element", m.bytes_per_element},
                       {"milliseconds", m.milliseconds},
                       {"gigabytes_per_second", m.gigabytes_per_second()},
                       {"of_copy", m.gigabytes_per_second() / copy}});
  return {{"device", device}, {"copy_gigabytes_per_second", copy}, {"kernels", std::move(kernels)}};
}

// False where the file cannot be written.
inline bool write_json(const char* path, const nlohmann::ordered_json& json) {
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  return static_cast<bool>(file.flush());
}

}  // namespace gradledger::testing
