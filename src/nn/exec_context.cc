#include "nn/exec_context.h"

namespace quire::nn {

Result<Workspace> Workspace::Create(std::size_t bytes) {
  Workspace workspace;
  QUIRE_TRY(workspace.memory_, AlignedBuffer::Allocate(bytes));
  return workspace;
}

}  // namespace quire::nn
