// Reads and writes checkpoints from the command line, for Python tests that check them.
//   write PATH OPTIMIZER SEED      a state built from the seed (tests/trainer/state_for_test.h)
//   rewrite FROM TO                reads a checkpoint and writes it again
//   weights PATH model|average RAW prints names, types, shapes and offsets in RAW as JSON, and
//                                  writes the elements to RAW
//   export FROM TO model|average   writes .safetensors
//   verify PATH                    prints notes, if any
// Errors are printed to standard error, with exit status 1.
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "tests/trainer/state_for_test.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/checkpoint/weights.h"
#include "trainer/checkpoint/write_checkpoint.h"

namespace genesis {
namespace {

using Arguments = std::vector<std::string>;

WeightsKind Kind(const std::string& name) {
  return name == "average" ? WeightsKind::kAverage : WeightsKind::kModel;
}

absl::Status WriteFromSeed(const Arguments& arguments) {
  training::v1::OptimizerKind kind = training::v1::OPTIMIZER_KIND_UNSPECIFIED;
  training::v1::OptimizerKind_Parse("OPTIMIZER_KIND_" + arguments.at(1), &kind);
  return WriteCheckpoint(StateForTest(kind, std::stoull(arguments.at(2))), arguments.at(0))
      .status();
}

absl::Status Rewrite(const Arguments& arguments) {
  const absl::StatusOr<TrainingState> state = ReadCheckpoint(arguments.at(0));
  if (!state.ok()) return state.status();
  return WriteCheckpoint(*state, arguments.at(1)).status();
}

absl::Status PrintWeights(const Arguments& arguments) {
  const absl::StatusOr<NamedTensors> tensors = ReadWeights(arguments.at(0), Kind(arguments.at(1)));
  if (!tensors.ok()) return tensors.status();
  std::ofstream raw(arguments.at(2), std::ios::binary);
  std::map<const void*, int> storages;
  for (const auto& [name, tensor] : *tensors) {
    const auto storage = storages.emplace(tensor.storage().unsafeGetStorageImpl(),
                                          static_cast<int>(storages.size()));
    std::string sizes;
    for (const int64_t size : tensor.sizes()) {
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    }
    std::printf(R"({"name": "%s", "type": "%s", "shape": [%s], "offset": %lld, "storage": %d})"
                "\n",
                name.c_str(), ElementTypeName(*ToElementType(tensor.scalar_type())).c_str(),
                sizes.c_str(), static_cast<long long>(raw.tellp()), storage.first->second);
    raw.write(static_cast<const char*>(tensor.const_data_ptr()),
              static_cast<std::streamsize>(tensor.nbytes()));
  }
  return absl::OkStatus();
}

absl::Status Verify(const Arguments& arguments) {
  const absl::StatusOr<std::string> verified = VerifyCheckpoint(arguments.at(0));
  if (verified.ok()) std::cout << *verified << '\n';
  return verified.status();
}

absl::Status Export(const Arguments& arguments) {
  return ExportSafetensors(arguments.at(0), arguments.at(1), Kind(arguments.at(2)));
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  const std::map<std::string, std::function<absl::Status(const genesis::Arguments&)>> commands = {
      {"write", genesis::WriteFromSeed},
      {"rewrite", genesis::Rewrite},
      {"weights", genesis::PrintWeights},
      {"export", genesis::Export},
      {"verify", genesis::Verify}};
  const std::vector<std::string> words(argv + 1, argv + argc);
  const absl::Status status = commands.at(words.at(0))({words.begin() + 1, words.end()});
  if (status.ok()) return 0;
  std::cerr << status.message() << '\n';
  return 1;
}
