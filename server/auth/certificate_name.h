#pragma once

#include <openssl/x509.h>

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// The name that a client's certificate gives its bearer, for every transport alike: the one common
// name of its subject. UNAUTHENTICATED when there is none or there are several, and for one that
// has a NUL, another control character, or bytes that are no text: two readers would see two names
// in it. The certificate has been verified.
absl::StatusOr<std::string> NameOfCertificate(const X509& certificate);

// The name in the first certificate of `pem`.
absl::StatusOr<std::string> NameOfPemCertificate(const std::string& pem);

}  // namespace genesis
