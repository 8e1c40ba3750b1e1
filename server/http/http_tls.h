#pragma once

#include "server/auth/tls_files.h"
#include "server/http/http_server.h"

namespace genesis {

// TLS for connections to come, from the material in use at the time; with a client CA a certificate
// that a client brings has to be of it. `store` outlives the server. The calls come on the server's
// thread.
HttpTlsSource MakeHttpTls(const TlsStore* store);

}  // namespace genesis
