// The `checkpoint-download`, `checkpoint-import`, `upload` commands: files to and from the daemon.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files/crc32c.h"
#include "cli/commands/commands.h"
#include "cli/text.h"
#include "cli/upload.h"

namespace genesis::cli {
namespace {

namespace fs = std::filesystem;
using training::v1::Checkpoint;

// Timeout for a dead connection. A large file over a slow one takes hours.
constexpr absl::Duration kTransferTimeout = absl::Hours(24);
constexpr size_t kPieceBytes = size_t{1} << 20;

std::string FileFault(const std::string& path) {
  return absl::StrCat(Printable(path), ": ", std::strerror(errno));
}

// The size and CRC-32C of a file.
struct Content {
  int64_t size = 0;
  uint32_t crc32c = 0;
};
std::optional<Content> ReadContent(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  Content content;
  std::string piece(kPieceBytes, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    const auto count = static_cast<size_t>(file.gcount());
    content.crc32c = Crc32c(content.crc32c, piece.data(), count);
    content.size += static_cast<int64_t>(count);
  }
  if (file.bad()) return std::nullopt;
  return content;
}

// Downloads to `part`, starting at its end. The record comes with the first message. An error of
// the file sets `fault` immediately and ends the call.
grpc::Status Receive(const std::string& id, const std::string& part, Session& session,
                     Checkpoint& record, std::string& fault) {
  std::error_code error;
  const uintmax_t present = fs::exists(part, error) ? fs::file_size(part, error) : 0;
  training::v1::DownloadCheckpointRequest request;
  request.set_checkpoint_id(id);
  request.set_offset(static_cast<int64_t>(present));
  grpc::ClientContext context;
  SetDeadline(context, kTransferTimeout);
  const auto reader = session.service.DownloadCheckpoint(&context, request);
  std::ofstream file(part, std::ios::binary | std::ios::app);
  if (!file) fault = FileFault(part);
  training::v1::DownloadCheckpointResponse message;
  while (fault.empty() && reader->Read(&message)) {
    if (message.has_checkpoint()) record = message.checkpoint();
    const std::string& piece = message.content();
    if (Crc32c(0, piece.data(), piece.size()) != message.content_crc32c()) {
      fault = "a piece was damaged on its way; repeat the command, it goes on where it stopped";
    } else if (!file.write(piece.data(), static_cast<std::streamsize>(piece.size())).flush()) {
      fault = FileFault(part);
    }
  }
  if (!fault.empty()) context.TryCancel();
  return reader->Finish();
}

// Returns "" if the received file is the checkpoint. Otherwise removes it and returns the error.
std::string CompareWithRecord(const std::string& part, const Checkpoint& record) {
  const std::optional<Content> content = ReadContent(part);
  if (!content) return FileFault(part);
  if (content->size == record.size_bytes() &&
      (record.crc32c() == 0 || content->crc32c == record.crc32c())) {
    return "";
  }
  std::error_code ignored;
  fs::remove(part, ignored);
  return absl::StrFormat(
      "%s has %d bytes with CRC-32C %08x, the checkpoint %d with %08x; it was removed: repeat the "
      "command",
      Printable(part), content->size, content->crc32c, record.size_bytes(), record.crc32c());
}

}  // namespace

ExitCode RunCheckpointDownload(const Arguments& arguments, Session& session) {
  const std::string& id = arguments.operands.front();
  const std::string path = arguments.Has("file") ? arguments.Value("file") : id + ".pt";
  const std::string part = path + ".part";
  std::error_code error;
  if (fs::exists(path, error)) {
    return ReportFault(
        absl::StrCat(Printable(path), ": exists; remove it, or name another with -f"), session);
  }
  Checkpoint record;
  std::string fault;
  const grpc::Status status = Receive(id, part, session, record, fault);
  if (!fault.empty()) return ReportFault(fault, session);
  if (!status.ok()) {
    if (status.error_code() == grpc::StatusCode::OUT_OF_RANGE) {
      fs::remove(part, error);
      return ReportFault(absl::StrCat(Printable(part), " was longer than the checkpoint ",
                                      Printable(id), "; it was removed: repeat the command"),
                         session);
    }
    // If nothing was received, leave no empty file.
    if (fs::file_size(part, error) == 0) fs::remove(part, error);
    return ReportError(status, session);
  }
  fault = CompareWithRecord(part, record);
  if (!fault.empty()) return ReportFault(fault, session);
  if (std::rename(part.c_str(), path.c_str()) != 0) return ReportFault(FileFault(path), session);
  if (!PrintMessage(record, session)) {
    session.out << "checkpoint " << Printable(id) << " (" << FormatBytes(record.size_bytes())
                << ", " << (record.crc32c() == 0 ? "no checksum on record" : "checksum right")
                << "): " << Printable(path) << "\n";
  }
  return ExitCode::kOk;
}

ExitCode RunCheckpointImport(const Arguments& arguments, Session& session) {
  const std::string& path = arguments.operands.front();
  if (!arguments.Has("id")) {
    return ReportUsage("checkpoint-import: needs an id for the checkpoint; write --id ID", session);
  }
  const std::optional<Content> content = ReadContent(path);
  if (!content) return ReportFault(FileFault(path), session);
  grpc::ClientContext context;
  SetDeadline(context, kTransferTimeout);
  training::v1::ImportCheckpointResponse response;
  const auto writer = session.service.ImportCheckpoint(&context, &response);
  training::v1::ImportCheckpointRequest message;
  message.set_checkpoint_id(arguments.Value("id"));
  message.set_size_bytes(content->size);
  message.set_crc32c(content->crc32c);
  std::ifstream file(path, std::ios::binary);
  std::string piece(kPieceBytes, '\0');
  // The first message has size and checksum, so it is sent even for an empty file.
  for (bool first = true; file; first = false) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    if (file.gcount() == 0 && !first) break;
    message.set_content(piece.data(), static_cast<size_t>(file.gcount()));
    if (!writer->Write(message)) break;
    message.Clear();
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response.checkpoint(), session)) {
    session.out << "checkpoint " << Printable(response.checkpoint().id()) << " ("
                << FormatBytes(response.checkpoint().size_bytes())
                << "): " << Printable(response.checkpoint().path()) << "\n";
  }
  return ExitCode::kOk;
}

ExitCode RunUpload(const Arguments& arguments, Session& session) {
  std::string path;
  const grpc::Status status = UploadFile(arguments.operands.front(), session, path);
  if (!status.ok()) return ReportError(status, session);
  session.out << path << "\n";
  return ExitCode::kOk;
}

}  // namespace genesis::cli
