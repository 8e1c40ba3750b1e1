// Runs a model on a batch for test_models.py. Usage: model_driver FOLDER. The folder has
//   spec.json       a JobSpec; defaults are filled in
//   fields/         the whole batch, which is also the dataset of the model
//   weights/        parameters that replace the initial ones; optional
// and receives
//   initial/        parameters and buffers as built
//   fp32/, bf16/    loss and gradients, in float32 and under BF16 autocast
//   pure_bf16/      loss and gradients with parameters converted to BF16
//   metrics/        the results of Evaluate
//   tied.txt        pairs of names
// Usage: model_driver --predict FILE FOLDER, for test_prediction_graphs.py. FILE is an exported
// module. For each folder 0, 1, ... of FOLDER, in order, it reads
//   weights/        the state_dict to load before; optional
//   inputs/         the inputs
// and writes
//   outputs/        the predictions, or
//   error.txt       the status of the call that failed
// Each name that ends in / is a folder with index.txt, one "number type name size..." per line, and
// raw little-endian elements in <number>.bin. Exits 1 with a message if the model cannot be built
// or the file not be opened.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "config/job/job_spec.h"
#include "google/protobuf/util/json_util.h"
#include "tests/trainer/memory_dataset.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/models/build_model.h"
#include "trainer/models/exported/prediction_graph.h"

namespace genesis {
namespace {

// Seed of the random numbers in losses. test_models.py uses the same seed.
constexpr uint64_t kSeed = 77;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

torch::ScalarType TypeNamed(const std::string& name) {
  for (const auto& [element, scalar] : kElementScalars) {
    if (ElementTypeName(element) == name) return scalar;
  }
  throw std::runtime_error("no type " + name);
}

NamedTensors ReadTensors(const std::string& folder) {
  NamedTensors tensors;
  std::istringstream index(ReadFile(folder + "/index.txt"));
  for (std::string line; std::getline(index, line);) {
    std::istringstream words(line);
    std::string number;
    std::string type;
    std::string name;
    words >> number >> type >> name;
    std::vector<int64_t> sizes;
    for (int64_t size = 0; words >> size;) sizes.push_back(size);
    const torch::Tensor tensor = torch::empty(sizes, TypeNamed(type));
    const std::string bytes = ReadFile(folder + "/" + number + ".bin");
    if (bytes.size() != tensor.nbytes()) throw std::runtime_error("wrong size of " + name);
    std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
    tensors.emplace_back(name, tensor);
  }
  return tensors;
}

void WriteTensors(const std::string& folder, const NamedTensors& tensors) {
  std::ofstream index(folder + "/index.txt");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor tensor = tensors[i].second.detach().contiguous();
    index << i << " " << ElementTypeName(*ToElementType(tensor.scalar_type())) << " "
          << tensors[i].first;
    for (const int64_t size : tensor.sizes()) index << " " << size;
    index << "\n";
    std::ofstream file(folder + "/" + std::to_string(i) + ".bin", std::ios::binary);
    file.write(static_cast<const char*>(tensor.const_data_ptr()),
               static_cast<std::streamsize>(tensor.nbytes()));
  }
}

// Writes the tensors as float64.
void WriteDoubles(const std::string& folder, NamedTensors tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().to(torch::kDouble);
  WriteTensors(folder, tensors);
}

NamedTensors LossAndGradients(Model& model, Batch batch,
                              std::optional<torch::ScalarType> autocast) {
  for (const auto& [name, parameter] : model.parameters()) parameter.mutable_grad().reset();
  torch::manual_seed(kSeed);
  model.Draw(batch);
  const torch::Tensor loss = model.Loss(batch, autocast);
  loss.backward();
  NamedTensors result = {{"loss", loss}};
  for (const auto& [name, parameter] : model.parameters()) {
    result.emplace_back(name, parameter.grad());
  }
  return result;
}

absl::Status PredictCase(PredictionGraph& graph, const std::string& folder) {
  if (std::filesystem::exists(folder + "/weights")) {
    if (absl::Status status = graph.Load(ReadTensors(folder + "/weights")); !status.ok()) {
      return status;
    }
  }
  const NamedTensors inputs = ReadTensors(folder + "/inputs");
  const absl::StatusOr<NamedTensors> outputs = graph.Run({inputs.begin(), inputs.end()});
  if (!outputs.ok()) return outputs.status();
  std::filesystem::create_directory(folder + "/outputs");
  WriteTensors(folder + "/outputs", *outputs);
  return absl::OkStatus();
}

int Predict(const std::string& file, const std::string& folder) {
  const auto graph = PredictionGraph::Open(file);
  if (!graph.ok()) {
    std::cerr << graph.status() << "\n";
    return 1;
  }
  for (int i = 0; std::filesystem::exists(folder + "/" + std::to_string(i)); ++i) {
    const std::string each = folder + "/" + std::to_string(i);
    if (absl::Status status = PredictCase(**graph, each); !status.ok()) {
      std::ofstream(each + "/error.txt") << status;
    }
  }
  return 0;
}

int Run(const std::string& folder) {
  training::v1::JobSpec spec;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(ReadFile(folder + "/spec.json"), &spec);
  if (!parsed.ok()) throw std::runtime_error(parsed.ToString());
  spec = WithDefaults(spec, LossScaleSettings());
  const MemoryDataset dataset(ReadTensors(folder + "/fields"));
  auto built = BuildModel(spec, dataset);
  if (!built.ok()) {
    std::cerr << built.status().message() << "\n";
    return 1;
  }
  Model& model = **built;

  NamedTensors all = model.parameters();
  for (const auto& buffer : model.buffers()) all.push_back(buffer);
  WriteDoubles(folder + "/initial", all);
  std::ofstream tied(folder + "/tied.txt");
  for (const auto& [name, same] : model.tied()) tied << name << " " << same << "\n";
  if (std::ifstream(folder + "/weights/index.txt")) {
    const torch::NoGradGuard no_grad;
    const NamedTensors weights = ReadTensors(folder + "/weights");
    const std::map<std::string, torch::Tensor> given(weights.begin(), weights.end());
    for (const auto& [name, parameter] : model.parameters()) {
      torch::Tensor(parameter).copy_(given.at(name));
    }
  }

  const Batch batch = dataset.Rows(0, dataset.size());
  NamedTensors metrics;
  for (const MetricSum& metric : model.Evaluate(batch)) {
    metrics.emplace_back(metric.name, metric.sum);
  }
  WriteDoubles(folder + "/metrics", metrics);
  WriteDoubles(folder + "/fp32", LossAndGradients(model, batch, std::nullopt));
  WriteDoubles(folder + "/bf16", LossAndGradients(model, batch, torch::kBFloat16));
  for (const auto& [name, parameter] : model.parameters()) {
    parameter.mutable_grad().reset();
    parameter.set_data(parameter.detach().to(torch::kBFloat16));
  }
  WriteDoubles(folder + "/pure_bf16", LossAndGradients(model, batch, std::nullopt));
  return 0;
}

}  // namespace
}  // namespace genesis

int main(int count, char** arguments) {
  const bool predicts = count == 4 && std::string(arguments[1]) == "--predict";
  if (count != 2 && !predicts) {
    std::fprintf(stderr, "usage: model_driver FOLDER, or model_driver --predict FILE FOLDER\n");
    return 2;
  }
  try {
    at::set_num_threads(1);
    if (predicts) return genesis::Predict(arguments[2], arguments[3]);
    return genesis::Run(arguments[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
