#include "trainer/models/exported/exported_file.h"

#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text/field_error.h"
#include "base/version.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/formats/element_value.h"
#include "trainer/formats/json_cursor.h"
#include "trainer/formats/zip_archive.h"
#include "trainer/models/exported/exported_manifest.h"
#include "trainer/models/exported/graph_outline.h"

namespace genesis {
namespace {

constexpr char kRoot[] = "module/";
constexpr char kManifest[] = "module/extra/genesis.json";
constexpr uint64_t kMaxManifest = uint64_t{16} << 20;
constexpr uint64_t kMaxGraph = uint64_t{256} << 20;
constexpr uint64_t kMaxSmallRecord = 4096;
constexpr int64_t kMaxBatch = 1'048'576;
constexpr size_t kMaxPredictions = 64;
constexpr size_t kMaxPredictionName = 64;

absl::Status Refuse(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("model.exported.path is ", QuoteValue(path), ", which ", what,
                   "; accepted: a file that genesis.export of Python wrote"));
}

std::string GraphRecord(const std::string& graph) {
  return absl::StrCat(kRoot, "models/", graph, ".json");
}

std::optional<ElementType> TypeOf(const std::string& name) {
  for (const auto& [element, scalar] : kElementScalars) {
    if (ElementTypeName(element) == name) return element;
  }
  return std::nullopt;
}

std::optional<ExportedFile::Role> RoleOf(const std::string& name) {
  using Role = ExportedFile::Role;
  if (name == "trained") return Role::kTrained;
  if (name == "kept") return Role::kKept;
  if (name == "passing") return Role::kPassing;
  if (name == "constant") return Role::kConstant;
  return std::nullopt;
}

bool IsPredictionName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxPredictionName &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '.';
         });
}

// Returns whether this LibTorch accepts graphs of torch `version`, such as "2.12.1": it needs the
// same major version, and the same or a later minor version.
bool IsReadable(const std::string& version) {
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  int major = 0;
  int minor = 0;
  return parts.size() > 1 && absl::SimpleAtoi(parts[0], &major) &&
         absl::SimpleAtoi(parts[1], &minor) && major == TORCH_VERSION_MAJOR &&
         minor >= TORCH_VERSION_MINOR;
}

// Parts that a graph must have. Without them LibTorch ends the process.
constexpr const char* kPartsOfGraph[] = {"inputs",        "outputs",        "nodes",
                                         "tensor_values", "sym_int_values", "sym_bool_values"};

class Reader {
 public:
  Reader(std::string path, ZipArchive archive) : archive_(std::move(archive)) {
    file_.path = std::move(path);
  }

  absl::StatusOr<std::optional<int64_t>> ReadBatchSize() {
    absl::Status status = ReadManifestRecord();
    if (status.ok()) status = TakeManifest();
    if (!status.ok()) return status;
    return file_.batch_size;
  }

  absl::StatusOr<ExportedFile> Read() {
    if (absl::Status status = ReadBatchSize().status(); !status.ok()) return status;
    if (absl::Status status = CheckNames(); !status.ok()) return status;
    if (absl::Status status = CheckRecords(); !status.ok()) return status;
    for (const std::string& graph : graphs_) {
      if (absl::Status status = CheckGraph(graph); !status.ok()) return status;
    }
    if (absl::Status status = ReadTensors(); !status.ok()) return status;
    return std::move(file_);
  }

 private:
  absl::Status Bad(const std::string& what) const { return Refuse(file_.path, what); }

  absl::StatusOr<std::string> ReadBounded(const std::string& record, uint64_t most) const {
    const absl::StatusOr<ZipArchive::Location> place = archive_.Locate(record);
    if (!place.ok()) return Bad(absl::StrCat("has no record ", QuoteValue(record)));
    if (place->size > most) {
      return Bad(absl::StrCat("has a record ", QuoteValue(record), " of ", place->size,
                              " bytes, more than ", most));
    }
    return archive_.Read(record);
  }

  absl::Status ReadManifestRecord() {
    const absl::StatusOr<std::string> text = ReadBounded(kManifest, kMaxManifest);
    if (!text.ok()) return text.status();
    JsonCursor json(*text);
    if (!ReadManifest(json, manifest_)) {
      return Bad(absl::StrCat("has a manifest that cannot be read, ", json.fault()));
    }
    if (manifest_.format == 1) {
      return Bad(absl::StrCat(
          "an older genesis-trainer wrote, whose graphs may compute products of slices from memory "
          "that is not theirs: export it again with genesis-trainer ",
          kVersion));
    }
    if (manifest_.format != kExportedFormat) {
      return Bad(absl::StrCat("is of format ", manifest_.format, ", which ",
                              QuoteValue(manifest_.producer), " wrote; this worker reads format ",
                              kExportedFormat, ": export it again with genesis-trainer ",
                              kVersion));
    }
    if (!IsReadable(manifest_.torch)) {
      return Bad(absl::StrCat(
          "was exported by torch ", QuoteValue(manifest_.torch), " and this worker runs ",
          TORCH_VERSION, ", which reads files of its own and of later versions of torch ",
          TORCH_VERSION_MAJOR, ": export it again with torch==", TORCH_VERSION));
    }
    return absl::OkStatus();
  }

  absl::Status TakeManifest() {
    file_.torch = manifest_.torch;
    file_.module = manifest_.module;
    file_.batch_size = manifest_.batch_size;
    if (file_.batch_size && (*file_.batch_size < 1 || *file_.batch_size > kMaxBatch)) {
      return Bad(absl::StrCat("takes batches of ", *file_.batch_size));
    }
    const std::set<std::string> known = {"FP32", "MIXED_BF16", "MIXED_FP16", "BF16", "FP16"};
    for (const std::string& name : manifest_.precisions) {
      if (!known.contains(name)) {
        return Bad(absl::StrCat("has a graph of the precision ", QuoteValue(name)));
      }
      file_.precisions.insert(name);
    }
    if (!file_.precisions.contains("FP32")) return Bad("has no graph of FP32");
    graphs_.assign(file_.precisions.begin(), file_.precisions.end());
    graphs_.emplace_back(kEvaluationGraph);
    for (const ExportedManifest::Entry& entry : manifest_.fields) {
      const std::optional<ElementType> type = TypeOf(entry.type);
      if (!type) return Bad(absl::StrCat("has a field of type ", QuoteValue(entry.type)));
      file_.fields.push_back({.name = entry.name, .type = *type, .shape = entry.shape});
    }
    for (const ExportedManifest::Entry& entry : manifest_.tensors) {
      const std::optional<ExportedFile::Role> role = RoleOf(entry.role);
      if (!role || !TypeOf(entry.type)) {
        return Bad(absl::StrCat("has a tensor ", QuoteValue(entry.name), " of type ",
                                QuoteValue(entry.type), " and role ", QuoteValue(entry.role)));
      }
      file_.tensors.push_back({.name = entry.name, .role = *role, .tensor = {}});
    }
    file_.tied.assign(manifest_.tied.begin(), manifest_.tied.end());
    file_.versions = manifest_.versions;
    file_.by_example = manifest_.losses == "EXAMPLES";
    if (!file_.by_example && manifest_.losses != "MEAN") {
      return Bad(absl::StrCat("has losses ", QuoteValue(manifest_.losses)));
    }
    file_.without = manifest_.without;
    file_.held_out_quotients = static_cast<size_t>(manifest_.held_out_quotients);
    if (file_.held_out_quotients > kMaxTensors) return Bad("has too many held-out quotients");
    file_.constants = manifest_.constants;
    file_.gradients = manifest_.gradients;
    file_.changed = manifest_.changed;
    if (manifest_.prediction) {
      graphs_.emplace_back(kPredictionGraph);
      file_.prediction_inputs = manifest_.prediction->inputs;
      file_.prediction_outputs = manifest_.prediction->outputs;
      return CheckPrediction();
    }
    return absl::OkStatus();
  }

  absl::Status CheckPrediction() const {
    const std::vector<std::string>& inputs = file_.prediction_inputs;
    const std::vector<std::string>& outputs = file_.prediction_outputs;
    if (inputs.empty() || outputs.empty() || outputs.size() > kMaxPredictions) {
      return Bad(
          absl::StrCat("predicts ", outputs.size(), " tensors from ", inputs.size(), " fields"));
    }
    std::set<std::string> fields;
    for (const Field& field : file_.fields) fields.insert(field.name);
    for (const std::string& name : inputs) {
      if (fields.erase(name) == 0) {
        return Bad(absl::StrCat("names ", QuoteValue(name), " among its inputs of predictions"));
      }
    }
    std::set<std::string> seen;
    for (const std::string& name : outputs) {
      if (!IsPredictionName(name) || !seen.insert(name).second) {
        return Bad(absl::StrCat("names ", QuoteValue(name), " among its predictions"));
      }
    }
    return absl::OkStatus();
  }

  // Checks that every name is unique and belongs to a tensor that may have its role.
  absl::Status CheckNames() const {
    using Role = ExportedFile::Role;
    std::map<std::string, Role> roles;
    for (const ExportedFile::NamedTensor& tensor : file_.tensors) {
      if (!roles.emplace(tensor.name, tensor.role).second) {
        return Bad(absl::StrCat("has two tensors ", QuoteValue(tensor.name)));
      }
    }
    std::set<std::string> fields;
    for (const Field& field : file_.fields) {
      if (!fields.insert(field.name).second) {
        return Bad(absl::StrCat("has two fields ", QuoteValue(field.name)));
      }
    }
    const auto check = [&](const std::vector<std::string>& names, const char* what,
                           const std::set<Role>& accepted) -> absl::Status {
      std::set<std::string> seen;
      for (const std::string& name : names) {
        const auto role = roles.find(name);
        if (role == roles.end() || !accepted.contains(role->second) || !seen.insert(name).second) {
          return Bad(absl::StrCat("names ", QuoteValue(name), " among its ", what));
        }
      }
      return absl::OkStatus();
    };
    absl::Status status = check(file_.gradients, "gradients", {Role::kTrained});
    status.Update(check(file_.changed, "changed state", {Role::kKept, Role::kPassing}));
    for (const auto& [graph, names] : file_.constants) {
      status.Update(check(names, "constants", {Role::kConstant}));
    }
    for (const auto& [name, other] : file_.tied) {
      status.Update(check({other}, "tied tensors", {Role::kTrained, Role::kKept}));
      if (roles.contains(name)) status.Update(Bad(absl::StrCat("ties ", QuoteValue(name))));
    }
    if (status.ok() && file_.gradients.empty()) return Bad("has nothing to train");
    return status;
  }

  // Checks the record names, by which LibTorch reads a file: none may make it read a pickle, load a
  // library or restore an object.
  absl::Status CheckRecords() const {
    std::set<std::string> expected = {kManifest};
    std::set<std::string> small;
    for (const char* name : {"archive_format", "archive_version", "byteorder", ".data/version",
                             ".data/serialization_id", ".format_version", ".storage_alignment"}) {
      small.insert(absl::StrCat(kRoot, name));
    }
    for (const std::string& graph : graphs_) {
      expected.insert(GraphRecord(graph));
      for (const char* kind : {"weights", "constants"}) {
        const std::string name =
            absl::StrCat(kRoot, "data/", kind, "/", graph, "_", kind, "_config.json");
        expected.insert(name);
        const absl::StatusOr<std::string> config = ReadBounded(name, kMaxSmallRecord);
        if (!config.ok()) return config.status();
        std::string text = *config;
        std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
        if (text != "{\"config\":{}}") {
          return Bad(absl::StrCat("has ", kind, " of its own in ", QuoteValue(name)));
        }
      }
    }
    for (size_t i = 0; i < file_.tensors.size(); ++i) {
      expected.insert(absl::StrCat(kRoot, "extra/tensors/", i));
    }
    for (const std::string& name : archive_.names()) {
      if (small.contains(name)) {
        if (absl::Status status = ReadBounded(name, kMaxSmallRecord).status(); !status.ok()) {
          return status;
        }
      } else if (!expected.contains(name)) {
        return Bad(absl::StrCat("has a record ", QuoteValue(name), " that is none of a module's"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckGraph(const std::string& graph) const {
    const absl::StatusOr<std::string> text = ReadBounded(GraphRecord(graph), kMaxGraph);
    if (!text.ok()) return text.status();
    JsonCursor json(*text);
    std::string refused;
    GraphOutline outline;
    if (ReadOutline(json, outline, refused) && json.End()) return CheckOutline(graph, outline);
    if (refused.empty()) {
      return Bad(absl::StrCat("has a graph ", graph, " that cannot be read, ", json.fault()));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "model.exported.path is ", QuoteValue(file_.path), ", whose graph ", graph,
        " has the operator ", QuoteValue(refused),
        "; accepted: those of python/src/genesis/exporting/exported_operators.txt. Write the "
        "module without it"));
  }

  // Checks that a graph has the inputs and outputs of the manifest: docs/exported_modules.md, "The
  // file".
  absl::Status CheckOutline(const std::string& graph, const GraphOutline& outline) const {
    for (const char* part : kPartsOfGraph) {
      if (!outline.parts.contains(part)) {
        return Bad(absl::StrCat("has a graph ", graph, " without ", part));
      }
    }
    if (!outline.has_signature)
      return Bad(absl::StrCat("has a graph ", graph, " without signature"));
    const auto constants = std::count_if(file_.tensors.begin(), file_.tensors.end(),
                                         [](const ExportedFile::NamedTensor& tensor) {
                                           return tensor.role == ExportedFile::Role::kConstant;
                                         });
    const auto own = file_.constants.find(graph);
    const size_t examples = file_.by_example ? 1 : 0;
    size_t inputs = 1 + file_.fields.size() + examples;
    size_t outputs = 1 + examples + file_.gradients.size() + file_.changed.size();
    if (graph == kEvaluationGraph) {
      const size_t quotients = file_.held_out_quotients;
      outputs = 1 + (quotients > 0 ? 1 + kQuotientOutputs * quotients : 0);
    } else if (graph == kPredictionGraph) {
      inputs = file_.prediction_inputs.size();
      outputs = file_.prediction_outputs.size();
    }
    inputs += file_.tensors.size() - static_cast<size_t>(constants) +
              (own == file_.constants.end() ? 0 : own->second.size());
    if (outline.inputs == inputs && outline.outputs == outputs) return absl::OkStatus();
    return Bad(absl::StrCat("has a graph ", graph, " of ", outline.inputs, " inputs and ",
                            outline.outputs, " outputs, where its manifest has ", inputs, " and ",
                            outputs));
  }

  absl::Status ReadTensors() {
    for (size_t i = 0; i < file_.tensors.size(); ++i) {
      const ExportedManifest::Entry& entry = manifest_.tensors[i];
      const ElementType type = *TypeOf(entry.type);
      const std::string record = absl::StrCat(kRoot, "extra/tensors/", i);
      const absl::StatusOr<ZipArchive::Location> place = archive_.Locate(record);
      if (!place.ok()) return Bad(absl::StrCat("has no record ", QuoteValue(record)));
      if (!place->stored) {
        return Bad(absl::StrCat("has the tensor ", QuoteValue(entry.name),
                                " compressed; accepted: stored, as genesis.export writes it"));
      }
      uint64_t bytes = static_cast<uint64_t>(ElementSize(type));
      bool fits = true;
      for (const int64_t size : entry.shape) {
        fits = fits && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes);
      }
      if (!fits || bytes != place->size) {
        return Bad(absl::StrCat("has a tensor ", QuoteValue(entry.name), " of other bytes (",
                                place->size, ") than its shape [", absl::StrJoin(entry.shape, ", "),
                                "] of ", entry.type, " needs"));
      }
      torch::Tensor tensor = torch::empty(entry.shape, ToScalarType(type));
      if (absl::Status status =
              archive_.ReadStored(record, static_cast<char*>(tensor.mutable_data_ptr()));
          !status.ok()) {
        return status;
      }
      if (absl::Status status = CheckFinite(i, tensor); !status.ok()) return status;
      file_.tensors[i].tensor = tensor;
    }
    return absl::OkStatus();
  }

  // Checks trained parameters only: a mask among the buffers may hold infinities.
  absl::Status CheckFinite(size_t number, const torch::Tensor& tensor) const {
    if (file_.tensors[number].role != ExportedFile::Role::kTrained ||
        at::isfinite(tensor).all().item<bool>()) {
      return absl::OkStatus();
    }
    const ExportedManifest::Entry& entry = manifest_.tensors[number];
    const ElementType type = *TypeOf(entry.type);
    const auto* const bytes = static_cast<const char*>(tensor.const_data_ptr());
    const int64_t first = FirstNonFinite(type, bytes, tensor.numel());
    return Bad(absl::StrCat("has a tensor ", QuoteValue(entry.name), " that is ",
                            NumberText(ElementValue(type, bytes + first * ElementSize(type))),
                            " at ", PlaceText(entry.shape, first)));
  }

  ZipArchive archive_;
  ExportedManifest manifest_;
  std::vector<std::string> graphs_;
  ExportedFile file_;
};

absl::StatusOr<Reader> OpenReader(const std::string& path) {
  absl::StatusOr<ZipArchive> archive = ZipArchive::Open(path);
  if (archive.ok()) return Reader(path, *std::move(archive));
  return absl::InvalidArgumentError(
      absl::StrCat("model.exported.path: ", archive.status().message()));
}

}  // namespace

absl::StatusOr<ExportedFile> ExportedFile::Open(const std::string& path) {
  absl::StatusOr<Reader> reader = OpenReader(path);
  return reader.ok() ? reader->Read() : absl::StatusOr<ExportedFile>(reader.status());
}

absl::StatusOr<std::optional<int64_t>> ExportedFile::BatchSizeOf(const std::string& path) {
  absl::StatusOr<Reader> reader = OpenReader(path);
  if (!reader.ok()) return reader.status();
  return reader->ReadBatchSize();
}

}  // namespace genesis
