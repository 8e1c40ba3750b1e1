#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/formats/zip_archive.h"

namespace torch::inductor {
class AOTIModelContainerRunner;
}

namespace genesis {

// A package of AOTInductor: a zip file with a shared library, the description of its step, and its
// sources. LibTorch's own loader unpacks all of it below /tmp and leaves it there if the process is
// killed.
//
// Threads: one. Failure: messages begin with the path.
class PackageFile {
 public:
  // Returns DATA_LOSS if it is not a zip file or has no library.
  static absl::StatusOr<PackageFile> Open(const std::string& path);

  // Returns the text of the StepDescription for which the package was compiled (package.py), or ""
  // if the package has none. Runs no code of the package.
  absl::StatusOr<std::string> MadeFor() const;

  // Loads the package's library. The temporary folder (TMPDIR, otherwise /tmp) holds it only during
  // the call. INTERNAL if loading fails.
  absl::StatusOr<std::unique_ptr<torch::inductor::AOTIModelContainerRunner>> Load() const;

 private:
  PackageFile(ZipArchive archive, std::string library)
      : archive_(std::move(archive)), library_(std::move(library)) {}

  ZipArchive archive_;
  std::string library_;  // Name of the library's record, without ".so".
};

}  // namespace genesis
