#include "trainer/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "trainer/checkpoint/pickle_reader.h"
#include "trainer/data/zip_archive.h"

namespace genesis {
namespace {

constexpr int64_t kFormatVersion = 1;

at::ScalarType ToScalarType(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return at::kFloat;
    case ElementType::kFloat64:
      return at::kDouble;
    case ElementType::kFloat16:
      return at::kHalf;
    case ElementType::kBfloat16:
      return at::kBFloat16;
    case ElementType::kInt64:
      return at::kLong;
    case ElementType::kInt32:
      return at::kInt;
    case ElementType::kInt16:
      return at::kShort;
    case ElementType::kInt8:
      return at::kChar;
    case ElementType::kUint8:
      return at::kByte;
    case ElementType::kBool:
      return at::kBool;
  }
  return at::kFloat;
}

// Turns the values of one file into a TrainingState. After a fault it goes on with empty values;
// the first fault is what Read returns.
class Reader {
 public:
  explicit Reader(const ZipArchive& archive) : archive_(archive) {}

  absl::StatusOr<TrainingState> Read() {
    absl::StatusOr<PickleDocument> document = ReadDocument();
    if (!document.ok()) return document.status();
    const PickleValue& root = *document->root;
    TrainingState state;
    ReadPosition(Entry(root, "genesis"), state);
    ReadModel(Entry(root, "model_state_dict"), state);
    ReadOptimizer(Entry(Entry(root, "optimizer_state_dict"), "state"), state);
    ReadScaler(Entry(root, "scaler_state_dict"), state);
    if (!status_.ok()) return status_;
    return state;
  }

 private:
  absl::StatusOr<PickleDocument> ReadDocument() {
    // The records stand in a folder; torch.save names it after the file.
    for (const std::string& name : archive_.names()) {
      if (absl::EndsWith(name, "/data.pkl")) folder_ = name.substr(0, name.size() - 8);
    }
    const absl::StatusOr<std::string> pickle = archive_.Read(folder_ + "data.pkl");
    if (!pickle.ok()) return pickle.status();
    absl::StatusOr<PickleDocument> document = ReadPickle(*pickle);
    if (document.ok()) return document;
    return absl::Status(document.status().code(),
                        absl::StrCat(archive_.path(), ": ", document.status().message()));
  }

  void Fault(const std::string& what) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat(archive_.path(), ": is not a checkpoint of this program: ", what)));
  }

  const PickleValue& Entry(const PickleValue& dict, const std::string& key) {
    static const auto* const none = new PickleValue();
    const PickleValue* const entry = dict.Find(key);
    if (entry != nullptr) return *entry;
    Fault(absl::StrCat("it has no ", key));
    return *none;
  }
  template <typename T>
  T Get(const PickleValue& dict, const std::string& key) {
    const T* const value = Entry(dict, key).As<T>();
    if (value != nullptr) return *value;
    Fault(absl::StrCat(key, " is of an unexpected type"));
    return T{};
  }
  at::Tensor GetTensor(const PickleValue& dict, const std::string& key) {
    return ToTensor(key, Entry(dict, key));
  }

  at::Tensor ToTensor(const std::string& name, const PickleValue& value) {
    const auto* const described = value.As<PickleTensor>();
    if (described == nullptr) {
      Fault(absl::StrCat(name, " is no tensor"));
      return at::empty({0});
    }
    const at::Tensor& storage = StorageOf(described->storage);
    // Last element that the view reaches. Sizes and strides come from the file: in a double their
    // product cannot wrap around.
    auto last = static_cast<double>(described->offset);
    bool empty = false;
    for (size_t i = 0; i < described->sizes.size(); ++i) {
      empty = empty || described->sizes[i] == 0;
      last +=
          static_cast<double>(described->sizes[i] - 1) * static_cast<double>(described->strides[i]);
    }
    if (empty) return at::empty(described->sizes, storage.options());
    if (last >= static_cast<double>(storage.numel())) {
      Fault(absl::StrCat(name, " reaches beyond its storage"));
      return at::empty({0});
    }
    return storage.as_strided(described->sizes, described->strides, described->offset);
  }

  // Tensors may share a storage; each is read once.
  const at::Tensor& StorageOf(const PickleStorage& storage) {
    at::Tensor& tensor = storages_[storage.key];
    if (tensor.defined()) return tensor;
    tensor = at::empty({0}, ToScalarType(storage.type));
    absl::StatusOr<std::string> bytes = archive_.Read(absl::StrCat(folder_, "data/", storage.key));
    status_.Update(bytes.status());
    if (!bytes.ok()) return tensor;
    const auto held = bytes->size() / tensor.element_size();
    if (held < static_cast<uint64_t>(storage.elements)) {
      Fault(absl::StrCat("storage ", storage.key, " is too short"));
      return tensor;
    }
    auto owner = std::make_shared<std::string>(*std::move(bytes));
    tensor = at::from_blob(
        owner->data(), {storage.elements}, [owner](void*) {}, tensor.options());
    return tensor;
  }

  void ReadModel(const PickleValue& dict, TrainingState& state) {
    const auto* const entries = dict.As<PickleDict>();
    if (entries == nullptr) return Fault("model_state_dict is no dict");
    for (const auto& [key, value] : entries->items) {
      const auto* const name = key->As<std::string>();
      if (name == nullptr) return Fault("model_state_dict has a key that is no string");
      state.model.emplace_back(*name, ToTensor(*name, *value));
    }
  }

  void ReadOptimizer(const PickleValue& dict, TrainingState& state) {
    const auto* const entries = dict.As<PickleDict>();
    if (entries == nullptr) return Fault("optimizer_state_dict has no state");
    std::map<int64_t, AdamWParameterState> parameters;
    for (const auto& [key, value] : entries->items) {
      const auto* const index = key->As<int64_t>();
      if (index == nullptr) return Fault("the optimizer's state has a key that is no integer");
      parameters[*index] = {.step = GetTensor(*value, "step"),
                            .exp_avg = GetTensor(*value, "exp_avg"),
                            .exp_avg_sq = GetTensor(*value, "exp_avg_sq")};
    }
    for (auto& [index, parameter] : parameters) state.optimizer.push_back(std::move(parameter));
  }

  void ReadScaler(const PickleValue& dict, TrainingState& state) {
    const auto* const entries = dict.As<PickleDict>();
    if (entries == nullptr) return Fault("scaler_state_dict is no dict");
    if (entries->items.empty()) return;
    state.scaler = GradScalerState{.scale = Get<double>(dict, "scale"),
                                   .growth_factor = Get<double>(dict, "growth_factor"),
                                   .backoff_factor = Get<double>(dict, "backoff_factor"),
                                   .growth_interval = Get<int64_t>(dict, "growth_interval"),
                                   .growth_tracker = Get<int64_t>(dict, "_growth_tracker")};
  }

  void ReadPosition(const PickleValue& dict, TrainingState& state) {
    const auto version = Get<int64_t>(dict, "format_version");
    if (version != kFormatVersion) {
      Fault(absl::StrCat("its format_version is ", version, "; accepted: ", kFormatVersion));
    }
    RunPosition& position = state.position;
    position.step = Get<int64_t>(dict, "step");
    position.samples = Get<int64_t>(dict, "samples");
    position.skipped_steps = Get<int64_t>(dict, "skipped_steps");
    position.reduced_precision_steps = Get<int64_t>(dict, "reduced_precision_steps");
    position.sampler.epoch = Get<int64_t>(dict, "epoch");
    position.sampler.batch = Get<int64_t>(dict, "batch_in_epoch");
    if (!absl::SimpleAtoi(Get<std::string>(dict, "seed"), &position.seed)) {
      Fault("its seed is no number");
    }
    position.loss = Get<double>(dict, "loss");
    const std::string mode = "PRECISION_MODE_" + Get<std::string>(dict, "mode");
    if (!training::v1::PrecisionMode_Parse(mode, &position.mode)) {
      Fault(absl::StrCat("its mode is ", mode));
    }
    state.rng_state = GetTensor(dict, "rng_state");
  }

  const ZipArchive& archive_;
  std::string folder_;
  std::map<std::string, at::Tensor> storages_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<TrainingState> ReadCheckpoint(const std::string& path) {
  const absl::StatusOr<ZipArchive> archive = ZipArchive::Open(path);
  if (!archive.ok()) return archive.status();
  return Reader(*archive).Read();
}

}  // namespace genesis
