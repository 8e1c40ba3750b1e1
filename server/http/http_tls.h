#pragma once

#include "server/auth/tls_files.h"
#include "server/http/http_server.h"

namespace genesis {

// Returns the source of TLS contexts for new connections, from the current material. With a client
// CA, a client's certificate must be signed by it. `store` outlives the server. The source is
// called on the server's thread.
HttpTlsSource MakeHttpTls(const TlsStore* store);

}  // namespace genesis
