#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace quire::internal {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "quire: internal error at %s:%d: CHECK(%s) failed\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace quire::internal
