#pragma once

#include <openssl/x509.h>

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// Returns the caller name in a verified client certificate, for every transport: the
// only common name of its subject. UNAUTHENTICATED if there is none or more than one, or
// if it is longer than 64 bytes or contains a NUL, another control character or invalid
// text, which two parsers could read as different names.
absl::StatusOr<std::string> NameOfCertificate(const X509& certificate);

// Same, for the first certificate in `pem`.
absl::StatusOr<std::string> NameOfPemCertificate(const std::string& pem);

}  // namespace genesis
