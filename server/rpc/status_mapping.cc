#include "server/rpc/status_mapping.h"

#include <string>

#include "base/text/field_error.h"
#include "base/text/text.h"
#include "google/rpc/error_details.pb.h"
#include "server/api/rpc_status.h"

namespace genesis {
namespace {

// Clients accept 8 KiB of metadata in total, including the status, the content type and
// fields that a proxy adds.
constexpr size_t kMaxTrailerBytes = 7000;
constexpr size_t kMaxMessageInTrailer = 2400;

// Returns the size of `text` as sent in "grpc-message", where '%' and bytes that are not printable
// ASCII take three bytes.
size_t SizeAsHeader(const std::string& text) {
  size_t size = 0;
  for (const char c : text) size += c >= 0x20 && c < 0x7F && c != '%' ? 1 : 3;
  return size;
}

// Returns the size as sent in a "-bin" header, in base64.
size_t SizeAsHeader(const google::rpc::Status& rpc) { return (rpc.ByteSizeLong() + 2) / 3 * 4; }

bool Fits(const google::rpc::Status& rpc) {
  return SizeAsHeader(rpc.message()) + SizeAsHeader(rpc) <= kMaxTrailerBytes;
}

std::string CutMessage(const std::string& message) {
  std::string cut = message;
  for (size_t most = kMaxMessageInTrailer; SizeAsHeader(cut) > kMaxMessageInTrailer; most /= 2) {
    cut = BoundedText(message, most);
  }
  return cut;
}

// Removes errors from the end of the list until the status fits. A detail that is not a list of
// errors is removed as a whole.
void CutDetails(google::rpc::Status& rpc) {
  for (int i = rpc.details_size() - 1; i >= 0 && !Fits(rpc); --i) {
    google::protobuf::Any& detail = *rpc.mutable_details(i);
    google::rpc::BadRequest faults;
    if (detail.type_url() == kBadRequestType && faults.ParseFromString(detail.value())) {
      while (!Fits(rpc) && !faults.field_violations().empty()) {
        faults.mutable_field_violations()->RemoveLast();
        detail.set_value(faults.SerializeAsString());
      }
    }
    if (!Fits(rpc)) rpc.mutable_details()->RemoveLast();
  }
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  google::rpc::Status rpc = ToRpcStatus(status);
  if (!Fits(rpc)) {
    rpc.set_message(CutMessage(rpc.message()));
    CutDetails(rpc);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(rpc.code()), rpc.message(),
                      rpc.details().empty() ? "" : rpc.SerializeAsString());
}

}  // namespace genesis
