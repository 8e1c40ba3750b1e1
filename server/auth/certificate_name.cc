#include "server/auth/certificate_name.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/text/text.h"

namespace genesis {
namespace {

constexpr size_t kLongest = 64;  // ub-common-name of RFC 5280.

absl::Status Unusable(const std::string& what) {
  return absl::UnauthenticatedError(absl::StrCat(
      "the client certificate ", what, "; accepted: one common name of 1 to ", kLongest,
      " characters without control characters in its subject: have another one issued"));
}

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(unsigned char* text) const { OPENSSL_free(text); }
};

}  // namespace

absl::StatusOr<std::string> NameOfCertificate(const X509& certificate) {
  const X509_NAME* subject = X509_get_subject_name(&certificate);
  const int first = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (first < 0) return Unusable("has no common name");
  if (X509_NAME_get_index_by_NID(subject, NID_commonName, first) >= 0) {
    return Unusable("has several common names");
  }
  unsigned char* bytes = nullptr;
  const int size =
      ASN1_STRING_to_UTF8(&bytes, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, first)));
  ERR_clear_error();
  if (size < 0) return Unusable("has a common name that is not text");
  const std::unique_ptr<unsigned char, Free> owned(bytes);
  std::string name(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  // OneLine leaves text without control characters unchanged.
  if (name.empty() || OneLine(name, 4 * kLongest) != name || name.size() > kLongest) {
    return Unusable(absl::StrCat("has the common name ", QuoteValue(name)));
  }
  return name;
}

absl::StatusOr<std::string> NameOfPemCertificate(const std::string& pem) {
  const std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const std::unique_ptr<X509, Free> certificate(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) return Unusable("cannot be read");
  return NameOfCertificate(*certificate);
}

}  // namespace genesis
