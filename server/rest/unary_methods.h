#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <string>

#include "server/api/training_api.h"

namespace genesis {

// A unary method, called by name by a transport that knows its messages only at run time.
class UnaryMethod {
 public:
  using Message = google::protobuf::Message;

  virtual ~UnaryMethod() = default;
  virtual std::unique_ptr<Message> NewRequest() const = 0;
  // `request` must come from NewRequest.
  virtual void Call(TrainingApi* api, const Caller& caller, const Message& request,
                    const Callback<std::shared_ptr<const Message>>& callback) const = 0;
};

// Returns nullptr for a streaming or unknown method.
const UnaryMethod* FindUnaryMethod(const std::string& name);

}  // namespace genesis
