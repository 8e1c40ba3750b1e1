#include "server/auth/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/auth/secret_file.h"

namespace genesis {
namespace {

struct FreeTlsObject {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, FreeTlsObject>;
using Certificate = std::unique_ptr<X509, FreeTlsObject>;
using Key = std::unique_ptr<EVP_PKEY, FreeTlsObject>;

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// A daemon cannot prompt for a password.
int NoPassword(char*, int, int, void*) { return -1; }

Certificate FirstCertificate(const std::string& pem) {
  Certificate certificate(PEM_read_bio_X509(BioOf(pem).get(), nullptr, &NoPassword, nullptr));
  ERR_clear_error();
  return certificate;
}

Key PrivateKey(const std::string& pem) {
  Key key(PEM_read_bio_PrivateKey(BioOf(pem).get(), nullptr, &NoPassword, nullptr));
  ERR_clear_error();
  return key;
}

absl::Time NotAfter(const X509& certificate) {
  tm time = {};
  ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &time);
  return absl::FromTM(time, absl::UTCTimeZone());
}

absl::Status NoCertificate(const std::string& key, const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(
      key, ": ", path, ": holds no certificate in PEM; accepted: -----BEGIN CERTIFICATE-----"));
}

}  // namespace

absl::StatusOr<TlsMaterial> LoadTlsMaterial(const Settings& settings) {
  TlsMaterial material;
  absl::StatusOr<std::string> chain =
      ReadSettingFile("tls.certificate_file", settings.tls.certificate_file);
  if (!chain.ok()) return chain.status();
  const Certificate certificate = FirstCertificate(*chain);
  if (certificate == nullptr) {
    return NoCertificate("tls.certificate_file", settings.tls.certificate_file);
  }
  absl::StatusOr<std::string> key_text = ReadSecretFile("tls.key_file", settings.tls.key_file);
  if (!key_text.ok()) return key_text.status();
  const Key key = PrivateKey(*key_text);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("tls.key_file: ", settings.tls.key_file,
                     ": holds no private key in PEM; accepted: a key without a password"));
  }
  const bool belongs = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!belongs) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tls.key_file: ", settings.tls.key_file, ": not the key of the certificate in ",
        settings.tls.certificate_file, "; give the two that were made together"));
  }
  if (!settings.tls.client_ca_file.empty()) {
    absl::StatusOr<std::string> ca =
        ReadSettingFile("tls.client_ca_file", settings.tls.client_ca_file);
    if (!ca.ok()) return ca.status();
    if (FirstCertificate(*ca) == nullptr) {
      return NoCertificate("tls.client_ca_file", settings.tls.client_ca_file);
    }
    material.client_ca = *std::move(ca);
  }
  material.certificate_chain = *std::move(chain);
  material.private_key = *std::move(key_text);
  material.not_after = NotAfter(*certificate);
  return material;
}

TlsStore::TlsStore(TlsMaterial material)
    : current_{std::make_shared<const TlsMaterial>(std::move(material)), 1} {}

TlsStore::Current TlsStore::current() const {
  absl::MutexLock lock(&mutex_);
  return current_;
}

void TlsStore::Replace(TlsMaterial material) {
  auto replacement = std::make_shared<const TlsMaterial>(std::move(material));
  absl::MutexLock lock(&mutex_);
  current_.material.swap(replacement);
  ++current_.generation;
}

}  // namespace genesis
