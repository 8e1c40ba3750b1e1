// Runs GradScaler over a sequence of overflows and prints the scale after every step as the eight
// hex digits of its float. Standard input has the initial scale, growth factor, backoff factor and
// interval, then 0 or 1 (overflow) for each step.
//
//   scaler_driver [DEVICE]   cpu (the default) or cuda:0; exits 2 if that device does not exist
#include <bit>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>

#include "trainer/precision/grad_scaler.h"
#include "trainer/runtime/device.h"

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "cpu";
  if (name != "cpu") {
    // Loads LibTorch's CUDA library, which this program does not link.
    std::string note;
    const std::string present = genesis::DetectDevice("", &note).name();
    if (present != name) {
      std::cerr << "scaler_driver: device " << name << " is not here; accepted: cpu"
                << (present == "cpu" ? "" : " and " + present) << "\n"
                << note << std::endl;
      return 2;
    }
  }
  const at::Device device(name);
  genesis::GradScalerOptions options;
  std::cin >> options.initial_scale >> options.growth_factor >> options.backoff_factor >>
      options.growth_interval;
  genesis::GradScaler scaler(options, device);
  for (int overflow = 0; std::cin >> overflow;) {
    scaler.Update(at::full({}, overflow, at::TensorOptions(device).dtype(at::kFloat)));
    std::printf("%08" PRIx32 "\n", std::bit_cast<uint32_t>(scaler.scale().item<float>()));
  }
  return 0;
}
