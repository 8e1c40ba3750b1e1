#pragma once

#include <openssl/x509.h>

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// Returns the name that a verified client certificate gives its bearer, for every transport: the
// one common name of its subject. UNAUTHENTICATED if there is none, if there are several, or if it
// has a NUL, another control character, or bytes that are not text, which two parsers could read as
// different names.
absl::StatusOr<std::string> NameOfCertificate(const X509& certificate);

// Returns the name in the first certificate of `pem`.
absl::StatusOr<std::string> NameOfPemCertificate(const std::string& pem);

}  // namespace genesis
