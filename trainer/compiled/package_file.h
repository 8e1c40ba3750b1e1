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
  // DATA_LOSS if it is not a zip file or has no library.
  static absl::StatusOr<PackageFile> Open(const std::string& path);

  // Returns the text of the StepDescription for which it was compiled (package.py), or "" if it has
  // none. Runs no code of the package.
  absl::StatusOr<std::string> MadeFor() const;

  // Loads its library, which is in the temporary folder (TMPDIR, otherwise /tmp) only while
  // loading. INTERNAL if that fails.
  absl::StatusOr<std::unique_ptr<torch::inductor::AOTIModelContainerRunner>> Load() const;

 private:
  PackageFile(ZipArchive archive, std::string library)
      : archive_(std::move(archive)), library_(std::move(library)) {}

  ZipArchive archive_;
  std::string library_;  // The name of its record, without ".so".
};

}  // namespace genesis
