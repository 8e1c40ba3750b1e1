#include "cli/upload.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/files/sha256.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

namespace fs = std::filesystem;
using training::v1::Upload;
using training::v1::WriteUploadRequest;

constexpr size_t kPieceBytes = size_t{2} << 20;
constexpr absl::Duration kPause = absl::Milliseconds(200);
constexpr int kTriesWithoutProgress = 300;

bool MayPass(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::ABORTED ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

// Repeats a call until it succeeds, fails permanently or was tried kTriesWithoutProgress times.
template <typename Call>
grpc::Status Persist(Call call) {
  grpc::Status status;
  for (int tries = 0; tries < kTriesWithoutProgress; ++tries) {
    grpc::ClientContext context;
    SetDeadline(context, kCallTimeout);
    status = call(context);
    if (!MayPass(status)) return status;
    absl::SleepFor(kPause);
  }
  return status;
}

grpc::Status SendRest(std::ifstream& file, WriteUploadRequest& request, Upload& upload,
                      Session& session) {
  std::string piece(kPieceBytes, '\0');
  while (upload.path().empty()) {
    file.clear();
    file.seekg(upload.received_bytes());
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    request.set_offset(upload.received_bytes());
    request.set_piece(piece.data(), static_cast<size_t>(file.gcount()));
    if (file.gcount() == 0 && upload.received_bytes() < request.size_bytes()) {
      return {grpc::StatusCode::DATA_LOSS, "the file became shorter while it was sent"};
    }
    training::v1::WriteUploadResponse response;
    const grpc::Status status = Persist([&](grpc::ClientContext& context) {
      return session.service.WriteUpload(&context, request, &response);
    });
    if (!status.ok()) return status;
    upload = response.upload();
  }
  return grpc::Status::OK;
}

}  // namespace

grpc::Status UploadFile(const std::string& file, Session& session, std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  std::ifstream content(file, std::ios::binary);
  if (error || !content) {
    return {grpc::StatusCode::NOT_FOUND,
            absl::StrCat(Printable(file), ": ", error ? error.message() : std::strerror(errno))};
  }
  WriteUploadRequest request;
  request.set_sha256(Sha256HexOfFile(file));
  request.set_kind(
      absl::AsciiStrToLower(absl::StripPrefix(fs::path(file).extension().string(), ".")));
  request.set_size_bytes(static_cast<int64_t>(size));
  training::v1::StartUploadRequest start;
  start.set_sha256(request.sha256());
  start.set_kind(request.kind());
  start.set_size_bytes(request.size_bytes());
  training::v1::StartUploadResponse started;
  grpc::Status status = Persist([&](grpc::ClientContext& context) {
    return session.service.StartUpload(&context, start, &started);
  });
  if (!status.ok()) return status;
  status = SendRest(content, request, *started.mutable_upload(), session);
  path = started.upload().path();
  return status;
}

}  // namespace genesis::cli
