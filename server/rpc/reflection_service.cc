#include "server/rpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/guard.h"
#include "server/rpc/grpc_credentials.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;

const MethodRow& ReflectionRow() {
  static const MethodRow row = {"ServerReflectionInfo", Role::kViewer, false};
  return row;
}

template <typename Response>
void Refuse(grpc::StatusCode code, const std::string& message, Response& response) {
  response.mutable_error_response()->set_error_code(code);
  response.mutable_error_response()->set_error_message(message);
}

// Adds `file` and all of its imports, each only once.
template <typename Response>
void AddFile(const FileDescriptor& file, std::set<std::string>& seen, Response& response) {
  if (!seen.insert(file.name()).second) return;
  FileDescriptorProto description;
  file.CopyTo(&description);
  response.mutable_file_descriptor_response()->add_file_descriptor_proto(
      description.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), seen, response);
}

template <typename Response>
void AnswerWithFile(const FileDescriptor* file, const std::string& wanted, Response& response) {
  std::set<std::string> seen;
  if (file == nullptr) {
    Refuse(grpc::StatusCode::NOT_FOUND, absl::StrCat("there is no ", wanted), response);
  } else {
    AddFile(*file, seen, response);
  }
}

template <typename Request, typename Response>
void AnswerWithExtension(const Request& request, Response& response) {
  const auto& wanted = request.file_containing_extension();
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* type = pool.FindMessageTypeByName(wanted.containing_type());
  const auto* field =
      type == nullptr ? nullptr : pool.FindExtensionByNumber(type, wanted.extension_number());
  AnswerWithFile(field == nullptr ? nullptr : field->file(), wanted.containing_type(), response);
}

template <typename Response>
void AnswerWithNumbers(const std::string& name, Response& response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* type = pool.FindMessageTypeByName(name);
  if (type == nullptr) {
    return Refuse(grpc::StatusCode::NOT_FOUND, absl::StrCat("there is no ", name), response);
  }
  std::vector<const google::protobuf::FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  response.mutable_all_extension_numbers_response()->set_base_type_name(name);
  for (const auto* each : extensions) {
    response.mutable_all_extension_numbers_response()->add_extension_number(each->number());
  }
}

template <typename Request, typename Response>
Response AnswerTo(const Request& request, const std::vector<std::string>& services) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      AnswerWithFile(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(),
                     response);
      break;
    case Request::kFileContainingSymbol:
      AnswerWithFile(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                     request.file_containing_symbol(), response);
      break;
    case Request::kFileContainingExtension:
      AnswerWithExtension(request, response);
      break;
    case Request::kAllExtensionNumbersOfType:
      AnswerWithNumbers(request.all_extension_numbers_of_type(), response);
      break;
    case Request::kListServices:
      for (const std::string& name : services) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case Request::MESSAGE_REQUEST_NOT_SET:
      Refuse(grpc::StatusCode::INVALID_ARGUMENT, "the request asks for nothing", response);
      break;
  }
  return response;
}

std::vector<std::string> WithOwn(std::vector<std::string> services) {
  services.emplace_back(grpc::reflection::v1::ServerReflection::service_full_name());
  services.emplace_back(grpc::reflection::v1alpha::ServerReflection::service_full_name());
  return services;
}

template <typename Request, typename Response>
class ReflectionReactor final : public grpc::ServerBidiReactor<Request, Response> {
 public:
  ReflectionReactor(ApiCall call, const std::vector<std::string>& services)
      : call_(std::move(call)), services_(services) {
    if (call_.admission().ok()) {
      this->StartRead(&request_);
    } else {
      End(call_.admission());
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus());
    const absl::Status answered = Guarded("ServerReflectionInfo", [this] {
      response_ = AnswerTo<Request, Response>(request_, services_);
    });
    if (!answered.ok()) return End(answered);
    this->StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("the reader is gone"));
    this->StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  // At most one read or write is in progress, and it completes here even if the call is cancelled
  // or the server stops.
  void End(const absl::Status& status) {
    call_.Done("", status);
    this->Finish(ToGrpcStatus(status));
  }

  const ApiCall call_;
  const std::vector<std::string>& services_;
  Request request_;
  Response response_;
};

}  // namespace

template <typename Service, typename Request, typename Response>
ReflectionService<Service, Request, Response>::ReflectionService(const ApiGate* gate,
                                                                 std::vector<std::string> services)
    : gate_(gate), services_(WithOwn(std::move(services))) {}

template <typename Service, typename Request, typename Response>
grpc::ServerBidiReactor<Request, Response>*
ReflectionService<Service, Request, Response>::ServerReflectionInfo(
    grpc::CallbackServerContext* context) {
  return new ReflectionReactor<Request, Response>(
      ApiCall(gate_, ReflectionRow(), "grpc", CredentialsOf(*context)), services_);
}

template class ReflectionService<grpc::reflection::v1::ServerReflection,
                                 grpc::reflection::v1::ServerReflectionRequest,
                                 grpc::reflection::v1::ServerReflectionResponse>;
template class ReflectionService<grpc::reflection::v1alpha::ServerReflection,
                                 grpc::reflection::v1alpha::ServerReflectionRequest,
                                 grpc::reflection::v1alpha::ServerReflectionResponse>;

}  // namespace genesis
