#pragma once

#include "server/auth/tls_files.h"
#include "server/http/http_server.h"

namespace genesis {

// Returns a function that returns the TLS context for a new connection, from the current material.
// If there is a client CA, it must have signed any certificate of a client. `store` must outlive
// the server. The function is called on the server's thread.
HttpTlsSource MakeHttpTls(const TlsStore* store);

}  // namespace genesis
