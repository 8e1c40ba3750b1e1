#pragma once

#include "google/protobuf/message.h"

namespace genesis {

// Bounds every string of `message` so that it can be sent, stored and read back: BoundedText of at
// most kMaxMessageBytes each and 1 MiB in total. Drops the list items that exceed the total.
// Protobuf writes strings that are not UTF-8 but does not read them.
void BoundTexts(google::protobuf::Message& message);

}  // namespace genesis
