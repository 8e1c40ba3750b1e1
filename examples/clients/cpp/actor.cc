// Reads three versions of the weights of a job that trains, as an actor would to act with them, and
// prints the norm of each:
//
//   actor HOST:PORT JOB_ID [TOKEN]
#include <cmath>
#include <cstring>
#include <iostream>
#include <string>

#include "genesis/weights.h"

double NormOf(const genesis::WeightsVersion& version) {
  double sum = 0;
  for (const auto& [name, tensor] : version.tensors) {
    if (tensor.type != "F32") continue;
    for (size_t at = 0; at < tensor.size_bytes; at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, tensor.data + at, sizeof(value));
      sum += double{value} * value;
    }
  }
  return std::sqrt(sum);
}

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("usage: actor HOST:PORT JOB_ID [TOKEN]");
  genesis::WeightsReader::Options options;
  options.interval_seconds = 0.1;
  options.token = argc > 3 ? argv[3] : "";
  genesis::WeightsReader reader(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()),
                                argv[2], options);
  for (int count = 0; count < 3; ++count) {
    const auto version = reader.Next();
    if (version == nullptr) break;  // The job has ended.
    std::cout << "version " << version->number << ", step " << version->step << ": "
              << version->tensors.size() << " tensors, norm " << NormOf(*version) << std::endl;
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << std::endl;
  return 1;
}
