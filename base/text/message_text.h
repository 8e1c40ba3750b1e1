#pragma once

#include "google/protobuf/message.h"

namespace genesis {

// Bounds every string of `message` with BoundedText, because protobuf writes strings that are not
// UTF-8 but does not read them. Keeps at most kMaxMessageBytes of each string. Once the strings
// total 1 MiB, it keeps 64 bytes of each further string and drops further items of string lists.
void BoundTexts(google::protobuf::Message& message);

}  // namespace genesis
