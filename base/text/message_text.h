#pragma once

#include "google/protobuf/message.h"

namespace genesis {

// Makes every string of `message` fit to be sent, stored and read again: BoundedText of at most
// kMaxMessageBytes each and 1 MiB together; of a list that goes beyond, the rest is left out.
// Protobuf writes strings that are no UTF-8, but does not read them.
void BoundTexts(google::protobuf::Message& message);

}  // namespace genesis
