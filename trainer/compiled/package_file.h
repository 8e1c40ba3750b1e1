#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/formats/zip_archive.h"

namespace torch::inductor {
class AOTIModelContainerRunner;
}

namespace genesis {

// A package as AOTInductor makes it: a zip file with a shared library, what it was made for, and
// its sources. LibTorch's own loader unpacks all of it below /tmp and leaves it there when the
// process is killed.
//
// Owner: whoever opened it. Threads: one. Failure: messages begin with the path.
class PackageFile {
 public:
  // DATA_LOSS where it is no zip file, or has no library.
  static absl::StatusOr<PackageFile> Open(const std::string& path);

  // The text of the StepDescription that it was made for (package.py), or "" without one. Runs no
  // code of the package.
  absl::StatusOr<std::string> MadeFor() const;

  // Its library, loaded; it stands in the temporary folder (TMPDIR, else /tmp) only meanwhile.
  // INTERNAL where that fails.
  absl::StatusOr<std::unique_ptr<torch::inductor::AOTIModelContainerRunner>> Load() const;

 private:
  PackageFile(ZipArchive archive, std::string library)
      : archive_(std::move(archive)), library_(std::move(library)) {}

  ZipArchive archive_;
  std::string library_;  // The name of its record, without ".so".
};

}  // namespace genesis
