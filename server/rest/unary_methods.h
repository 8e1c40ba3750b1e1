#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <string>

#include "server/api/training_api.h"

namespace genesis {

// A unary method by its name, for a transport whose messages are known at run time only.
class UnaryMethod {
 public:
  using Message = google::protobuf::Message;

  virtual ~UnaryMethod() = default;
  virtual std::unique_ptr<Message> NewRequest() const = 0;
  // `request` is one of NewRequest.
  virtual void Call(TrainingApi* api, const Caller& caller, const Message& request,
                    const Callback<std::shared_ptr<const Message>>& callback) const = 0;
};

// nullptr for a stream, and for a method that this daemon does not have.
const UnaryMethod* FindUnaryMethod(const std::string& name);

}  // namespace genesis
