#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "cli/session.h"

namespace genesis::cli {

// Reads all pages of a list call (AIP-158) into `all`. `list` is the stub's method,
// (ClientContext*, const Request&, Response*) -> Status. Returns the first error.
template <typename Request, typename Response, typename List>
grpc::Status ReadAllPages(Request request, List list, Response* all) {
  request.set_page_size(100);  // Keeps responses well below gRPC's 4 MiB.
  do {
    grpc::ClientContext context;
    SetDeadline(context, kCallTimeout);
    Response page;
    const grpc::Status status = list(&context, request, &page);
    if (!status.ok()) return status;
    request.set_page_token(page.next_page_token());
    page.clear_next_page_token();
    all->MergeFrom(page);
  } while (!request.page_token().empty());
  return grpc::Status::OK;
}

}  // namespace genesis::cli
