#include "trainer/kernels/parallel_loop.h"

#include <ATen/ATen.h>
#include <ATen/TensorIterator.h>

namespace genesis {

void ParallelLoop(int64_t count, int64_t least, c10::function_ref<void(int64_t, int64_t)> loop) {
  if (count <= least) {
    if (count > 0) loop(0, count);
    return;
  }
  // The iterator passes addresses in an array of bytes that is never read or written, so that each
  // address stands for an index.
  char byte = 0;
  const at::Tensor indices = at::from_blob(&byte, {count}, at::kByte);
  at::TensorIterator iterator =
      at::TensorIteratorConfig().check_all_same_dtype(false).add_const_input(indices).build();
  iterator.for_each(
      [&](char** data, const int64_t* /*strides*/, int64_t size, int64_t /*rows: one*/) {
        const int64_t begin = data[0] - &byte;
        loop(begin, begin + size);
      },
      least);
}

}  // namespace genesis
