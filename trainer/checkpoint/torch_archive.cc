#include "trainer/checkpoint/torch_archive.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/formats/data_file.h"
#include "trainer/formats/pickle_reader.h"
#include "trainer/formats/zip_archive.h"

namespace genesis {
namespace {

// Deeper than any state dict, but shallow enough for the stack.
constexpr size_t kMaxDepth = 100;
constexpr uint64_t kMinText = uint64_t{1} << 20;
constexpr double kMaxElements = 1LL << 60;
// Limits the elements of expanded tensors: a view of one element can claim any size.
constexpr double kMaxRepeated = 1 << 24;
// Maximum bytes of all tensors per byte of the file. Without a limit, copies of many views of one
// storage could take many times the file's size. In a model, few entries share a storage.
constexpr double kMaxSharing = 16;
// A non-contiguous view is copied when it is read, so it counts more.
constexpr double kCopied = 8;

// A converter of the values of one file into a tree. After an error it continues with empty values.
// Read returns the first error.
class Reader {
 public:
  explicit Reader(const ZipArchive& archive) : archive_(archive) {}

  absl::StatusOr<Value> Read() {
    if (absl::Status status = FindFolder(); !status.ok()) return status;
    const absl::StatusOr<std::string> pickle = ReadRecord("data.pkl");
    if (!pickle.ok()) return pickle.status();
    const absl::StatusOr<PickleDocument> document = ReadPickle(*pickle);
    if (!document.ok()) {
      return absl::Status(document.status().code(),
                          absl::StrCat(archive_.path(), ": ", document.status().message()));
    }
    values_left_ = pickle->size();
    text_left_ = kMinText + 16 * pickle->size();
    bytes_left_ = kMaxSharing * static_cast<double>(archive_.file()->size());
    Value root = ToValue(*document->root);
    if (!status_.ok()) return status_;
    return root;
  }

 private:
  // Finds the one folder of the records, which torch.save names after the file.
  absl::Status FindFolder() {
    int found = 0;
    bool script = false;
    for (const std::string& name : archive_.names()) {
      const bool pickle = name == "data.pkl" || absl::EndsWith(name, "/data.pkl");
      if (pickle) folder_ = name.substr(0, name.size() - 8);
      found += pickle ? 1 : 0;
      script = script || absl::EndsWith(name, "/constants.pkl") || name == "constants.pkl";
      if (absl::StartsWith(name, "/") || absl::StrContains(name, "..")) {
        return Refused(absl::StrCat("has a record named ", QuoteValue(name),
                                    "; accepted: names without .. inside one folder"));
      }
    }
    if (script) {
      return Refused(
          "is a TorchScript module; accepted: a state dict. In Python: "
          "torch.save(torch.jit.load(PATH).state_dict(), NEW_PATH)");
    }
    if (found == 1) return CheckByteOrder();
    return Refused(absl::StrCat("is a zip file with ", found,
                                " records data.pkl; accepted: one, as torch.save writes"));
  }

  absl::Status CheckByteOrder() const {
    if (!archive_.Contains(folder_ + "byteorder")) return absl::OkStatus();
    const absl::StatusOr<std::string> order = ReadRecord("byteorder");
    if (!order.ok()) return order.status();
    if (*order == "little") return absl::OkStatus();
    return Refused("has the byte order of another kind of machine; accepted: little");
  }

  absl::Status Refused(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(archive_.path(), ": ", what));
  }

  absl::StatusOr<std::string> ReadRecord(const std::string& name) const {
    if (const auto place = FindRecord(name); !place.ok()) return place.status();
    return archive_.Read(folder_ + name);
  }

  absl::StatusOr<ZipArchive::Location> FindRecord(const std::string& name) const {
    const std::string full = folder_ + name;
    if (!archive_.Contains(full)) {
      return absl::DataLossError(
          absl::StrCat(archive_.path(), ": has no record ", OneLine(full, kMaxNameBytes)));
    }
    absl::StatusOr<ZipArchive::Location> location = archive_.Locate(full);
    // torch.save never compresses, and a compressed record would let a small file request all
    // memory.
    if (location.ok() && !location->stored) {
      return Refused(absl::StrCat("has a compressed record ", OneLine(full, kMaxNameBytes),
                                  "; accepted: stored records"));
    }
    return location;
  }

  // Returns the reader's position in the tree. Called only for error messages.
  std::string Path() const {
    std::string path;
    for (const auto& [text, number] : path_) {
      absl::StrAppend(&path, path.empty() ? "" : ".",
                      text != nullptr ? OneLine(*text, kMaxNameBytes) : absl::StrCat(number));
    }
    return path.empty() ? "the file" : absl::StrCat("entry ", path);
  }

  void Fault(const std::string& what) {
    status_.Update(
        absl::InvalidArgumentError(absl::StrCat(archive_.path(), ": ", Path(), " ", what)));
  }

  // Counts a value and its text against limits from the pickle's size. Each value takes at least a
  // byte of the pickle, so only a pickle that repeats containers or text exceeds the limits.
  bool Spend(size_t text) {
    if (values_left_ == 0 || text_left_ < text) {
      Fault("unfolds to far more than the file holds; accepted: values that are not repeated");
      return false;
    }
    --values_left_;
    text_left_ -= text;
    return true;
  }

  Value ToValue(const PickleValue& value) {
    const auto* const text = value.As<std::string>();
    if (!status_.ok() || !Spend(text != nullptr ? text->size() : 0)) return {};
    if (path_.size() > kMaxDepth) {
      Fault(absl::StrCat("is nested more than ", kMaxDepth, " deep or holds itself"));
      return {};
    }
    if (text != nullptr) return *text;
    if (const auto* const boolean = value.As<bool>()) return *boolean;
    if (const auto* const integer = value.As<int64_t>()) return *integer;
    if (const auto* const number = value.As<double>()) return *number;
    if (const auto* const tensor = value.As<PickleTensor>()) return ToTensor(*tensor);
    if (const auto* const dict = value.As<PickleDict>()) return ToDict(*dict);
    if (const auto* const list = value.As<PickleList>()) return ToList(*list);
    if (value.As<std::monostate>() == nullptr) Fault("is a type, not a value");
    return {};
  }

  Value ToList(const PickleList& list) {
    ValueList items;
    for (size_t i = 0; i < list.items.size() && status_.ok(); ++i) {
      path_.emplace_back(nullptr, static_cast<int64_t>(i));
      items.push_back(ToValue(*list.items[i]));
      path_.pop_back();
    }
    return items;
  }

  Value ToDict(const PickleDict& dict) {
    ValueDict items;
    std::set<DictKey> seen;
    for (const auto& [key, value] : dict.items) {
      const auto* const text = key->As<std::string>();
      const auto* const number = key->As<int64_t>();
      if (text == nullptr && number == nullptr) {
        Fault("has a key that is neither a string nor an integer");
      }
      if (!status_.ok() || !Spend(text != nullptr ? text->size() : 0)) return {};
      const DictKey name = text != nullptr ? DictKey(*text) : DictKey(*number);
      path_.emplace_back(text, number != nullptr ? *number : 0);
      if (!seen.insert(name).second) Fault("is there twice");
      items.items.push_back({name, ToValue(*value)});
      path_.pop_back();
    }
    return items;
  }

  Value ToTensor(const PickleTensor& described) {
    const at::Tensor storage = StorageOf(described.storage);
    const auto held = static_cast<double>(storage.numel());
    // Last element of the view. Sizes and strides come from the file; in a double their product
    // cannot wrap around.
    auto last = static_cast<double>(described.offset);
    double elements = 1;
    double nonzero = 1;
    for (size_t i = 0; i < described.sizes.size(); ++i) {
      const auto size = static_cast<double>(described.sizes[i]);
      elements *= size;
      nonzero *= std::max(size, 1.0);
      last += (size - 1) * static_cast<double>(described.strides[i]);
    }
    if (elements > 0 && last >= held) {
      Fault(absl::StrCat("reaches element ", last, " of a storage of ", storage.numel()));
    } else if (nonzero > kMaxElements) {
      Fault(absl::StrCat("has a shape of ", nonzero, " elements; accepted: up to 2^60"));
    } else if (elements > held) {
      // The view is expanded: it repeats elements of the storage.
      repeated_left_ -= elements;
      if (repeated_left_ < 0) {
        Fault(absl::StrCat("repeats ", storage.numel(), " elements to ", elements,
                           "; accepted: up to ", kMaxRepeated, " in a file"));
      }
    }
    if (!status_.ok()) return {};
    if (elements == 0) return at::empty(described.sizes, storage.options());
    at::Tensor view = storage.as_strided(described.sizes, described.strides, described.offset);
    bytes_left_ -= std::min(elements, held) * static_cast<double>(storage.element_size()) *
                   (view.is_contiguous() ? 1 : kCopied);
    if (bytes_left_ < 0) {
      Fault(
          "and those before it share storages so often that they are many times the file; "
          "accepted: "
          "all views together up to 16 times its bytes, transposed ones up to 2 times");
      return {};
    }
    return view;
  }

  // Returns a storage. Tensors may share it, so each is read once.
  at::Tensor StorageOf(const PickleStorage& storage) {
    at::Tensor& tensor = storages_[{storage.key, storage.type}];
    if (tensor.defined()) return tensor;
    const at::ScalarType type = ToScalarType(storage.type);
    tensor = at::empty({0}, type);
    const std::string name = "data/" + storage.key;
    const absl::StatusOr<ZipArchive::Location> place = FindRecord(name);
    status_.Update(place.status());
    if (!place.ok()) return tensor;
    const uint64_t held = place->size / tensor.element_size();
    if (held < static_cast<uint64_t>(storage.elements)) {
      Fault(absl::StrCat("has storage ", OneLine(storage.key, kMaxNameBytes), " of ",
                         storage.elements, " elements, and its record holds ", held));
      return tensor;
    }
    const at::Tensor bytes = at::empty({static_cast<int64_t>(place->size)}, at::kByte);
    status_.Update(
        archive_.ReadStored(folder_ + name, static_cast<char*>(bytes.mutable_data_ptr())));
    if (!status_.ok()) return tensor;
    tensor = bytes.narrow(0, 0, storage.elements * tensor.element_size()).view(type);
    return tensor;
  }

  const ZipArchive& archive_;
  std::string folder_;
  // Path of keys, or of indices where the text is null.
  std::vector<std::pair<const std::string*, int64_t>> path_;
  uint64_t values_left_ = 0;
  uint64_t text_left_ = 0;
  double repeated_left_ = kMaxRepeated;
  double bytes_left_ = 0;
  std::map<std::pair<std::string, ElementType>, at::Tensor> storages_;
  absl::Status status_;
};

}  // namespace

absl::Status ExplainForeignFile(const std::string& path, const absl::Status& fault) {
  const absl::StatusOr<std::shared_ptr<const DataFile>> file = DataFile::Open(path);
  std::string begin(16, '\0');
  if (!file.ok() || (*file)->size() < begin.size() ||
      !(*file)->Read(0, begin.size(), begin.data()).ok()) {
    return fault;
  }
  // LONG1 0x1950a86a20f9469cfc6c, the first bytes of torch.save before version 1.6.
  if (absl::StrContains(begin, "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": is in the format that torch.save wrote before version 1.6; accepted: the zip format. In "
        "Python: torch.save(torch.load(PATH, weights_only=True), NEW_PATH)"));
  }
  return fault;
}

absl::StatusOr<Value> ReadTorchArchive(const std::string& path) {
  const absl::StatusOr<ZipArchive> archive = ZipArchive::Open(path);
  if (!archive.ok()) return ExplainForeignFile(path, archive.status());
  return Reader(*archive).Read();
}

}  // namespace genesis
