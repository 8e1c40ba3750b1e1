#include "trainer/compiled/package_file.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>
#include <torch/library.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;
using torch::inductor::AOTIModelContainerRunner;
using torch::inductor::AOTIModelContainerRunnerCpu;

constexpr char kMetadataKey[] = "genesis_step";  // Same as in trainer/compiled/python/package.py.
constexpr char kLibrary[] = ".so";
// Suffix of the record that lists the operators that the library calls in LibTorch.
constexpr char kOperators[] = ".json";

// An operator that Inductor defines in Python (torch/_inductor/inductor_prims.py). Inductor
// compiles it away except for complex tensors, for which a package calls it.
at::Tensor ForceStrideOrder(const at::Tensor& input, c10::IntArrayRef stride) {
  if (input.strides() == stride) return input;
  return at::empty_strided(input.sizes(), stride, input.options()).copy_(input);
}

TORCH_LIBRARY_FRAGMENT(prims, library) {
  library.def("inductor_force_stride_order(Tensor input, SymInt[] stride) -> Tensor",
              ForceStrideOrder);
}

// A temporary folder that no other user may read, removed by the destructor.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::error_code missing;  // Set if TMPDIR is not a folder.
    path_ = (fs::temp_directory_path(missing) / "genesis-step-XXXXXX").string();
    made_ = !missing && mkdtemp(path_.data()) != nullptr;
  }
  ~PrivateFolder() {
    std::error_code ignored;
    if (made_) fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  bool made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

}  // namespace

absl::StatusOr<PackageFile> PackageFile::Open(const std::string& path) {
  absl::StatusOr<ZipArchive> archive = ZipArchive::Open(path);
  if (!archive.ok()) return archive.status();
  for (const std::string& name : archive->names()) {
    if (!absl::EndsWith(name, kLibrary)) continue;
    return PackageFile(*std::move(archive), std::string(absl::StripSuffix(name, kLibrary)));
  }
  return absl::DataLossError(absl::StrCat(path, ": has no record *.so"));
}

absl::StatusOr<std::string> PackageFile::MadeFor() const {
  const std::string name = absl::StrCat(library_, "_metadata.json");
  if (!archive_.Contains(name)) return std::string();
  const absl::StatusOr<std::string> text = archive_.Read(name);
  if (!text.ok()) return text.status();
  google::protobuf::Struct metadata;
  if (!google::protobuf::util::JsonStringToMessage(*text, &metadata).ok()) return std::string();
  const auto found = metadata.fields().find(kMetadataKey);
  return found == metadata.fields().end() ? std::string() : found->second.string_value();
}

absl::StatusOr<std::unique_ptr<AOTIModelContainerRunner>> PackageFile::Load() const {
  const auto fault = [&](const std::string& what) {
    return absl::InternalError(absl::StrCat(archive_.path(), " cannot be loaded: ", what));
  };
  const PrivateFolder folder;
  const std::string place = folder.path() + "/step";
  for (const char* part : {kLibrary, kOperators}) {
    if (!archive_.Contains(library_ + part)) continue;
    const absl::StatusOr<std::string> bytes = archive_.Read(library_ + part);
    if (!bytes.ok()) return bytes.status();
    std::ofstream file(place + part, std::ios::binary);
    if (!folder.made() || !file.write(bytes->data(), static_cast<std::streamsize>(bytes->size())) ||
        !file.flush()) {
      return fault(absl::StrCat(place, part, " cannot be written; let TMPDIR name a folder with ",
                                "room for it, that the worker may write and run programs from"));
    }
  }
  try {
    return std::make_unique<AOTIModelContainerRunnerCpu>(place + kLibrary, /*num_models=*/1,
                                                         /*run_single_threaded=*/true);
  } catch (const std::exception& error) {
    const std::vector<std::string> lines = absl::StrSplit(error.what(), '\n');
    return fault(lines.front());
  }
}

}  // namespace genesis
