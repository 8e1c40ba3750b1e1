// Runs GradScaler over an overflow script and prints the scale after every step as the eight hex
// digits of its float. Standard input: initial scale, growth factor, backoff factor, interval, then
// one 0 or 1 (overflow) per step.
#include <bit>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <iostream>

#include "trainer/precision/grad_scaler.h"

int main() {
  genesis::GradScalerOptions options;
  std::cin >> options.initial_scale >> options.growth_factor >> options.backoff_factor >>
      options.growth_interval;
  genesis::GradScaler scaler(options, at::kCPU);
  for (int overflow = 0; std::cin >> overflow;) {
    scaler.Update(at::full({}, overflow, at::kFloat));
    std::printf("%08" PRIx32 "\n", std::bit_cast<uint32_t>(scaler.scale().item<float>()));
  }
  return 0;
}
